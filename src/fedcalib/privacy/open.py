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
    """Send the term as it is."""

    unit = None
    adjacency = "none"
    renewed = False

    @property
    def modulus(self) -> int | None:
        """Let the server see each share."""
        return None

    def encode(self, query: Query, records: Records, randomness: Randomness) -> Array:
        """Sum this client's terms."""
        return self.gather(query, Federation.of([records]), randomness)

    def width(self, query: Query) -> int:
        """Count the cells of a share: the sufficient ones."""
        return query.sufficient.size

    def gather(self, query: Query, federation: Federation, randomness: Randomness) -> Array:
        """Sum all terms at once."""
        return query.sufficient.total(federation, randomness).astype(np.float64)

    def decode(self, query: Query, total: Array, clients: int, randomness: Randomness) -> tuple[Floats, Floats]:
        """Take the total as it is."""
        return query.expand(total), np.zeros(query.size)

    def event(self, query: Query, cohort: Cohort) -> Event | None:
        """Claim nothing."""
        return None


@final
@dataclass(frozen=True)
class Open(Privacy):
    """No protection: the server sees what each client adds. For data that may be shared, and for comparison."""

    @property
    def budget(self) -> None:
        """Say that nothing is spent."""
        return None

    @property
    def private(self) -> bool:
        """Hide no counts."""
        return False

    def mechanism(self, query: Query, plan: Plan, cohort: Cohort, participation: Participation) -> Mechanism:
        """Send everything as it is."""
        return Exact()

    def spending(self, plan: Plan, cohort: Cohort, participation: Participation) -> Spending:
        """Promise nothing."""
        statement = "No privacy protection: the server sees each client's sums. Raw records still stay at the clients."
        return Spending("Open", "none", None, None, "none", False, statement)
