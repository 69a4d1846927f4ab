"""Figures of a binary classifier as functions of one table of counts by label and cell of the score.

A figure is a `Functional`: its value at nonnegative counts and its influence, the change per record added to each cell.
From these two follow the estimate and its variance. The estimate is one step from the nonnegative counts nearest to the
noisy ones: value + influence x (noisy - nonnegative), which is unbiased to first order although no count is negative
where the value is computed. Its variance is that of sampling, the sum of counts x influence^2, plus that of the noise.

Cells have a width. Losses are corrected for it as Sheppard corrects moments of grouped data, f - f'' h^2 / 24, and the
AUC by counting pairs in neighbouring cells 1/12 more or less; both assume a smooth density of the log-odds, and neither
is done where every cell is known to hold one distinct score.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias, final

import numpy as np

from fedcalib.estimation.score_table import DETECTION_Z, MIN_RECORDS, NEGATIVE, POSITIVE, ScoreTable
from fedcalib.metrics.intervals import Measured, critical, normal_quantile
from fedcalib.numeric import bisected, log_odds, sigmoid
from fedcalib.types import Bools, Floats, Ints

LEVEL: Final = 0.95
Z: Final = normal_quantile(LEVEL)
_MAX_STEPS: Final = 60
_HALVINGS: Final = 40
_FEW: Final = 30  # hits or misses below which a normal approximation does not do
_INFORMATION_Z: Final = 4.0  # standard deviations by which the information of a regression exceeds its noise
_TOLERANCE: Final = 1e-10
_LEAST_SKEWNESS: Final = 1e-3  # below which it makes no difference
_TINY: Final = 1e-300
_REACH: Final = 8.0  # standard deviations within which the end of an interval is looked for
_SCORE_HALVINGS: Final = 11
_NEWTON_STEPS: Final = 4
_PARTS: Final = 8  # of a cell, for quantiles
_COARSE: Final = 128  # cells up to which one is looked at in parts


@final
@dataclass(frozen=True, eq=False)
class Functional:
    """A figure at nonnegative counts, and its change per record added to each cell."""

    value: float
    influence: Floats  # (2, cells)
    reading: float = 0.0  # how far the value may be off because cells have a width


@final
@dataclass(frozen=True)
class Estimate:
    """A figure with the variances of sampling and of noise, and a bound on the error of reading cells."""

    value: float
    sampling: float
    noise: float
    reading: float = 0.0
    skewness: float = 0.0  # of the estimate, from sampling

    @property
    def deviation(self) -> float:
        return float(np.sqrt(max(self.sampling + self.noise, 0.0)))

    def normal(self, low: float = -np.inf, high: float = np.inf) -> Measured:
        """The value with a normal interval, both within the possible range."""
        half = self._half(self.deviation)
        return within(self.value, self.value - half, self.value + half, low, high)

    def skewed(self, low: float = -np.inf, high: float = np.inf) -> Measured:
        """The value with the wider of two intervals at each end: the normal one, and Hall's, which knows the skewness.

        Hall (1992) turns the ratio T of error and estimated deviation, which is skewed twice, by the estimate and by
        its deviation, into g(T) = T + s T^2 / 3 + s^2 T^3 / 27 + s / 6, which is nearly normal.
        """
        found, s = self.normal(low, high), self.skewness
        if abs(s) < _LEAST_SKEWNESS:
            return found
        ends = [3 / s * (np.cbrt(1 + s * (z - s / 6)) - 1) * self.deviation for z in (Z, -Z)]
        least, most = (self.value - float(end) for end in ends)
        return within(self.value, min(found.low, least), max(found.high, most), low, high)

    def positive(self, high: float = np.inf) -> Measured:
        """The value with an interval for a mean whose sampling variance grows with it, such as a loss of rare events.

        The ends are the means m with (m - value)^2 = z^2 (sampling m / value + noise).
        """
        if self.value <= self.deviation:
            return self.normal(0.0, high)
        slope = Z * Z * self.sampling / self.value / 2
        half = self._half(float(np.sqrt(self.sampling + self.noise + (slope / Z) ** 2)))
        return within(self.value, self.value + slope - half, self.value + slope + half, 0.0, high)

    def share(self) -> Measured:
        """The value of a figure between 0 and 1 whose sampling variance vanishes towards both, as a proportion's does.

        The ends are the values m with (m - value)^2 = z^2 (sampling m (1 - m) / (value (1 - value)) + noise).
        """
        spread = self.value * (1 - self.value)
        if spread <= self.sampling or self.sampling <= 0:
            return self.normal(0.0, 1.0)
        low, high = wilson(self.value, spread / self.sampling, self.noise)
        bound = self._half(self.deviation) - Z * self.deviation
        return within(self.value, low - bound, high + bound, 0.0, 1.0)

    def skewed_share(self) -> Measured:
        """As `share`, also where noise moves small values less than large ones: the wider of both at each end.

        The other interval is the normal one of the log-odds of the value.
        """
        found, spread = self.share(), self.value * (1 - self.value)
        if not spread > self.deviation**2:
            return found
        half, odds = Z * self.deviation / spread, float(log_odds(np.array(self.value)))
        low, high = (float(sigmoid(np.array(odds + end))) for end in (-half, half))
        return Measured(found.value, min(found.low, low), max(found.high, high))

    def _half(self, deviation: float) -> float:
        return critical(2 * self.reading / max(deviation, _TINY), LEVEL) * deviation + self.reading


def within(value: float, low: float, high: float, least: float, most: float) -> Measured:
    """A figure and its interval within the possible range; an interval that the range cuts keeps a width.

    Where the lower end is cut, the upper one is at least the upper quantile of a normal distribution that is known to
    lie in the range, and the other way round: an estimate far outside still has an interval inside.
    """
    from scipy.special import ndtr, ndtri

    deviation = max((high - low) / (2 * Z), _TINY)
    centre, tail = (low + high) / 2, (1 - LEVEL) / 2
    if low < least:
        beyond = float(ndtr((least - centre) / deviation))
        high = max(high, centre + deviation * float(ndtri(min(beyond + (1 - beyond) * (1 - tail), 1 - 1e-12))))
    if high > most:
        inside = float(ndtr((most - centre) / deviation))
        low = min(low, centre + deviation * float(ndtri(max(inside * tail, 1e-12))))
    middle = float(np.clip(value, least, most))
    low, high = float(np.clip(low, least, most)), float(np.clip(high, least, most))
    return Measured(middle, min(low, middle), max(high, middle))


@final
@dataclass(frozen=True, eq=False)
class Ratios:
    """Ratios of weighted sums of the counts, such as rates at several thresholds, shape (k,)."""

    value: Floats  # NaN where the divisor does not stand out from its noise
    records: Floats  # the divisor: for a proportion, its records; otherwise as many as have the same variance
    noise: Floats  # variance
    reading: Floats

    def rate(self, index: int = 0) -> Measured:
        """A proportion with its interval: Wilson's, which noise widens; of exact counts near 0 or 1, the mid-P one."""
        value, records = float(self.value[index]), float(self.records[index])
        if np.isnan(value):
            return Measured(value, 0.0, 1.0)
        noise, bound = float(self.noise[index]), float(self.reading[index])
        few = noise <= 0 and records * min(value, 1 - value) < _FEW
        low, high = mid_p(value, records) if few else wilson(value, records, noise)
        return within(value, low - bound, high + bound, 0.0, 1.0)


