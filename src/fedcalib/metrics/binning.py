"""Equal-width bins on [0, 1]: one convention for clients, servers and metrics.

Bin k holds [k/B, (k+1)/B), and the last bin holds 1.0 too, so every probability has exactly one bin. The product
p * B is taken in double precision whatever the input: a probability kept in single precision is widened first, so it
falls into the same bin on every machine. The product rounds once, as any division into decimals does, which puts 0.3
of ten bins where a reader expects it (bin 3) although the nearest double lies a hair below 3/10.

Counting probabilities by class and bin, in numpy, or compiled by numba where one asks for it.

Both count the same integers, so nothing but the time depends on the choice. Compiling takes seconds, so it is never
done unasked: say `with fast.compiled(): ...`. It needs the extra `fast`.

Where bins lie: equal steps of the probability, or of its log-odds.

Equal steps of the probability are what is published. Most classes of most records are improbable, though, and all fall
into the lowest of them; equal steps of the log-odds tell one in a hundred from one in a thousand.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.numeric import log_odds, sigmoid
from fedcalib.types import Floats, Ints

MOST_BINS = 1 << 31


def bin_index(p: Any, bins: int) -> Ints:
    """Number the bin of each probability: min(floor(p * bins), bins - 1), in any shape."""
    check_bins(bins)
    values = np.asarray(p)
    if values.dtype.kind not in "fiub":
        raise InputError(f"Expected probabilities as numbers, found {values.dtype}; convert them first.")
    check_unit_interval(values, "probabilities")
    return bin_index_unchecked(values, bins)


def bin_index_unchecked(p: Floats, bins: int) -> Ints:
    """Number the bin of each probability that has already passed a door; the hot loops use this."""
    scaled: Floats = np.multiply(p, float(bins), dtype=np.float64)
    return np.minimum(scaled, bins - 1).astype(np.int64)  # the cast truncates, which is floor from 0 upwards


def bin_edges(bins: int) -> Floats:
    """List the edges 0, 1/bins, ..., 1, for axes and tables; bins are assigned by `bin_index`, never by edges."""
    check_bins(bins)
    return np.arange(bins + 1) / bins  # (bins + 1,)


def check_bins(bins: int) -> None:
    """Refuse a number of bins that is not a whole number from 1 up."""
    whole = isinstance(bins, (int, np.integer)) and not isinstance(bins, bool)
    if not whole or not 1 <= bins <= MOST_BINS:
        raise InputError(f"Expected a whole number of bins from 1 to {MOST_BINS}, found {bins!r}.")


def check_unit_interval(values: Floats, name: str) -> None:
    """Refuse values outside [0, 1]; NaN is outside too."""
    if not values.size:
        return
    low, high = values.min(), values.max()
    if not (low >= 0 and high <= 1):  # written so that NaN, which compares with nothing, is refused
        raise InputError(
            f"Expected {name} between 0 and 1, found {low:.6g} to {high:.6g}; "
            "drop records that hold NaN, and turn logits into probabilities first."
        )


def odds_cells(odds: Floats, cells: int, reach: float) -> Ints:
    """Number the cell of each log-odds; those beyond the reach fall into the outer cells."""
    cell: Ints = np.clip((odds + reach) * (cells / (2 * reach)), 0, cells - 1).astype(np.int64)
    return cell


_AT_ONCE = 1 << 15  # probabilities: what is worked on stays in cache

Counter = Callable[[Floats, int], Ints]


def counted(probs: Floats, bins: int) -> Ints:
    """Count the probabilities of each class, (n, classes), by equal-width bin, (classes, bins)."""
    return _COUNTER.get()(probs, bins)


@contextmanager
def compiled() -> Iterator[None]:
    """Count with compiled code inside this block."""
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
    """Count a few records at a time, all classes in one pass over them."""
    classes = probs.shape[1]
    step = max(_AT_ONCE // classes, 16)
    total = np.zeros(classes * bins, dtype=np.int64)
    starts = bins * np.arange(classes)
    scaled, cells = np.empty((step, classes)), np.empty((step, classes), dtype=np.int64)
    for start in range(0, len(probs), step):
        part = probs[start : start + step]
        places, held = scaled[: len(part)], cells[: len(part)]
        np.multiply(part, float(bins), out=places, dtype=np.float64)  # as bin_index does
        np.minimum(places, bins - 1, out=places)
        np.copyto(held, places, casting="unsafe")  # truncates
        held += starts
        total += np.bincount(held.reshape(-1), minlength=len(total))
    return total.reshape(classes, bins)


_COUNTER: ContextVar[Counter] = ContextVar("counter", default=_plain)


@cache
def _compiled_loop() -> Any:
    """Compile the loop, once a process."""
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
                cell = int(np.float64(probs[record, label]) * bins)
                total[label, min(cell, bins - 1)] += 1

    return numba.njit(nogil=True)(loop)


_AXES_AT_ONCE = 1 << 15  # probabilities: what is worked on stays in cache


class Axis(ABC):
    """Numbers the bin of a probability, and says what probability a bin stands for."""

    @abstractmethod
    def cells(self, probs: Floats, bins: int) -> Ints:
        """Number the bin of each probability that has already passed a door, in any shape."""

    @abstractmethod
    def checked_cells(self, probs: Floats, bins: int) -> Ints:
        """Number the bin of each probability, and refuse what is none."""

    @abstractmethod
    def counted(self, probs: Floats, bins: int) -> Ints:
        """Count the probabilities of each class, (n, classes), by bin, (classes, bins)."""

    @abstractmethod
    def middles(self, bins: int) -> Floats:
        """Give the probability in the middle of each bin, (bins,)."""


@final
@dataclass(frozen=True)
class EvenProbability(Axis):
    """Bins of equal width on [0, 1]; the last holds 1 too."""

    def cells(self, probs: Floats, bins: int) -> Ints:
        """Multiply and cut."""
        return bin_index_unchecked(probs, bins)

    def checked_cells(self, probs: Floats, bins: int) -> Ints:
        """Check, multiply and cut."""
        return bin_index(probs, bins)

    def counted(self, probs: Floats, bins: int) -> Ints:
        """Count in one pass, compiled where asked for."""
        return counted(probs, bins)

    def middles(self, bins: int) -> Floats:
        """Halve each bin."""
        return (np.arange(bins) + 0.5) / bins


@final
@dataclass(frozen=True)
class EvenLogOdds(Axis):
    """Bins of equal width in log-odds on [-reach, reach]; what lies beyond falls into the outer ones."""

    reach: float = 12.0

    def __post_init__(self) -> None:
        if not 0 < self.reach < 1e3:
            raise InputError(f"Expected a reach above 0, found {self.reach}.")

    def cells(self, probs: Floats, bins: int) -> Ints:
        """Take logarithms, stretch and cut."""
        return odds_cells(log_odds(probs), bins, self.reach)

    def checked_cells(self, probs: Floats, bins: int) -> Ints:
        """Check, take logarithms, stretch and cut."""
        check_unit_interval(probs, "probabilities")
        return self.cells(probs, bins)

    def counted(self, probs: Floats, bins: int) -> Ints:
        """Count a few records at a time."""
        classes = probs.shape[1]
        starts = bins * np.arange(classes)
        total = np.zeros(classes * bins, dtype=np.int64)
        for start in range(0, len(probs), step := max(_AXES_AT_ONCE // classes, 16)):
            held = self.cells(probs[start : start + step], bins) + starts
            total += np.bincount(held.reshape(-1), minlength=len(total))
        return total.reshape(classes, bins)

    def middles(self, bins: int) -> Floats:
        """Halve each bin of the log-odds."""
        odds = ((np.arange(bins) + 0.5) / bins * 2 - 1) * self.reach
        return sigmoid(odds)


EVEN: Final = EvenProbability()
