"""Privacy models: how a term leaves a client, and how the total is read.

A `Privacy` is a model with its whole budget; for each query it makes a `Mechanism`, which encodes terms on the clients
and decodes their total on the server. One file per model, named by who is trusted; `ring` holds the fixed-point
arithmetic and the clipping that several of them share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final, Self, TypeVar

import numpy as np

from fedcalib.accounting.events import Event
from fedcalib.accounting.spending import EMPTY_CLIENT, Adjacency, Spending
from fedcalib.cohort import Cohort, Participation
from fedcalib.display import check_options
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.method import Budget, Method, Plan
from fedcalib.query import Query, Unit
from fedcalib.randomness import Randomness
from fedcalib.records import Records
from fedcalib.types import Array, Floats

T = TypeVar("T")

MIN_EPSILON: Final = 1e-9
MAX_EPSILON: Final = 1e6  # far beyond any protection
MIN_DELTA: Final = 1e-100
MAX_DELTA: Final = 0.1  # a release that reveals one unit in ten meets it


class Mechanism(ABC):
    """How one query's terms are encoded on a client and its total decoded on the server.

    A mechanism travels with its query. It never sees a sum that was not encoded, so clipping can only happen on the
    client. A subclass states `unit`, `adjacency` and `renewed` as plain class attributes; sites book spending by them.
    """

    @property
    @abstractmethod
    def unit(self) -> Unit | None:
        """Privacy unit that `event` counts for; None where it is the unit of the query's own bounds."""

    @property
    @abstractmethod
    def adjacency(self) -> Adjacency:
        """Which data sets are neighbours; "none" where nothing is claimed.

        "add/remove" holds for records; where the unit is a client, `adjacency_of` has the right name for it.
        """

    @property
    @abstractmethod
    def renewed(self) -> bool:
        """Whether every attempt at a masked sum brings new noise and is paid for; otherwise it is released once."""

    @property
    @abstractmethod
    def modulus(self) -> int | None:
        """The modulus in which shares are summed; None where the server may see single shares."""

    @abstractmethod
    def encode(self, query: Query, records: Records, randomness: Randomness) -> Array:
        """One client's share of the total, as it leaves the client."""

    def width(self, query: Query) -> int:
        """The number of cells of a share."""
        return query.size

    def gather(self, query: Query, federation: Federation, randomness: Randomness) -> Array:
        """The sum of all clients' shares; override where the distribution of the sum is known."""
        total: Array | None = None
        for client, records in enumerate(federation.clients()):
            share = self.encode(query, records, randomness.derive("client", client))
            total = share.copy() if total is None else np.add(total, share, out=total)
        return np.zeros(self.width(query), dtype=np.int64) if total is None else total

    @abstractmethod
    def decode(self, query: Query, total: Array, clients: int, randomness: Randomness) -> tuple[Floats, Floats]:
        """Decode the total of `clients` shares: the estimate and the variance of its noise, both (size,)."""

    @abstractmethod
    def event(self, query: Query, cohort: Cohort) -> Event | None:
        """The privacy loss of reading the total, in the worst case that the cohort allows; None where none is claimed.

        It follows from the query's bound and the noise alone, so a site can check it without trusting anybody.
        """


class Privacy(ABC):
    """A privacy model with its whole budget.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.DistributedDP(epsilon=1.0).budget.epsilon
    1.0
    >>> fc.SecAgg().private
    False
    """

    def __new__(cls, *values: Any, **options: Any) -> Self:
        check_options(cls, options)
        return super().__new__(cls)

    @abstractmethod
    def mechanism(self, query: Query, plan: Plan, cohort: Cohort, participation: Participation) -> Mechanism:
        """The mechanism that serves a planned query; raises `RefusedError` with a reason where there is none."""

    @abstractmethod
    def spending(self, plan: Plan, cohort: Cohort, participation: Participation) -> Spending:
        """What the whole plan spends."""

    @property
    @abstractmethod
    def budget(self) -> Budget | None:
        """What a run may spend, and on which unit where its queries leave that open; None where nothing is spent."""

    @property
    @abstractmethod
    def private(self) -> bool:
        """Whether exact counts of records or clients would reveal something that this privacy model protects."""

    def adapt(self, method: Method[T]) -> Method[T]:
        """The method, adapted to this model's budget before anything is planned."""
        return method if self.budget is None else method.with_budget(self.budget)


def check_epsilon(epsilon: float) -> None:
    """Refuse an epsilon that is not a privacy loss, or for which noise cannot be drawn."""
    if not MIN_EPSILON <= epsilon <= MAX_EPSILON:
        raise InputError(
            f"Expected epsilon above 0 (from {MIN_EPSILON:g} to {MAX_EPSILON:g}), found {epsilon}; 0.1 to 10 is usual."
        )


def check_delta(delta: float) -> None:
    """Refuse a delta that is no small probability."""
    if not MIN_DELTA <= delta <= MAX_DELTA:
        raise InputError(
            f"Expected delta above 0 (from {MIN_DELTA:g} to {MAX_DELTA:g}), found {delta}; 1e-5, or less than one over "
            "the number of units, is usual."
        )


def protected(unit: Unit) -> str:
    """A privacy unit in words."""
    return {"record": "each record", "client": "each client with all its records"}[unit]


def protected_by_noise(unit: Unit) -> str:
    """A privacy unit and its adjacency in words, for models that add noise to a sum."""
    compared = {"record": "add/remove", "client": f"{EMPTY_CLIENT}; the number of clients is public"}
    return f"{protected(unit)} ({compared[unit]})"