def wilson(value: float, records: float, noise: float) -> tuple[float, float]:
    """Wilson's interval of a proportion, which noise widens.

    The ends are the rates m with (m - value)^2 = z^2 (m (1 - m) / records + noise): the variance of sampling vanishes
    towards 0 and 1, that of noise does not.
    """
    z2 = Z * Z / records
    middle, width = value + z2 / 2, z2 * value - z2 * value**2 + Z * Z * noise * (1 + z2) + z2**2 / 4
    half = np.sqrt(max(width, Z * Z * noise, 1e-18))
    return float(middle - half) / (1 + z2), float(middle + half) / (1 + z2)


def mid_p(value: float, records: float) -> tuple[float, float]:
    """The mid-P interval of a proportion: rates at which as few or as many hits are not too rare.

    The chance of the very number that was found counts one half. Unlike Wilson's interval it covers rates near 0 and 1,
    of which a few records have one hit or none. Numbers need not be whole.
    """
    from scipy.special import betainc

    hits = min(max(value, 0.0), 1.0) * records

    def at_most(rate: float) -> float:
        fewer = betainc(records - hits + 1, hits, 1 - rate) if hits > 0 else 0.0
        here = betainc(records - hits, hits + 1, 1 - rate) if hits < records else 1.0
        return float(fewer + here) / 2

    tail = (1 - LEVEL) / 2
    low = 0.0 if hits <= 0 else bisected(lambda rate: at_most(rate) < 1 - tail, 0.0, 1.0, _HALVINGS)[0]
    high = 1.0 if hits >= records else bisected(lambda rate: at_most(rate) < tail, 0.0, 1.0, _HALVINGS)[1]
    return low, high


