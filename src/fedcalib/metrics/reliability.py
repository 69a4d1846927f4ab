"""Reliability tables, the binned calibration errors computed from them, and a confidence interval for ECE.

A `Reliability` table holds, per bin, the number of records, the sum of their confidence and the number that are
correct. Every binned calibration error follows from it.

Percentile bootstraps of ECE have poor coverage: the plug-in value is biased upward, so resampling centres on the wrong
value. `ece_interval` instead bounds the gaps of all bins at once and takes the least and the largest ECE inside that
box: its coverage is at least as stated, and the price is width.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from fedcalib.display import brief
from fedcalib.errors import InputError
from fedcalib.metrics import intervals
from fedcalib.metrics.binning import bin_edges, bin_index_unchecked, check_bins, merged_cells
from fedcalib.metrics.intervals import Band, Interval, Proportion, matching, record_blocks, some_records
from fedcalib.types import Floats, Ints
from fedcalib.wire import ADDED

BINS = 15


@final
@dataclass(frozen=True, eq=False)
class Reliability:
    """A reliability table: the number of records, their summed confidence and the number correct, by bin.

    A table has one group (top label, or a binary classifier's score) or one group per class (classwise). Tables of
    disjoint records can be added. The arrays are floating-point, so that a noisy table is a table too: only `band`
    needs exact counts.

    Parameters
    ----------
    count
        Records, shape (groups, bins).
    confidence
        Sums of their probabilities, shape (groups, bins).
    correct
        How many are of the predicted class (or of the group's class), shape (groups, bins).
    cuts
        Edges of the bins, shape (bins + 1,); None for bins of equal width.

    Examples
    --------
    >>> import fedcalib as fc
    >>> table = fc.metrics.Reliability.binary([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], bins=2)
    >>> table.count
    array([[3., 1.]])
    >>> table.accuracy.round(2)
    array([[0.33, 1.  ]])
    >>> round(table.ece(), 4)
    0.0875
    """

    count: Floats
    confidence: Floats
    correct: Floats
    cuts: Floats | None = field(default=None, metadata=ADDED)

    def __repr__(self) -> str:
        return brief(self)

    def __post_init__(self) -> None:
        shapes = {np.shape(self.count), np.shape(self.confidence), np.shape(self.correct)}
        if len(shapes) != 1 or np.ndim(self.count) != 2:
            raise InputError(f"Expected three arrays of one shape (groups, bins), found {sorted(shapes)}.")
        if self.cuts is not None and np.shape(self.cuts) != (self.bins + 1,):
            raise InputError(f"Expected {self.bins + 1} edges of {self.bins} bins, found {np.shape(self.cuts)}.")

    @classmethod
    def top_label(cls, probs: Any, labels: Any, bins: int = BINS) -> Reliability:
        """Table of the largest probability of each record and whether that class is right.

        Parameters
        ----------
        probs, labels, bins
            Probabilities (n, classes), class numbers (n,), and the number of bins.
        """
        check_bins(bins)
        table = _empty(1, bins)
        for block, column in record_blocks(probs, labels):
            best = block.argmax(axis=1)  # ties go to the lowest class
            table = table + _tabulate(block[np.arange(len(best)), best], best == column, bins)
        return table

    @classmethod
    def classwise(cls, probs: Any, labels: Any, bins: int = BINS) -> Reliability:
        """Table with one group per class: each probability and whether that class is right.

        Parameters
        ----------
        probs, labels, bins
            Probabilities (n, classes), class numbers (n,), and the number of bins.
        """
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
        """Table of a binary classifier's scores and its labels.

        Parameters
        ----------
        scores, labels, bins
            Probabilities of class 1 (n,), labels 0 or 1 (n,), and the number of bins.
        """
        check_bins(bins)
        column, truth = intervals.scores_and_labels(scores, labels)
        return _tabulate(column, truth == 1, bins)

    def __add__(self, other: Reliability) -> Reliability:
        if self.count.shape != other.count.shape:
            raise InputError(f"Expected tables of one shape, found {self.count.shape} and {other.count.shape}.")
        if not np.array_equal(self.edges, other.edges):
            raise InputError("Expected tables with the same edges, found others; add tables before bins are merged.")
        count, confidence = self.count + other.count, self.confidence + other.confidence
        return Reliability(count, confidence, self.correct + other.correct, self.cuts)

    def merged(self, min_count: int) -> Reliability | None:
        """The table with neighbouring bins merged until every count, of right and of wrong records, may be shown.

        Counts have to be exact. None where even one bin for all records would show a count below `min_count`.
        """
        starts = merged_cells(np.concatenate([self.correct, self.count - self.correct]), min_count)
        if starts is None:
            return None
        count, confidence, correct = (
            np.add.reduceat(table, starts, axis=1) for table in (self.count, self.confidence, self.correct)
        )
        return Reliability(count, confidence, correct, np.append(self.edges[starts], self.edges[-1]))

    @property
    def groups(self) -> int:
        """Number of groups: one, or one per class."""
        return int(self.count.shape[0])

    @property
    def bins(self) -> int:
        return int(self.count.shape[1])

    @property
    def edges(self) -> Floats:
        """Edges of the bins, shape (bins + 1,)."""
        return bin_edges(self.bins) if self.cuts is None else self.cuts

    @property
    def records(self) -> float:
        """Number of records; each is in every group once."""
        return float(self.count.sum()) / self.groups

    @property
    def gap(self) -> Floats:
        """Summed confidence minus the number correct, shape (groups, bins)."""
        return self.confidence - self.correct

    @property
    def accuracy(self) -> Floats:
        """Fraction of correct records in each bin, shape (groups, bins); NaN where a bin is empty."""
        return intervals.ratio(self.correct, self.count)

    @property
    def mean_confidence(self) -> Floats:
        """Mean confidence in each bin, shape (groups, bins); NaN where a bin is empty."""
        return intervals.ratio(self.confidence, self.count)

    def ece(self) -> float:
        """Expected calibration error: the absolute gap per record, averaged over groups.

        It never divides by a bin's count, so noisy counts do no harm.
        """
        return self._per_record(np.abs(self.gap).sum())

    def ece_by_group(self) -> Floats:
        """Expected calibration error of each group, shape (groups,)."""
        return np.abs(self.gap).sum(axis=1) / self.records if self.records > 0 else np.full(self.groups, np.nan)

    def worst_gap(self) -> float:
        """Largest gap between mean confidence and accuracy of any bin with records."""
        filled = self.count > 0
        return float((np.abs(self.gap[filled]) / self.count[filled]).max()) if filled.any() else float("nan")

    def debiased_squared(self, noise_variance: float = 0.0) -> float:
        """Mean squared calibration error, corrected for the bias of bins with few records.

        The sampling variance, and the variance of the privacy noise on a gap if there is any, are subtracted from each
        squared gap, so the estimate may be negative. Bins with fewer than two records are skipped. The remaining bias
        comes from probabilities that differ inside a bin: for a calibrated model at most 1 / (4 * bins * records),
        downward.

        Parameters
        ----------
        noise_variance
            Variance of the privacy noise on a gap.
        """
        filled = self.count >= 2
        n, gap, rate = self.count[filled], self.gap[filled], self.correct[filled] / self.count[filled]
        sampling = n * n * rate * (1 - rate) / (n - 1)
        return self._per_record(((gap * gap - sampling - noise_variance) / n).sum())

    def ece_if_calibrated(self, noise_variance: float = 0.0) -> float:
        """Plug-in ECE that a perfectly calibrated model has on these records, through sampling and noise alone.

        A plug-in ECE near this value is no evidence of miscalibration.

        Parameters
        ----------
        noise_variance
            Variance of the privacy noise on a gap.
        """
        rate = np.clip(np.nan_to_num(self.mean_confidence), 0.0, 1.0)
        variance = np.maximum(self.count, 0.0) * rate * (1 - rate) + noise_variance
        return self._per_record(np.sqrt(2 / np.pi * variance).sum())

    def band(self, level: float = 0.95, bound: Proportion = intervals.wilson) -> Band:
        """Confidence interval for the accuracy of each bin by itself, for the error bars of a diagram."""
        return bound(self.correct, self.count, level)

    def _per_record(self, total: float) -> float:
        entries = self.records * self.groups
        return float(total) / entries if entries > 0 else float("nan")


def class_cells(block: Floats, bins: int) -> Ints:
    """Number of the (class, bin) cell of every probability, shape (records, classes)."""
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


def ece(probs: Any, labels: Any, bins: int = BINS) -> float:
    """Expected calibration error of the top label, over bins of equal width.

    The plug-in ECE is biased upward: a perfectly calibrated model has about 0.086 on 200 records and 0.015 on 7,000
    (15 bins, uniform confidence). Compare ECEs only between samples of equal size, or use `debiased_squared_ece`.

    Parameters
    ----------
    probs
        Probabilities, shape (n, classes); rows sum to one.
    labels
        Class numbers from 0, shape (n,).
    bins
        Number of bins of equal width.

    Examples
    --------
    >>> import fedcalib as fc
    >>> round(fc.metrics.ece([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]], [0, 1, 1]), 3)
    0.4
    """
    some_records(labels)
    return Reliability.top_label(probs, labels, bins).ece()


def classwise_ece(probs: Any, labels: Any, bins: int = BINS) -> float:
    """Calibration error of every class against the rest, averaged over all classes.

    Some authors sum over classes instead. A class without records counts too: all that is predicted for it is error.

    The parameters are those of `ece`.

    Examples
    --------
    >>> import fedcalib as fc
    >>> round(fc.metrics.classwise_ece([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]], [0, 1, 1]), 3)
    0.4
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
    """Expected calibration error of a binary classifier's score, over bins of equal width.

    Parameters
    ----------
    scores
        Probabilities of class 1, shape (n,).
    labels
        0 or 1, shape (n,).
    bins
        Number of bins of equal width.

    Examples
    --------
    >>> import fedcalib as fc
    >>> round(fc.metrics.binary_ece([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]), 4)
    0.3375
    """
    some_records(labels)
    return Reliability.binary(scores, labels, bins).ece()


