"""Curves from the log-odds of a binary score to calibrated ones, averaged by evidence over hypotheses of their shape.

A hypothesis says that the change of the log-odds is a sum of a few features with normal weights around zero: none at
all, an intercept, a line, a beta curve, or a smooth curve through knots. Each is fitted by its posterior mode and
weighted by its evidence, and their probabilities are averaged. So labels that say little move little, and what is
calibrated stays where it is. Privacy noise is part of the likelihood: a cell counts for as many records as would show
its rate as precisely without noise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import inf
from typing import Final, final

import numpy as np

from fedcalib.estimation.evidence import unmoved_share
from fedcalib.estimation.trees import isotonic, nonnegative_leaves
from fedcalib.numeric import log_odds, sigmoid
from fedcalib.types import Floats

SCALES: Final = (0.1, 0.3, 1.0)  # prior standard deviations of a change of log-odds, one hypothesis each
LENGTHS: Final = (0.7, 3.0)  # distances in log-odds over which a smooth curve changes
LEAST_SLOPE: Final = 0.01  # of a curve, so that the ranking stays
END: Final = 28.0  # beyond all log-odds that are told apart
_LIMITS: Final = tuple(float(log_odds(1 - 10.0**-digits)) for digits in (2, 3, 4, 6))  # 99% to 1 - 1e-6
LAPLACE_Z: Final = 6.0  # standard deviations that Laplace noise exceeds in none of some hundred cells
NORMAL_Z: Final = 4.0  # the same for sums of many reports
_FARTHEST: Final = 300.0  # log-odds of which the exponential is a float
_MAX_COUNT: Final = 1e12  # beyond any count of records; keeps products finite whatever the noise
_KNOTS: Final = 40
_GROUPS: Final = 300  # of cells with equally many records each
_WIDTH: Final = 0.1  # of a group in log-odds, at most
_MAX_STEPS: Final = 50
_MAX_MOVE: Final = 3.0  # of log-odds in one Newton step
_TOLERANCE: Final = 1e-7
_RESIDUAL_GROUPS: Final = 8
_CHANGED_Z: Final = 5.0
_RATES: Final = (0.02, 0.98)  # limits of the rates at which the weight of a noisy cell is first judged

Limits = tuple[float, float]
WIDE: Final = (-END, END)


@dataclass(frozen=True, eq=False)
class Shape(ABC):
    """Features of a change of log-odds, whose weights are independent and standard normal.

    Log-odds beyond the limits are read as the nearer limit but for a hundredth of the distance: a score of exactly 0 or
    1 has no finite log-odds, and those of scores near them may mean little.
    """

    scale: float
    limits: Limits = WIDE

    @abstractmethod
    def bends(self, inside: Floats) -> list[Floats]:
        """Further features at log-odds, besides a constant."""

    def read(self, odds: Floats) -> Floats:
        inside: Floats = np.clip(odds, *self.limits)
        return inside + LEAST_SLOPE * (odds - inside)

    def features(self, odds: Floats) -> Floats:
        """Features at log-odds, each multiplied by the standard deviation of its weight, shape (n, k)."""
        inside = self.read(odds)
        return np.stack([np.full_like(inside, self.scale), *self.bends(inside)], axis=1)


@final
@dataclass(frozen=True, eq=False)
class Unchanged(Shape):
    """The identity."""

    def bends(self, inside: Floats) -> list[Floats]:
        return []

    def features(self, odds: Floats) -> Floats:
        return np.zeros((len(odds), 0))


@final
@dataclass(frozen=True, eq=False)
class Intercept(Shape):
    """Recalibration in the large."""

    def bends(self, inside: Floats) -> list[Floats]:
        return []


@final
@dataclass(frozen=True, eq=False)
class Line(Shape):
    """Platt scaling."""

    def bends(self, inside: Floats) -> list[Floats]:
        return [self.scale / 2 * inside]


def _beta(scale: float, inside: Floats) -> list[Floats]:
    """Features ln p and -ln(1 - p)."""
    return [-scale / 2 * np.logaddexp(0.0, -inside), scale / 2 * np.logaddexp(0.0, inside)]


@final
@dataclass(frozen=True, eq=False)
class BetaShape(Shape):
    """Beta calibration."""

    def bends(self, inside: Floats) -> list[Floats]:
        return _beta(self.scale, inside)


@final
@dataclass(frozen=True, eq=False)
class Smooth(Shape):
    """A beta curve plus a smooth one, linear between knots; its values there have a Matern covariance."""

    knots: Floats = field(kw_only=True)
    length: float = field(kw_only=True)

    def bends(self, inside: Floats) -> list[Floats]:
        return [*_beta(1.0, inside), *(_hats(inside, self._knots) @ self._root).T]

    @cached_property
    def _knots(self) -> Floats:
        return np.unique(self.read(self.knots))

    @cached_property
    def _root(self) -> Floats:
        distance = np.abs(self._knots[:, None] - self._knots) * (3**0.5 / self.length)
        covariance = self.scale**2 * (1 + distance) * np.exp(-distance)
        return np.linalg.cholesky(covariance + 1e-6 * np.eye(len(covariance)))


def _hats(odds: Floats, knots: Floats) -> Floats:
    """How much of each knot's value counts at log-odds, by linear interpolation, shape (n, knots)."""
    return np.stack([np.interp(odds, knots, unit) for unit in np.eye(len(knots))], axis=1)


