"""The smooth calibration error (smECE): kernel-smoothed, with a bandwidth that nobody has to choose.

Residuals (score minus label) are spread over [0, 1] by a Gaussian kernel reflected at both ends, and the absolute
value of the result is integrated. A wider kernel cancels more, so the integral falls as the bandwidth grows; smECE is
where the integral equals the bandwidth. Two bounds follow, since a kernel keeps the total and only ever cancels:

    |mean score - mean label|  <=  smECE  <=  mean |score - label|
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcalib.metrics.intervals import scores_and_labels, some_records
from fedcalib.metrics.losses import top_label
from fedcalib.numeric import bisected
from fedcalib.types import Array, Floats

CELLS = 1 << 13  # a grid of 1/8192: far finer than any bandwidth that data can resolve
HALVINGS = 40  # to 1e-12


def smooth_ece(probs: Any, labels: Any) -> float:
    """Measure the smooth calibration error of the top label."""
    return binary_smooth_ece(*top_label(probs, labels))


def binary_smooth_ece(scores: Any, labels: Any) -> float:
    """Measure the smooth calibration error of a binary classifier's score for class 1."""
    some_records(labels)
    residuals = residual_histogram(scores, labels)
    return smooth_ece_of_residuals(residuals, np.size(labels))


def residual_histogram(scores: Any, labels: Any, cells: int = CELLS) -> Floats:
    """Sum score minus label over a fine grid, each record shared by the two nearest cell centres, (cells,).

    Sharing keeps the first moment, so what the grid costs is of second order in its width.
    """
    column, truth = scores_and_labels(scores, labels)
    position = column * cells - 0.5
    left = np.floor(position)
    residual, share = column - truth, position - left
    below = np.clip(left, 0, cells - 1).astype(np.int64)  # at the ends the neighbour is the reflected cell itself
    above = np.clip(left + 1, 0, cells - 1).astype(np.int64)
    histogram = np.bincount(below, residual * (1 - share), cells) + np.bincount(above, residual * share, cells)
    return histogram.astype(np.float64, copy=False)


def smooth_ece_of_residuals(residuals: Any, records: float) -> float:
    """Measure smECE from a histogram of residual sums over equal cells of [0, 1]; the grid sets the resolution."""
    cells = len(residuals)
    waves = np.fft.rfft(np.concatenate([residuals, np.flip(residuals)]))  # reflected at both ends: even and periodic

    def enough(bandwidth: float) -> bool:
        return not np.abs(_smoothed(waves, cells, bandwidth)).sum() > bandwidth * records

    low, high = bisected(enough, 0.0, 1.0, HALVINGS)
    return (low + high) / 2 if low > 0 else 0.0


def _smoothed(waves: Array, cells: int, bandwidth: float) -> Floats:
    # The heat kernel of the grid: a true, positive kernel at every bandwidth, and the Gaussian once it spans cells.
    speed = 1 - np.cos(np.pi * np.arange(cells + 1) / cells)
    return np.fft.irfft(waves * np.exp(-np.square(bandwidth * cells) * speed), 2 * cells)[:cells]