def debiased_squared_ece(probs: Any, labels: Any, bins: int = BINS) -> float:
    """Squared calibration error of the top label, corrected for bias; it may be negative.

    The parameters are those of `ece`.

    Examples
    --------
    >>> import fedcalib as fc
    >>> round(fc.metrics.debiased_squared_ece([[0.8, 0.2]] * 4, [0, 0, 0, 1]), 3)
    -0.06
    """
    some_records(labels)
    return Reliability.top_label(probs, labels, bins).debiased_squared()


def debiased_squared_classwise_ece(probs: Any, labels: Any, bins: int = BINS) -> float:
    """Squared calibration error of each class against the rest, averaged over classes, corrected for bias.

    The parameters are those of `ece`.

    Examples
    --------
    >>> import fedcalib as fc
    >>> round(fc.metrics.debiased_squared_classwise_ece([[0.8, 0.2]] * 4, [0, 0, 0, 1]), 3)
    -0.06
    """
    some_records(labels)
    return Reliability.classwise(probs, labels, bins).debiased_squared()


def debiased_squared_binary_ece(scores: Any, labels: Any, bins: int = BINS) -> float:
    """Squared calibration error of a binary score, corrected for bias; it may be negative.

    The parameters are those of `binary_ece`.

    Examples
    --------
    >>> import fedcalib as fc
    >>> round(fc.metrics.debiased_squared_binary_ece([0.8] * 4, [1, 1, 1, 0]), 3)
    -0.06
    """
    some_records(labels)
    return Reliability.binary(scores, labels, bins).debiased_squared()


