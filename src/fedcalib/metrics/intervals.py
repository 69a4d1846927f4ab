"""A figure with its interval: what artifacts hold, reports show and files keep.

The doors of the metrics: shapes and ranges are checked here, once, and nowhere behind.

Confidence intervals: for proportions, for means, and for many proportions side by side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, TypeAlias, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.metrics.binning import check_unit_interval
from fedcalib.numeric import bisected
from fedcalib.types import Array, Floats, Ints

NOTHING = math.nan


@final
@dataclass(frozen=True)
class Measured:
    """A figure with the interval that chance and privacy noise leave it (95%); NaN stands for what is not known."""

    value: float
    low: float = NOTHING
    high: float = NOTHING

    def to_json(self) -> dict[str, float | None]:
        """Give the three numbers by name, with null for what is not known."""
        numbers = {"value": self.value, "low": self.low, "high": self.high}
        return {name: None if math.isnan(number) else number for name, number in numbers.items()}


BLOCK = 1 << 17  # numbers handled at once: a megabyte of doubles, so that a block stays in cache
TOLERANCE = 1e-3  # how far a row may be from summing to one: half precision is, by rounding alone


def record_blocks(probs: Any, labels: Any) -> Iterator[tuple[Floats, Ints]]:
    """Walk through scored records a cache-sized block at a time, checking each block on the way.

    Blocks are double precision whatever came in. The shapes are checked before the first block.
    """
    matrix, column = matching(probs, labels)
    rows = max(1, BLOCK // matrix.shape[1])
    return (
        (_checked_rows(matrix[start : start + rows], start), column[start : start + rows])
        for start in range(0, len(column), rows)
    )


def matching(probs: Any, labels: Any) -> tuple[Array, Ints]:
    """Return a (records, classes) matrix and its labels, or say why they do not fit together."""
    matrix = np.asarray(probs)
    if matrix.ndim != 2 or matrix.shape[1] < 2 or matrix.dtype.kind not in "fiub":
        raise InputError(
            f"Expected probabilities of shape (records, classes), found {matrix.dtype} of shape {matrix.shape}; "
            "for the scores of a binary classifier use the metrics that take one score a record."
        )
    return matrix, _label_column(labels, len(matrix), matrix.shape[1])


def scores_and_labels(scores: Any, labels: Any) -> tuple[Floats, Ints]:
    """Return one score in [0, 1] a record and its 0/1 label, or say what is wrong."""
    column = np.asarray(scores)
    if column.ndim != 1 or column.dtype.kind not in "fiub":
        raise InputError(
            f"Expected one score a record, found {column.dtype} of shape {column.shape}; "
            "pass the probability of class 1, which is probs[:, 1] of a matrix."
        )
    widened = column.astype(np.float64, copy=False)
    check_unit_interval(widened, "scores")
    return widened, _label_column(labels, len(column), 2)


def some_records(labels: Any) -> None:
    """Refuse to average over nothing."""
    if not np.size(labels):
        raise InputError("Expected at least one record, found none; leave empty sites out of a metric.")


def _checked_rows(rows: Array, start: int) -> Floats:
    block: Floats = rows.astype(np.float64, copy=False)
    check_unit_interval(block, "probabilities")
    off = np.abs(block.sum(axis=1) - 1)
    worst = int(off.argmax())
    if off[worst] > TOLERANCE:
        raise InputError(
            f"Expected probabilities that sum to one, found {block[worst].sum():.6g} in row {start + worst}; "
            "normalise the rows, or measure each class by its own scores."
        )
    return block


def _label_column(labels: Any, records: int, classes: int) -> Ints:
    column = np.asarray(labels)
    if column.shape != (records,):
        raise InputError(f"Expected one label for each of {records} records, found shape {column.shape}.")
    if column.size:
        if column.dtype.kind not in "fiub" or not (np.floor(column) == column).all():
            raise InputError(f"Expected whole numbers as labels, found {column.dtype}; number the classes from 0.")
        low, high = column.min(), column.max()
        if not (low >= 0 and high < classes):
            raise InputError(
                f"Expected labels from 0 to {classes - 1}, found {low} to {high}; number the classes from 0."
            )
    return column.astype(np.int64, copy=False)


_HALVINGS = 26


@final
@dataclass(frozen=True)
class Interval:
    """A range that holds the true value with probability `level`, over repetitions of the whole experiment."""

    low: float
    high: float
    level: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    @property
    def width(self) -> float:
        """Say how wide the range is."""
        return self.high - self.low


@final
@dataclass(frozen=True, eq=False)
class Band:
    """One interval a cell, each by itself at `level`; cells without records span [0, 1]."""

    low: Floats
    high: Floats
    level: float


Proportion: TypeAlias = Callable[[Any, Any, float], Band]


def wilson(successes: Any, trials: Any, level: float = 0.95) -> Band:
    """Bound proportions by Wilson's score interval: near its level on average, short, good for display."""
    z = normal_quantile(level)
    k, n = _counts(successes, trials)
    safe = np.maximum(n, 1)
    centre = (k + z * z / 2) / (safe + z * z)
    half = z * np.sqrt(k * (safe - k) / safe + z * z / 4) / (safe + z * z)
    low = np.where(k > 0, centre - half, 0.0)  # exact at the ends, where rounding would leave 1e-17
    high = np.where(k < n, centre + half, 1.0)
    return Band(np.where(n > 0, low, 0.0), np.where(n > 0, high, 1.0), level)