@final
@dataclass(frozen=True, eq=False)
class Fit:
    """A shape's posterior mode and the logarithm of its evidence."""

    shape: Shape
    weights: Floats
    evidence: float

    def curve(self, odds: Floats) -> Floats:
        """Calibrated log-odds."""
        return self.shape.read(odds) + self.shape.features(odds) @ self.weights


class Likelihood(ABC):
    """What labels say about curves."""

    odds: Floats
    ends: Limits  # log-odds beyond which scores are not told apart
    largest_ratio: float = inf  # logarithm of a ratio that is known without a shape, beyond which none is believed

    @abstractmethod
    def fit(self, shape: Shape) -> Fit:
        """The posterior mode of a shape."""

    @property
    @abstractmethod
    def records(self) -> Floats:
        """Where records are: the weight of each cell."""

    def averaged(self) -> tuple[Floats, Floats]:
        """Nodes, and calibrated log-odds there: the mean probability over shapes, made to increase.

        The identity keeps a share of 1 until the labels are 100 times as likely under a change, and 100 / that ratio
        beyond. The ratio has mean 1 if the classifier is calibrated, so it passes 100 in 1% of the runs at most.
        """
        best = self._best_limits()
        kinds = _shapes([best] if best == self.ends else [self.ends, best], self._knots())
        fits = [self.fit(shape) for kind in kinds for shape in kind]
        prior = np.concatenate([np.full(len(kind), 1 / len(kind)) for kind in kinds]) / len(kinds)
        evidence = np.array([fit.evidence for fit in fits]) + np.log(prior)
        weights = np.exp(evidence - evidence.max())
        ratio = float(np.log(weights.sum()) + evidence.max()) - self.fit(Unchanged(0.0)).evidence
        kept = unmoved_share(min(ratio, self.largest_ratio))
        nodes = self._nodes(best)
        curves = np.stack([nodes, *(fit.curve(nodes) for fit in fits)])
        shares = np.append(kept, (1 - kept) * weights / weights.sum())
        return nodes, self._increasing(nodes, _mean_odds(shares, curves))

    def _best_limits(self) -> Limits:
        """How far out log-odds are best read."""
        return max(self._limits(), key=lambda limits: self.fit(Line(SCALES[-1], limits)).evidence)

    def _limits(self) -> list[Limits]:
        """How far out log-odds may be read, where there are records that far out."""
        filled = self.odds[self.records > 0]
        lows = [self.ends[0], *(-limit for limit in _LIMITS if len(filled) and filled[0] < -limit)]
        highs = [self.ends[1], *(limit for limit in _LIMITS if len(filled) and filled[-1] > limit)]
        return list(product(lows, highs))

    def _knots(self) -> Floats:
        """Log-odds between which equally many records lie."""
        total = np.cumsum(self.records)
        if not total[-1] > 0:
            return self.odds[[0, -1]]
        at = np.searchsorted(total, np.linspace(0.0, 1.0, _KNOTS) * total[-1] * (1 - 1e-9))
        return np.unique(self.odds[np.minimum(at, len(total) - 1)])

    def _nodes(self, limits: Limits) -> Floats:
        inner = np.arange(-48, 49) / 4.0
        every = np.concatenate([inner, self._knots(), limits, self.ends, WIDE])
        return np.unique(np.clip(every, -END, END).round(9))  # closer ones would have no room for a slope

    def _increasing(self, nodes: Floats, curve: Floats) -> Floats:
        weights = np.bincount(np.abs(self.odds[:, None] - nodes).argmin(axis=1), self.records, len(nodes))
        return isotonic(curve - LEAST_SLOPE * nodes, weights + 1e-6 * weights.sum() + 1e-9) + LEAST_SLOPE * nodes


def _shapes(limits: list[Limits], knots: Floats) -> list[list[Shape]]:
    """Every hypothesis, by kind."""
    both = list(product(SCALES, limits))
    return [
        [Intercept(scale) for scale in SCALES],
        [Line(*one) for one in both],
        [BetaShape(*one) for one in both],
        [Smooth(scale, limits[-1], knots=knots, length=length) for scale, length in product(SCALES, LENGTHS)],
    ]


