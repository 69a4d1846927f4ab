"""Rates at thresholds and the area under the ROC curve, from counts in cells, each with its interval.

An interval adds up three things: which records happened to be there (sampling), the privacy noise, and where inside
its cell a threshold or a pair of scores falls (bucketing; a bound, not a chance).

Calibration in bins of the score, from counts in cells that need not fit the bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.estimation.noise_aware import absolute_sum_interval, unfolded
from fedcalib.estimation.score_table import CERTAIN, NEGATIVE, POSITIVE, SOMETHING, ScoreTable
from fedcalib.metrics.binning import bin_edges, check_unit_interval
from fedcalib.metrics.intervals import critical, normal_quantile
from fedcalib.types import Floats, Ints


@final
@dataclass(frozen=True, eq=False)
class Estimates:
    """Values with their intervals; NaN with an interval of everything where noise or lack of records drowns them."""

    value: Floats
    low: Floats
    high: Floats


def checked_thresholds(thresholds: object) -> Floats:
    """Read thresholds as a row of numbers, and refuse those outside [0, 1]."""
    row = np.atleast_1d(np.asarray(thresholds, dtype=np.float64))
    if row.ndim != 1:
        raise InputError(f"Expected a threshold or a row of them, found an array of shape {row.shape}.")
    check_unit_interval(row, "thresholds")
    return row


def recall(table: ScoreTable, thresholds: Floats, level: float = 0.95) -> Estimates:
    """Give the share of positives that score at least the threshold."""
    above, loose = _above(table, thresholds)
    part = np.stack([np.zeros_like(above), above], axis=1)
    return rates(table, part, _only(POSITIVE, np.ones_like(above[:1])), _only(POSITIVE, loose), level)


def false_positive_rate(table: ScoreTable, thresholds: Floats, level: float = 0.95) -> Estimates:
    """Give the share of negatives that score at least the threshold."""
    above, loose = _above(table, thresholds)
    part = np.stack([above, np.zeros_like(above)], axis=1)
    return rates(table, part, _only(NEGATIVE, np.ones_like(above[:1])), _only(NEGATIVE, loose), level)


def precision(table: ScoreTable, thresholds: Floats, level: float = 0.95) -> Estimates:
    """Give the share of positives among those that score at least the threshold; one, without noise, if nobody does."""
    above, loose = _above(table, thresholds)
    whole = np.stack([above, above], axis=1)
    found = rates(table, _only(POSITIVE, above), whole, np.stack([loose, loose], axis=1), level)
    nobody = np.isnan(found.value) & table.exact & (table.totals.sum() > 0)
    return Estimates(np.where(nobody, 1.0, found.value), found.low, found.high)


def accuracy(table: ScoreTable, thresholds: Floats, level: float = 0.95) -> Estimates:
    """Give the share of records on the right side of the threshold."""
    above, loose = _above(table, thresholds)
    part = np.stack([1 - above, above], axis=1)
    return rates(table, part, np.ones_like(part[:1]), np.stack([loose, loose], axis=1), level)


def area(table: ScoreTable, level: float = 0.95) -> Estimates:
    """Give the chance that a positive outscores a negative, ties within a cell counting one half."""
    if table.drowned:
        return _unknown(1)
    value = float(one_step_area(table.counts[None], table.held[None])[0])
    influence = area_influence(table.held)
    spread = float((table.held * influence**2).sum()) + float(table.variance(influence[None])[0])
    deviation = (spread + _both_shaken(table, value)) ** 0.5
    bound = _untold_pairs(table.held)
    half = critical(2 * bound / max(deviation, 1e-300), level) * deviation + bound
    return Estimates(np.array([value]), np.array([max(value - half, 0.0)]), np.array([min(value + half, 1.0)]))


def one_step_area(counts: Floats, held: Floats) -> Floats:
    """Give the areas of noisy counts, (runs, 2, cells), by one step from the rising counts nearest to them.

    The plain area multiplies the noise of positives with the noise of negatives, cell by cell, which is most of its
    error where noise is large. The area of the rising counts, moved by what the noisy ones add to first order, is
    nearly as free of bias, and without noise it is the plain area.
    """
    influence = area_influence(held)
    moved: Floats = _areas(held) + (influence * (counts - held)).sum(axis=(1, 2))
    return np.clip(moved, 0.0, 1.0)


def _both_shaken(table: ScoreTable, value: float) -> float:
    """Give the variance that noise on positives times noise on negatives adds to the area, by groups of cells.

    Beside the noise of one class against the counts of the other it matters only where noise is about as large as
    the counts.
    """
    if table.exact:
        return 0.0
    negative, positive = (group.covariance for group in table.groups)
    below = np.tri(len(negative), k=-1) + np.eye(len(negative)) / 2 - value
    return float((positive * (below @ negative @ below.T)).sum()) / float(np.prod(table.held.sum(axis=1))) ** 2


def area_influence(counts: Floats) -> Floats:
    """Say by how much one more record in each cell moves the area, (..., 2, cells)."""
    negative, positive = counts[..., NEGATIVE, :], counts[..., POSITIVE, :]
    P, N = positive.sum(axis=-1, keepdims=True), negative.sum(axis=-1, keepdims=True)
    value = _areas(counts)[..., None]
    below = (np.cumsum(negative, axis=-1) - negative / 2) / N
    beyond = 1 - (np.cumsum(positive, axis=-1) - positive / 2) / P
    return np.stack([(beyond - value) / N, (below - value) / P], axis=-2)


def _areas(counts: Floats) -> Floats:
    """Give the plain areas of counts that are not noisy, (...)."""
    negative, positive = counts[..., NEGATIVE, :], counts[..., POSITIVE, :]
    beaten = (positive * (2 * np.cumsum(negative, axis=-1) - negative)).sum(axis=-1)
    areas: Floats = beaten / (2 * positive.sum(axis=-1) * negative.sum(axis=-1))
    return areas


def unevenness(counts: Floats) -> Floats:
    """Bound how far the mean place inside a cell may be from its middle, in widths of the cell, at most one half.

    Where a cell's neighbours hold at least a quarter as much, the density is taken to run on through it, and twice
    its slope bounds the shift; a cell that stands alone may hold anything anywhere.
    """
    beside = np.concatenate([counts[:1], counts, counts[-1:]])
    left, right = beside[:-2], beside[2:]
    smooth = (np.minimum(left, right) >= counts / 4) & (counts > 0)
    slope: Floats = np.divide(np.abs(right - left), 2 * counts, out=np.full(len(counts), 3.0), where=smooth)
    return np.minimum(slope / 6, 0.5)


def _untold_pairs(counts: Floats) -> float:
    """Bound the share of pairs within cells that could be counted otherwise than as one half."""
    negative, positive = counts
    each = np.minimum(unevenness(negative) + unevenness(positive), 0.5)
    return float((each * negative * positive).sum()) / (float(negative.sum()) * float(positive.sum()))


def _above(table: ScoreTable, thresholds: Floats) -> tuple[Floats, Floats]:
    """Give the share of each cell above each threshold, and the share that could as well be on the other side."""
    left, right = table.edges[:-1], table.edges[1:]
    above = np.clip((right - thresholds[:, None]) / (right - left), 0.0, 1.0)
    cut = (left < thresholds[:, None]) & ((thresholds[:, None] < right) | (right == 1.0))
    return above, np.where(cut, np.maximum(above, 1 - above), 0.0)


def rates(table: ScoreTable, part: Floats, whole: Floats, loose: Floats, level: float) -> Estimates:
    """Estimate ratios of weighted sums, (k,), with Wilson's interval for as many records as the noise leaves.

    `part` and `loose` are (k, 2, cells); `whole` may have one row for all. Values are read off the likely counts; the
    noise that is reckoned with is that of the counts themselves, smoothed or not.
    """
    over, likely = weighed(whole, table.held), weighed(whole, table.likely)
    least = np.maximum(CERTAIN * np.sqrt(np.maximum(table.variance(whole), 0.0)), SOMETHING)
    known = (over > least) & (likely > SOMETHING)
    safe = np.where(known, likely, 1.0)
    value = np.where(known, np.clip(weighed(part, table.likely) / safe, 0.0, 1.0), np.nan)
    share = np.where(np.isnan(value), 0.5, value)
    private = _noise_of_ratio(table, part, whole, share) / safe**2
    careful = (share * safe + 2) / (safe + 4)
    sampling = careful * (1 - careful) / safe
    low, high = _wilson(share, safe * sampling / (sampling + private), normal_quantile(level))
    bound = weighed(loose, table.likely) / safe
    return Estimates(
        value,
        np.where(known, np.minimum(np.maximum(low - bound, 0.0), share), 0.0),
        np.where(known, np.maximum(np.minimum(high + bound, 1.0), share), 1.0),
    )


def weighed(weights: Floats, counts: Floats) -> Floats:
    """Sum counts with weights (k, 2, cells), (k,)."""
    sums: Floats = weights.reshape(len(weights), -1) @ counts.reshape(-1)
    return sums


def _noise_of_ratio(table: ScoreTable, part: Floats, whole: Floats, share: Floats) -> Floats:
    if table.exact:
        return np.zeros(len(part))
    return np.maximum(table.variance(part - share[:, None, None] * whole), 0.0)


def _wilson(share: Floats, records: Floats, z: float) -> tuple[Floats, Floats]:
    centre = (share + z * z / (2 * records)) / (1 + z * z / records)
    half = z * np.sqrt(share * (1 - share) / records + z * z / (4 * records**2)) / (1 + z * z / records)
    return centre - half, centre + half


def _only(label: int, weights: Floats) -> Floats:
    both = np.zeros((len(weights), 2, weights.shape[1]))
    both[:, label] = weights
    return both


def _unknown(count: int) -> Estimates:
    return Estimates(np.full(count, np.nan), np.zeros(count), np.ones(count))


@final
@dataclass(frozen=True, eq=False)
class Bins:
    """A reliability diagram: by bin, how many records, how high they score and how many of them are positive."""

    edges: Floats  # (bins + 1,)
    records: Floats  # (bins,)
    score: Floats  # (bins,): the mean score; NaN in empty bins
    share: Estimates  # (bins,): the share of positives
    drowned: Floats  # (bins,): 1 where noise could have made the records up


@final
@dataclass(frozen=True, eq=False)
class _Pieces:
    """What cells and bins cut each other into."""

    cell: Ints
    bin: Ints
    share: Floats  # of its cell
    middle: Floats

    @classmethod
    def of(cls, table: ScoreTable, bins: int) -> _Pieces:
        """Cut the unit interval at every edge of either kind."""
        borders = bin_edges(bins)
        cuts = np.unique(np.concatenate([table.edges, borders]))
        middle = (cuts[:-1] + cuts[1:]) / 2
        cell = np.searchsorted(table.edges, middle, side="right") - 1
        share = np.diff(cuts) / np.diff(table.edges)[cell]
        return cls(cell, np.searchsorted(borders, middle, side="right") - 1, share, middle)

    def weights(self, bins: int, cells: int, values: Floats) -> Floats:
        """Lay values a piece out by bin and cell, (bins, cells)."""
        flat = np.bincount(self.bin * cells + self.cell, weights=self.share * values, minlength=bins * cells)
        return flat.astype(np.float64).reshape(bins, cells)


def expected_calibration_error(table: ScoreTable, bins: int, level: float = 0.95) -> Estimates:
    """Estimate the mean absolute gap between score and label over bins of equal width.

    What privacy noise adds to an absolute gap is taken out of the value, not what sampling adds: it stays the plug-in
    error. The interval holds the true error; it is widened by how far scores inside a cell may be from its middle.
    """
    records = float(table.totals.sum())
    if records <= max(CERTAIN * float(table.doubts[2]), SOMETHING):
        return Estimates(np.full(1, np.nan), np.zeros(1), np.ones(1))
    pieces = _Pieces.of(table, bins)
    weights = _gap_weights(table, pieces, bins)
    gaps = weighed(weights, table.counts)
    noise = table.covariance(weights)
    squares = weighed(_square_weights(table, pieces, bins), table.held)
    sampling = np.maximum(squares - gaps**2 / records, 0.0)
    cleared = unfolded(gaps, np.diag(noise))
    bounds = absolute_sum_interval(gaps, noise + np.diag(sampling), level)
    value = min(float(cleared.sum()) / records, 1.0)
    held = table.held.sum(axis=0)
    inside = float((np.diff(table.edges) * unevenness(held) * held).sum()) / records
    low, high = bounds.low / records - inside, bounds.high / records + inside
    return Estimates(np.array([value]), np.array([max(min(low, value), 0.0)]), np.array([min(max(high, value), 1.0)]))


def reliability(table: ScoreTable, bins: int, level: float = 0.95) -> Bins:
    """Draw up the reliability diagram."""
    pieces = _Pieces.of(table, bins)
    ones = pieces.weights(bins, table.cells, np.ones_like(pieces.middle))
    whole = np.stack([ones, ones], axis=1)
    part = whole.copy()
    part[:, 1 - POSITIVE] = 0.0
    share = rates(table, part, whole, np.zeros_like(whole), level)
    records = weighed(whole, table.held)
    scores = pieces.weights(bins, table.cells, pieces.middle) @ table.held.sum(axis=0)
    mean = np.divide(scores, records, out=np.full(bins, np.nan), where=records > 0)
    return Bins(bin_edges(bins), records, mean, share, np.isnan(share.value).astype(np.float64))


def gap_weights_of(table: ScoreTable, bins: int) -> Floats:
    """Give the weights that sum a table's counts to score minus label by bin, (bins, 2, cells)."""
    return _gap_weights(table, _Pieces.of(table, bins), bins)


def _gap_weights(table: ScoreTable, pieces: _Pieces, bins: int) -> Floats:
    score = pieces.weights(bins, table.cells, pieces.middle)
    ones = pieces.weights(bins, table.cells, np.ones_like(pieces.middle))
    return np.stack([score, score - ones], axis=1)


def _square_weights(table: ScoreTable, pieces: _Pieces, bins: int) -> Floats:
    low = pieces.weights(bins, table.cells, pieces.middle**2)
    high = pieces.weights(bins, table.cells, (1 - pieces.middle) ** 2)
    return np.stack([low, high], axis=1)