def clopper_pearson(successes: Any, trials: Any, level: float = 0.95) -> Band:
    """Bound proportions exactly: never below its level, whatever the proportion and however few the trials.

    It also holds for a sum of unequal coins, as in a bin of records with different chances, since such a sum spreads
    less than equal coins of the same mean do.
    """
    from scipy.special import betaincinv

    tail = (1 - check_level(level)) / 2
    k, n = _counts(successes, trials)
    low = np.where(k > 0, betaincinv(np.maximum(k, 1), n - k + 1, tail), 0.0)
    high = np.where(k < n, betaincinv(k + 1, np.maximum(n - k, 1), 1 - tail), 1.0)
    return Band(low, high, level)


def proportion_interval(successes: float, trials: float, level: float = 0.95, bound: Proportion = wilson) -> Interval:
    """Bound one proportion, such as an accuracy."""
    band = bound(successes, trials, level)
    return Interval(float(band.low), float(band.high), level)


def mean_interval(total: float, squares: float, count: int, level: float = 0.95) -> Interval:
    """Bound a mean from three sums, by Student's law: the total, the total of squares and the count.

    Right for averages of many bounded or light-tailed losses; fewer than two records say nothing about the spread.
    """
    from scipy.special import stdtrit

    check_level(level)
    if count < 2:
        return Interval(-np.inf, np.inf, level)
    mean = total / count
    variance = max(squares - total * mean, 0.0) / (count - 1)
    half = float(stdtrit(count - 1, (1 + level) / 2)) * float(np.sqrt(variance / count))
    return Interval(mean - half, mean + half, level)


def normal_quantile(level: float) -> float:
    """Say how many standard deviations hold a normal value with probability `level`."""
    return NormalDist().inv_cdf((1 + check_level(level)) / 2)


def critical(width: float, level: float) -> float:
    """Say how far to go beyond both ends of a set of answers that no amount of data could tell apart.

    The width of the set and the answer are in standard deviations. The truth sits near one end at a time, so a wide
    set needs a one-sided margin only (Imbens and Manski, 2004).
    """
    law = NormalDist()
    low, high = law.inv_cdf(check_level(level)), law.inv_cdf((1 + level) / 2)
    return bisected(lambda z: law.cdf(z + width) - law.cdf(-z) >= level, low, high, _HALVINGS)[1]


def check_level(level: float) -> float:
    """Return a confidence level, or refuse one outside (0, 1)."""
    if not 0 < level < 1:
        raise InputError(f"Expected a confidence level between 0 and 1, such as 0.95, found {level}.")
    return level


def _counts(successes: Any, trials: Any) -> tuple[Floats, Floats]:
    k, n = np.broadcast_arrays(np.asarray(successes, dtype=np.float64), np.asarray(trials, dtype=np.float64))
    if not ((k >= 0).all() and (k <= n).all()):
        raise InputError("Expected between 0 and all trials to succeed; these bounds are for exact, not noisy, counts.")
    return k, n
