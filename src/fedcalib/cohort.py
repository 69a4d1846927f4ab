"""Participation: which clients take part in a step, and how many of them must answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from hashlib import sha256
from math import ceil, sqrt
from typing import final

import numpy as np

from fedcalib.errors import InputError, TooFewClients
from fedcalib.types import Bools

MIN_CLIENTS = 3  # a sum over fewer is hardly a sum
MIN_RECORDS = 11  # the small-count rule that health statistics use


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

    @abstractmethod
    def members(self, clients: int, step: int, run: str) -> Bools | None:
        """A mask of the clients that take part in a step; None for all of them.

        `run` is the run's secret name, which seeds the choice.
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

    def members(self, clients: int, step: int, run: str) -> Bools | None:
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
        if not 0 < self.rate <= 1:
            raise InputError(f"Expected a sampling rate above 0 and at most 1, found {self.rate}.")

    def cohort(self, clients: int) -> Cohort:
        """The mean number of clients, and a floor four standard deviations below it."""
        mean = self.rate * clients
        return Cohort(mean, self.rate, _floor(max(mean - 4 * sqrt(mean * (1 - self.rate)), 0), self.dropout))

    def members(self, clients: int, step: int, run: str) -> Bools | None:
        return _draws(run, step).random(clients) < self.rate

    def appearances(self, steps: int) -> int:
        """Every step: in the worst case a client is sampled each time."""
        return steps


@final
@dataclass(frozen=True)
class Disjoint(Participation):
    """Clients are dealt at random into `rounds` cohorts of equal size, one per step, so each client takes part once.

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
        if self.rounds < 1:
            raise InputError(f"Expected at least one round, found {self.rounds}.")

    def cohort(self, clients: int) -> Cohort:
        return Cohort(clients / self.rounds, 1.0, _floor(clients // self.rounds, self.dropout))

    def members(self, clients: int, step: int, run: str) -> Bools | None:
        if step >= self.rounds:
            raise InputError(
                f"Expected at most {self.rounds} queries, one per cohort, found a method that sends more; "
                "choose as many rounds as the method sends queries."
            )
        dealt = _draws(run).permutation(clients) % self.rounds
        return np.asarray(dealt == step)

    def appearances(self, steps: int) -> int:
        return 1


def _floor(clients: float, dropout: float) -> int:
    return max(ceil(clients * (1 - dropout) - 1e-9), 1)


def _check_dropout(dropout: float) -> None:
    if not 0 <= dropout < 1:
        raise InputError(f"Expected a drop-out fraction from 0 to below 1, found {dropout}.")


def _draws(run: str, *key: int) -> np.random.Generator:
    """A generator seeded by the run's name, so that a resumed run samples the same clients."""
    digest = sha256(repr((run, "participation", *key)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))
