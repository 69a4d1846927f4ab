"""The slope of the log-likelihood along a line of temperatures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.query import Block, Bound, RecordQuery, Rows
from fedcalib.records import Records
from fedcalib.types import Floats, Ints

_AT_ONCE = 1 << 15  # logits: what is worked on stays in cache for the whole grid
_ALIKE = 1e-14  # a few roundings


@final
@dataclass(frozen=True)
class TemperatureCurve(RecordQuery):
    """For each inverse temperature b: the derivative of the negative log-likelihood in b, in units of `reach`.

    A record adds (mean logit under softmax(b z)) - (logit of its label), cut to [-reach, reach] and divided by it, to
    each of the G cells: Linf = 1, L1 = G, L2 = sqrt(G), attained by a record that is badly wrong at every b. `clip` is
    the L2 norm to which a client's sum is cut when the client is the unit, in the same units.
    """

    inverses: tuple[float, ...]
    reach: float
    clip: float | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.inverses or not all(0 < b < 1e6 for b in self.inverses) or not 0 < self.reach < 1e9:
            raise InputError("Expected inverse temperatures and a reach above 0, found others.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        """One cell an inverse temperature."""
        grid = len(self.inverses)
        bound = Bound(float(grid), sqrt(grid), 1.0)
        return {"slope": Block((grid,), bound, weight=self.weight, clip=self.clip)}

    def rows(self, records: Records) -> Rows:
        """Touch every cell."""
        slopes = np.empty((len(records), len(self.inverses)))
        for start in range(0, len(records), step := max(_AT_ONCE // records.classes, 16)):
            part = slice(start, start + step)
            self._fill(slopes[part], records.logits[part], records.labels[part])
        slopes /= self.reach
        return Rows(None, np.clip(slopes, -1.0, 1.0, out=slopes))

    def _fill(self, slopes: Floats, logits: Floats, labels: Ints) -> None:
        """Work out a few records' slopes, class by class: short rows would leave the processor's lanes empty."""
        below = np.ascontiguousarray(logits.T, dtype=np.float64)  # (classes, n)
        below = below - below.max(axis=0)  # which shifts mean and own logit alike
        own = below[labels, np.arange(len(labels))]
        weights, product = np.empty_like(below), np.empty_like(below)
        last = np.nan
        for column, inverse in enumerate(self.inverses):
            if abs(inverse - 2 * last) <= _ALIKE * inverse:
                np.square(weights, out=weights)  # exp(2 b z) is the square of exp(b z), and cheaper
            else:
                np.exp(np.multiply(below, inverse, out=weights), out=weights)
            last = inverse
            np.multiply(weights, below, out=product)
            slopes[:, column] = product.sum(axis=0) / weights.sum(axis=0) - own