@final
@dataclass(frozen=True, eq=False)
class ScoreSheet:
    """A table of counts with the log-odds that each cell stands for."""

    table: ScoreTable
    odds: Floats  # (cells,)
    tied: bool = False  # whether each cell holds one distinct score

    @cached_property
    def counts(self) -> Floats:
        """Nonnegative counts with the totals of the noisy ones, shape (2, cells)."""
        return self.table.nonnegative

    @cached_property
    def score(self) -> Floats:
        """The probability that each cell stands for, shape (cells,)."""
        return sigmoid(self.odds)

    @property
    def records(self) -> float:
        return float(self.table.totals.sum())

    @cached_property
    def edges(self) -> Floats:
        """Log-odds between the cells; the outer cells are taken to be as wide on either side, shape (cells + 1,)."""
        inner = log_odds(self.table.edges[1:-1], _TINY)
        if not len(inner):
            return np.array([self.odds[0] - 1, self.odds[0] + 1])
        return np.concatenate([[2 * self.odds[0] - inner[0]], inner, [2 * self.odds[-1] - inner[-1]]])

    @cached_property
    def open_ends(self) -> Floats:
        """1 where many scores lie beyond the lowest or the highest cell, which is open, otherwise 0, shape (2,).

        A density falls off towards its ends, so a last cell with clearly more than twice the records of the next one
        holds others.
        """
        if self.tied or len(self.odds) < 4:
            return np.zeros(2)
        records = self.table.counts.sum(axis=0)
        noise = 10 * self.table.noise[-1].mean()  # of both labels of a cell, and four times that of the other
        last, next_ = records[[0, -1]], records[[1, -2]]
        margin = 3 * np.sqrt(np.maximum(last + 4 * next_, 1.0) + noise)
        return np.asarray(last - 2 * next_ > margin, dtype=np.float64)

    @cached_property
    def quadrature(self) -> tuple[Floats, Floats]:
        """Log-odds in each cell, and weights with which a function there stands for the cell, each (places, cells).

        Sheppard's correction is a 24th of the second difference over whole cells. It is taken from the ends of each
        cell, which are half as far apart, along the axis on which cells are equally wide. Open cells, cells that hold
        ties and those of a fine table stand for their middle.
        """
        if self.tied or self.table.exact or len(self.odds) < 3:
            return self.odds[None], np.ones((1, len(self.odds)))
        weights = np.zeros((3, len(self.odds)))
        weights[0], weights[:, 1:-1] = 1.0, np.array([[4 / 3], [-1 / 6], [-1 / 6]])
        return np.stack([self.odds, self.edges[:-1], self.edges[1:]]), weights

    @cached_property
    def parts(self) -> tuple[Floats, Floats]:
        """Log-odds inside each cell and the share of its records there, shape (places, cells) each: for quantiles."""
        if self.tied or self.table.exact or not 3 <= len(self.odds) <= _COARSE:
            return self.odds[None], np.ones((1, len(self.odds)))
        places = (np.arange(_PARTS)[:, None] + 0.5) / _PARTS
        inside = self.edges[:-1] + places * np.diff(self.edges)
        inside[:, [0, -1]] = self.odds[[0, -1]]
        return inside, np.full(inside.shape, 1 / _PARTS)

    def grouped(self, function: Callable[[Floats], Floats]) -> Floats:
        """A function of the log-odds at the cells, corrected for their width but where cells are open or hold ties."""
        places, weights = self.quadrature
        return np.asarray((weights * function(places)).sum(axis=0))

    @cached_property
    def known(self) -> Bools:
        """Whether the numbers of negatives, of positives and of records stand out from their noise, shape (3,)."""
        totals = np.append(self.table.totals, self.records)
        return np.asarray(totals > np.maximum(DETECTION_Z * self.table.total_deviations, MIN_RECORDS))

    @cached_property
    def doubt(self) -> Floats:
        """How much wider intervals would be if negatives, positives or records were two deviations fewer, shape (3,).

        Whether a figure is stated must not hang on noise that makes a total look large.
        """
        totals = np.append(self.table.totals, self.records)
        return np.array([_doubt(ratio) for ratio in self.table.total_deviations / np.maximum(totals, 1e-9)])

    def stands_out(self, weights: Floats) -> bool:
        """Whether a weighted sum of the counts, (2, cells), stands out from its noise."""
        noise = max(float(self.table.variance(weights[None])[0]), 0.0)
        return bool((weights * self.table.counts).sum() > DETECTION_Z * np.sqrt(noise))

    def estimate(self, figure: Functional) -> Estimate:
        """One step from the nonnegative counts, with the variances of sampling and noise."""
        moved = figure.value + float((figure.influence * (self.table.counts - self.counts)).sum())
        sampling, third = (float((self.counts * figure.influence**power).sum()) for power in (2, 3))
        noise = float(self.table.variance(figure.influence[None])[0])
        skewness = third / max(sampling + noise, _TINY ** (2 / 3)) ** 1.5
        return Estimate(moved, sampling, noise, figure.reading, skewness)

    def ratios(self, part: Floats, whole: Floats, undecided: Floats | None = None) -> Ratios:
        """Ratios of weighted sums; weights are (k, 2, cells), and `whole` may have one row for all."""
        counts = self.table.counts.reshape(-1)
        sums, records = part.reshape(len(part), -1) @ counts, whole.reshape(len(whole), -1) @ counts
        least = np.maximum(DETECTION_Z * np.sqrt(np.maximum(self.table.variance(whole), 0.0)), MIN_RECORDS)
        known = np.broadcast_to(records > least, sums.shape)
        records = np.broadcast_to(np.where(records > least, records, 1.0), sums.shape)
        value = np.where(known, sums / records, np.nan)
        centred = part - np.where(known, np.clip(value, 0.0, 1.0), 0.5)[:, None, None] * whole
        noise = np.maximum(self.table.variance(centred), 0.0) / records**2
        bound = np.zeros(len(part))
        if undecided is not None:
            bound = undecided.reshape(len(part), -1) @ self.counts.reshape(-1) / records
        alike = records / np.maximum(self._spread(centred, value, records), 1e-3)
        return Ratios(value, alike, noise, bound)

    def _spread(self, centred: Floats, value: Floats, records: Floats) -> Floats:
        """Sampling variance of ratios over that of a proportion, which is one; of F1, for instance, it is more."""
        own = np.square(centred).reshape(len(centred), -1) @ self.counts.reshape(-1) / records
        binomial = np.clip(value, 0.0, 1.0) * (1 - np.clip(value, 0.0, 1.0))
        some = np.isfinite(value) & (binomial > 1e-6)
        return np.where(some, np.divide(own, binomial, out=np.ones_like(own), where=some), 1.0)

    def above(self, thresholds: Floats) -> tuple[Floats, Floats]:
        """Fraction of each cell that scores at least each threshold, and how much of it may not, (k, cells)."""
        if self.tied:
            called = (self.score >= thresholds[:, None] - 1e-12).astype(np.float64)
            return called, np.zeros_like(called)
        at = log_odds(thresholds, 1e-15)[:, None]
        left, right = self.edges[:-1], self.edges[1:]
        fraction = np.clip((right - at) / (right - left), 0.0, 1.0)
        fraction = np.where(np.abs(fraction - np.round(fraction)) < 1e-9, np.round(fraction), fraction)
        cut = (fraction > 0) & (fraction < 1)
        width = np.maximum(fraction, 1 - fraction) if self.table.exact else fraction * (1 - fraction) / 2
        return fraction, np.where(cut, width, 0.0)


