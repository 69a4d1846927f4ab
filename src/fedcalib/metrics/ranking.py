"""How well scores rank positives above negatives: ROC AUC with ties at one half, and its sampling error.

Everything is computed from counts of positives and negatives at ordered scores. Exact metrics take the distinct
scores; federated ones take buckets, possibly noisy, and call the same functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from fedcalib.metrics.inputs import scores_and_labels, some_records
from fedcalib.metrics.intervals import Interval, clopper_pearson, normal_quantile, proportion_interval
from fedcalib.types import Floats, Ints


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