def _mean_odds(weights: Floats, curves: Floats) -> Floats:
    """Log-odds of the mean probability, shape (n,), without loss near 0 and 1."""
    inside = np.clip(curves, -_FARTHEST, _FARTHEST)
    low, high = -np.logaddexp(0.0, -inside), -np.logaddexp(0.0, inside)
    top = np.maximum(low.max(axis=0), high.max(axis=0))
    return np.asarray(np.log(weights @ np.exp(low - top)) - np.log(weights @ np.exp(high - top)))


@final
@dataclass(frozen=True, eq=False)
class Counts(Likelihood):
    """Negatives and positives by cell of the log-odds, none below zero, each with noise of a known variance."""

    odds: Floats  # (cells,)
    negative: Floats  # (cells,)
    positive: Floats  # (cells,)
    noise: Floats  # (cells,): variance of each count
    ends: Limits = WIDE
    clear: float = LAPLACE_Z
    largest_ratio: float = inf

    @classmethod
    def of(cls, odds: Floats, counts: Floats, noise: Floats, clear: float = LAPLACE_Z) -> Counts:
        """Counts of shape (2, cells), which may be below zero; `clear` deviations of noise are more than noise.

        Exact ones are merged into a few hundred cells. Of noisy ones those at either end whose sum does not stand out
        are left out, since noise far out would count with its log-odds, and the others are made nonnegative.
        """
        counts = np.clip(np.nan_to_num(counts), -_MAX_COUNT, _MAX_COUNT)
        if not noise.any():
            return _merged(odds, np.maximum(counts, 0.0))
        ends = float(odds[0]), float(odds[-1])
        total = counts.sum(axis=0)
        first, last = (_stands_out(total[::step], noise[::step], clear) for step in (-1, 1))
        if first is None or last is None or last <= (start := len(odds) - 1 - first):
            return cls(odds[:1], np.zeros(1), np.zeros(1), noise[:1], ends, clear)
        kept = slice(start, last + 1)
        negative, positive = nonnegative_leaves(counts[:, kept])
        ratio = residual_ratio(odds[kept], counts[:, kept], noise[kept])
        return cls(odds[kept], negative, positive, noise[kept], ends, clear, ratio)

    @property
    def records(self) -> Floats:
        """Records where they stand out from noise."""
        total = self.negative + self.positive
        return np.where(total > self.clear * np.sqrt(2 * self.noise), total, 0.0)

    @property
    def far(self) -> bool:
        """Whether there are records at either end, where scores are not told apart."""
        first, last = self.records[[0, -1]] > 0
        return bool((first and self.odds[0] == self.ends[0]) or (last and self.odds[-1] == self.ends[1]))

    @cached_property
    def effective(self) -> Floats:
        """Fraction of each cell's records that count, given its noise.

        It depends on the rate, which is judged by a fitted line, or by the cell's own records where both labels stand
        out: a rate that noise made would give its cell more weight than it deserves.
        """
        if not self.noise.any():
            return np.ones_like(self.odds)
        first = self._fraction(np.clip(sigmoid(self.odds), *_RATES))
        lines = [self._mode(Line(SCALES[-1], limits), first) for limits in self._limits()]
        line = sigmoid(max(lines, key=lambda fit: fit.evidence).curve(self.odds))
        rarer = np.minimum(self.negative, self.positive) / (self.clear * np.sqrt(self.noise))
        own, known = self.positive / np.maximum(self.negative + self.positive, 1e-9), np.clip(rarer - 1, 0.0, 1.0)
        return self._fraction(np.clip(line + known * (own - line), 1e-3, 1 - 1e-3))

    def _fraction(self, rate: Floats) -> Floats:
        sampling = (self.negative + self.positive) * rate * (1 - rate)
        total = sampling + self.noise * ((1 - rate) ** 2 + rate**2)
        return np.divide(sampling, total, out=np.ones_like(total), where=total > 0)

    def fit(self, shape: Shape) -> Fit:
        return self._mode(shape, self.effective)

    def _mode(self, shape: Shape, fraction: Floats) -> Fit:
        """Newton's method, with shorter steps where the posterior would fall."""
        x, base = shape.features(self.odds), shape.read(self.odds)
        positive, negative = fraction * self.positive, fraction * self.negative
        weights = np.zeros(x.shape[1])
        value = _posterior(base, weights, positive, negative)
        for _ in range(_MAX_STEPS):
            rate = sigmoid(base + x @ weights)
            hessian = (x.T * ((positive + negative) * rate * (1 - rate))) @ x + np.eye(len(weights))
            move = np.linalg.solve(hessian, x.T @ (positive - (positive + negative) * rate) - weights)
            size = float(np.abs(x @ move).max(initial=0.0))
            move *= min(1.0, _MAX_MOVE / max(size, 1e-300))
            while (
                new := _posterior(base + x @ (weights + move), weights + move, positive, negative)
            ) < value - 1e-9 * (1 + abs(value)):
                move /= 2
            weights, value = weights + move, new
            if size < _TOLERANCE:
                break
        return Fit(shape, weights, value - 0.5 * _log_determinant(hessian))


