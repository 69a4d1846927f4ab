"""Figures of a table of scores that are sums, ratios and areas, each with its influence: see `score_sheet`."""

from __future__ import annotations

import numpy as np

from fedcalib.estimation.estimates import Z, within
from fedcalib.estimation.score_sheet import Functional, ScoreSheet
from fedcalib.estimation.score_table import POSITIVE
from fedcalib.metrics.intervals import Measured
from fedcalib.numeric import sigmoid
from fedcalib.types import Floats


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