def ece_interval(table: Reliability, level: float = 0.95) -> Interval:
    """Confidence interval for the expected calibration error, given the scores.

    It is one for the binned error; miscalibration that cancels inside a bin is not part of it.

    Parameters
    ----------
    table
        A table of exact counts.
    level
        Confidence level.

    Examples
    --------
    >>> import fedcalib as fc
    >>> table = fc.metrics.Reliability.binary([0.8] * 100, [1] * 60 + [0] * 40)
    >>> interval = fc.metrics.ece_interval(table)
    >>> 0.2 in interval, 0.0 in interval
    (True, False)
    """
    low, high = project_box(*gap_box(table, level))
    entries = table.records * table.groups
    return Interval(low / entries, high / entries, level) if entries > 0 else Interval(0.0, 1.0, level)


def gap_box(table: Reliability, level: float = 0.95) -> tuple[Floats, Floats]:
    """Simultaneous confidence intervals for the true gaps of all bins, from exact counts.

    The probability of error is divided equally among the bins with records (Bonferroni), which is valid however the
    bins depend on each other.

    Parameters
    ----------
    table
        A table of exact counts.
    level
        Confidence level of all intervals together.

    Returns
    -------
    tuple of arrays
        Lower and upper ends, each of shape (groups, bins).

    Examples
    --------
    >>> import fedcalib as fc
    >>> table = fc.metrics.Reliability.binary([0.8] * 100, [1] * 60 + [0] * 40, bins=2)
    >>> low, high = fc.metrics.gap_box(table)
    >>> bool(low[0, 1] < 20 < high[0, 1])
    True
    """
    filled = max(int((table.count > 0).sum()), 1)
    band = intervals.clopper_pearson(table.correct, table.count, 1 - (1 - intervals.check_level(level)) / filled)
    return table.confidence - table.count * band.high, table.confidence - table.count * band.low


def project_box(low: Any, high: Any) -> tuple[float, float]:
    """Least and largest sum of absolute gaps inside a box.

    Parameters
    ----------
    low, high
        Ends of the intervals of the gaps, from `gap_box` or, for a noisy table, from elsewhere.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.metrics.project_box([-1.0, 2.0], [3.0, 4.0])
    (2.0, 7.0)
    """
    least = np.maximum(np.maximum(low, np.negative(high)), 0.0)
    largest = np.maximum(np.abs(low), np.abs(high))
    return float(least.sum()), float(largest.sum())
