"""The reliability table: per bin, how many records, how much confidence and how many correct.

Binned calibration errors of predictions, each a one-line reading of a reliability table.

An honest interval for the calibration error: bound every bin's gap at once, then see what ECE that allows.

Percentile bootstraps of ECE cover badly: the plug-in value is biased upward, so resampling centres on the wrong place.
A box that holds all true gaps at once with the stated probability needs no such luck. Its price is width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.metrics.binning import bin_edges, bin_index_unchecked, check_bins
from fedcalib.metrics.intervals import (
    Band,
    Interval,
    Proportion,
    check_level,
    clopper_pearson,
    matching,
    record_blocks,
    scores_and_labels,
    some_records,
    wilson,
)
from fedcalib.types import Floats, Ints

BINS = 15


@final
@dataclass(frozen=True, eq=False)
class Reliability:
    """What every binned calibration error is computed from; tables of disjoint records add up.

    A table has one group (top label, or a binary classifier's score) or one group a class (classwise). The arrays are
    floating so that a noisy table is a table too: only `band` needs exact counts.
    """

    count: Floats  # (groups, bins): records
    confidence: Floats  # (groups, bins): sum of their probabilities
    correct: Floats  # (groups, bins): how many of them are of the predicted class (or of the group's class)

    def __post_init__(self) -> None:
        shapes = {np.shape(self.count), np.shape(self.confidence), np.shape(self.correct)}
        if len(shapes) != 1 or np.ndim(self.count) != 2:
            raise InputError(f"Expected three arrays of one shape (groups, bins), found {sorted(shapes)}.")

    @classmethod
    def top_label(cls, probs: Any, labels: Any, bins: int = BINS) -> Reliability:
        """Tabulate the largest probability of each record against whether that class is right."""
        check_bins(bins)
        table = _empty(1, bins)
        for block, column in record_blocks(probs, labels):
            best = block.argmax(axis=1)  # ties go to the lowest class
            table = table + _tabulate(block[np.arange(len(best)), best], best == column, bins)
        return table

    @classmethod
    def classwise(cls, probs: Any, labels: Any, bins: int = BINS) -> Reliability:
        """Tabulate every probability of each record against whether that class is right, class by class."""
        check_bins(bins)
        matrix, _ = matching(probs, labels)
        table = _empty(matrix.shape[1], bins)
        for block, column in record_blocks(matrix, labels):
            cells = class_cells(block, bins)
            own = cells[np.arange(len(column)), column]
            table = table + _summed(cells.reshape(-1), block.reshape(-1), own, table.count.shape)
        return table

    @classmethod
    def binary(cls, scores: Any, labels: Any, bins: int = BINS) -> Reliability:
        """Tabulate the scores of a binary classifier against its 0/1 labels."""
        check_bins(bins)
        column, truth = scores_and_labels(scores, labels)
        return _tabulate(column, truth == 1, bins)

    def __add__(self, other: Reliability) -> Reliability:
        if self.count.shape != other.count.shape:
            raise InputError(f"Expected tables of one shape, found {self.count.shape} and {other.count.shape}.")
        return Reliability(self.count + other.count, self.confidence + other.confidence, self.correct + other.correct)

    @property
    def groups(self) -> int:
        """Count the groups: one, or one a class."""
        return int(self.count.shape[0])

    @property
    def bins(self) -> int:
        """Count the bins of a group."""
        return int(self.count.shape[1])

    @property
    def edges(self) -> Floats:
        """List the edges of the bins, (bins + 1,)."""
        return bin_edges(self.bins)

    @property
    def records(self) -> float:
        """Count the records; each stands once in every group."""
        return float(self.count.sum()) / self.groups

    @property
    def gap(self) -> Floats:
        """Say by how many records the confidence exceeds the truth, (groups, bins)."""
        return self.confidence - self.correct

    @property
    def accuracy(self) -> Floats:
        """Give the share of correct records in each bin, (groups, bins); NaN where a bin is empty."""
        return _ratio(self.correct, self.count)

    @property
    def mean_confidence(self) -> Floats:
        """Give the mean confidence in each bin, (groups, bins); NaN where a bin is empty."""
        return _ratio(self.confidence, self.count)

    def ece(self) -> float:
        """Average the absolute gap over records, then over groups; it never divides by a bin's count."""
        return self._per_record(np.abs(self.gap).sum())

    def ece_by_group(self) -> Floats:
        """Give the calibration error of each group, (groups,)."""
        return np.abs(self.gap).sum(axis=1) / self.records if self.records > 0 else np.full(self.groups, np.nan)

    def worst_gap(self) -> float:
        """Give the largest gap between mean confidence and accuracy of any bin that holds records."""
        held = self.count > 0
        return float((np.abs(self.gap[held]) / self.count[held]).max()) if held.any() else float("nan")

    def debiased_squared(self, noise_variance: float = 0.0) -> float:
        """Estimate the mean squared calibration error without the bias that few records a bin cause.

        From each squared gap it takes what chance alone adds, and the variance of the privacy noise on a gap if there
        is any, so it is negative at times. Bins with fewer than two records say nothing and are skipped. What bias is
        left comes from chances that differ inside a bin: at most 1 / (4 * bins * records), downward, for a calibrated
        model.
        """
        held = self.count >= 2
        n, gap, share = self.count[held], self.gap[held], self.correct[held] / self.count[held]
        chance = n * n * share * (1 - share) / (n - 1)
        return self._per_record(((gap * gap - chance - noise_variance) / n).sum())

    def ece_if_calibrated(self, noise_variance: float = 0.0) -> float:
        """Say what plug-in ECE a perfectly calibrated model would show on these records, by chance and by noise.

        A plug-in ECE near this value is no evidence of miscalibration.
        """
        share = np.clip(np.nan_to_num(self.mean_confidence), 0.0, 1.0)
        variance = np.maximum(self.count, 0.0) * share * (1 - share) + noise_variance
        return self._per_record(np.sqrt(2 / np.pi * variance).sum())

    def band(self, level: float = 0.95, bound: Proportion = wilson) -> Band:
        """Bound the accuracy of each bin by itself, for the error bars of a diagram."""
        return bound(self.correct, self.count, level)

    def _per_record(self, total: float) -> float:
        shares = self.records * self.groups
        return float(total) / shares if shares > 0 else float("nan")


def class_cells(block: Floats, bins: int) -> Ints:
    """Number the (class, bin) cell of every probability of a block, (records, classes)."""
    cells = bin_index_unchecked(block, bins)
    cells += np.arange(block.shape[1], dtype=np.int64) * bins
    return cells


def _empty(groups: int, bins: int) -> Reliability:
    return Reliability(np.zeros((groups, bins)), np.zeros((groups, bins)), np.zeros((groups, bins)))


def _tabulate(confidence: Floats, correct: Any, bins: int) -> Reliability:
    cells = bin_index_unchecked(confidence, bins)
    return _summed(cells, confidence, cells[correct], (1, bins))


def _summed(cells: Ints, weights: Floats, hits: Ints, shape: tuple[int, ...]) -> Reliability:
    size = shape[0] * shape[1]
    return Reliability(
        np.bincount(cells, minlength=size).astype(np.float64).reshape(shape),
        np.bincount(cells, weights, minlength=size).astype(np.float64, copy=False).reshape(shape),
        np.bincount(hits, minlength=size).astype(np.float64).reshape(shape),
    )


def _ratio(part: Floats, whole: Floats) -> Floats:
    shares: Floats = np.divide(part, whole, out=np.full(np.shape(whole), np.nan), where=whole > 0)
    return shares


def ece(probs: Any, labels: Any, bins: int = BINS) -> float:
    """Measure the expected calibration error of the top label, over equal-width bins.

    Plug-in ECE is biased upward by chance: a perfectly calibrated model shows about 0.086 on 200 records and 0.015 on
    7,000 (15 bins, uniform confidence). Compare ECEs only between sample sizes that match, or use the debiased one.
    """
    some_records(labels)
    return Reliability.top_label(probs, labels, bins).ece()


def classwise_ece(probs: Any, labels: Any, bins: int = BINS) -> float:
    """Measure the calibration error of every class against the rest, and average it over all classes.

    Some authors sum over classes instead. A class that no record has still counts: what is predicted for it is error.
    """
    some_records(labels)
    check_bins(bins)
    matrix, _ = matching(probs, labels)
    gap = np.zeros(matrix.shape[1] * bins)
    for block, column in record_blocks(matrix, labels):
        cells = class_cells(block, bins)
        gap += np.bincount(cells.reshape(-1), block.reshape(-1), minlength=len(gap))
        gap -= np.bincount(cells[np.arange(len(column)), column], minlength=len(gap))
    return float(np.abs(gap).sum()) / matrix.size


def binary_ece(scores: Any, labels: Any, bins: int = BINS) -> float:
    """Measure the calibration error of a binary classifier's score for class 1."""
    some_records(labels)
    return Reliability.binary(scores, labels, bins).ece()


def debiased_squared_ece(probs: Any, labels: Any, bins: int = BINS) -> float:
    """Estimate the squared calibration error of the top label without bias; it may be negative."""
    some_records(labels)
    return Reliability.top_label(probs, labels, bins).debiased_squared()


def debiased_squared_classwise_ece(probs: Any, labels: Any, bins: int = BINS) -> float:
    """Estimate the squared calibration error of a class against the rest, averaged over classes, without bias."""
    some_records(labels)
    return Reliability.classwise(probs, labels, bins).debiased_squared()


def debiased_squared_binary_ece(scores: Any, labels: Any, bins: int = BINS) -> float:
    """Estimate the squared calibration error of a binary score without bias; it may be negative."""
    some_records(labels)
    return Reliability.binary(scores, labels, bins).debiased_squared()


def ece_interval(table: Reliability, level: float = 0.95) -> Interval:
    """Bound the calibration error that the model has on scores like these, whatever labels chance had drawn.

    The bound is on the binned error given the scores; what happens inside a bin stays unseen.
    """
    low, high = project_box(*gap_box(table, level))
    shares = table.records * table.groups
    return Interval(low / shares, high / shares, level) if shares > 0 else Interval(0.0, 1.0, level)


def gap_box(table: Reliability, level: float = 0.95) -> tuple[Floats, Floats]:
    """Bound every bin's true gap, all of them at once at `level`, from exact counts.

    The chance of error is shared evenly by the bins that hold records, which is right however the cells depend on
    each other. (groups, bins) twice.
    """
    held = max(int((table.count > 0).sum()), 1)
    band = clopper_pearson(table.correct, table.count, 1 - (1 - check_level(level)) / held)
    return table.confidence - table.count * band.high, table.confidence - table.count * band.low


def project_box(low: Any, high: Any) -> tuple[float, float]:
    """Find the least and the largest sum of absolute gaps in a box; for a noisy table, bring your own box."""
    least = np.maximum(np.maximum(low, np.negative(high)), 0.0)
    largest = np.maximum(np.abs(low), np.abs(high))
    return float(least.sum()), float(largest.sum())
