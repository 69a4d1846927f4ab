"""Who takes part in a step, and how many must stay."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from hashlib import sha256
from math import ceil, sqrt
from typing import final

import numpy as np

from fedcalib.errors import InputError, TooFewClients
from fedcalib.types import Bools

FEWEST_CLIENTS = 3  # a sum over fewer is hardly a sum
FEWEST_RECORDS = 11  # the small-count rule that health statistics use


@final
@dataclass(frozen=True)
class Cohort:
    """How many clients a step expects, at which sampling rate, and the fewest whose sum may be read."""

    expected: float
    rate: float = 1.0
    floor: int = FEWEST_CLIENTS

    def require(self, clients: int) -> None:
        """Refuse a sum over fewer clients than promised."""
        if clients < self.floor:
            raise TooFewClients(
                f"Expected at least {self.floor} clients in a step, found {clients}; nothing was read. "
                "Wait for more clients, or allow for more drop-outs when the run starts (at the price of more noise)."
            )


class Participation(ABC):
    """How clients are drawn for the steps of a run."""

    @abstractmethod
    def cohort(self, clients: int) -> Cohort:
        """Say how many clients a step expects, out of so many."""

    @abstractmethod
    def members(self, clients: int, step: int, run: str) -> Bools | None:
        """Draw who takes part in a step, as a mask; None means everybody. `run` is the run's secret name."""

    @abstractmethod
    def appearances(self, steps: int) -> int:
        """Say in how many of so many steps one client can appear."""


@final
@dataclass(frozen=True)
class Everyone(Participation):
    """Every client takes part in every step; a share `dropout` of them may fail to."""

    dropout: float = 0.0

    def __post_init__(self) -> None:
        _check_dropout(self.dropout)

    def cohort(self, clients: int) -> Cohort:
        """Expect all."""
        return Cohort(clients, 1.0, _floor(clients, self.dropout))

    def members(self, clients: int, step: int, run: str) -> Bools | None:
        """Draw nobody out."""
        return None

    def appearances(self, steps: int) -> int:
        """Count every step."""
        return steps


@final
@dataclass(frozen=True)
class Poisson(Participation):
    """Each client joins each step with probability `rate`, independently of everything else."""

    rate: float
    dropout: float = 0.0

    def __post_init__(self) -> None:
        _check_dropout(self.dropout)
        if not 0 < self.rate <= 1:
            raise InputError(f"Expected a sampling rate above 0 and at most 1, found {self.rate}.")

    def cohort(self, clients: int) -> Cohort:
        """Expect the mean, and promise no more than four standard deviations below it."""
        mean = self.rate * clients
        return Cohort(mean, self.rate, _floor(max(mean - 4 * sqrt(mean * (1 - self.rate)), 0), self.dropout))

    def members(self, clients: int, step: int, run: str) -> Bools | None:
        """Toss one coin a client."""
        return _draws(run, step).random(clients) < self.rate

    def appearances(self, steps: int) -> int:
        """Count every step: in the worst case a client is drawn each time."""
        return steps


@final
@dataclass(frozen=True)
class Disjoint(Participation):
    """Clients are dealt at random into `rounds` cohorts of equal size, and each step asks one: a client counts once."""

    rounds: int
    dropout: float = 0.0

    def __post_init__(self) -> None:
        _check_dropout(self.dropout)
        if self.rounds < 1:
            raise InputError(f"Expected at least one round, found {self.rounds}.")

    def cohort(self, clients: int) -> Cohort:
        """Expect an equal part."""
        return Cohort(clients / self.rounds, 1.0, _floor(clients // self.rounds, self.dropout))

    def members(self, clients: int, step: int, run: str) -> Bools | None:
        """Look up who was dealt into this step's cohort."""
        if step >= self.rounds:
            raise InputError(
                f"Expected at most {self.rounds} queries, one a cohort, found a method that asks more; "
                "give as many rounds as the method asks queries."
            )
        dealt = _draws(run).permutation(clients) % self.rounds
        return np.asarray(dealt == step)

    def appearances(self, steps: int) -> int:
        """Count one: each client sits in one cohort."""
        return 1


def _floor(clients: float, dropout: float) -> int:
    return max(ceil(clients * (1 - dropout) - 1e-9), 1)


def _check_dropout(dropout: float) -> None:
    if not 0 <= dropout < 1:
        raise InputError(f"Expected a drop-out share from 0 to below 1, found {dropout}.")


def _draws(run: str, *key: int) -> np.random.Generator:
    """Seed the choice of clients by the run's name, so that a resumed run draws the same ones."""
    digest = sha256(repr((run, "participation", *key)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))
