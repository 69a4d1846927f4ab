"""Open: the server sees each client's term, exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.accounting.events import Event
from fedcalib.accounting.spending import Spending
from fedcalib.cohort import Cohort, Participation
from fedcalib.federation import Federation
from fedcalib.method import Plan
from fedcalib.privacy import Mechanism, Privacy
from fedcalib.query import Query
from fedcalib.randomness import Randomness
from fedcalib.records import Records
from fedcalib.types import Array, Floats


@final
@dataclass(frozen=True)
class Exact(Mechanism):
    """Each client sends its term as it is."""

    unit = None
    adjacency = "none"
    renewed = False

    @property
    def modulus(self) -> int | None:
        return None

    def encode(self, query: Query, records: Records, randomness: Randomness) -> Array:
        return self.gather(query, Federation.of([records]), randomness)

    def width(self, query: Query) -> int:
        return query.sufficient.size

    def gather(self, query: Query, federation: Federation, randomness: Randomness) -> Array:
        return query.sufficient.total(federation, randomness).astype(np.float64)

    def decode(self, query: Query, total: Array, clients: int, randomness: Randomness) -> tuple[Floats, Floats]:
        return query.expand(total), np.zeros(query.size)

    def event(self, query: Query, cohort: Cohort) -> Event | None:
        return None


@final
@dataclass(frozen=True)
class Open(Privacy):
    """No protection: the server sees each client's sums.

    For data that may be shared, and for comparison. Raw records still stay at the clients.

    Examples
    --------
    >>> import fedcalib as fc
    >>> federation = fc.Federation.simulated(classes=2, clients=10)
    >>> result = fc.run(fc.FedBin(), fc.InProcess(federation), fc.Open())
    >>> result.privacy.epsilon is None
    True
    """

    @property
    def budget(self) -> None:
        return None

    @property
    def private(self) -> bool:
        return False

    def mechanism(self, query: Query, plan: Plan, cohort: Cohort, participation: Participation) -> Mechanism:
        return Exact()

    def spending(self, plan: Plan, cohort: Cohort, participation: Participation) -> Spending:
        statement = "No privacy protection: the server sees each client's sums. Raw records still stay at the clients."
        return Spending("Open", "none", None, None, "none", False, statement)
