"""Confidence intervals, and the checks of what metrics are computed from.

`Measured` is a value with its interval, as artifacts and files hold it; `Interval` is an interval by itself, and `Band`
holds many of them. The shapes and ranges of probabilities, scores and labels are checked here, once, for all metrics.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, SupportsFloat, TypeAlias, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.metrics.binning import check_unit_interval
from fedcalib.numeric import bisected
from fedcalib.types import Array, Floats, Ints

UNKNOWN = math.nan


@final
@dataclass(frozen=True)
class Measured:
    """A value with its 95% confidence interval, which covers sampling and privacy noise.

    Parameters
    ----------
    value
        The estimate; NaN if it is not known.
    low, high
        Ends of the interval; NaN if they are not known.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.metrics.Measured(0.91, 0.89, 0.93).to_json()
    {'value': 0.91, 'low': 0.89, 'high': 0.93}

    It can be used as the number that `value` is; `==` compares the interval too:

    >>> auc = fc.metrics.Measured(0.91, 0.89, 0.93)
    >>> float(auc), f"{auc:.3f}", auc > 0.9, round(auc, 1), str(auc)
    (0.91, '0.910', True, 0.9, '0.9100 (0.8900 to 0.9300)')
    """

    value: float
    low: float = UNKNOWN
    high: float = UNKNOWN

    def __float__(self) -> float:
        return float(self.value)

    def __round__(self, digits: int | None = None) -> float:
        return round(float(self.value), digits)

    def __format__(self, spec: str) -> str:
        return format(float(self.value), spec) if spec else str(self)

    def __str__(self) -> str:
        ends = (self.low, self.high)
        known = "" if any(map(math.isnan, ends)) else f" ({self.low:.4f} to {self.high:.4f})"
        return f"{self.value:.4f}{known}"

    def __lt__(self, other: SupportsFloat) -> bool:
        return float(self) < float(other)

    def __le__(self, other: SupportsFloat) -> bool:
        return float(self) <= float(other)

    def __gt__(self, other: SupportsFloat) -> bool:
        return float(self) > float(other)

    def __ge__(self, other: SupportsFloat) -> bool:
        return float(self) >= float(other)

    def to_json(self) -> dict[str, float | None]:
        """The three numbers by name; None for those that are not known."""
        numbers = {"value": self.value, "low": self.low, "high": self.high}
        return {name: None if math.isnan(number) else number for name, number in numbers.items()}


BLOCK = 1 << 17  # numbers that are processed at once: a megabyte of doubles, so that a block stays in cache
SUM_TOLERANCE = 1e-3  # of the sum of a row, which is one; rounding to half precision alone leaves that much


def record_blocks(probs: Any, labels: Any) -> Iterator[tuple[Floats, Ints]]:
    """Iterate over records in blocks that fit the cache, and check each block.

    Blocks are in double precision whatever the input. The shapes are checked before the first block.
    """
    matrix, column = matching(probs, labels)
    rows = max(1, BLOCK // matrix.shape[1])
    return (
        (_checked_rows(matrix[start : start + rows], start), column[start : start + rows])
        for start in range(0, len(column), rows)
    )


def matching(probs: Any, labels: Any) -> tuple[Array, Ints]:
    """The matrix (records, classes) and its labels (records,), after checking shapes and labels."""
    matrix = np.asarray(probs)
    if matrix.ndim != 2 or matrix.shape[1] < 2 or matrix.dtype.kind not in "fiub":
        raise InputError(
            f"Expected probabilities of shape (records, classes), found {matrix.dtype} of shape {matrix.shape}; "
            "for the scores of a binary classifier use the metrics that take one score per record."
        )
    return matrix, _label_column(labels, len(matrix), matrix.shape[1])


def scores_and_labels(scores: Any, labels: Any) -> tuple[Floats, Ints]:
    """Scores in [0, 1] and labels 0 or 1, after checking both."""
    column = np.asarray(scores)
    if column.ndim != 1 or column.dtype.kind not in "fiub":
        raise InputError(
            f"Expected one score per record, found {column.dtype} of shape {column.shape}; "
            "pass the probability of class 1, which is probs[:, 1] of a matrix."
        )
    widened = column.astype(np.float64, copy=False)
    check_unit_interval(widened, "scores")
    return widened, _label_column(labels, len(column), 2)


def some_blocks(probs: Any, labels: Any) -> Iterator[tuple[Floats, Ints]]:
    """`record_blocks` of at least one record."""
    some_records(labels)
    return record_blocks(probs, labels)


def some_scores(scores: Any, labels: Any) -> tuple[Floats, Ints]:
    """`scores_and_labels` of at least one record."""
    some_records(labels)
    return scores_and_labels(scores, labels)


def some_records(labels: Any) -> None:
    """Raise an error if there are no records."""
    if not np.size(labels):
        raise InputError("Expected at least one record, found none; leave sites without records out of a metric.")


def ratio(part: Any, whole: Any, otherwise: float = np.nan) -> Floats:
    """Quotient of two arrays, and `otherwise` where the divisor is not above 0."""
    found: Floats = np.divide(part, whole, out=np.full(np.shape(whole), otherwise), where=np.asarray(whole) > 0)
    return found


def _checked_rows(rows: Array, start: int) -> Floats:
    block: Floats = rows.astype(np.float64, copy=False)
    check_unit_interval(block, "probabilities")
    off = np.abs(block.sum(axis=1) - 1)
    worst = int(off.argmax())
    if off[worst] > SUM_TOLERANCE:
        raise InputError(
            f"Expected probabilities that sum to one, found {block[worst].sum():.6g} in row {start + worst}; "
            "normalise the rows, or use the binary metrics on each class."
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
    """A confidence interval: it contains the true value with probability `level` over repetitions of the experiment.

    Parameters
    ----------
    low, high
        Its ends.
    level
        Confidence level between 0 and 1.

    Examples
    --------
    >>> import fedcalib as fc
    >>> interval = fc.metrics.Interval(0.2, 0.5, 0.95)
    >>> 0.3 in interval, round(interval.width, 1)
    (True, 0.3)
    """

    low: float
    high: float
    level: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    @property
    def width(self) -> float:
        return self.high - self.low


@final
@dataclass(frozen=True, eq=False)
class Band:
    """One confidence interval per cell, each by itself at `level`; cells without records have [0, 1].

    Parameters
    ----------
    low, high
        Arrays of the ends, of the shape of the cells.
    level
        Confidence level between 0 and 1.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.metrics.wilson([0, 5], [0, 10]).high.round(2)
    array([1.  , 0.76])
    """

    low: Floats
    high: Floats
    level: float


Proportion: TypeAlias = Callable[[Any, Any, float], Band]


def wilson(successes: Any, trials: Any, level: float = 0.95) -> Band:
    """Wilson's score intervals for proportions: coverage near the level on average, short, good for display.

    Parameters
    ----------
    successes, trials
        Exact counts, of any shape.
    level
        Confidence level.

    Examples
    --------
    >>> import fedcalib as fc
    >>> round(float(fc.metrics.wilson(5, 10).low), 3)
    0.237
    """
    z = normal_quantile(level)
    k, n = _counts(successes, trials)
    safe = np.maximum(n, 1)
    centre = (k + z * z / 2) / (safe + z * z)
    half = z * np.sqrt(k * (safe - k) / safe + z * z / 4) / (safe + z * z)
    low = np.where(k > 0, centre - half, 0.0)  # exact at the ends, where rounding would leave 1e-17
    high = np.where(k < n, centre + half, 1.0)
    return Band(np.where(n > 0, low, 0.0), np.where(n > 0, high, 1.0), level)


def clopper_pearson(successes: Any, trials: Any, level: float = 0.95) -> Band:
    """Clopper and Pearson's exact intervals for proportions: coverage is never below the level.

    It also holds where probabilities differ between trials, as in a bin of records: such a sum has less variance than
    trials with equal probabilities of the same mean.

    Parameters
    ----------
    successes, trials
        Exact counts, of any shape.
    level
        Confidence level.

    Examples
    --------
    >>> import fedcalib as fc
    >>> round(float(fc.metrics.clopper_pearson(5, 10).low), 3)
    0.187
    """
    from scipy.special import betaincinv

    tail = (1 - check_level(level)) / 2
    k, n = _counts(successes, trials)
    low = np.where(k > 0, betaincinv(np.maximum(k, 1), n - k + 1, tail), 0.0)
    high = np.where(k < n, betaincinv(k + 1, np.maximum(n - k, 1), 1 - tail), 1.0)
    return Band(low, high, level)


def proportion_interval(successes: float, trials: float, level: float = 0.95, bound: Proportion = wilson) -> Interval:
    """Confidence interval for one proportion, such as an accuracy.

    Parameters
    ----------
    successes, trials
        Exact counts.
    level
        Confidence level.
    bound
        The kind of interval: `wilson` or `clopper_pearson`.

    Examples
    --------
    >>> import fedcalib as fc
    >>> round(fc.metrics.proportion_interval(90, 100).low, 3)
    0.826
    """
    band = bound(successes, trials, level)
    return Interval(float(band.low), float(band.high), level)


def mean_interval(total: float, squares: float, count: int, level: float = 0.95) -> Interval:
    """Confidence interval for a mean from three sums, by Student's t distribution.

    It suits averages of many bounded or light-tailed losses.

    Parameters
    ----------
    total, squares
        Sum of the values and sum of their squares.
    count
        Number of values; with fewer than two, the interval is infinite.
    level
        Confidence level.

    Examples
    --------
    >>> import fedcalib as fc
    >>> round(fc.metrics.mean_interval(50.0, 30.0, 100).high, 3)
    0.545
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
    """The number z such that a standard normal variable lies in [-z, z] with probability `level`.

    Parameters
    ----------
    level
        A probability between 0 and 1.

    Examples
    --------
    >>> import fedcalib as fc
    >>> round(fc.metrics.normal_quantile(0.95), 2)
    1.96
    """
    return NormalDist().inv_cdf((1 + check_level(level)) / 2)


def critical(width: float, level: float) -> float:
    """Margin to add at both ends of an identified set: values that no amount of data could tell apart.

    The width of the set and the margin are in standard deviations. The true value is near one end at a time, so a wide
    set needs a one-sided margin only (Imbens and Manski, 2004).
    """
    normal = NormalDist()
    low, high = normal.inv_cdf(check_level(level)), normal.inv_cdf((1 + level) / 2)
    return bisected(lambda z: normal.cdf(z + width) - normal.cdf(-z) >= level, low, high, _HALVINGS)[1]


def check_level(level: float) -> float:
    """The confidence level, after checking that it is between 0 and 1."""
    if not 0 < level < 1:
        raise InputError(f"Expected a confidence level between 0 and 1, such as 0.95, found {level}.")
    return level


def _counts(successes: Any, trials: Any) -> tuple[Floats, Floats]:
    k, n = np.broadcast_arrays(np.asarray(successes, dtype=np.float64), np.asarray(trials, dtype=np.float64))
    if not ((k >= 0).all() and (k <= n).all()):
        raise InputError(
            "Expected from 0 successes to as many as trials, found others; use exact counts, not noisy ones."
        )
    return k, n
