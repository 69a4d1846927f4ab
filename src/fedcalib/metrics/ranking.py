"""Ranking and thresholds of a binary score: AUC with its variance, confusion counts, ROC and precision-recall curves.

Everything is computed from counts of positives and negatives at increasing scores. Exact metrics take the distinct
scores; federated ones take buckets, possibly noisy, and call the same functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.metrics import intervals
from fedcalib.metrics.intervals import Interval, scores_and_labels, some_records, some_scores
from fedcalib.types import Array, Floats, Ints


@final
@dataclass(frozen=True, eq=False)
class ScoreCounts:
    """The distinct scores in increasing order, and the number of positives and negatives with each.

    Parameters
    ----------
    score
        Distinct scores, shape (distinct,).
    positive, negative
        Counts of labels 1 and 0 at each score, shape (distinct,).

    Examples
    --------
    >>> import fedcalib as fc
    >>> counts = fc.metrics.ScoreCounts.of([0.2, 0.7, 0.2], [0, 1, 1])
    >>> counts.score.tolist(), counts.positive.tolist(), counts.negative.tolist()
    ([0.2, 0.7], [1, 1], [1, 0])
    """

    score: Floats
    positive: Ints
    negative: Ints

    @classmethod
    def of(cls, scores: Any, labels: Any) -> ScoreCounts:
        """Count the labels at each distinct score.

        Parameters
        ----------
        scores, labels
            Probabilities of class 1 and labels 0 or 1, each of shape (n,).
        """
        # The bits of non-negative doubles are ordered like the doubles and leave the sign bit free, so shifting them
        # by one makes room for the label: one sort of integers then carries both, three times faster than indices.
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
    """Area under the ROC curve: the probability that a positive outscores a negative, with ties counted one half.

    Parameters
    ----------
    scores
        Probabilities of class 1, shape (n,).
    labels
        0 or 1, shape (n,).

    Returns
    -------
    float
        The area; NaN if a class is missing.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.metrics.roc_auc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    0.75
    """
    some_records(labels)
    counts = ScoreCounts.of(scores, labels)
    return auc_of_counts(counts.positive, counts.negative)


def roc_auc_interval(scores: Any, labels: Any, level: float = 0.95) -> Interval:
    """Confidence interval for the AUC, by DeLong's variance.

    When every pair is in order (or in reverse) that variance is zero and says nothing. Then as many disjoint pairs as
    there are records of the rarer class all agree, and the interval is an exact one for the proportion of such pairs.

    Parameters
    ----------
    scores
        Probabilities of class 1, shape (n,).
    labels
        0 or 1, shape (n,).
    level
        Confidence level.

    Examples
    --------
    >>> import fedcalib as fc
    >>> interval = fc.metrics.roc_auc_interval([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    >>> 0.75 in interval
    True
    """
    some_records(labels)
    counts = ScoreCounts.of(scores, labels)
    area = auc_of_counts(counts.positive, counts.negative)
    pairs = int(min(counts.positive.sum(), counts.negative.sum()))
    if area in (0.0, 1.0):
        return intervals.proportion_interval(area * pairs, pairs, level, intervals.clopper_pearson)
    half = intervals.normal_quantile(level) * float(np.sqrt(auc_variance(counts.positive, counts.negative)))
    return Interval(max(area - half, 0.0), min(area + half, 1.0), level)


def auc_of_counts(positive: Any, negative: Any) -> float:
    """AUC of counts at increasing scores; pairs within a cell count one half.

    Exact counts are summed as integers. Noisy ones may be negative; the result is clipped to [0, 1].

    Parameters
    ----------
    positive, negative
        Counts per cell, in the order of the score.

    Returns
    -------
    float
        The area; NaN if a class has no records.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.metrics.auc_of_counts([1, 3], [3, 1])
    0.75
    """
    p, n = np.asarray(positive), np.asarray(negative)
    pairs = float(p.sum()) * float(n.sum())
    if not (p.sum() > 0 and n.sum() > 0):
        return float("nan")
    return float(np.clip(float((p * (2 * np.cumsum(n) - n)).sum()) / (2 * pairs), 0.0, 1.0))


def auc_variance(positive: Any, negative: Any) -> float:
    """Sampling variance of the AUC of counts (DeLong); NaN with fewer than two records of a class.

    Parameters
    ----------
    positive, negative
        Counts per cell, in the order of the score.

    Examples
    --------
    >>> import fedcalib as fc
    >>> round(fc.metrics.auc_variance([10, 30], [30, 10]), 5)
    0.0024
    """
    p, n = np.asarray(positive, dtype=np.float64), np.asarray(negative, dtype=np.float64)
    P, N, area = p.sum(), n.sum(), auc_of_counts(positive, negative)
    if not (P > 1 and N > 1):
        return float("nan")
    below = (np.cumsum(n) - n / 2) / N  # fraction of negatives below a positive in this cell
    above = 1 - (np.cumsum(p) - p / 2) / P  # fraction of positives above a negative in this cell
    variance = (p * (below - area) ** 2).sum() / (P * (P - 1)) + (n * (above - area) ** 2).sum() / (N * (N - 1))
    return max(float(variance), 0.0)


def auc_bucket_bound(positive: Any, negative: Any) -> float:
    """Bound on the error of the AUC from counting pairs within a bucket as ties, whatever their true order.

    Parameters
    ----------
    positive, negative
        Counts per bucket, in the order of the score.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.metrics.auc_bucket_bound([10, 30], [30, 10])
    0.1875
    """
    p, n = np.maximum(positive, 0.0), np.maximum(negative, 0.0)
    pairs = p.sum() * n.sum()
    return float((p * n).sum() / (2 * pairs)) if pairs > 0 else float("nan")


@final
@dataclass(frozen=True, eq=False)
class ThresholdCounts:
    """Confusion counts at each threshold; a record is predicted positive if its score is at least the threshold.

    Parameters
    ----------
    true_positive, false_positive, false_negative, true_negative
        Counts, each of the shape of the thresholds; every rate has that shape too.

    Examples
    --------
    >>> import fedcalib as fc
    >>> counts = fc.metrics.confusion([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], [0.3, 0.5])
    >>> counts.precision.round(3)
    array([0.667, 1.   ])
    >>> counts.recall
    array([1. , 0.5])
    """

    true_positive: Array
    false_positive: Array
    false_negative: Array
    true_negative: Array

    @property
    def accuracy(self) -> Floats:
        """Fraction of records that are predicted correctly."""
        right = self.true_positive + self.true_negative
        return intervals.ratio(right, right + self.false_positive + self.false_negative)

    @property
    def precision(self) -> Floats:
        """Fraction of positives among records that are predicted positive; one if there are none."""
        return intervals.ratio(self.true_positive, self.true_positive + self.false_positive, 1.0)

    @property
    def recall(self) -> Floats:
        """Fraction of positives that are predicted positive; NaN if there are no positives."""
        return intervals.ratio(self.true_positive, self.true_positive + self.false_negative)

    @property
    def false_positive_rate(self) -> Floats:
        """Fraction of negatives that are predicted positive; NaN if there are no negatives."""
        return intervals.ratio(self.false_positive, self.false_positive + self.true_negative)

    @property
    def specificity(self) -> Floats:
        """Fraction of negatives that are predicted negative; NaN if there are no negatives."""
        return intervals.ratio(self.true_negative, self.false_positive + self.true_negative)

    @property
    def npv(self) -> Floats:
        """Fraction of negatives among records that are predicted negative; one if there are none."""
        return intervals.ratio(self.true_negative, self.true_negative + self.false_negative, 1.0)

    @property
    def f1(self) -> Floats:
        """Harmonic mean of precision and recall."""
        hits = 2 * self.true_positive
        return intervals.ratio(hits, hits + self.false_positive + self.false_negative)

    @property
    def balanced_accuracy(self) -> Floats:
        """Mean of recall and specificity."""
        mean: Floats = (self.recall + self.specificity) / 2
        return mean


@final
@dataclass(frozen=True, eq=False)
class RocCurve:
    """ROC curve with one point per distinct score, from the threshold infinity (nothing is positive) down.

    Parameters
    ----------
    threshold, false_positive_rate, true_positive_rate
        Arrays of shape (distinct + 1,).

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.metrics.roc_curve([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]).area()
    0.75
    """

    threshold: Floats
    false_positive_rate: Floats
    true_positive_rate: Floats

    def area(self) -> float:
        """Area under the curve, by the trapezoidal rule: the AUC."""
        height = (self.true_positive_rate[1:] + self.true_positive_rate[:-1]) / 2
        return float((np.diff(self.false_positive_rate) * height).sum())


@final
@dataclass(frozen=True, eq=False)
class PrCurve:
    """Precision-recall curve with one point per distinct score, from the threshold infinity (nothing is positive) down.

    Parameters
    ----------
    threshold, precision, recall
        Arrays of shape (distinct + 1,).

    Examples
    --------
    >>> import fedcalib as fc
    >>> round(fc.metrics.pr_curve([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]).average_precision(), 3)
    0.833
    """

    threshold: Floats
    precision: Floats
    recall: Floats

    def average_precision(self) -> float:
        """Average precision: the mean over steps of recall, without interpolation between them."""
        return float((np.diff(self.recall) * self.precision[1:]).sum())


def confusion(scores: Any, labels: Any, thresholds: Any) -> ThresholdCounts:
    """Confusion counts at each threshold; a record is predicted positive if its score is at least the threshold.

    Parameters
    ----------
    scores
        Probabilities of class 1, shape (n,).
    labels
        0 or 1, shape (n,).
    thresholds
        One threshold or an array of them, of any shape.

    Examples
    --------
    >>> import fedcalib as fc
    >>> int(fc.metrics.confusion([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], 0.5).true_positive)
    1
    """
    column, truth = some_scores(scores, labels)
    given = np.asarray(thresholds, dtype=np.float64)
    if np.isnan(given).any():
        raise InputError("Expected thresholds that are numbers, found NaN.")
    order = np.sort(given, axis=None)
    passed = np.searchsorted(order, column, side="right")  # how many thresholds each record passes
    size = len(order) + 1
    tables = [np.bincount(passed[truth == label], minlength=size) for label in (1, 0)]
    rank = np.searchsorted(order, given, side="right")  # a record that passes a threshold passes all equal ones
    called = [np.cumsum(table[::-1])[::-1][rank] for table in tables]
    return ThresholdCounts(called[0], called[1], tables[0].sum() - called[0], tables[1].sum() - called[1])


def roc_curve(scores: Any, labels: Any) -> RocCurve:
    """ROC curve: true against false positive rate over all thresholds.

    Parameters
    ----------
    scores
        Probabilities of class 1, shape (n,).
    labels
        0 or 1, shape (n,).

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.metrics.roc_curve([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]).true_positive_rate
    array([0. , 0.5, 0.5, 1. , 1. ])
    """
    threshold, counts = _at_all_thresholds(scores, labels)
    return RocCurve(threshold, counts.false_positive_rate, counts.recall)


def pr_curve(scores: Any, labels: Any) -> PrCurve:
    """Precision-recall curve over all thresholds.

    Parameters
    ----------
    scores
        Probabilities of class 1, shape (n,).
    labels
        0 or 1, shape (n,).

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.metrics.pr_curve([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]).recall
    array([0. , 0.5, 0.5, 1. , 1. ])
    """
    threshold, counts = _at_all_thresholds(scores, labels)
    return PrCurve(threshold, counts.precision, counts.recall)


def average_precision(scores: Any, labels: Any) -> float:
    """Average precision: the mean over positives of the precision at their score, without interpolation.

    Parameters
    ----------
    scores
        Probabilities of class 1, shape (n,).
    labels
        0 or 1, shape (n,).

    Examples
    --------
    >>> import fedcalib as fc
    >>> round(fc.metrics.average_precision([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]), 3)
    0.833
    """
    return pr_curve(scores, labels).average_precision()


def net_benefit(scores: Any, labels: Any, threshold: float) -> float:
    """Net benefit of calling records with at least this score positive.

    It is (true positives - false positives x threshold / (1 - threshold)) / records.

    Parameters
    ----------
    scores
        Probabilities of class 1, shape (n,).
    labels
        0 or 1, shape (n,).
    threshold
        A number from 0 to below 1.

    Examples
    --------
    >>> import fedcalib as fc
    >>> round(fc.metrics.net_benefit([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], 0.25), 3)
    0.417
    """
    if not 0 <= threshold < 1:
        raise InputError(f"Expected a threshold from 0 to below 1, found {threshold}.")
    found = confusion(scores, labels, threshold)
    odds = threshold / (1 - threshold)
    return float(found.true_positive - odds * found.false_positive) / np.size(labels)


def _at_all_thresholds(scores: Any, labels: Any) -> tuple[Floats, ThresholdCounts]:
    some_records(labels)
    counts = ScoreCounts.of(scores, labels)
    positive = np.concatenate([[0], np.cumsum(counts.positive[::-1])])
    negative = np.concatenate([[0], np.cumsum(counts.negative[::-1])])
    threshold = np.concatenate([[np.inf], counts.score[::-1]])
    return threshold, ThresholdCounts(positive, negative, positive[-1] - positive, negative[-1] - negative)
