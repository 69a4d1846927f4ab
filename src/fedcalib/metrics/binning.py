"""Bins of probabilities: one convention for clients, servers and metrics.

With B bins of equal width, bin k is [k/B, (k+1)/B), and the last bin includes 1.0, so every probability has exactly one
bin. The product p * B is taken in double precision whatever the input: a probability in single precision is converted
first, so it is in the same bin on every machine. The product is rounded once, which puts 0.3 of ten bins into bin 3, as
a reader expects, although the nearest double is slightly below 3/10.

An `Axis` says where bins lie: `EvenProbability` has bins of equal width in the probability, as published;
`EvenLogOdds` in its log-odds. Most classes of most records are improbable and share the lowest bin of the former; the
latter tells one in a hundred from one in a thousand. `ListedScores` has one bin per score of a public list.

`counted` counts probabilities by class and bin in numpy, or inside `with compiled():` by numba, which needs the extra
`fast`. Both count the same integers. Compiling takes seconds, so it is done only on request.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Final, final

import numpy as np

from fedcalib.cohort import MIN_RECORDS
from fedcalib.errors import InputError
from fedcalib.numeric import log_odds, sigmoid
from fedcalib.types import Bools, Floats, Ints

MAX_BINS: Final = 1 << 31
_CHUNK: Final = 1 << 15  # probabilities that are processed at once, so that they stay in cache


def bin_index(p: Any, bins: int) -> Ints:
    """Bin number of each probability: min(floor(p * bins), bins - 1), in any shape; values are checked."""
    check_bins(bins)
    values = np.asarray(p)
    if values.dtype.kind not in "fiub":
        raise InputError(f"Expected probabilities as numbers, found {values.dtype}; convert them first.")
    check_unit_interval(values, "probabilities")
    return bin_index_unchecked(values, bins)


def bin_index_unchecked(p: Floats, bins: int) -> Ints:
    """Bin number of each probability, for values that were checked before."""
    scaled: Floats = np.multiply(p, float(bins), dtype=np.float64)
    with np.errstate(invalid="ignore"):
        cells: Ints = np.asarray(scaled).astype(np.int64)  # the cast truncates, which is floor from 0 upwards
    return _at_most(cells, bins - 1)


def _at_most(cells: Ints, last: int) -> Ints:
    """Cells up to the last, in place; any float has one, since NaN and negative numbers become huge as words."""
    words = cells.view(np.uint64)
    np.minimum(words, np.uint64(last), out=words)
    return cells


def bin_edges(bins: int) -> Floats:
    """Edges 0, 1/bins, ..., 1, for axes and tables; records are assigned to bins by `bin_index`, never by edges."""
    check_bins(bins)
    return np.arange(bins + 1) / bins  # (bins + 1,)


def check_bins(bins: int) -> None:
    """Raise an error unless `bins` is a whole number from 1 up."""
    whole = isinstance(bins, (int, np.integer)) and not isinstance(bins, bool)
    if not whole or not 1 <= bins <= MAX_BINS:
        raise InputError(f"Expected a whole number of bins from 1 to {MAX_BINS}, found {bins!r}.")


def check_unit_interval(values: Floats, name: str) -> None:
    """Raise an error if a value is NaN or outside [0, 1]."""
    if not values.size:
        return
    low, high = values.min(), values.max()
    if not (low >= 0 and high <= 1):  # NaN compares as false, so it raises the error too
        raise InputError(
            f"Expected {name} between 0 and 1, found {low:.6g} to {high:.6g}; "
            "drop records with NaN, and turn logits into probabilities first."
        )


def small_cells(counts: Floats, min_count: int = MIN_RECORDS) -> int:
    """Number of cells in which a count is from 1 to `min_count` - 1; counts are (kinds, ...), such as by label."""
    return int(is_small(counts, min_count).any(axis=0).sum())


def merged_cells(counts: Floats, min_count: int = MIN_RECORDS) -> Ints | None:
    """The first cells of groups of neighbours in which every count is 0 or at least `min_count`.

    Every published number that counts records has to be 0 or at least the minimum, so where counts are published by
    label the rule holds for each label: 2 deaths among 30 patients are a small cell. Cells are merged instead of being
    left out, because what is left out can be computed from the total. A cell that may be shown stays as it is.

    Parameters
    ----------
    counts
        Exact counts, shape (kinds, cells), with the cells in order.
    min_count
        The smallest count that may be shown, apart from 0.

    Returns
    -------
    array of int, or None
        The first cell of each group; None where a kind has fewer records in all, so that no table of it may be shown.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcalib.metrics.binning import merged_cells
    >>> merged_cells(np.array([[20, 3, 9, 0, 15], [0, 12, 0, 0, 30]]))
    array([0, 1, 3, 4])
    """
    sums: list[Floats] = []
    starts: list[int] = []
    group, first = np.zeros(len(counts)), 0
    for cell, column in enumerate(np.asarray(counts, dtype=np.float64).T):
        group = group + column
        if not is_small(group, min_count).any():
            sums.append(group)
            starts.append(first)
            group, first = np.zeros(len(counts)), cell + 1
    while first < counts.shape[1]:  # what is left joins the groups before it
        if not starts:
            return None
        group, first = group + sums.pop(), starts.pop()
        if not is_small(group, min_count).any():
            return np.array([*starts, first])
    return np.array(starts, dtype=np.int64)


def is_small(counts: Any, min_count: int) -> Bools:
    """Whether counts are from 1 to `min_count` - 1, whatever rounding left of them."""
    return np.asarray((counts > 0.5) & (counts < min_count - 0.5))


def shown_cells(counts: Floats, min_count: int = MIN_RECORDS) -> Bools:
    """Which cells of a table of counts by two kinds may be shown.

    Cells that count from 1 to `min_count` - 1 records are withheld. Totals of rows and columns are known from other
    figures, so what is withheld in a row or column can be computed up to its sum: further cells of it, the smallest
    first, are withheld until there are none or at least two, and their sum may be shown.

    Parameters
    ----------
    counts
        Exact counts, shape (rows, columns).
    min_count
        The smallest count that may be shown, apart from 0.

    Returns
    -------
    array of bool
        Shape (rows, columns).

    Examples
    --------
    >>> import numpy as np
    >>> from fedcalib.metrics.binning import shown_cells
    >>> shown_cells(np.array([[90, 3, 20], [12, 80, 30], [14, 15, 99]])).astype(int)
    array([[1, 0, 0],
           [0, 1, 0],
           [0, 0, 1]])
    """
    shown = ~is_small(counts, min_count)
    while True:
        before = int(shown.sum())
        for line, own in (*zip(counts, shown, strict=True), *zip(counts.T, shown.T, strict=True)):
            _cover(line, own, min_count)
        if int(shown.sum()) == before:
            return shown


def _cover(line: Floats, shown: Bools, min_count: int) -> None:
    """Withhold more cells of a row or column until what is withheld tells nothing small; `shown` is changed."""
    for cell in np.argsort(np.where(line > 0.5, line, np.inf), kind="stable"):  # a zero hides nothing
        hidden = line[~shown]
        if not len(hidden) or (len(hidden) > 1 and not is_small(hidden.sum(), min_count)):
            return
        shown[cell] = False


def odds_cells(odds: Floats, cells: int, reach: float) -> Ints:
    """Cell number of each log-odds, on [-reach, reach]; values beyond belong to the outer cells."""
    with np.errstate(invalid="ignore"):
        cell: Ints = np.asarray(np.clip((odds + reach) * (cells / (2 * reach)), 0, cells - 1)).astype(np.int64)
    return _at_most(cell, cells - 1)


Counter = Callable[[Floats, int], Ints]


def counted(probs: Floats, bins: int) -> Ints:
    """Counts of probabilities, (n, classes), by class and bin of equal width, (classes, bins)."""
    return _COUNTER.get()(probs, bins)


@contextmanager
def compiled() -> Iterator[None]:
    """Count with compiled code inside a `with` block.

    Raises
    ------
    InputError
        If numba is not installed.
    """
    loop = _compiled_loop()

    def count(probs: Floats, bins: int) -> Ints:
        total = np.zeros((probs.shape[1], bins), dtype=np.int64)
        loop(probs, bins, total)
        return total

    token = _COUNTER.set(count)
    try:
        yield
    finally:
        _COUNTER.reset(token)


def _plain(probs: Floats, bins: int) -> Ints:
    """Counts by chunks of records, with all classes in one pass over a chunk."""
    classes = probs.shape[1]
    step = max(_CHUNK // classes, 16)
    total = np.zeros(classes * bins, dtype=np.int64)
    starts = bins * np.arange(classes)
    scaled, cells = np.empty((step, classes)), np.empty((step, classes), dtype=np.int64)
    for start in range(0, len(probs), step):
        part = probs[start : start + step]
        product, cell = scaled[: len(part)], cells[: len(part)]
        np.multiply(part, float(bins), out=product, dtype=np.float64)  # as bin_index does
        with np.errstate(invalid="ignore"):
            np.copyto(cell, product, casting="unsafe")  # truncates
        _at_most(cell, bins - 1)
        cell += starts
        total += np.bincount(cell.reshape(-1), minlength=len(total))
    return total.reshape(classes, bins)


_COUNTER: ContextVar[Counter] = ContextVar("counter", default=_plain)


@cache
def _compiled_loop() -> Any:
    """The compiled loop; compiled once per process."""
    try:
        import numba
    except ImportError as error:
        raise InputError(
            "Expected the package numba for compiled counting, found none; "
            "install it with: pip install 'fedcalib[fast]'."
        ) from error

    def loop(probs: Any, bins: int, total: Any) -> None:
        records, classes = probs.shape
        for record in range(records):
            for label in range(classes):
                product = np.float64(probs[record, label]) * bins
                total[label, int(product) if -1.0 < product < bins - 1.0 else bins - 1] += 1  # NaN has a bin too

    return numba.njit(nogil=True)(loop)


class Axis(ABC):
    """Where the bins of a probability lie."""

    @abstractmethod
    def cells(self, probs: Floats, bins: int) -> Ints:
        """Bin number of each probability, in any shape, for values that were checked before."""

    @abstractmethod
    def checked_cells(self, probs: Floats, bins: int) -> Ints:
        """Bin number of each probability, after checking that all are between 0 and 1."""

    @abstractmethod
    def counted(self, probs: Floats, bins: int) -> Ints:
        """Counts of probabilities, (n, classes), by class and bin, (classes, bins)."""

    @abstractmethod
    def edges(self, bins: int) -> Floats:
        """Probabilities between which the bins lie, from 0 to 1, shape (bins + 1,)."""

    @abstractmethod
    def middles(self, bins: int) -> Floats:
        """Probability in the middle of each bin, shape (bins,)."""

    def odds(self, bins: int) -> Floats:
        """Log-odds in the middle of each bin, shape (bins,)."""
        return log_odds(self.middles(bins), 1e-15)

    @property
    def tied(self) -> bool:
        """Whether all probabilities of a bin are known to be equal."""
        return False


@final
@dataclass(frozen=True)
class EvenProbability(Axis):
    """Bins of equal width on [0, 1]; the last includes 1.

    Examples
    --------
    >>> from fedcalib.metrics.binning import EvenProbability
    >>> EvenProbability().checked_cells([0.05, 0.3, 1.0], 10)
    array([0, 3, 9])
    """

    def cells(self, probs: Floats, bins: int) -> Ints:
        return bin_index_unchecked(probs, bins)

    def checked_cells(self, probs: Floats, bins: int) -> Ints:
        return bin_index(probs, bins)

    def counted(self, probs: Floats, bins: int) -> Ints:
        return counted(probs, bins)

    def edges(self, bins: int) -> Floats:
        return bin_edges(bins)

    def middles(self, bins: int) -> Floats:
        return (np.arange(bins) + 0.5) / bins


@final
@dataclass(frozen=True)
class EvenLogOdds(Axis):
    """Bins of equal width in log-odds on [-reach, reach]; log-odds beyond belong to the outer bins.

    Parameters
    ----------
    reach
        Largest absolute log-odds of the bins, above 0.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcalib.metrics.binning import EvenLogOdds
    >>> EvenLogOdds(8.0).checked_cells(np.array([0.001, 0.01, 0.5]), 16)
    array([1, 3, 8])
    """

    reach: float = 12.0

    def __post_init__(self) -> None:
        if not 0 < self.reach < 1e3:
            raise InputError(f"Expected a reach above 0, found {self.reach}.")

    def cells(self, probs: Floats, bins: int) -> Ints:
        return odds_cells(log_odds(probs), bins, self.reach)

    def checked_cells(self, probs: Floats, bins: int) -> Ints:
        check_unit_interval(probs, "probabilities")
        return self.cells(probs, bins)

    def counted(self, probs: Floats, bins: int) -> Ints:
        classes = probs.shape[1]
        starts = bins * np.arange(classes)
        total = np.zeros(classes * bins, dtype=np.int64)
        for start in range(0, len(probs), step := max(_CHUNK // classes, 16)):
            cells = self.cells(probs[start : start + step], bins) + starts
            total += np.bincount(cells.reshape(-1), minlength=len(total))
        return total.reshape(classes, bins)

    def edges(self, bins: int) -> Floats:
        inner = (np.arange(1, bins) / bins * 2 - 1) * self.reach
        return np.concatenate([[0.0], sigmoid(inner), [1.0]])

    def middles(self, bins: int) -> Floats:
        return sigmoid(self.odds(bins))

    def odds(self, bins: int) -> Floats:
        return ((np.arange(bins) + 0.5) / bins * 2 - 1) * self.reach


@final
@dataclass(frozen=True)
class StretchedLogOdds(Axis):
    """Bins of log-odds that grow wider away from 0: few bins tell ordinary scores apart and reach the extreme ones.

    Bins have equal width in asinh(log-odds / bend): nearly equal up to the bend, and proportional to the log-odds far
    beyond it. Log-odds beyond the reach belong to the outer bins.

    Parameters
    ----------
    reach
        Largest absolute log-odds of the bins, above 0.
    bend
        Where bins begin to grow, above 0.

    Examples
    --------
    >>> from fedcalib.metrics.binning import StretchedLogOdds
    >>> StretchedLogOdds(16.0, 3.0).odds(8).round(1)
    array([-11.8,  -6.3,  -3. ,  -0.9,   0.9,   3. ,   6.3,  11.8])
    """

    reach: float = 16.0
    bend: float = 3.0

    def __post_init__(self) -> None:
        if not (0 < self.reach < 1e3 and 1e-3 < self.bend < 1e3):
            raise InputError(f"Expected a reach and a bend above 0, found {self.reach} and {self.bend}.")

    def cells(self, probs: Floats, bins: int) -> Ints:
        return odds_cells(np.arcsinh(log_odds(probs) / self.bend), bins, self._end)

    def checked_cells(self, probs: Floats, bins: int) -> Ints:
        check_unit_interval(probs, "probabilities")
        return self.cells(probs, bins)

    def counted(self, probs: Floats, bins: int) -> Ints:
        cells = self.cells(probs, bins) + bins * np.arange(probs.shape[1])
        return np.bincount(cells.reshape(-1), minlength=bins * probs.shape[1]).reshape(-1, bins)

    def edges(self, bins: int) -> Floats:
        inner = self._at(np.arange(1, bins) / bins)
        return np.concatenate([[0.0], sigmoid(inner), [1.0]])

    def middles(self, bins: int) -> Floats:
        return sigmoid(self.odds(bins))

    def odds(self, bins: int) -> Floats:
        return self._at((np.arange(bins) + 0.5) / bins)

    @property
    def _end(self) -> float:
        return float(np.arcsinh(self.reach / self.bend))

    def _at(self, fraction: Floats) -> Floats:
        """The log-odds below which this fraction of the bins lies."""
        return np.asarray(self.bend * np.sinh((fraction * 2 - 1) * self._end))


class _StatedEdges(Axis):
    """Bins whose edges are listed; a score is looked up among them."""

    @abstractmethod
    def edges(self, bins: int) -> Floats:
        """The edges of all bins, increasing, shape (bins + 1,)."""

    def cells(self, probs: Floats, bins: int) -> Ints:
        return np.searchsorted(self.edges(bins)[1:-1], np.asarray(probs, dtype=np.float64), side="right")

    def checked_cells(self, probs: Floats, bins: int) -> Ints:
        check_unit_interval(probs, "probabilities")
        return self.cells(probs, bins)

    def counted(self, probs: Floats, bins: int) -> Ints:
        return np.stack([np.bincount(self.cells(column, bins), minlength=bins) for column in probs.T])


@final
@dataclass(frozen=True)
class ListedScores(_StatedEdges):
    """One bin per score of a public list, for models with few distinct scores; a score belongs to the nearest of them.

    Parameters
    ----------
    values
        The scores, increasing from 0 or above to 1 or below; at least two.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcalib.metrics.binning import ListedScores
    >>> ListedScores((0.1, 0.2, 0.5)).checked_cells(np.array([0.1, 0.5, 0.2]), 3)
    array([0, 2, 1])
    """

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        rising = all(low < high for low, high in pairwise(self.values))
        if len(self.values) < 2 or not rising or not (self.values[0] >= 0 and self.values[-1] <= 1):
            raise InputError(f"Expected at least two increasing scores from 0 to 1, found {self.values!r:.80}.")

    def edges(self, bins: int) -> Floats:
        known = self.middles(bins)
        return np.concatenate([[0.0], (known[1:] + known[:-1]) / 2, [1.0]])

    def middles(self, bins: int) -> Floats:
        if bins != len(self.values):
            raise InputError(f"Expected {len(self.values)} bins, one per score of the list, found {bins}.")
        return np.array(self.values)

    @property
    def tied(self) -> bool:
        return True


@final
@dataclass(frozen=True)
class CutLogOdds(_StatedEdges):
    """Bins between given edges, such as those at which a calibrator jumps. There may be more bins: they stay empty.

    Parameters
    ----------
    inner
        The edges between bins: increasing probabilities above 0 and below 1. A bin includes its lower edge.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcalib.metrics.binning import CutLogOdds
    >>> CutLogOdds((0.2, 0.5)).checked_cells(np.array([0.1, 0.2, 0.6]), 4)
    array([0, 1, 2])
    """

    inner: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.inner or not all(low < high for low, high in pairwise((0.0, *self.inner, 1.0))):
            raise InputError(f"Expected increasing edges between 0 and 1, found {self.inner!r:.80}.")

    def edges(self, bins: int) -> Floats:
        """Edges of the bins that are used, which may be fewer."""
        if bins <= len(self.inner):
            raise InputError(f"Expected at least {len(self.inner) + 1} bins, one more than edges, found {bins}.")
        return np.array([0.0, *self.inner, 1.0])

    def middles(self, bins: int) -> Floats:
        edges = self.edges(bins)
        return np.asarray((edges[1:] + edges[:-1]) / 2)


EVEN: Final = EvenProbability()
