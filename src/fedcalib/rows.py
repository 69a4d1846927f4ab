"""What records and clients add to a sum: a few cells and their values, or all cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.records import CHUNK
from fedcalib.types import Array, Floats, Ints


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """What each record adds: a few cells and their values, or all cells.

    `cells` None means that every record touches every cell, in order; `values` None means that it adds one to each
    of its cells. A negative cell is no cell at all.
    """

    cells: Ints | None  # (n, k)
    values: Floats | None  # (n, k)

    @property
    def width(self) -> int:
        """Count the cells that a record touches."""
        touched = self.values if self.cells is None else self.cells
        return 0 if touched is None else int(touched.shape[1])

    def sum(self, size: int, scale: Floats | None = None) -> Array:
        """Add the rows up, (size,); with a scale, each entry is first scaled and cut to an integer toward zero."""
        if self.cells is None:
            return dense_sum(self.values, scale)
        cells = np.asarray(self.cells).reshape(-1)
        values = None if self.values is None else np.asarray(self.values).reshape(-1)
        if cells.size and cells.min() < 0:
            kept = cells >= 0
            cells, values = cells[kept], None if values is None else values[kept]
        if values is None:
            counts: Array = np.bincount(cells, minlength=size)
            return counts if scale is None else counts * scale.astype(np.int64)
        weights = values if scale is None else np.trunc(values * scale[cells])
        summed: Array = _summed(weights, lambda terms: np.bincount(cells, weights=terms, minlength=size))
        return summed if scale is None else summed.astype(np.int64)

    def dense(self, size: int) -> Floats:
        """Write the rows out in full, (n, size): for tests and small local reports."""
        if self.cells is None:
            return np.asarray(self.values, dtype=np.float64)
        n, k = self.cells.shape
        matrix = np.zeros((n, size + 1))
        values = np.ones((n, k)) if self.values is None else self.values
        np.add.at(matrix, (np.repeat(np.arange(n), k), self.cells.reshape(-1)), np.asarray(values).reshape(-1))
        return matrix[:, :size]


def finite(values: Floats) -> Floats:
    """Read what is no finite number as zero, so that whoever adds it adds nothing and stays within every bound."""
    if np.isfinite(values).all():
        return values
    cleaned: Floats = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    return cleaned


def _summed(values: Floats, add: Callable[[Floats], Array]) -> Array:
    """Add values up, and once more without those that are no finite numbers if the sum shows that there are any."""
    with np.errstate(invalid="ignore"):  # infinity less infinity
        total = add(values)
    return total if np.isfinite(total).all() else add(finite(values))


def dense_sum(values: Floats | None, scale: Floats | None) -> Array:
    """Add up rows that touch every cell, (size,)."""
    if values is None:
        raise InputError("Expected values for rows that touch every cell, found none.")
    terms = values if scale is None else np.trunc(values.astype(np.float64) * scale)
    total = _summed(terms, lambda rows: np.asarray(rows.sum(axis=0, dtype=np.float64)))
    return total if scale is None else total.astype(np.int64)


@final
@dataclass(frozen=True, eq=False)
class ClientTerms:
    """What some clients add, as coordinates: each entry names its client, its cell and its value."""

    clients: int
    owner: Ints  # (entries,): from 0 within these clients
    cell: Ints  # (entries,)
    value: Floats  # (entries,)


def groups(offsets: Ints, most: int) -> Iterator[tuple[int, int]]:
    """Group neighbouring clients so that a group holds so many records at most, or is one client that holds more."""
    first, clients = 0, len(offsets) - 1
    while first < clients:
        last = int(np.searchsorted(offsets, offsets[first] + most, side="right")) - 1
        last = min(max(last, first + 1), clients)
        yield first, last
        first = last


def coordinates(rows: Rows, owner: Ints, clients: int, size: int) -> ClientTerms:
    """Add up entries that fall into the same cell of the same client."""
    cells = np.broadcast_to(np.arange(size), (len(owner), size)) if rows.cells is None else rows.cells
    keys = (owner[:, None] * size + cells).reshape(-1)
    values = np.ones(keys.shape) if rows.values is None else np.asarray(rows.values, np.float64).reshape(-1)
    if rows.cells is not None:
        kept = np.asarray(cells).reshape(-1) >= 0
        keys, values = keys[kept], values[kept]
    if clients * size <= 8 * max(len(keys), CHUNK):  # dense is faster and no larger than the entries themselves
        summed = _summed(values, lambda terms: np.bincount(keys, weights=terms, minlength=clients * size))
        found = np.flatnonzero(summed)
        return ClientTerms(clients, found // size, found % size, summed[found])
    found, inverse = np.unique(keys, return_inverse=True)
    summed = _summed(values, lambda terms: np.bincount(inverse.reshape(-1), weights=terms, minlength=len(found)))
    return ClientTerms(clients, found // size, found % size, summed)


def of_one(total: Array) -> ClientTerms:
    """Give one client's sum as coordinates."""
    found = np.flatnonzero(total)
    return ClientTerms(1, np.zeros_like(found), found, total[found].astype(np.float64))
