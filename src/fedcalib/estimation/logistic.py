"""Logistic regression of the labels on the log-odds of the score, from a table with noise, and tests of its weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias, final

import numpy as np

from fedcalib.estimation.estimates import TINY, Estimate, Z, doubt_of
from fedcalib.estimation.score_sheet import Functional, ScoreSheet
from fedcalib.estimation.score_table import POSITIVE
from fedcalib.metrics.intervals import Measured
from fedcalib.numeric import bisected, sigmoid
from fedcalib.types import Floats, Ints

_MAX_STEPS: Final = 60
_INFORMATION_Z: Final = 4.0  # standard deviations by which the information of a regression exceeds its noise
_TOLERANCE: Final = 1e-10
_REACH: Final = 8.0  # standard deviations within which the end of an interval is looked for
_SCORE_HALVINGS: Final = 11
_NEWTON_STEPS: Final = 4

Basis: TypeAlias = Callable[[Floats], Floats]  # features, (n, k), at log-odds, (n,)


@final
@dataclass(frozen=True, eq=False)
class Design:
    """Features at some places of each cell, with the weights of these places."""

    features: Floats  # (places, cells, k)
    share: Floats  # (places, cells)
    offset: Floats | float

    @classmethod
    def of(cls, sheet: ScoreSheet, basis: Basis, *, offset: bool) -> Design:
        places, share = sheet.quadrature
        features = basis(places.reshape(-1)).reshape(*places.shape, -1)
        return cls(features, share, places if offset else 0.0)

    def rate(self, weights: Floats) -> Floats:
        return sigmoid(self.features @ weights + self.offset)

    def sums(self, factor: Floats | float = 1.0) -> Floats:
        """What a record in each cell adds to sums of features times a factor, shape (k, cells)."""
        return np.asarray(np.einsum("pck,pc->kc", self.features, self.share * factor))

    def hessian(self, records: Floats, rate: Floats) -> Floats:
        flat = self.features.reshape(-1, self.features.shape[-1])
        return np.asarray((flat.T * (records * self.share * rate * (1 - rate)).reshape(-1)) @ flat)


@final
@dataclass(frozen=True, eq=False)
class LogisticFit:
    """Weights of log-odds that are linear in features, with their influence."""

    design: Design
    weights: Floats  # (k,)
    influence: Floats  # (k, 2, cells)
    doubt: float = 1.0  # see `ScoreSheet.doubt`

    def weight(self, index: int) -> Functional:
        return Functional(float(self.weights[index]), self.influence[index])


def logistic(sheet: ScoreSheet, basis: Basis, start: Floats, *, offset: bool = False) -> LogisticFit | None:
    """Logistic regression of the labels on features of the log-odds, from signed counts; None where it has no solution.

    The likelihood equations are linear in the counts, so noise leaves them unbiased as long as no count is clipped, and
    they are corrected for the width of cells as other sums are. The Hessian, which only sets the steps, is that of the
    nonnegative counts. With `offset`, the log-odds themselves are added.
    """
    design = Design.of(sheet, basis, offset=offset)
    total, weights = sheet.counts.sum(axis=0), start.astype(np.float64)
    for _ in range(_MAX_STEPS):
        rate = design.rate(weights)
        hessian = design.hessian(total, rate)
        gradient = design.sums(rate) @ sheet.table.counts.sum(axis=0) - design.sums() @ sheet.table.counts[POSITIVE]
        if not np.isfinite(hessian).all() or np.linalg.cond(hessian) > 1e12:
            return None
        move = np.linalg.solve(hessian, gradient)
        move *= min(1.0, 1.0 / max(float(np.abs(move).max()), TINY))
        weights = weights - move
        if np.abs(move).max() < _TOLERANCE:
            return _fitted(sheet, design, weights, rate)
    return None


def _fitted(sheet: ScoreSheet, design: Design, weights: Floats, rate: Floats) -> LogisticFit | None:
    """The fit with its influence; None where the information in the signed counts does not exceed its noise."""
    hessian = design.hessian(sheet.table.counts.sum(axis=0), rate)
    if np.linalg.eigvalsh(hessian).min() <= 1e-12 * np.abs(hessian).max():
        return None
    inverse = np.linalg.inv(hessian)
    information = 1 / np.diag(inverse)  # on each weight, when all others are fitted too
    own = design.features @ inverse * information  # features without what the others explain
    squares = np.einsum("pck,pc->kc", own**2, design.share * rate * (1 - rate))
    noise = sheet.table.variance(np.stack([squares, squares], axis=1))
    ratio = float((np.sqrt(np.maximum(noise, 0.0)) / information).max())
    if ratio >= 1 / _INFORMATION_Z:
        return None
    influence = np.stack([-inverse @ design.sums(rate), inverse @ design.sums(1 - rate)], 1)
    return LogisticFit(design, weights, influence, doubt_of(ratio))


def solved(sheet: ScoreSheet, figure: Functional) -> Estimate:
    """An estimate from signed counts already: nothing is added to its value."""
    sampling = float((sheet.counts * np.square(figure.influence)).sum())
    return Estimate(figure.value, sampling, float(sheet.table.variance(figure.influence[None])[0]), figure.reading)


def calibration_line(sheet: ScoreSheet) -> LogisticFit | None:
    """Intercept and slope of the log-odds of the labels on those of the score."""
    return logistic(sheet, lambda odds: np.stack([np.ones_like(odds), odds], axis=1), np.array([0.0, 1.0]))


def in_the_large(sheet: ScoreSheet) -> LogisticFit | None:
    """The intercept when the slope is fixed at 1."""
    return logistic(sheet, lambda odds: np.ones((len(odds), 1)), np.zeros(1), offset=True)


@final
@dataclass(frozen=True, eq=False)
class ScoreTest:
    """The interval of one weight of a logistic regression: the values that the likelihood equations do not contradict.

    A normal interval around the estimate is as wide as the information at the estimate makes it, and information falls
    as the slope rises: where noise is large, estimates that are too small look too certain. Here each value is tested
    with the variance that it would have itself, with the other weights fitted to it.
    """

    sheet: ScoreSheet
    fit: LogisticFit
    index: int

    def interval(self) -> Measured:
        """The weight with its interval; the normal one where there is no noise."""
        found = solved(self.sheet, self.fit.weight(self.index))
        if self.sheet.table.exact:
            return found.normal()
        reach = _REACH * found.deviation
        low = bisected(lambda value: self._z(value) > -Z, found.value - reach, found.value, _SCORE_HALVINGS)[1]
        high = bisected(lambda value: self._z(value) > Z, found.value, found.value + reach, _SCORE_HALVINGS)[1]
        return Measured(found.value, low, high)

    def _z(self, value: float) -> float:
        """The likelihood equation at a value in standard deviations, without what the other weights explain."""
        design, counts = self.fit.design, self.sheet.table.counts
        rate = design.rate(self._others(value))
        hessian, negative = design.hessian(self._records, rate), design.sums(rate)
        each = np.stack([negative, negative - self._whole], axis=1)  # (k, 2, cells)
        part = hessian[self.index, self._other] @ _inverse(hessian[self._among_others])
        own = each[self.index] - np.tensordot(part, each[self._other], axes=1)
        variance = float((self.sheet.counts * own**2).sum()) + float(self.sheet.table.variance(own[None])[0])
        return float((own * counts).sum() / np.sqrt(max(variance, TINY)))

    def _others(self, value: float) -> Floats:
        """All weights, the others fitted to this value of the one."""
        weights, design, other = self.fit.weights.copy(), self.fit.design, self._other
        weights[self.index] = value
        signed = self.sheet.table.counts.sum(axis=0)
        for _ in range(_NEWTON_STEPS if len(other) else 0):
            rate = design.rate(weights)
            gradient = (design.sums(rate) @ signed - self._labels)[other]
            hessian = design.hessian(self._records, rate)[self._among_others]
            weights[other] -= np.clip(_inverse(hessian) @ gradient, -1.0, 1.0)
        return weights

    @cached_property
    def _other(self) -> Ints:
        return np.delete(np.arange(len(self.fit.weights)), self.index)

    @cached_property
    def _among_others(self) -> tuple[Ints, ...]:
        """Where a Hessian holds the rows and columns of the other weights."""
        return np.ix_(self._other, self._other)

    @cached_property
    def _records(self) -> Floats:
        return np.asarray(self.sheet.counts.sum(axis=0))

    @cached_property
    def _whole(self) -> Floats:
        return self.fit.design.sums()

    @cached_property
    def _labels(self) -> Floats:
        """Summed features of the positives, from signed counts, shape (k,)."""
        return np.asarray(self._whole @ self.sheet.table.counts[POSITIVE])


def _inverse(matrix: Floats) -> Floats:
    """The pseudoinverse; of a single number, without a decomposition."""
    if len(matrix) != 1:
        return np.linalg.pinv(matrix)
    return np.asarray(1 / matrix if matrix[0, 0] else np.zeros_like(matrix))