def area(sheet: ScoreSheet) -> Functional:
    """Area under the ROC curve: the chance that a positive is scored above a negative, with ties counted one half.

    Where many scores lie beyond the last cell, it may be off by what pairs inside that cell would add if they were
    ordered as well as all others.
    """
    negative, positive = sheet.counts
    N, P = negative.sum(), positive.sum()
    below, over = np.cumsum(negative) - negative / 2, P - np.cumsum(positive) + positive / 2
    nearer = _neighbours(sheet, negative), _neighbours(sheet, positive)
    plain = float(positive @ below / (P * N))
    below, over = below - nearer[0] / 12, over + nearer[1] / 12
    value = float(positive @ below / (P * N))
    influence = np.stack([(over / P - value) / N, (below / N - value) / P])
    hidden = max(value - 0.5, 0.0) * float((positive * negative)[[0, -1]] @ sheet.open_ends) / float(P * N)
    return Functional(value, influence, abs(value - plain) + hidden)


def _neighbours(sheet: ScoreSheet, counts: Floats) -> Floats:
    """The next cell's count less the previous one's; 0 where cells are open or hold ties."""
    found = np.zeros_like(counts)
    if not sheet.tied and len(counts) > 4:
        inner = counts.copy()
        inner[0] = inner[-1] = 0.0
        found[1:-1] = inner[2:] - inner[:-2]
    return found


