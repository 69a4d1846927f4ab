"""The logistic function, its inverse, roots by bisection, and terms as integers within their bounds.

`Grid` is the one place where terms become integers. Whatever a unit's floats are, its integers are within the bounds of
each block: what is not finite is 0, cells outside are dropped, entries are truncated toward zero, and a block beyond a
bound is scaled down. All units go through the same arithmetic, each on its own, so no unit's values change what
another one adds. Which steps are needed follows from sizes and bounds alone, which are public.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, Final, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.types import Array, Bools, Floats, Ints

_FLOOR = 1e-12
MAX_STEPS: Final = (1 << 62) - 1  # of a sum: a quarter of the ring of 64-bit words
_MAX_ENTRY: Final = 2.0**62  # steps of one entry
_EXACT: Final = 2.0**53  # below it, sums of integers in floats are exact
_LOW_BITS: Final = 32
_LOW: Final = (1 << _LOW_BITS) - 1
_AT_ONCE: Final = 1 << 15  # entries at a time, so that they stay in cache
_SQUARE_SLACK: Final = 1 + 2.0**-50  # the square of a rounded square root may be below the whole number it stands for
_SHRINK: Final = 1 - 2.0**-30  # keeps what is scaled down within its bound whatever the rounding of its norm


def sigmoid(odds: Any) -> Floats:
    """Probabilities of log-odds; tanh does not overflow where an exponential would.

    >>> sigmoid(np.array([-1000.0, 0.0, 1000.0]))
    array([0. , 0.5, 1. ])
    """
    probs: Floats = 0.5 * (1 + np.tanh(odds / 2))
    return probs


def log_odds(probs: Any, floor: float = _FLOOR) -> Floats:
    """Log-odds of probabilities, which are clipped to [floor, 1 - floor]; at 1e-12 they end at 27.6 on either side.

    >>> log_odds([0.0, 0.5, 1.0]).round(1)
    array([-27.6,   0. ,  27.6])
    """
    inside = np.clip(np.asarray(probs, dtype=np.float64), floor, 1 - floor)
    odds: Floats = np.log(inside) - np.log1p(-inside)
    return odds


def bisected(holds: Callable[[float], bool], low: float, high: float, halvings: int) -> tuple[float, float]:
    """The bracket that is left around the point from which on a condition holds, after so many halvings.

    Parameters
    ----------
    holds
        A condition that is false below some point of the bracket and true above it.
    low, high
        The bracket. Neither end is tried: where the condition holds everywhere or nowhere, that end is approached.
    halvings
        How often the bracket is halved.

    Examples
    --------
    >>> low, high = bisected(lambda x: x * x >= 2, 0.0, 2.0, halvings=40)
    >>> round(low, 6), round(high, 6)
    (1.414214, 1.414214)
    """
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return low, high


def bisected_each(holds: Callable[[Floats], Bools], low: Floats, high: Floats, halvings: int) -> tuple[Floats, Floats]:
    """As `bisected`, for many brackets at once."""
    for _ in range(halvings):
        middle = (low + high) / 2
        true = holds(middle)
        low, high = np.where(true, low, middle), np.where(true, middle, high)
    return low, high


def unwarned() -> np.errstate:
    """A context in which arithmetic on odd floats raises no warning, since a warning would depend on records."""
    return np.errstate(over="ignore", invalid="ignore", divide="ignore")


def finite(values: Floats) -> Floats:
    """Values, with what is not a finite number read as zero.

    >>> finite(np.array([1.5, np.nan, -np.inf])).tolist()
    [1.5, 0.0, 0.0]
    """
    cleaned: Floats = np.where(np.abs(values) < inf, values, 0.0)
    return cleaned


def known_cells(cells: Ints, size: int) -> Ints:
    """Cells, with those outside [0, size) replaced by `size`: one comparison, since negative words are huge.

    >>> known_cells(np.array([[0, -1], [2, 3]]), 3).tolist()
    [[0, 3], [2, 3]]
    """
    words = np.asarray(cells, dtype=np.int64).view(np.uint64)
    return np.minimum(words, np.uint64(size)).view(np.int64)


@final
class ExactSum:
    """A sum of integer vectors that neither rounds nor wraps around; its value saturates at 2^62 - 1 in each cell.

    The value is that of the exact sum, clamped once. Clamping brings no two numbers further apart, so a unit moves the
    clamped sum by at most what it moves the exact one: the bound holds, and nobody need be refused.

    >>> total = ExactSum(2)
    >>> for _ in range(3):
    ...     total.add(np.array([1 << 61, -5]), most=1 << 61)
    >>> total.value().tolist() == [MAX_STEPS, -15]
    True
    """

    def __init__(self, size: int) -> None:
        self._near, self._low, self._high = np.zeros((3, size), dtype=np.int64)
        self._room = MAX_STEPS

    def add(self, part: Ints, most: int) -> None:
        """Add a vector of integers of which none is beyond `most`, a number that follows from public ones."""
        if most > self._room:
            self._carry()
        self._near += part
        self._room -= most

    def _carry(self) -> None:
        self._high += self._near >> _LOW_BITS
        self._low += self._near & _LOW
        self._near[:] = 0
        self._room = MAX_STEPS

    def value(self) -> Ints:
        """The sum, between -(2^62 - 1) and 2^62 - 1."""
        self._carry()
        high = np.clip(self._high + (self._low >> _LOW_BITS), -(1 << 30) - 1, 1 << 30)
        return np.clip((high << _LOW_BITS) + (self._low & _LOW), -MAX_STEPS, MAX_STEPS)


@final
class Grid:
    """An integer grid with the most that one unit may add to each block, in grid steps.

    Parameters
    ----------
    sizes
        Number of cells of each block.
    scales
        Grid steps per one, block by block.
    bounds
        L1, L2 and Linf norms of each block.

    Examples
    --------
    A record whose values are (0.25, NaN), and one that is far beyond its bounds:

    >>> grid = Grid(sizes=[2], scales=[8.0], bounds=[(1.0, 1.0, 1.0)])
    >>> grid.dense(np.array([[0.25, np.nan], [1e300, -1e300]])).tolist()
    [[2.0, 0.0], [3.0, -3.0]]
    """

    def __init__(
        self, sizes: Sequence[int], scales: Sequence[float], bounds: Iterable[tuple[float, float, float]]
    ) -> None:
        self.size = sum(sizes)
        self._sizes = list(sizes)
        self._block = np.append(np.repeat(np.arange(len(sizes)), sizes), len(sizes) - 1)
        with np.errstate(over="ignore"):
            l1, l2, linf = np.array(list(bounds), dtype=np.float64).reshape(len(sizes), 3).T * np.array(scales)
        self._too_fine = bool(linf.max(initial=0.0) > _MAX_ENTRY)
        self._l1, self._linf = np.floor(l1), np.floor(np.minimum(linf, _MAX_ENTRY))
        self._squares = np.floor(np.minimum(l2, _MAX_ENTRY) ** 2 * _SQUARE_SLACK)
        self._largest = float(self._linf.max(initial=0.0))
        alone = np.minimum(np.minimum(self._linf, self._l1), np.floor(np.sqrt(self._squares)))
        self._scale, self._limit, self._alone = (self._by_cell(each) for each in (scales, self._linf, alone))
        self._ones = np.minimum(np.trunc(self._scale), self._alone)[:-1].astype(np.int64)  # what one in a cell adds
        self._largest_one = int(self._ones.max(initial=0))

    def _by_cell(self, values: Any) -> Floats:
        """A number per block, repeated over its cells, and 0 for the last cell, which takes what is dropped."""
        return np.append(np.repeat(np.asarray(values, dtype=np.float64), self._sizes), 0.0)

    @property
    def too_fine(self) -> bool:
        """Whether one entry within its bound may have more steps than the grid represents."""
        return self._too_fine

    def add_counts(self, counts: Ints, total: ExactSum, most: int = MAX_STEPS) -> None:
        """Add terms of one in one cell, given their number per cell, shape (size,), of which none is beyond `most`."""
        if most * self._largest_one <= MAX_STEPS:
            total.add(counts * self._ones, most * self._largest_one)
            return
        room = MAX_STEPS // np.maximum(self._ones, 1)
        steps = np.where(counts > room, MAX_STEPS * (self._ones > 0), np.minimum(counts, room) * self._ones)
        total.add(steps, MAX_STEPS)

    def dense(self, values: Floats) -> Floats:
        """What units add that touch every cell, in whole steps, shape (n, size)."""
        return self._bounded(_cut(values, self._scale[:-1], self._limit[:-1]), self._sizes)

    def _bounded(self, steps: Floats, entries: Sequence[int]) -> Floats:
        """Rows with so many entries in each block, in order, scaled down in place where beyond a bound."""
        start = 0
        for block, count in enumerate(entries):
            part = steps[:, start : start + count]
            if self._can_exceed(block, count):
                ones = np.ones(count)  # a matrix product adds short rows up faster than a sum does
                factors = self._factors(np.abs(part) @ ones, np.square(part) @ ones, block)
                np.trunc(np.multiply(part, factors[:, None], out=part), out=part)
            start += count
        return steps

    def add_dense(self, values: Floats, total: ExactSum) -> None:
        """Add what units add that touch every cell, shape (n, size)."""
        for start in range(0, len(values), step := max(1, min(_AT_ONCE // max(self.size, 1), self._exact_terms))):
            steps = self.dense(values[start : start + step])
            total.add(steps.sum(axis=0).astype(np.int64), int(len(steps) * self._largest))

    def add_sparse(self, cells: Ints, values: Floats | None, total: ExactSum) -> None:
        """Add what units add to a few cells each, shapes (n, k); None: one to each cell."""
        known = known_cells(cells, self.size)
        if values is None and known.shape[1] == 1:
            self.add_counts(np.bincount(known[:, 0], minlength=self.size + 1)[:-1], total, len(known))
            return
        for start in range(0, len(known), step := max(1, max(_AT_ONCE, self.size) // max(known.shape[1], 1))):
            part = slice(start, start + step)
            self._add(*self._sparse(known[part], np.ones(1) if values is None else values[part]), total)

    def add_lanes(self, cells: Ints, values: Floats | None, lanes: Ints, total: ExactSum) -> None:
        """As `add_sparse`, where entry j is for cells from lanes[j] up to lanes[j + 1], and dropped elsewhere.

        Entries then never share a cell, and their blocks are known. A lane lies within one block.
        """
        entries = self._entries(lanes)
        step = min(len(cells), max(1, max(_AT_ONCE, self.size) // (len(lanes) - 1)))
        starts, last, scale, limit = (  # written out, since short rows are slow to combine with one row
            np.tile(row, (step, 1)) for row in self._columns(lanes)
        )
        for start in range(0, len(cells), max(step, 1)):
            part, n = slice(start, start + step), len(cells[start : start + step])
            steps = _cut(np.ones((n, 1)) if values is None else values[part], scale[:n], limit[:n])
            offset = (cells[part] - starts[:n]).view(np.uint64)
            np.copyto(steps, 0.0, where=offset > last[:n])
            known = np.minimum(offset, last[:n], out=offset).view(np.int64)
            known += starts[:n]
            self._add(known.reshape(-1), self._bounded(steps, entries).reshape(-1), total)

    def _columns(self, lanes: Ints) -> tuple[Array, ...]:
        """By lane: its first cell, the offset of its last, its scale and its limit."""
        starts = lanes[:-1]
        return starts, (np.diff(lanes) - 1).astype(np.uint64), self._scale[starts], self._limit[starts]

    def _entries(self, lanes: Ints) -> list[int]:
        """The number of lanes in each block."""
        inside = lanes[0] >= 0 and lanes[-1] <= self.size and (np.diff(lanes) > 0).all()
        if not inside or (self._block[lanes[:-1]] != self._block[lanes[1:] - 1]).any():
            raise InputError(f"Expected lanes that increase, each within one block, found {lanes[:9].tolist()}.")
        counts: list[int] = np.bincount(self._block[lanes[:-1]], minlength=len(self._sizes)).tolist()
        return counts

    def _sparse(self, cells: Ints, values: Floats) -> tuple[Ints, Floats]:
        """Known cells and what is added to them, in whole steps; entries of one unit in one cell become one."""
        if cells.shape[1] == 1:
            return cells[:, 0], _cut(values, self._scale[cells], self._alone[cells])[:, 0]
        steps = _cut(values, self._scale[cells], self._limit[cells])
        order = np.argsort(cells, axis=1, kind="stable")
        cells, steps = np.take_along_axis(cells, order, axis=1), np.take_along_axis(steps, order, axis=1)
        first = np.diff(cells, axis=1, prepend=-1) != 0
        owner, flat = np.nonzero(first)[0], cells[first]
        steps = _sums(np.cumsum(first.reshape(-1)) - 1, steps.reshape(-1), len(flat))
        steps = np.clip(steps, -self._limit[flat], self._limit[flat])
        if not any(self._can_exceed(block, min(size, cells.shape[1])) for block, size in enumerate(self._sizes)):
            return flat, steps
        block = self._block[flat]
        key = owner * len(self._sizes) + block  # in order, so equal keys are neighbours
        group = np.cumsum(np.diff(key, prepend=key[:1]) != 0)
        return flat, self._shrunk(steps, group, block[np.flatnonzero(np.diff(group, prepend=-1))])

    def add_terms(self, units: int, owner: Ints, cells: Ints, values: Floats, total: ExactSum) -> None:
        """Add what units add as (unit, cell, value); no unit has two entries for one cell."""
        known, blocks = known_cells(cells, self.size), len(self._sizes)
        steps = _cut(values, self._scale[known], self._limit[known])
        block = np.tile(np.arange(blocks), units)
        self._add(known, self._shrunk(steps, owner * blocks + self._block[known], block), total)

    def _add(self, cells: Ints, steps: Floats, total: ExactSum) -> None:
        for start in range(0, len(cells), step := self._exact_terms):
            part = steps[start : start + step]
            summed = _sums(cells[start : start + step], part, self.size + 1)[:-1]
            total.add(summed.astype(np.int64), int(len(part) * self._largest))

    @property
    def _exact_terms(self) -> int:
        """How many entries add up exactly in a float."""
        return int(min(max(_EXACT // max(self._largest, 1.0), 1.0), 2.0**40))

    def _can_exceed(self, block: int, entries: int) -> bool:
        """Whether so many entries within the Linf bound can be beyond another bound of the block."""
        linf = float(self._linf[block])
        return bool(entries * linf > self._l1[block] or entries * linf * linf > self._squares[block])

    def _shrunk(self, steps: Floats, group: Ints, block: Ints) -> Floats:
        """Entries, scaled down where those of a group, a unit's in one block, are beyond a bound."""
        sums, squares = _sums(group, np.abs(steps), len(block)), _sums(group, np.square(steps), len(block))
        shrunk: Floats = np.trunc(np.multiply(steps, self._factors(sums, squares, block)[group]))
        return shrunk

    def _factors(self, sums: Floats, squares: Floats, block: Any) -> Floats:
        """What brings entries with these sums of sizes and of squares within the bounds; 1 where they are within."""
        l1, l2 = self._l1[block], self._squares[block]
        within = (sums <= l1) & (squares <= l2)
        needed = np.minimum(l1 / np.maximum(sums, 1.0), np.sqrt(l2 / np.maximum(squares, 1.0)))
        factors: Floats = np.where(within, 1.0, np.minimum(needed, 1.0) * _SHRINK)
        return factors


def _cut(values: Floats, scale: Floats, limit: Floats) -> Floats:
    """Entries in steps, truncated toward zero and clamped to the largest; what is not finite is 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.multiply(values, scale, dtype=np.float64)
    np.copyto(steps, 0.0, where=~(np.abs(steps) < inf))
    np.trunc(steps, out=steps)
    return np.clip(steps, -limit, limit, out=steps)


def _sums(group: Ints, values: Floats, groups: int) -> Floats:
    """The sum of the values of each group."""
    return np.asarray(np.bincount(group, values, groups), dtype=np.float64)
