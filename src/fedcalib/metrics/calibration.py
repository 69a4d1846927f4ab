"""Binned calibration errors of predictions, each a one-line reading of a reliability table."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcalib.binning import check_bins
from fedcalib.metrics.inputs import matching, record_blocks, some_records
from fedcalib.metrics.reliability import BINS, Reliability, class_cells


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
