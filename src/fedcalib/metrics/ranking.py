"""How well scores rank positives above negatives: ROC AUC with ties at one half, and its sampling error.

Everything is computed from counts of positives and negatives at ordered scores. Exact metrics take the distinct
scores; federated ones take buckets, possibly noisy, and call the same functions.

What a threshold does: confusion counts, precision, recall, and the curves that all thresholds draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.metrics.intervals import (
    Interval,
    clopper_pearson,
    normal_quantile,
    proportion_interval,
    scores_and_labels,
    some_records,
)
from fedcalib.types import Array, Floats, Ints


@final
@dataclass(frozen=True, eq=False)
class ScoreCounts:
    """The distinct scores in rising order, and how many positives and negatives have each."""

    score: Floats  # (distinct,)
    positive: Ints  # (distinct,)
    negative: Ints  # (distinct,)

    @classmethod
    def of(cls, scores: Any, labels: Any) -> ScoreCounts:
        """Count the labels at each distinct score, by one sort of integers.

        The bits of non-negative doubles are ordered like the doubles and leave the sign bit free, so shifting them by
        one makes room for the label: one plain sort then carries both, three times faster than sorting indices.
        """
        column, truth = scores_and_labels(scores, labels)
        keys = column.view(np.int64) << 1  # the shift drops the sign, so -0.0 becomes 0.0
        keys |= truth
        keys.sort()
        bits = keys >> 1
        last = np.append(np.flatnonzero(bits[1:] != bits[:-1]), len(bits) - 1) if len(bits) else np.zeros(0, np.int64)
        positive = np.diff(np.cumsum(keys & 1)[last], prepend=0)
        total = np.diff(last, prepend=-1)
        return cls(bits[last].view(np.float64), positive, total - positive)


def roc_auc(scores: Any, labels: Any) -> float:
    """Give the chance that a positive outscores a negative, ties counting one half; NaN if a class is missing."""
    some_records(labels)
    counts = ScoreCounts.of(scores, labels)
    return auc_of_counts(counts.positive, counts.negative)


def roc_auc_interval(scores: Any, labels: Any, level: float = 0.95) -> Interval:
    """Bound the AUC by DeLong's variance.

    When every pair is in order (or in reverse) that variance is zero and means nothing; then as many disjoint pairs as
    there are records of the rarer class all agree, and an exact bound on their share takes over.
    """
    some_records(labels)
    counts = ScoreCounts.of(scores, labels)
    area = auc_of_counts(counts.positive, counts.negative)
    pairs = int(min(counts.positive.sum(), counts.negative.sum()))
    if area in (0.0, 1.0):
        return proportion_interval(area * pairs, pairs, level, clopper_pearson)
    half = normal_quantile(level) * float(np.sqrt(auc_variance(counts.positive, counts.negative)))
    return Interval(max(area - half, 0.0), min(area + half, 1.0), level)


def auc_of_counts(positive: Any, negative: Any) -> float:
    """Give the AUC of counts at rising scores, a tie within a cell counting one half.

    Exact counts are summed as integers. Noisy ones may be negative; the result is clipped to [0, 1], and NaN when a
    class has no records left.
    """
    p, n = np.asarray(positive), np.asarray(negative)
    pairs = float(p.sum()) * float(n.sum())
    if not (p.sum() > 0 and n.sum() > 0):
        return float("nan")
    return float(np.clip(float((p * (2 * np.cumsum(n) - n)).sum()) / (2 * pairs), 0.0, 1.0))


def auc_variance(positive: Any, negative: Any) -> float:
    """Estimate the sampling variance of the AUC of counts (DeLong); NaN with fewer than two records of a class."""
    p, n = np.asarray(positive, dtype=np.float64), np.asarray(negative, dtype=np.float64)
    P, N, area = p.sum(), n.sum(), auc_of_counts(positive, negative)
    if not (P > 1 and N > 1):
        return float("nan")
    below = (np.cumsum(n) - n / 2) / N  # share of negatives that a positive in this cell beats
    above = 1 - (np.cumsum(p) - p / 2) / P  # share of positives that beat a negative in this cell
    spread = (p * (below - area) ** 2).sum() / (P * (P - 1)) + (n * (above - area) ** 2).sum() / (N * (N - 1))
    return max(float(spread), 0.0)


def auc_bucket_bound(positive: Any, negative: Any) -> float:
    """Bound by how much counting pairs within a bucket as ties can move the AUC, whatever the order inside."""
    p, n = np.maximum(positive, 0.0), np.maximum(negative, 0.0)
    pairs = p.sum() * n.sum()
    return float((p * n).sum() / (2 * pairs)) if pairs > 0 else float("nan")


@final
@dataclass(frozen=True, eq=False)
class Confusion:
    """How many records fall where at each threshold; a record is called positive if its score is at least that.

    The four arrays have the shape of the thresholds, and so has every rate.
    """

    true_positive: Array
    false_positive: Array
    false_negative: Array
    true_negative: Array

    @property
    def accuracy(self) -> Floats:
        """Give the share of records called rightly."""
        right = self.true_positive + self.true_negative
        return _share(right, right + self.false_positive + self.false_negative, np.nan)

    @property
    def precision(self) -> Floats:
        """Give the share of positives among those called positive; one when nobody is."""
        return _share(self.true_positive, self.true_positive + self.false_positive, 1.0)

    @property
    def recall(self) -> Floats:
        """Give the share of positives that are called positive; NaN when there are none."""
        return _share(self.true_positive, self.true_positive + self.false_negative, np.nan)

    @property
    def false_positive_rate(self) -> Floats:
        """Give the share of negatives that are called positive; NaN when there are none."""
        return _share(self.false_positive, self.false_positive + self.true_negative, np.nan)


@final
@dataclass(frozen=True, eq=False)
class RocCurve:
    """One point a distinct score, from the strictest threshold (infinity: nobody is called positive) down."""

    threshold: Floats  # (distinct + 1,)
    false_positive_rate: Floats  # (distinct + 1,)
    true_positive_rate: Floats  # (distinct + 1,)

    def area(self) -> float:
        """Integrate the curve: the AUC."""
        height = (self.true_positive_rate[1:] + self.true_positive_rate[:-1]) / 2
        return float((np.diff(self.false_positive_rate) * height).sum())


@final
@dataclass(frozen=True, eq=False)
class PrCurve:
    """One point a distinct score, from the strictest threshold (infinity: nobody is called positive) down."""

    threshold: Floats  # (distinct + 1,)
    precision: Floats  # (distinct + 1,)
    recall: Floats  # (distinct + 1,)

    def average_precision(self) -> float:
        """Average the precision over the steps of recall, without interpolating between them."""
        return float((np.diff(self.recall) * self.precision[1:]).sum())


def confusion(scores: Any, labels: Any, thresholds: Any) -> Confusion:
    """Count the outcomes at each threshold: positive is called when the score is at least the threshold."""
    some_records(labels)
    column, truth = scores_and_labels(scores, labels)
    wanted = np.asarray(thresholds, dtype=np.float64)
    if np.isnan(wanted).any():
        raise InputError("Expected thresholds that are numbers, found NaN.")
    order = np.sort(wanted, axis=None)
    passed = np.searchsorted(order, column, side="right")  # how many thresholds each record passes
    size = len(order) + 1
    tables = [np.bincount(passed[truth == label], minlength=size) for label in (1, 0)]
    place = np.searchsorted(order, wanted, side="right")  # a record passes a threshold if it passes all of its equals
    called = [np.cumsum(table[::-1])[::-1][place] for table in tables]
    return Confusion(called[0], called[1], tables[0].sum() - called[0], tables[1].sum() - called[1])


def roc_curve(scores: Any, labels: Any) -> RocCurve:
    """Trace the true against the false positive rate over all thresholds."""
    some_records(labels)
    threshold, every = _falling(scores, labels)
    return RocCurve(threshold, every.false_positive_rate, every.recall)


def pr_curve(scores: Any, labels: Any) -> PrCurve:
    """Trace precision against recall over all thresholds."""
    some_records(labels)
    threshold, every = _falling(scores, labels)
    return PrCurve(threshold, every.precision, every.recall)


def _falling(scores: Any, labels: Any) -> tuple[Floats, Confusion]:
    counts = ScoreCounts.of(scores, labels)
    positive = np.concatenate([[0], np.cumsum(counts.positive[::-1])])
    negative = np.concatenate([[0], np.cumsum(counts.negative[::-1])])
    threshold = np.concatenate([[np.inf], counts.score[::-1]])
    return threshold, Confusion(positive, negative, positive[-1] - positive, negative[-1] - negative)


def _share(part: Any, whole: Any, otherwise: float) -> Floats:
    shares: Floats = np.divide(part, whole, out=np.full(np.shape(whole), otherwise), where=np.asarray(whole) > 0)
    return shares
