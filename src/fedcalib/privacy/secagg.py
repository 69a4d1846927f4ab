"""Secure aggregation: the server sees the exact sum over clients and no single term."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.accounting.events import Event
from fedcalib.accounting.spending import Spending
from fedcalib.cohort import Cohort, Participation
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.method import Plan
from fedcalib.privacy import Mechanism, Privacy
from fedcalib.privacy.ring import RingMechanism, grid_total, unwrap, wrap
from fedcalib.query import Query
from fedcalib.randomness import Randomness
from fedcalib.types import Array, Floats


@final
@dataclass(frozen=True)
class FixedPoint(RingMechanism):
    """Sum on an integer grid in the ring: `scales` says how many grid steps make one, block by block."""

    unit = None
    adjacency = "none"
    renewed = False

    scales: Mapping[str, float]

    def width(self, query: Query) -> int:
        """Count the cells of a share: the sufficient ones."""
        return query.sufficient.size

    def gather(self, query: Query, federation: Federation, randomness: Randomness) -> Array:
        """Put all clients' sums into the ring."""
        return wrap(grid_total(query.sufficient, federation, randomness, self.scales))

    def decode(self, query: Query, total: Array, clients: int, randomness: Randomness) -> tuple[Floats, Floats]:
        """Take the ring sum out of fixed point."""
        return query.expand(unwrap(total, query.sufficient, self.scales)), np.zeros(query.size)

    def event(self, query: Query, cohort: Cohort) -> Event | None:
        """Claim nothing: an exact sum has no epsilon."""
        return None


@final
@dataclass(frozen=True)
class SecAgg(Privacy):
    """Secure aggregation: nobody sees a single client's term, the server reads the exact sum.

    Counts are summed as they are. Real terms are cut toward zero to multiples of 2^-bits (of 2^-24 unless told
    otherwise), record by record, so a sum over n records is off by less than n * 2^-bits.
    """

    bits: int = 24

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 40:
            raise InputError(f"Expected 1 to 40 bits after the point, found {self.bits}.")

    @property
    def budget(self) -> None:
        """Say that nothing is spent."""
        return None

    @property
    def private(self) -> bool:
        """Hide no counts: the sums themselves are exact."""
        return False

    def mechanism(self, query: Query, plan: Plan, cohort: Cohort, participation: Participation) -> Mechanism:
        """Choose the grid."""
        fine = float(1 << self.bits)
        blocks = query.sufficient.blocks
        return FixedPoint({name: 1.0 if block.integral else fine for name, block in blocks.items()})

    def spending(self, plan: Plan, cohort: Cohort, participation: Participation) -> Spending:
        """Promise that only sums are seen."""
        statement = (
            f"Secure aggregation over at least {cohort.floor} clients: the server learns exact sums over clients and "
            "nothing about a single one beyond what the sums tell. No differential privacy."
        )
        return Spending("SecAgg", "none", None, None, "none", False, statement)
