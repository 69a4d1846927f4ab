"""What a threshold does: confusion counts, precision, recall, and the curves that all thresholds draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.metrics.inputs import scores_and_labels, some_records
from fedcalib.metrics.ranking import ScoreCounts
from fedcalib.types import Array, Floats


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