def second_order_area(sheet: ScoreSheet, value: float) -> float:
    """Variance that noise on positives times noise on negatives adds to the area, by groups of cells."""
    if sheet.table.exact:
        return 0.0
    negative, positive = (group.covariance for group in sheet.table.groups)
    below = np.tri(len(negative), k=-1) + np.eye(len(negative)) / 2 - value
    return float((positive * (below @ negative @ below.T)).sum()) / float(np.prod(sheet.counts.sum(axis=1))) ** 2


def average_precision(sheet: ScoreSheet) -> Functional:
    """Mean precision over the positives; inside a cell of a fine table records are in random order."""
    negative, positive = sheet.counts
    P = float(positive.sum())
    records = negative + positive
    hits, called = _from_above(positive), _from_above(records)
    if not sheet.tied:  # the j-th of p positives among m records in random order is about number j (m + 1) / (p + 1)
        hits, called = hits - positive + (positive + 1) / 2, called - records + (records + 1) / 2
    precision = np.minimum(hits / np.maximum(called, 0.5), 1.0)
    value = float(positive @ precision) / P
    called = np.maximum(called, max(float(sheet.table.total_deviations.max()), 0.5))
    hits = np.minimum(hits, called)
    up = np.cumsum(positive * (called - hits) / called**2)
    down = np.cumsum(positive * hits / called**2)
    return Functional(value, np.stack([-down, precision - value + up]) / P)


def precision_excess(sheet: ScoreSheet) -> float:
    """How much the average precision of a sample is too large: each positive is among those called with it.

    Among `called` records one is certainly a positive, which adds (1 - precision) / called to the precision there.
    """
    negative, positive = sheet.counts
    called = np.maximum(_from_above(negative + positive), 1.0)
    precision = np.minimum(_from_above(positive) / called, 1.0)
    return float(positive @ ((1 - precision) / called)) / float(positive.sum())


def _from_above(counts: Floats) -> Floats:
    """Sum of each cell and all above it."""
    return np.cumsum(counts[::-1])[::-1]


def mean(sheet: ScoreSheet, weights: Floats) -> Functional:
    """The mean over records of weights, shape (2, cells)."""
    value = float((sheet.counts * weights).sum()) / sheet.records
    return Functional(value, (weights - value) / sheet.records)


