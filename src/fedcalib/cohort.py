"""Participation: which clients take part in a step, and how many of them must answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from hashlib import shake_256
from math import ceil, sqrt
from typing import Final, final

import numpy as np

from fedcalib.errors import InputError, TooFewClients
from fedcalib.types import Bools, Words

MIN_CLIENTS = 3  # a sum over fewer is hardly a sum
MIN_RECORDS = 11  # the small-count rule that health statistics use
MAX_CLIENTS: Final = 1 << 30  # a cohort beyond it is a mistake, or an attempt to fill the memory
SECRET_BYTES: Final = 32  # of the secret that samples are drawn from


@final
@dataclass(frozen=True)
class Cohort:
    """How many clients a step expects, at which sampling rate, and the fewest whose sum may be read.

    Parameters
    ----------
    expected
        Expected number of clients in a step.
    rate
        Probability with which each client is sampled.
    floor
        The fewest clients whose sum may be read; noise is planned for this number.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.Everyone(dropout=0.1).cohort(clients=100)
    Cohort(expected=100, rate=1.0, floor=90)
    """

    expected: float
    rate: float = 1.0
    floor: int = MIN_CLIENTS

    def __post_init__(self) -> None:
        if not 0 <= self.expected <= MAX_CLIENTS:
            raise InputError(f"Expected a cohort of 0 to 2^30 clients, found {self.expected}; check the participation.")
        _check_rate(self.rate)
        if not 1 <= self.floor <= MAX_CLIENTS:
            raise InputError(
                f"Expected a floor of 1 to 2^30 clients, found {self.floor}; it is the fewest whose sum may be read."
            )

    def require(self, clients: int) -> None:
        """Raise `TooFewClients` for a sum over fewer clients than promised."""
        if clients < self.floor:
            raise TooFewClients(
                f"Expected at least {self.floor} clients in a step, found {clients}; nothing was read. "
                "Wait for more clients, or allow for more drop-outs when the run starts (at the price of more noise)."
            )


class Participation(ABC):
    """Which clients take part in the steps of a run."""

    @abstractmethod
    def cohort(self, clients: int) -> Cohort:
        """The cohort of a step, out of so many clients."""

    @property
    @abstractmethod
    def sampled(self) -> bool:
        """Whether chance decides who takes part, so that a run needs a secret to draw from."""

    @abstractmethod
    def members(self, clients: int, step: int, secret: bytes) -> Bools | None:
        """A mask of the clients that take part in a step; None for all of them.

        `secret` decides the choice. Only the server may know it: it is not the run's name, and it is never sent.
        """

    @abstractmethod
    def appearances(self, steps: int) -> int:
        """The most steps, out of so many, that one client can take part in."""


@final
@dataclass(frozen=True)
class Everyone(Participation):
    """Every client takes part in every step.

    Parameters
    ----------
    dropout
        Fraction of the clients that may fail to answer; noise is planned for those that remain.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.Everyone().appearances(steps=5)
    5
    """

    dropout: float = 0.0

    def __post_init__(self) -> None:
        _check_dropout(self.dropout)

    def cohort(self, clients: int) -> Cohort:
        return Cohort(clients, 1.0, _floor(clients, self.dropout))

    @property
    def sampled(self) -> bool:
        return False

    def members(self, clients: int, step: int, secret: bytes) -> Bools | None:
        return None

    def appearances(self, steps: int) -> int:
        return steps


@final
@dataclass(frozen=True)
class Poisson(Participation):
    """Each client takes part in each step with probability `rate`, independently of everything else.

    Parameters
    ----------
    rate
        The sampling rate, above 0 and at most 1.
    dropout
        Fraction of the sampled clients that may fail to answer.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.Poisson(rate=0.1).cohort(clients=1000)
    Cohort(expected=100.0, rate=0.1, floor=63)
    """

    rate: float
    dropout: float = 0.0

    def __post_init__(self) -> None:
        _check_dropout(self.dropout)
        _check_rate(self.rate)

    @property
    def sampled(self) -> bool:
        return True

    def cohort(self, clients: int) -> Cohort:
        """The mean number of clients, and a floor four standard deviations below it."""
        mean = self.rate * clients
        return Cohort(mean, self.rate, _floor(max(mean - 4 * sqrt(mean * (1 - self.rate)), 0), self.dropout))

    def members(self, clients: int, step: int, secret: bytes) -> Bools | None:
        """Compare one random word per client with the rate, rounded down: nobody is sampled more often than stated."""
        last = int(Fraction(self.rate) * (1 << 64)) - 1
        return np.asarray(_words(secret, clients, step) <= np.uint64(last))

    def appearances(self, steps: int) -> int:
        """Every step: in the worst case a client is sampled each time."""
        return steps


@final
@dataclass(frozen=True)
class Disjoint(Participation):
    """Clients are dealt at random into `rounds` cohorts of equal size, one per step, so each client takes part once.

    The cohorts depend on the secret and on the number of clients, which is public, and on nothing that clients hold.
    So they stay the same when a client is replaced by an empty one, which is what client-level privacy compares; they
    would not if a client were removed.

    Parameters
    ----------
    rounds
        Number of cohorts; as many as the method sends queries.
    dropout
        Fraction of a cohort that may fail to answer.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.Disjoint(rounds=4).appearances(steps=4)
    1
    """

    rounds: int
    dropout: float = 0.0

    def __post_init__(self) -> None:
        _check_dropout(self.dropout)
        if not 1 <= self.rounds <= MAX_CLIENTS:
            raise InputError(
                f"Expected 1 to 2^30 rounds, found {self.rounds}; choose as many as the method sends queries."
            )

    @property
    def sampled(self) -> bool:
        return True

    def cohort(self, clients: int) -> Cohort:
        return Cohort(clients / self.rounds, 1.0, _floor(clients // self.rounds, self.dropout))

    def members(self, clients: int, step: int, secret: bytes) -> Bools | None:
        if step >= self.rounds:
            raise InputError(
                f"Expected at most {self.rounds} queries, one per cohort, found a method that sends more; "
                "choose as many rounds as the method sends queries."
            )
        dealt = np.empty(clients, dtype=np.int64)
        dealt[np.argsort(_words(secret, clients), kind="stable")] = np.arange(clients) % self.rounds
        return np.asarray(dealt == step)

    def appearances(self, steps: int) -> int:
        return 1


def _floor(clients: float, dropout: float) -> int:
    return max(ceil(clients * (1 - dropout) - 1e-9), 1)


def _check_dropout(dropout: float) -> None:
    if not 0 <= dropout < 1:
        raise InputError(
            f"Expected a drop-out fraction from 0 to below 1, found {dropout}; 0.1 allows for one client in ten."
        )


def _check_rate(rate: float) -> None:
    if not 1 / MAX_CLIENTS <= rate <= 1:
        raise InputError(
            f"Expected a sampling rate above 0 (from 2^-30) to 1, found {rate}; 0.1 samples one client in ten."
        )


def _words(secret: bytes, count: int, *key: int) -> Words:
    """One uniform word per client, the same for the same secret and key.

    A hash makes them, not a fast generator: clients that know when they were sampled must not be able to work out
    when others were.
    """
    if len(secret) < SECRET_BYTES:
        raise InputError(f"Expected a secret of at least {SECRET_BYTES} bytes to sample clients, found {len(secret)}.")
    material = repr(("fedcalib participation", secret, *key)).encode()
    return np.frombuffer(shake_256(material).digest(8 * count), dtype="<u8").astype(np.uint64)
