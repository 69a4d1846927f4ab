"""The slope of the log-likelihood along a line of temperatures, or at one of them with its curvature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
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
        """Work out a few records' slopes, class by class."""
        below, own = _below(logits, labels)
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


@final
@dataclass(frozen=True)
class TemperatureSlope(RecordQuery):
    """At one inverse temperature b: the derivative of the negative log-likelihood in b, and how it grows with ln b.

    A record adds to the slope as to one cell of a `TemperatureCurve`: every norm is 1. It adds the variance of b times
    its logits under softmax(b z) to the bend, or nothing where its slope is cut and so does not change. A variance of
    log-probabilities among c classes is at most that of one class against c - 1 equal ones, at the best odds; see
    `most_bend`. That is attained.
    """

    inverse: float
    reach: float
    classes: int
    typical_records: float | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.inverse < 1e6 or not 0 < self.reach < 1e9 or self.classes < 2:
            raise InputError("Expected an inverse temperature and a reach above 0, and classes, found others.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        """One cell each."""
        size, most = self.typical_records, most_bend(self.classes)
        clips = (None, None) if size is None else (2 * sqrt(size) / self.reach, size * most / 4)
        return {
            "slope": Block((1,), weight=0.8 * self.weight, clip=clips[0]),
            "bend": Block((1,), Bound(most, most, most), weight=0.2 * self.weight, clip=clips[1]),
        }

    def rows(self, records: Records) -> Rows:
        """Touch both cells."""
        if records.classes != self.classes:
            raise InputError(f"Expected {self.classes} classes, found {records.classes}.")
        rows = np.empty((len(records), 2))
        for start in range(0, len(records), step := max(_AT_ONCE // records.classes, 16)):
            part = slice(start, start + step)
            self._fill(rows[part], records.logits[part], records.labels[part])
        rows[:, 1][np.abs(rows[:, 0]) > 1.0] = 0.0
        np.clip(rows[:, 0], -1.0, 1.0, out=rows[:, 0])
        np.clip(rows[:, 1], 0.0, most_bend(self.classes), out=rows[:, 1])  # rounding alone goes beyond
        return Rows(None, rows)

    def _fill(self, rows: Floats, logits: Floats, labels: Ints) -> None:
        """Work out a few records' slopes and bends, class by class."""
        below, own = _below(logits, labels)
        weights = np.exp(below * self.inverse)
        mass = weights.sum(axis=0)
        weights *= below
        mean = weights.sum(axis=0) / mass
        below -= mean
        square = np.einsum("ij,ij->j", weights, below) / mass  # E z (z - mean)
        rows[:, 0] = (mean - own) / self.reach
        rows[:, 1] = square * self.inverse**2


@cache
def most_bend(classes: int) -> float:
    """Give the largest variance that log-probabilities among so many classes can have.

    It is that of one class with odds against all others together, which are equal; the best odds are searched for.
    """
    others = np.exp(-np.linspace(0.0, 40.0, 400_001))  # the probability of all others together
    others = others[others < 1]
    gaps = np.log((1 - others) * (classes - 1) / others)
    return float((others * (1 - others) * gaps**2).max()) * (1 + 1e-8)  # the grid misses the top by less


def _below(logits: Floats, labels: Ints) -> tuple[Floats, Floats]:
    """Give logits below each record's largest, (classes, n), and the label's, (n,).

    Class by class: short rows would leave the processor's lanes empty. The shift moves mean and own logit alike.
    """
    below = np.ascontiguousarray(logits.T, dtype=np.float64)
    below = below - below.max(axis=0, initial=-np.inf)
    return below, below[labels, np.arange(len(labels))]
