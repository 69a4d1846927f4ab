"""Calibration of a binary classifier from its table of scores: binned, debiased, smooth, and along a fitted curve.

Absolute gaps have no bias-free estimate. Values are plug-in values less the bias of privacy noise, and intervals are
those of `absolute_sum_interval`, which know that a plug-in sum of absolute values is too large.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

import numpy as np

from fedcalib.estimation.covariances import FullCovariance, SharedCovariance
from fedcalib.estimation.estimates import within
from fedcalib.estimation.logistic import LogisticFit, logistic
from fedcalib.estimation.noise_aware import ShapedSum, absolute_sum_interval, debiased_absolute, normal_draws
from fedcalib.estimation.score_functionals import mean_score
from fedcalib.estimation.score_rates import Bins, Estimates
from fedcalib.estimation.score_sheet import ScoreSheet
from fedcalib.estimation.score_table import NEGATIVE, POSITIVE
from fedcalib.metrics.binning import bin_edges, bin_index_unchecked
from fedcalib.metrics.calibration_line import spline_basis, spline_knots
from fedcalib.metrics.intervals import Measured, normal_quantile
from fedcalib.metrics.smooth_ece import smooth_ece_of_residuals, smoothing
from fedcalib.numeric import bisected, sigmoid
from fedcalib.types import Floats

Z: Final = normal_quantile(0.95)
_GRID: Final = 256  # cells of the score on which residuals are smoothed
_LEFT: Final = 0.5  # of the noise variance, after the projection onto nonnegative counts
_CLEAR: Final = 25.0  # times the variance of its noise has a cell of a table that is as good as exact
_TERMS: Final = 32  # of a sum of absolute values whose interval is computed
_SHAPE_Z: Final = 2.2  # more than 1.96, since the shape of the gaps is a guess
_SMALL: Final = 1e-9
_PLACES: Final = 256  # at which curves are compared with the diagonal, for intervals


@final
@dataclass(frozen=True, eq=False)
class Gaps:
    """Sums of score minus label by bin of equal width, with the covariance of their noise and their sampling variance.

    A cell belongs to the bin of its own score: a cell that is wider than a bin is not divided, since the labels inside
    it are known together only.
    """

    sheet: ScoreSheet
    bins: int

    @cached_property
    def member(self) -> Floats:
        """Which cells belong to each bin, shape (bins, cells)."""
        place = bin_index_unchecked(self.sheet.score, self.bins)
        return np.asarray(place == np.arange(self.bins)[:, None], dtype=np.float64)

    @cached_property
    def weights(self) -> Floats:
        """Weights of the counts, shape (bins, 2, cells)."""
        score = mean_score(self.sheet)
        return np.stack([self.member * score, self.member * (score - 1)], axis=1)

    @cached_property
    def gap(self) -> Floats:
        return self._sums(self.weights, self.sheet.table.counts)

    @cached_property
    def noise(self) -> Floats:
        return self.sheet.table.covariance(self.weights)

    @cached_property
    def sampling(self) -> Floats:
        squares = self._sums(np.square(self.weights), self.sheet.counts)
        return np.maximum(squares - self.gap**2 / self.sheet.records, 0.0)

    @cached_property
    def counts(self) -> Floats:
        """Nonnegative counts by label and bin, shape (2, bins)."""
        return self.sheet.counts @ self.member.T

    def error(self) -> Measured:
        """Mean absolute gap, of the nonnegative counts, with its interval, from the noisy ones."""
        nearest = self._sums(self.weights, self.sheet.counts)
        return gap_error(nearest, self.gap, self.noise, self.sampling, self.sheet.records)

    def _sums(self, weights: Floats, counts: Floats) -> Floats:
        return np.asarray(weights.reshape(len(weights), -1) @ counts.reshape(-1))


def gap_error(nearest: Floats, gap: Floats, noise: Floats, sampling: Floats, records: float) -> Measured:
    """Mean absolute gap with its interval; `noise` is a covariance, (k, k), and `sampling` variances, (k,).

    The value is that of the nonnegative counts. Where cells are empty these hold about half of the noise, whose bias
    is subtracted; that of sampling is not, so that without noise the value is the plug-in error.

    Where there is noise, gaps are at most as even as the records: bins that hold few cannot have large ones. So the
    upper end is at most that of gaps in the shape of the sampling variances.
    """
    debiased = debiased_absolute(nearest, _LEFT * np.diag(noise))
    bounds = absolute_sum_interval(gap, FullCovariance(noise).plus(sampling))
    high = bounds.high
    if noise.any():
        own = SharedCovariance.independent(sampling)
        shaped = ShapedSum(gap, np.diag(noise), own, sampling + _SMALL, laplace=False)
        high = max(min(high, shaped.interval(_SHAPE_Z, _SHAPE_Z)[1]), bounds.low)
    return within(float(debiased.sum()) / records, bounds.low / records, high / records, 0.0, 1.0)


def debiased_error(gap: Floats, noise: Floats, sampling: Floats, count: Floats, records: float) -> Measured:
    """Root of the mean squared gap of rates, without the bias of sampling and noise, with its interval."""
    some = count > np.sqrt(np.maximum(noise, 0.0)) + 0.5
    gap, variance, count = gap[some], (noise + sampling)[some], count[some]
    square = float(((gap**2 - variance) / count).sum()) / records
    measured = float(((4 * gap**2 * variance + 2 * variance**2) / count**2).sum()) / records**2
    drawn = float((gap**4 / count**3).sum()) / records - square**2  # variance of the squared gap of a record's bin
    spread = max(measured + max(drawn, 0.0) / records, 0.0) ** 0.5
    found = within(square, square - Z * spread, square + Z * spread, 0.0, 1.0)
    return Measured(found.value**0.5, found.low**0.5, found.high**0.5)


def smooth_error(sheet: ScoreSheet) -> Measured:
    """Smooth calibration error without the bias of noise, which has no sign once residuals are smoothed and absolute.

    The interval is that of the residuals smoothed at the bandwidth that was found.
    """
    some = sheet.counts.any(axis=0) if sheet.table.exact else np.ones(len(sheet.odds), dtype=bool)
    score, counts = mean_score(sheet)[some], sheet.counts[:, some]
    weights = np.stack([score, score - 1])  # (2, cells)
    onto = _onto_grid(sheet.score[some], _GRID)  # (grid, cells)
    residuals = onto @ (weights * sheet.table.counts[:, some]).sum(axis=0)
    value = smooth_ece_of_residuals(residuals, sheet.records)
    kernel = smoothing(_GRID, max(value, 1.0 / _GRID))
    blocks = kernel.reshape(_TERMS, -1, _GRID).sum(axis=1) @ onto  # (terms, cells)
    linear = blocks[:, None, :] * weights
    flat = linear.reshape(_TERMS, -1)
    terms = flat @ sheet.table.counts[:, some].reshape(-1)
    covariance = sheet.table.covariance(linear) + (flat * counts.reshape(-1)) @ flat.T
    found = absolute_sum_interval(terms, FullCovariance(covariance))
    noise = normal_draws(covariance)
    low, high = min(found.low, _least_sum(terms, noise)), max(found.high, _largest_sum(terms, covariance, noise))
    value *= _part(terms, normal_draws(sheet.table.covariance(linear)), _mean)
    return within(value, low / sheet.records, high / sheet.records, 0.0, 1.0)


def _least_sum(terms: Floats, noise: Floats) -> float:
    """The least sum of absolute true terms of the shape that was found, whose noisy sum may well be as large.

    Smoothed residuals are so alike that their sum is far from normal, so its distribution is simulated.
    """
    return _part(terms, noise, _upper) * float(np.abs(terms).sum())


def _largest_sum(terms: Floats, covariance: Floats, noise: Floats) -> float:
    """The largest such sum, whose noisy sum may well be as small."""
    total = float(np.abs(terms).sum())
    shape = terms / max(total, 1e-300)
    most = 2 * total + 6 * float(np.sqrt(np.maximum(np.diag(covariance), 0.0)).sum())
    return bisected(lambda size: _lower(np.abs(size * shape + noise).sum(axis=1)) > total, total, most, 20)[1]


def _part(terms: Floats, noise: Floats, summary: Callable[[Floats], float]) -> float:
    """The part of the terms whose noisy sums, summarised, are as large as the sum that was found; 1 without noise."""
    total = float(np.abs(terms).sum())
    if not noise.any():
        return 1.0
    return bisected(lambda t: summary(np.abs(t * terms + noise).sum(axis=1)) > total, 0.0, 1.0, 20)[0]


def _upper(sums: Floats) -> float:
    return _quantile(sums, 0.975)


def _lower(sums: Floats) -> float:
    return _quantile(sums, 0.025)


def _quantile(sums: Floats, fraction: float) -> float:
    """What `np.quantile` gives, to the last digit, without its overhead, which is large for a few hundred numbers."""
    place = (len(sums) - 1) * fraction
    below = int(place)
    ordered = np.partition(sums, (below, below + 1, len(sums) - 1))
    if np.isnan(ordered[-1]):
        return float("nan")
    part, step = place - below, float(ordered[below + 1] - ordered[below])
    return float(ordered[below] + step * part if part < 0.5 else ordered[below + 1] - step * (1 - part))


def _mean(sums: Floats) -> float:
    return float(sums.mean())


def _onto_grid(score: Floats, grid: int) -> Floats:
    """Divides each cell between the two nearest places of a grid over [0, 1], shape (grid, cells)."""
    position = score * grid - 0.5
    left = np.floor(position)
    below, above = (np.clip(left + k, 0, grid - 1).astype(np.int64) for k in (0, 1))
    onto, cells = np.zeros((grid, len(score))), np.arange(len(score))
    np.add.at(onto, (below, cells), 1 - (position - left))
    np.add.at(onto, (above, cells), position - left)
    return onto


@final
@dataclass(frozen=True, eq=False)
class SmoothCurve:
    """The observed rate as a smooth function of the score: a logistic regression on a spline of the log-odds."""

    sheet: ScoreSheet
    fit: LogisticFit
    knots: Floats

    @classmethod
    def of(cls, sheet: ScoreSheet) -> SmoothCurve | None:
        """The fitted curve, or None where the counts do not determine it."""
        odds, share = sheet.parts
        counts = sheet.counts.sum(axis=0) * share
        knots = spline_knots(odds.reshape(-1), counts.reshape(-1), 4 if _fine(sheet) else 3)
        start = np.eye(max(len(knots), 2))[1]
        fit = logistic(sheet, lambda odds: spline_basis(odds, knots), start)
        return None if fit is None else cls(sheet, fit, knots)

    def at(self, odds: Floats) -> tuple[Floats, Floats]:
        """The rate at some log-odds, and its derivative with respect to the weights, (n,) and (n, k)."""
        features = spline_basis(odds, self.knots)
        rate = sigmoid(features @ self.fit.weights)
        return rate, (rate * (1 - rate))[:, None] * features

    @cached_property
    def covariance(self) -> Floats:
        """Covariance of the weights, from sampling and noise."""
        own = self.fit.influence
        flat = own.reshape(len(own), -1)
        found = (flat * self.sheet.counts.reshape(-1)) @ flat.T + self.sheet.table.covariance(own)
        return np.asarray((found + found.T) / 2)

    def band(self, scores: Floats, odds: Floats) -> Estimates:
        """The rate at some scores with pointwise intervals, which stay inside (0, 1)."""
        features = spline_basis(odds, self.knots)
        line = features @ self.fit.weights
        half = Z * np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", features, self.covariance, features), 0.0))
        return Estimates(sigmoid(line), sigmoid(line - half), sigmoid(line + half))

    @cached_property
    def _places(self) -> tuple[Floats, Floats]:
        """Log-odds inside the cells that hold records, and the share of all records there, shape (n,) each."""
        odds, share = self.sheet.parts
        weight = self.sheet.counts.sum(axis=0) * share
        some = weight > 0 if (weight > 0).any() else np.ones_like(weight, dtype=bool)
        return odds[some], weight[some] / max(float(weight.sum()), 1e-300)

    @cached_property
    def _distance(self) -> Floats:
        """Absolute distance of the rate from the score at each place."""
        return np.abs(self.at(self._places[0])[0] - sigmoid(self._places[0]))

    @cached_property
    def _calibrated(self) -> bool:
        """Whether the diagonal is a plausible curve."""
        from scipy.special import chdtri

        away = self.fit.weights.copy()
        away[1] -= 1.0
        return float(away @ np.linalg.pinv(self.covariance) @ away) < float(chdtri(len(away), 0.05))

    @cached_property
    def _few_places(self) -> tuple[Floats, Floats]:
        """As `_places`, thinned to so many that intervals need."""
        odds, weight = self._places
        if len(odds) <= _PLACES:
            return odds, weight
        order = np.argsort(odds, kind="stable")
        reached = np.cumsum(weight[order])
        chosen = np.searchsorted(reached, (np.arange(_PLACES) + 0.5) / _PLACES * reached[-1])
        return odds[order][np.minimum(chosen, len(odds) - 1)], np.full(_PLACES, 1 / _PLACES)

    @cached_property
    def _draws(self) -> Floats:
        """Absolute distances by place for curves that are as plausible as the fitted one, shape (draws, places)."""
        odds = self._few_places[0]
        rates = sigmoid((self.fit.weights + normal_draws(self.covariance)) @ spline_basis(odds, self.knots).T)
        return np.abs(rates - sigmoid(odds))

    def _measured(self, value: float, draws: Floats, left: float) -> Measured:
        """A figure of absolute distances; draws around the fitted curve are off by about as much as the fit itself.

        `left` is the part of this bias by which the far end moves. The upper quantile of one absolute value around an
        estimate is right as it is; a figure that is nearly the largest of many is too large by its bias.
        """
        low, high = (float(end) for end in np.quantile(draws, [0.025, 0.975]))
        bias = float(draws.mean()) - value
        low, high = (low - 2 * bias, high - left * bias) if bias > 0 else (low - left * bias, high - 2 * bias)
        return within(value, 0.0 if self._calibrated else low, high, 0.0, 1.0)

    def ici(self) -> Measured:
        """Mean absolute distance of the curve from the diagonal: the integrated calibration index."""
        weight, distance = self._places[1], self._distance
        value = float(weight @ distance)
        found = self._measured(value, self._draws @ self._few_places[1], 0.0)
        other = Z * float(np.sqrt(weight @ (distance - value) ** 2 / max(self.sheet.records, 1.0)))
        return _of_sample(found, other, other)

    def quantile(self, fraction: float) -> Measured:
        """A quantile over records of the absolute distance: E50 and E90."""
        weight = self._places[1]
        draws = weighted_quantiles(self._draws, self._few_places[1], fraction)
        value = _weighted_quantile(self._distance, weight, fraction)
        found = self._measured(value, draws, 0.0 if fraction <= 1 / 2 else 1.0)
        low, high = (_weighted_quantile(self._distance, weight, end) for end in self._fractions(fraction))
        if not self.sheet.tied:
            return _of_sample(found, value - low, high - value)
        return within(found.value, found.low + low - found.value, found.high + high - found.value, 0.0, 1.0)

    def _fractions(self, fraction: float) -> tuple[float, float]:
        """The fractions at which another sample may have its quantile; between tied scores it jumps."""
        half = Z * (fraction * (1 - fraction) / max(self.sheet.records, 1.0)) ** 0.5
        return max(fraction - half, 0.0), min(fraction + half, 1.0)


def _of_sample(found: Measured, below: float, above: float) -> Measured:
    """The records over which a figure is taken are a sample too: what another one would have is added to both sides."""
    low, high = np.hypot(found.value - found.low, below), np.hypot(found.high - found.value, above)
    return within(found.value, found.value - float(low), found.value + float(high), 0.0, 1.0)


def _fine(sheet: ScoreSheet) -> bool:
    """Whether counts of the rarer label are so large beside their noise that a curve with four knots costs little."""
    noise = float(sheet.table.noise[-1].mean())
    return sheet.table.exact or float(sheet.table.totals.min()) / len(sheet.odds) > _CLEAR * noise


def _weighted_quantile(values: Floats, weight: Floats, fraction: float) -> float:
    return float(weighted_quantiles(values[None], weight, fraction)[0])


def weighted_quantiles(values: Floats, weight: Floats, fraction: float) -> Floats:
    """The value in each row, (rows, k), up to which its smaller values have this fraction of the weight, (k,)."""
    order = np.argsort(values, axis=1, kind="stable")
    reached = np.cumsum(weight[order], axis=1)
    place = np.minimum((reached < fraction).sum(axis=1), values.shape[1] - 1)
    rows = np.arange(len(values))
    return np.asarray(values[rows, order[rows, place]])


def reliability(sheet: ScoreSheet, bins: int) -> Bins:
    """Reliability diagram over bins of equal width; a mean score lies inside its bin, and a rate in [0, 1]."""
    gaps, edges = Gaps(sheet, bins), bin_edges(bins)
    ones = gaps.member
    both = np.stack([ones, ones], axis=1)
    part = np.zeros_like(both)
    part[:, POSITIVE] = ones
    found = sheet.ratios(part, both)
    rates = [found.rate(index) for index in range(bins)]
    rate = Estimates(*(np.array([getattr(one, name) for one in rates]) for name in ("value", "low", "high")))
    records = gaps.counts[NEGATIVE] + gaps.counts[POSITIVE]
    sums = sheet.counts.sum(axis=0) @ (ones * sheet.score).T
    mean = np.divide(sums, records, out=np.full(bins, np.nan), where=records > 0)
    return Bins(edges, records, np.clip(mean, edges[:-1], edges[1:]), rate, np.isnan(rate.value).astype(np.float64))
