"""The smooth calibration error (smECE): kernel-smoothed, with a bandwidth that follows from the data.

Residuals (score minus label) are smoothed over [0, 1] by a Gaussian kernel reflected at both ends, and the absolute
value of the result is integrated. A wider kernel cancels more, so the integral decreases as the bandwidth grows; smECE
is where the integral equals the bandwidth. Two bounds follow, because a kernel keeps the total and can only cancel:

    |mean score - mean label|  <=  smECE  <=  mean |score - label|
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from fedcalib.metrics.intervals import scores_and_labels, some_records
from fedcalib.metrics.losses import top_label
from fedcalib.numeric import bisected
from fedcalib.types import Array, Floats

_CELLS = 1 << 13  # a grid of 1/8192: far finer than any bandwidth that data can resolve
_HALVINGS = 40  # to 1e-12


def smooth_ece(probs: Any, labels: Any) -> float:
    """Smooth calibration error of the top label.

    Parameters
    ----------
    probs
        Probabilities, shape (n, classes); rows sum to one.
    labels
        Class numbers from 0, shape (n,).

    Examples
    --------
    >>> import fedcalib as fc
    >>> round(fc.metrics.smooth_ece([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]], [0, 1, 1]), 3)
    0.12
    """
    return binary_smooth_ece(*top_label(probs, labels))


def binary_smooth_ece(scores: Any, labels: Any) -> float:
    """Smooth calibration error of a binary classifier's score.

    Parameters
    ----------
    scores
        Probabilities of class 1, shape (n,).
    labels
        0 or 1, shape (n,).

    Examples
    --------
    >>> import fedcalib as fc
    >>> round(fc.metrics.binary_smooth_ece([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]), 3)
    0.112
    """
    some_records(labels)
    residuals = residual_histogram(scores, labels)
    return smooth_ece_of_residuals(residuals, np.size(labels))


def residual_histogram(scores: Any, labels: Any, cells: int = _CELLS) -> Floats:
    """Sums of score minus label over a fine grid, each record divided between the two nearest cell centres.

    The division keeps the first moment, so the error of the grid is of second order in its width.

    Parameters
    ----------
    scores
        Probabilities of class 1, shape (n,).
    labels
        0 or 1, shape (n,).
    cells
        Number of cells.

    Returns
    -------
    array
        One sum per cell, shape (cells,).

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.metrics.residual_histogram([0.25, 0.75], [0, 1], 4).round(3)
    array([ 0.125,  0.125, -0.125, -0.125])
    """
    column, truth = scores_and_labels(scores, labels)
    position = column * cells - 0.5
    left = np.floor(position)
    residual, fraction = column - truth, position - left
    below = np.clip(left, 0, cells - 1).astype(np.int64)  # at the ends the neighbour is the reflected cell itself
    above = np.clip(left + 1, 0, cells - 1).astype(np.int64)
    histogram = np.bincount(below, residual * (1 - fraction), cells) + np.bincount(above, residual * fraction, cells)
    return histogram.astype(np.float64, copy=False)


def smooth_ece_of_residuals(residuals: Any, records: float) -> float:
    """Smooth calibration error from sums of residuals over equal cells of [0, 1].

    Parameters
    ----------
    residuals
        Sums of score minus label, one per cell; the cells set the resolution.
    records
        Number of records.

    Examples
    --------
    >>> import fedcalib as fc
    >>> sums = fc.metrics.residual_histogram([0.25, 0.75], [0, 1])
    >>> round(fc.metrics.smooth_ece_of_residuals(sums, 2), 3)
    0.198
    """
    cells = len(residuals)
    spectrum = np.fft.rfft(np.concatenate([residuals, np.flip(residuals)]))  # reflected at both ends: even and periodic

    def at_most(bandwidth: float) -> bool:
        return not np.abs(_smoothed(spectrum, cells, bandwidth)).sum() > bandwidth * records

    low, high = bisected(at_most, 0.0, 1.0, _HALVINGS)
    return (low + high) / 2 if low > 0 else 0.0


def smoothing(cells: int, bandwidth: float) -> Floats:
    """The smoothing of residuals over so many cells as a matrix, shape (cells, cells); its columns sum to one."""
    damped = _spectra(cells) * np.exp(-np.square(bandwidth * cells) * _decay(cells))[:, None]
    return np.asarray(np.fft.irfft(damped, 2 * cells, axis=0)[:cells])


def _smoothed(spectrum: Array, cells: int, bandwidth: float) -> Floats:
    # the heat kernel of the grid: positive at every bandwidth, and nearly Gaussian once it is wider than a few cells
    return np.fft.irfft(spectrum * np.exp(-np.square(bandwidth * cells) * _decay(cells)), 2 * cells)[:cells]


@lru_cache(maxsize=4)
def _spectra(cells: int) -> Array:
    """The spectrum of a single residual in each cell, shape (cells + 1, cells)."""
    return np.fft.rfft(np.concatenate([np.eye(cells), np.eye(cells)[::-1]]), axis=0)


@lru_cache(maxsize=4)
def _decay(cells: int) -> Floats:
    return np.asarray(1 - np.cos(np.pi * np.arange(cells + 1) / cells))
