"""Calibration in bins of the score, from counts in cells that need not fit the bins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.binning import bin_edges
from fedcalib.metrics.absolute_sum import absolute_sum_interval, unfolded
from fedcalib.metrics.score_table import CERTAIN, POSITIVE, SOMETHING, ScoreTable
from fedcalib.metrics.table_rates import Estimates, rates, unevenness, weighed
from fedcalib.types import Floats, Ints


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