def log_loss(sheet: ScoreSheet) -> Functional:
    """Mean negative log-likelihood of the labels."""
    negative = sheet.grouped(lambda odds: np.logaddexp(0.0, odds))
    positive = sheet.grouped(lambda odds: np.logaddexp(0.0, -odds))
    return mean(sheet, np.stack([negative, positive]))


def brier(sheet: ScoreSheet) -> Functional:
    """Mean squared error of the score."""
    negative = sheet.grouped(lambda odds: np.square(sigmoid(odds)))
    positive = sheet.grouped(lambda odds: np.square(sigmoid(-odds)))
    return mean(sheet, np.stack([negative, positive]))


def scaled_brier(sheet: ScoreSheet) -> Functional:
    """One minus the Brier score over that of a model that always gives the prevalence."""
    loss, rate = brier(sheet), prevalence(sheet)
    spread = rate.value * (1 - rate.value)
    change = loss.influence / spread - loss.value * (1 - 2 * rate.value) * rate.influence / spread**2
    return Functional(1 - loss.value / spread, -change)


def prevalence(sheet: ScoreSheet) -> Functional:
    """Fraction of positives."""
    return mean(sheet, labels(sheet.table.cells))


def labels(cells: int) -> Floats:
    """Zero for negatives and one for positives, shape (2, cells)."""
    return np.stack([np.zeros(cells), np.ones(cells)])


def mean_score(sheet: ScoreSheet) -> Floats:
    """The score that stands for each cell in sums of scores, shape (cells,)."""
    return sheet.grouped(sigmoid)


def scores(sheet: ScoreSheet) -> Floats:
    """Weights that sum the scores of all records, shape (2, cells)."""
    return np.stack([mean_score(sheet)] * 2)


def observed_expected(sheet: ScoreSheet) -> Functional:
    """Ratio of observed positives to the sum of the scores."""
    expected = float((sheet.counts * (weights := scores(sheet))).sum())
    value = float(sheet.counts[POSITIVE].sum()) / expected
    return Functional(value, (labels(sheet.table.cells) - value * weights) / expected)


def observed_expected_interval(sheet: ScoreSheet) -> Measured:
    """The ratio of two sums, both noisy, with Fieller's interval.

    It holds the ratios m for which observed - m x expected is within z of its own standard deviations of zero. Where
    the divisor does not clearly differ from zero there is no upper end.
    """
    both = np.stack([labels(sheet.table.cells), scores(sheet)])
    observed, expected = both.reshape(2, -1) @ sheet.table.counts.reshape(-1)
    flat = both.reshape(2, -1)
    (a, b), (_, c) = Z * Z * ((flat * sheet.counts.reshape(-1)) @ flat.T + sheet.table.covariance(both))
    square, middle = expected**2 - c, observed * expected - b
    inside = middle**2 - square * (observed**2 - a)
    if square <= 0 or inside < 0:
        return Measured(float(observed / expected), 0.0, np.inf)
    half = np.sqrt(inside)
    return within(float(observed / expected), (middle - half) / square, (middle + half) / square, 0.0, np.inf)


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
        move *= min(1.0, 1.0 / max(float(np.abs(move).max()), _TINY))
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
    return LogisticFit(design, weights, influence, _doubt(ratio))


def _doubt(ratio: float) -> float:
    """How much wider an interval would be if its divisor, of which noise is this part, were two deviations smaller."""
    return 1 / max(1 - 2 * ratio, 1e-3)


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
        part = hessian[self.index, self._other] @ _inverse(hessian[np.ix_(self._other, self._other)])
        own = each[self.index] - np.tensordot(part, each[self._other], axes=1)
        variance = float((self.sheet.counts * own**2).sum()) + float(self.sheet.table.variance(own[None])[0])
        return float((own * counts).sum() / np.sqrt(max(variance, _TINY)))

    def _others(self, value: float) -> Floats:
        """All weights, the others fitted to this value of the one."""
        weights, design, other = self.fit.weights.copy(), self.fit.design, self._other
        weights[self.index] = value
        signed = self.sheet.table.counts.sum(axis=0)
        for _ in range(_NEWTON_STEPS if len(other) else 0):
            rate = design.rate(weights)
            gradient = (design.sums(rate) @ signed - self._labels)[other]
            hessian = design.hessian(self._records, rate)[np.ix_(other, other)]
            weights[other] -= np.clip(_inverse(hessian) @ gradient, -1.0, 1.0)
        return weights

    @cached_property
    def _other(self) -> Ints:
        return np.delete(np.arange(len(self.fit.weights)), self.index)

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


