"""What comes back: a sum, perhaps noisy, with its noise level attached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.query import Join, Query
from fedcalib.types import Floats


@final
@dataclass(frozen=True, eq=False)
class Answer:
    """The sum over clients, block by block, and the variance of the noise in it.

    `clients` counts those who answered where that is public, and is None where it is private.
    """

    values: Mapping[str, Floats]
    variances: Mapping[str, Floats]  # of the added noise, shaped like the values; 0 when exact
    clients: int | None

    @classmethod
    def of(cls, query: Query, value: Floats, variance: Floats, clients: int | None) -> Answer:
        """Cut a decoded message into the query's blocks."""
        return cls(query.split(value), query.split(variance), clients)

    @classmethod
    def empty(cls, query: Query) -> Answer:
        """Answer as a federation without records would, without noise."""
        zeros = np.zeros(query.size)
        return cls.of(query, zeros, zeros, 0)

    def __getitem__(self, block: str) -> Floats:
        return self.values[block]

    def variance(self, block: str) -> Floats:
        """Give the variance of the noise in each cell of a block."""
        return self.variances[block]

    def part(self, join: Join, index: int) -> Answer:
        """Give the answer to one part of a joined question."""
        names = {name: f"{index}.{name}" for name in join.parts[index].blocks}
        return Answer(
            {name: self.values[full] for name, full in names.items()},
            {name: self.variances[full] for name, full in names.items()},
            self.clients,
        )