def _merged(odds: Floats, counts: Floats) -> Counts:
    """Exact counts in groups of cells that are narrow and have about equally many records; a large cell is alone."""
    total = counts.sum(axis=0)
    filled = np.flatnonzero(total > 0)
    if not len(filled):
        return Counts(odds[:1], np.zeros(1), np.zeros(1), np.zeros(1))
    depth = np.floor((np.cumsum(total[filled]) - total[filled] / 2) * _GROUPS / total.sum())
    place = np.floor(odds[filled] / _WIDTH)
    start = np.flatnonzero(np.append(True, (np.diff(depth) > 0) | (np.diff(place) > 0)))
    parts = (*counts[:, filled], (odds * total)[filled])
    negative, positive, weighted = (np.add.reduceat(part, start) for part in parts)
    return Counts(weighted / (negative + positive), negative, positive, np.zeros(len(start)))


def residual_ratio(odds: Floats, counts: Floats, noise: Floats) -> float:
    """Logarithm of how many times as likely sums of residuals are under some change as under none.

    Residuals are sums of raw counts, so noise leaves their mean where it was, and their variance is known. The sums are
    over all cells, over all weighed by their log-odds, and over groups of neighbours; under a change each has a
    standard deviation of `_CHANGED_Z` times that of chance and noise. The mean of the ratios obeys the rule.
    """
    rate = sigmoid(odds)
    residual = (1 - rate) * counts[1] - rate * counts[0]
    variance = np.maximum(counts.sum(axis=0), 0.0) * rate * (1 - rate) + noise * ((1 - rate) ** 2 + rate**2)
    groups = np.arange(len(odds)) * _RESIDUAL_GROUPS // len(odds)
    within = (groups == np.arange(_RESIDUAL_GROUPS)[:, None]).astype(float)
    features = np.concatenate([[np.ones_like(odds), np.clip(odds, -4, 4)], within])
    squares = np.minimum((features @ residual) ** 2 / np.maximum(features**2 @ variance, 1e-9), 1e9)
    ratios = (squares * _CHANGED_Z**2 / (1 + _CHANGED_Z**2) - np.log1p(_CHANGED_Z**2)) / 2
    return float(np.logaddexp.reduce(ratios) - np.log(len(ratios)))


def _stands_out(total: Floats, noise: Floats, clear: float) -> int | None:
    """The last cell from which on the sum of all that follow stands out from its noise."""
    tail, variance = np.cumsum(total[::-1])[::-1], np.cumsum(2 * noise[::-1])[::-1]
    found = np.flatnonzero(tail > clear * np.sqrt(variance))
    return int(found[-1]) if found.size else None


def _posterior(curve: Floats, weights: Floats, positive: Floats, negative: Floats) -> float:
    likelihood = positive @ np.logaddexp(0.0, -curve) + negative @ np.logaddexp(0.0, curve)
    return float(-likelihood - weights @ weights / 2)


def _log_determinant(matrix: Floats) -> float:
    return float(np.linalg.slogdet(matrix)[1]) if len(matrix) else 0.0


@final
@dataclass(frozen=True, eq=False)
class ClientSums(Likelihood):
    """Sums of clients' scores by cell: their mean is slope x change of the log-odds, with a known variance."""

    odds: Floats  # (cells,)
    score: Floats  # (cells,)
    slope: Floats  # (cells,): at least 0
    variance: Floats  # (cells,): of the score, of sampling and noise
    ends: Limits = WIDE

    @property
    def records(self) -> Floats:
        return self.slope

    def fit(self, shape: Shape) -> Fit:
        x = shape.features(self.odds)
        hessian = (x.T * (self.slope**2 / self.variance)) @ x + np.eye(x.shape[1])
        gradient = x.T @ (self.slope * (self.score - self.slope * (shape.read(self.odds) - self.odds)) / self.variance)
        weights = np.linalg.solve(hessian, gradient)
        rest = self.score - self.slope * (shape.read(self.odds) - self.odds)
        evidence = float(gradient @ weights - (rest**2 / self.variance).sum()) / 2
        return Fit(shape, weights, evidence - 0.5 * _log_determinant(hessian))
