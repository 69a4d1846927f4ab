"""Answers: sums over clients, perhaps noisy, with the variance of the noise."""

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

    `answer["block"]` is a block's value.

    Parameters
    ----------
    values
        The sum, by name of the block.
    variances
        Variance of the added noise, shaped like the values; 0 where the sum is exact.
    clients
        Number of clients that answered where that is public, otherwise None.

    Examples
    --------
    >>> import numpy as np
    >>> import fedcalib as fc
    >>> from fedcalib.queries.shift import Predictions
    >>> answer = fc.Answer.of(Predictions(2), np.array([7.0, 3.0]), np.zeros(2), clients=4)
    >>> answer["predictions"].tolist(), answer.variance("predictions").tolist()
    ([7.0, 3.0], [0.0, 0.0])
    """

    values: Mapping[str, Floats]
    variances: Mapping[str, Floats]  # of the added noise, shaped like the values; 0 when exact
    clients: int | None

    @classmethod
    def of(cls, query: Query, value: Floats, variance: Floats, clients: int | None) -> Answer:
        """A decoded message, cut into the query's blocks."""
        return cls(query.split(value), query.split(variance), clients)

    @classmethod
    def empty(cls, query: Query) -> Answer:
        """The answer of a federation without records, without noise."""
        zeros = np.zeros(query.size)
        return cls.of(query, zeros, zeros, 0)

    def __getitem__(self, block: str) -> Floats:
        return self.values[block]

    def variance(self, block: str) -> Floats:
        """Variance of the noise in each cell of a block."""
        return self.variances[block]

    def part(self, join: Join, index: int) -> Answer:
        """The answer to one part of a joined query."""
        names = {name: f"{index}.{name}" for name in join.parts[index].blocks}
        return Answer(
            {name: self.values[full] for name, full in names.items()},
            {name: self.variances[full] for name, full in names.items()},
            self.clients,
        )
