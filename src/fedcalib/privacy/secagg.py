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
from fedcalib.privacy.ring import RingMechanism, check_positive, exact_total, unwrap, wrap
from fedcalib.query import Query
from fedcalib.randomness import Randomness
from fedcalib.types import Array, Floats


@final
@dataclass(frozen=True)
class FixedPoint(RingMechanism):
    """Sums on an integer grid in the ring; `scales` holds the number of grid steps per unit, block by block."""

    unit = None
    adjacency = "none"
    renewed = False

    scales: Mapping[str, float]

    def __post_init__(self) -> None:
        check_positive(self.scales)

    def width(self, query: Query) -> int:
        return query.sufficient.size

    def gather(self, query: Query, federation: Federation, randomness: Randomness) -> Array:
        return wrap(exact_total(query.sufficient, federation, randomness, self.scales))

    def decode(self, query: Query, total: Array, clients: int, randomness: Randomness) -> tuple[Floats, Floats]:
        return query.expand(unwrap(total, query.sufficient, self.scales)), np.zeros(query.size)

    def event(self, query: Query, cohort: Cohort) -> Event | None:
        return None


@final
@dataclass(frozen=True)
class SecAgg(Privacy):
    """Secure aggregation: nobody sees a single client's term, the server reads the exact sum.

    Counts are summed as they are. Real terms are truncated toward zero to multiples of 2^-bits, record by record, so a
    sum over n records is off by less than n * 2^-bits. There is no differential privacy.

    Parameters
    ----------
    bits
        The number of binary digits after the point, from 1 to 40.

    Examples
    --------
    >>> import fedcalib as fc
    >>> federation = fc.Federation.simulated(classes=2, clients=10)
    >>> result = fc.run(fc.FedBin(), fc.InProcess(federation), fc.SecAgg())
    >>> result.privacy.statement[:45]
    'Secure aggregation over at least 10 clients: '
    """

    bits: int = 24

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 40:
            raise InputError(f"Expected 1 to 40 bits after the point, found {self.bits}; 24 is usual.")

    @property
    def budget(self) -> None:
        return None

    @property
    def private(self) -> bool:
        return False

    def mechanism(self, query: Query, plan: Plan, cohort: Cohort, participation: Participation) -> Mechanism:
        scale = float(1 << self.bits)
        blocks = query.sufficient.blocks
        return FixedPoint({name: 1.0 if block.integral else scale for name, block in blocks.items()})

    def spending(self, plan: Plan, cohort: Cohort, participation: Participation) -> Spending:
        statement = (
            f"Secure aggregation over at least {cohort.floor} clients: the server learns exact sums over clients and "
            "nothing about a single one beyond what the sums tell. No differential privacy."
        )
        return Spending("SecAgg", "none", None, None, "none", False, statement)