@final
@dataclass(frozen=True, eq=False)
class Decisions:
    """Everything that is known of decisions at thresholds, from weights of the counts; arrays are (k, 2, cells)."""

    sheet: ScoreSheet
    thresholds: Floats  # (k,)

    @cached_property
    def _above(self) -> tuple[Floats, Floats]:
        return self.sheet.above(self.thresholds)

    def _only(self, label: int, weights: Floats) -> Floats:
        both = np.zeros((len(weights), 2, weights.shape[-1]))
        both[:, label] = weights
        return both

    def _both(self, weights: Floats) -> Floats:
        return np.stack([weights, weights], axis=1)

    def sensitivity(self) -> Ratios:
        above, unsure = self._above
        every = self._only(POSITIVE, np.ones_like(above[:1]))
        return self.sheet.ratios(self._only(POSITIVE, above), every, self._only(POSITIVE, unsure))

    def specificity(self) -> Ratios:
        above, unsure = self._above
        every = self._only(NEGATIVE, np.ones_like(above[:1]))
        return self.sheet.ratios(self._only(NEGATIVE, 1 - above), every, self._only(NEGATIVE, unsure))

    def ppv(self) -> Ratios:
        above, unsure = self._above
        return self.sheet.ratios(self._only(POSITIVE, above), self._both(above), self._both(unsure))

    def npv(self) -> Ratios:
        above, unsure = self._above
        return self.sheet.ratios(self._only(NEGATIVE, 1 - above), self._both(1 - above), self._both(unsure))

    def accuracy(self) -> Ratios:
        above, unsure = self._above
        right = np.stack([1 - above, above], axis=1)
        return self.sheet.ratios(right, np.ones_like(right[:1]), self._both(unsure))

    def alert_rate(self) -> Ratios:
        above, unsure = self._above
        return self.sheet.ratios(self._both(above), self._both(np.ones_like(above[:1])), self._both(unsure))

    def f1(self) -> Ratios:
        above, unsure = self._above
        whole = np.stack([above, above + 1], axis=1)
        return self.sheet.ratios(self._only(POSITIVE, 2 * above), whole, self._both(2 * unsure))

    def net_benefit(self, index: int) -> Estimate:
        """True positives less weighted false positives, per record."""
        above, unsure = (part[index] for part in self._above)
        at = float(self.thresholds[index])
        odds = at / (1 - at) if at < 1 else 0.0
        found = self.sheet.estimate(mean(self.sheet, np.stack([-odds * above, above])))
        bound = float((self.sheet.counts * np.stack([odds * unsure, unsure])).sum()) / self.sheet.records
        return Estimate(found.value, found.sampling, found.noise, bound)

    def treat_all(self, index: int) -> Estimate:
        """The net benefit of calling everybody positive."""
        at = float(self.thresholds[index])
        odds = at / (1 - at) if at < 1 else 0.0
        weights = np.stack([np.full(self.sheet.table.cells, -odds), np.ones(self.sheet.table.cells)])
        return self.sheet.estimate(mean(self.sheet, weights))

    def youden(self, index: int) -> Estimate:
        """Sensitivity plus specificity less one."""
        parts = [self.sensitivity(), self.specificity()]
        values = [float(np.clip(part.value[index], 0.0, 1.0)) for part in parts]
        records = [float(part.records[index]) for part in parts]
        shrunken = [(v * n + 2) / (n + 4) for v, n in zip(values, records, strict=True)]
        sampling = sum(v * (1 - v) / n for v, n in zip(shrunken, records, strict=True))
        noise, bound = (float(sum(getattr(part, name)[index] for part in parts)) for name in ("noise", "reading"))
        return Estimate(float(parts[0].value[index] + parts[1].value[index]) - 1, sampling, noise, bound)
