"""Metrics of a binary classifier from counts in cells of the score: rates at thresholds, AUC, calibration in bins.

Every value comes with its interval, which covers three things: sampling, the privacy noise, and where inside its cell
a threshold or a pair of scores lies (bucketing: a bound on the bias, not a variance). The bins of the calibration error
and of the reliability diagram need not be unions of cells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.estimation.covariances import FullCovariance
from fedcalib.estimation.noise_aware import absolute_sum_interval, debiased_absolute
from fedcalib.estimation.score_table import DETECTION_Z, MIN_RECORDS, NEGATIVE, POSITIVE, Pieces, ScoreTable, only
from fedcalib.metrics.binning import bin_edges, check_unit_interval
from fedcalib.metrics.intervals import critical, normal_quantile
from fedcalib.metrics.table import ACCURACY, AUC, ECE, PRECISION, RECALL
from fedcalib.types import Floats


@final
@dataclass(frozen=True, eq=False)
class Estimates:
    """Values with their intervals; NaN with the interval [0, 1] where noise or a lack of records leaves no estimate."""

    value: Floats
    low: Floats
    high: Floats


def checked_thresholds(thresholds: object) -> Floats:
    """Thresholds as a one-dimensional array; an error if any is outside [0, 1]."""
    row = np.atleast_1d(np.asarray(thresholds, dtype=np.float64))
    if row.ndim != 1:
        raise InputError(f"Expected a threshold or a one-dimensional array of them, found shape {row.shape}.")
    check_unit_interval(row, "thresholds")
    return row


def recall(table: ScoreTable, thresholds: Floats, level: float = 0.95) -> Estimates:
    """Fraction of positives whose score is at least the threshold."""
    return _rate_above(POSITIVE, table, thresholds, level)


def false_positive_rate(table: ScoreTable, thresholds: Floats, level: float = 0.95) -> Estimates:
    """Fraction of negatives whose score is at least the threshold."""
    return _rate_above(NEGATIVE, table, thresholds, level)


def _rate_above(label: int, table: ScoreTable, thresholds: Floats, level: float) -> Estimates:
    above, undecided = _above(table, thresholds)
    return rates(table, only(label, above), only(label, np.ones_like(above[:1])), only(label, undecided), level)


def precision(table: ScoreTable, thresholds: Floats, level: float = 0.95) -> Estimates:
    """Fraction of positives among records that score at least the threshold; one if an exact table has none there."""
    above, undecided = _above(table, thresholds)
    whole = np.stack([above, above], axis=1)
    found = rates(table, only(POSITIVE, above), whole, np.stack([undecided, undecided], axis=1), level)
    empty = np.isnan(found.value) & table.exact & (table.totals.sum() > 0)
    return Estimates(np.where(empty, 1.0, found.value), found.low, found.high)


def accuracy(table: ScoreTable, thresholds: Floats, level: float = 0.95) -> Estimates:
    """Fraction of records on the right side of the threshold."""
    above, undecided = _above(table, thresholds)
    part = np.stack([1 - above, above], axis=1)
    return rates(table, part, np.ones_like(part[:1]), np.stack([undecided, undecided], axis=1), level)


def area(table: ScoreTable, level: float = 0.95) -> Estimates:
    """Area under the ROC curve: the probability that a positive outscores a negative; ties in a cell count one half."""
    if table.below_noise:
        return _unknown(1)
    counts = table.counts if table.exact else table.nonnegative  # raw trees, as published, have negative counts
    value = float(one_step_area(table.counts[None], counts[None])[0])
    influence = area_influence(counts)
    variance = float((counts * influence**2).sum()) + float(table.variance(influence[None])[0])
    deviation = max(variance + _second_order_variance(table, value), 0.0) ** 0.5
    bound = max(_undecided_pairs(counts), 0.0)
    half = critical(2 * bound / max(deviation, 1e-300), level) * deviation + bound
    return Estimates(np.array([value]), np.array([max(value - half, 0.0)]), np.array([min(value + half, 1.0)]))


def one_step_area(counts: Floats, nonnegative: Floats) -> Floats:
    """Areas of noisy counts, (runs, 2, cells), by a one-step estimate from the nonnegative counts nearest to them.

    The plug-in area multiplies the noise of positives with the noise of negatives, cell by cell, which is most of its
    error where noise is large. The area of the nonnegative counts plus the influence function times the difference to
    the noisy ones has nearly as little bias, and without noise it is the plug-in area.
    """
    influence = area_influence(nonnegative)
    moved: Floats = _areas(nonnegative) + (influence * (counts - nonnegative)).sum(axis=(1, 2))
    return np.clip(moved, 0.0, 1.0)


def _second_order_variance(table: ScoreTable, value: float) -> float:
    """Variance that noise on positives times noise on negatives adds to the area, by groups of cells.

    Compared with the noise of one class times the counts of the other it matters only where noise is about as large as
    the counts.
    """
    if table.exact:
        return 0.0
    negative, positive = (group.covariance for group in table.groups)
    below = np.tri(len(negative), k=-1) + np.eye(len(negative)) / 2 - value
    return float((positive * (below @ negative @ below.T)).sum()) / float(np.prod(table.nonnegative.sum(axis=1))) ** 2


def area_influence(counts: Floats) -> Floats:
    """Influence function of the area: its change per record added to each cell, shape (..., 2, cells)."""
    negative, positive = counts[..., NEGATIVE, :], counts[..., POSITIVE, :]
    P, N = positive.sum(axis=-1, keepdims=True), negative.sum(axis=-1, keepdims=True)
    value = _areas(counts)[..., None]
    below = (np.cumsum(negative, axis=-1) - negative / 2) / N
    beyond = 1 - (np.cumsum(positive, axis=-1) - positive / 2) / P
    return np.stack([(beyond - value) / N, (below - value) / P], axis=-2)


def _areas(counts: Floats) -> Floats:
    negative, positive = counts[..., NEGATIVE, :], counts[..., POSITIVE, :]
    ordered_pairs = (positive * (2 * np.cumsum(negative, axis=-1) - negative)).sum(axis=-1)
    areas: Floats = ordered_pairs / (2 * positive.sum(axis=-1) * negative.sum(axis=-1))
    return areas


def unevenness(counts: Floats) -> Floats:
    """Bound on the distance of the mean score in a cell from its middle, in widths of the cell, at most one half.

    Where a cell's neighbours have at least a quarter as many records, the density is taken as continuous, and twice
    its slope bounds the distance; in an isolated cell the records may lie anywhere.
    """
    beside = np.concatenate([counts[:1], counts, counts[-1:]])
    left, right = beside[:-2], beside[2:]
    smooth = (np.minimum(left, right) >= counts / 4) & (counts > 0)
    rise = np.minimum(np.abs(right - left), 6 * counts)  # a quotient by almost nothing would overflow
    slope: Floats = np.divide(rise, 2 * counts, out=np.full(len(counts), 3.0), where=smooth)
    return slope / 6


def _undecided_pairs(counts: Floats) -> float:
    """Bound on the error of the area from counting each pair within a cell as one half."""
    negative, positive = counts
    each = np.minimum(unevenness(negative) + unevenness(positive), 0.5)
    return float((each * negative * positive).sum()) / (float(negative.sum()) * float(positive.sum()))


def _above(table: ScoreTable, thresholds: Floats) -> tuple[Floats, Floats]:
    """Fraction of each cell above each threshold, and the fraction that may lie on the other side."""
    left, right = table.edges[:-1], table.edges[1:]
    above = np.clip((right - thresholds[:, None]) / (right - left), 0.0, 1.0)
    cut = (left < thresholds[:, None]) & ((thresholds[:, None] < right) | (right == 1.0))
    return above, np.where(cut, np.maximum(above, 1 - above), 0.0)


def rates(table: ScoreTable, part: Floats, whole: Floats, undecided: Floats, level: float) -> Estimates:
    """Ratios of weighted sums, (k,), with Wilson's interval for the effective number of records under noise.

    `part` and `undecided` are (k, 2, cells); `whole` may have one row for all. Values are ratios of the smooth counts;
    the noise variance is that of the counts themselves, smoothed or not.
    """
    signed, smooth = (table.counts,) * 2 if table.exact else (table.nonnegative, table.smooth)
    observed, records = weighted_sums(whole, signed), weighted_sums(whole, smooth)
    least = np.maximum(DETECTION_Z * np.sqrt(np.maximum(table.variance(whole), 0.0)), MIN_RECORDS)
    known = (observed > least) & (records > MIN_RECORDS)
    records = np.where(known, records, 1.0)
    value = np.where(known, np.clip(weighted_sums(part, smooth) / records, 0.0, 1.0), np.nan)
    rate = np.where(np.isnan(value), 0.5, value)
    privacy = _noise_of_ratio(table, part, whole, rate) / records**2
    shrunken = (rate * records + 2) / (records + 4)
    sampling = shrunken * (1 - shrunken) / records
    low, high = _wilson(rate, records * sampling / (sampling + privacy), normal_quantile(level))
    bound = np.maximum(weighted_sums(undecided, smooth), 0.0) / records
    return Estimates(
        value,
        np.where(known, np.minimum(np.maximum(low - bound, 0.0), rate), 0.0),
        np.where(known, np.maximum(np.minimum(high + bound, 1.0), rate), 1.0),
    )


def weighted_sums(weights: Floats, counts: Floats) -> Floats:
    """Sums of counts with weights (k, 2, cells), shape (k,)."""
    return weights.reshape(len(weights), -1) @ counts.reshape(-1)


def _noise_of_ratio(table: ScoreTable, part: Floats, whole: Floats, rate: Floats) -> Floats:
    if table.exact:
        return np.zeros(len(part))
    return np.maximum(table.variance(part - rate[:, None, None] * whole), 0.0)


def _wilson(rate: Floats, records: Floats, z: float) -> tuple[Floats, Floats]:
    centre = (rate + z * z / (2 * records)) / (1 + z * z / records)
    half = z * np.sqrt(rate * (1 - rate) / records + z * z / (4 * records**2)) / (1 + z * z / records)
    return centre - half, centre + half


def _unknown(count: int) -> Estimates:
    return Estimates(np.full(count, np.nan), np.zeros(count), np.ones(count))


@final
@dataclass(frozen=True, eq=False)
class Bins:
    """A reliability diagram: by bin, the number of records, their mean score and their rate of positives."""

    edges: Floats  # (bins + 1,)
    records: Floats  # (bins,)
    score: Floats  # (bins,): the mean score; NaN in empty bins
    rate: Estimates  # (bins,): the rate of positives
    below_noise: Floats  # (bins,): 1 where noise alone could produce the records


def expected_calibration_error(table: ScoreTable, bins: int, level: float = 0.95) -> Estimates:
    """Mean absolute gap between score and label over bins of equal width.

    The value is corrected for the bias that privacy noise adds to an absolute gap, and not for the one that sampling
    adds: without noise it is the plug-in error. The interval is one for the true error; it is widened by how far scores
    inside a cell may be from its middle.
    """
    records = float(table.totals.sum())
    if records <= max(DETECTION_Z * float(table.total_deviations[2]), MIN_RECORDS):
        return _unknown(1)
    weights = gap_weights_of(table, bins)
    gaps = weighted_sums(weights, table.counts)
    noise = table.covariance(weights)
    squares = weighted_sums(_square_weights(table, bins), table.nonnegative)
    sampling = np.maximum(squares - gaps**2 / records, 0.0)
    debiased = debiased_absolute(gaps, np.diag(noise))
    bounds = absolute_sum_interval(gaps, FullCovariance(noise).plus(sampling), level)
    value = min(float(debiased.sum()) / records, 1.0)
    cells = table.nonnegative.sum(axis=0)
    bucketing = float((np.diff(table.edges) * unevenness(cells) * cells).sum()) / records
    low, high = bounds.low / records - bucketing, bounds.high / records + bucketing
    return Estimates(np.array([value]), np.array([max(min(low, value), 0.0)]), np.array([min(max(high, value), 1.0)]))


def reliability(table: ScoreTable, edges: Floats, level: float = 0.95) -> Bins:
    """Reliability diagram over bins between these edges, from 0 to 1."""
    pieces, bins = Pieces.of(table, edges), len(edges) - 1
    ones = pieces.weights(np.ones_like(pieces.middle))
    whole = np.stack([ones, ones], axis=1)
    rate = rates(table, only(POSITIVE, ones), whole, np.zeros_like(whole), level)
    records = weighted_sums(whole, table.nonnegative)
    scores = pieces.weights(pieces.middle) @ table.nonnegative.sum(axis=0)
    mean = np.divide(scores, records, out=np.full(bins, np.nan), where=records > 0)
    return Bins(edges, records, mean, rate, np.isnan(rate.value).astype(np.float64))


HALF: Final = np.full(1, 0.5)
# the estimators of figures that need no threshold and no number of bins, by the metrics' names
HEADLINE: Final[Mapping[str, Callable[[ScoreTable], Estimates]]] = {
    AUC.name: area,
    ACCURACY.name: lambda table: accuracy(table, HALF),
    PRECISION.name: lambda table: precision(table, HALF),
    RECALL.name: lambda table: recall(table, HALF),
    ECE.name: lambda table: expected_calibration_error(table, 15),
}


def gap_weights_of(table: ScoreTable, bins: int) -> Floats:
    """Weights with which a table's counts sum to score minus label by bin, shape (bins, 2, cells)."""
    pieces = Pieces.of(table, bin_edges(bins))
    score, ones = pieces.weights(pieces.middle), pieces.weights(np.ones_like(pieces.middle))
    return np.stack([score, score - ones], axis=1)


def _square_weights(table: ScoreTable, bins: int) -> Floats:
    pieces = Pieces.of(table, bin_edges(bins))
    return np.stack([pieces.weights(pieces.middle**2), pieces.weights((1 - pieces.middle) ** 2)], axis=1)
