"""What records and clients add to a sum: a few cells and their values, or all cells.

Questions to clients: what each record or client adds to a sum, and how large that can be.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import isfinite, prod
from typing import Literal, final

import numpy as np

from fedcalib.errors import InputError, RefusedError
from fedcalib.federation import Federation
from fedcalib.randomness import Randomness
from fedcalib.records import CHUNK, Records
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


Unit = Literal["record", "client"]

_MOST_ENTRIES = 1 << 22  # coordinates of client vectors at a time


@final
@dataclass(frozen=True)
class Bound:
    """The most that one unit can add to a block, in three norms."""

    l1: float
    l2: float
    linf: float
    unit: Unit = "record"

    def __post_init__(self) -> None:
        if not all(isfinite(norm) and norm > 0 for norm in (self.l1, self.l2, self.linf)):
            raise InputError(f"Expected a bound of positive, finite norms, found {self}.")


ONE = Bound(1.0, 1.0, 1.0)


@final
@dataclass(frozen=True)
class Block:
    """One named part of an answer, with its own bound.

    `weight` is the block's share of the budget, relative to all blocks of all the method's queries. `clip` is a
    public constant: the L2 norm to which a client's whole sum is cut when the client is the unit.
    """

    shape: tuple[int, ...]
    bound: Bound = ONE
    integral: bool = False
    one_hot: bool = False
    weight: float = 1.0
    clip: float | None = None

    @property
    def size(self) -> int:
        """Count the cells."""
        return prod(self.shape)


class Query(ABC):
    """A question that every client answers with one vector, and whose answer is the sum."""

    @property
    @abstractmethod
    def blocks(self) -> Mapping[str, Block]:
        """Name the parts of the answer, in order, with their bounds."""

    @abstractmethod
    def total(self, federation: Federation, randomness: Randomness, scale: Floats | None = None) -> Array:
        """Sum over all clients, (size,); with a scale, whatever a unit adds is first cut to integers toward zero."""

    @abstractmethod
    def by_client(self, federation: Federation, randomness: Randomness) -> Iterator[ClientTerms]:
        """Give each client's own sum, sparse, some clients at a time."""

    def rows(self, records: Records) -> Rows:
        """Say what each record adds; only questions about records can."""
        raise RefusedError(f"{type(self).__name__} asks about whole clients, so there are no terms of single records.")

    @property
    def sufficient(self) -> Query:
        """Give the shortest question whose exact answer tells this one's; models without noise ask that instead."""
        return self

    def expand(self, exact: Array) -> Array:
        """Work out this question's answer, (size,), from the exact answer to the sufficient one."""
        return exact

    @property
    def size(self) -> int:
        """Count the cells of the whole message."""
        return sum(block.size for block in self.blocks.values())

    def split(self, vector: Array) -> dict[str, Array]:
        """Cut a message into its named blocks."""
        blocks = self.blocks
        edges = accumulate((block.size for block in blocks.values()), initial=0)
        parts = (vector[start:stop] for start, stop in pairwise(edges))
        return {name: part.reshape(block.shape) for (name, block), part in zip(blocks.items(), parts, strict=True)}

    def spread(self, values: Mapping[str, float]) -> Floats:
        """Repeat one number a block over the block's cells, (size,)."""
        blocks = self.blocks
        return np.repeat(np.array([float(values[name]) for name in blocks]), [block.size for block in blocks.values()])


class RecordQuery(Query):
    """A question to which each record adds its own row."""

    @abstractmethod
    def rows(self, records: Records) -> Rows:
        """Say what each record adds."""

    def total(self, federation: Federation, randomness: Randomness, scale: Floats | None = None) -> Array:
        """Sum all rows, a slice of records at a time."""
        return self.pooled(federation.records, scale)

    def pooled(self, records: Records, scale: Floats | None = None) -> Array:
        """Sum the rows of pooled records; override for speed, `rows` stays the oracle in the tests."""
        total = np.zeros(self.size, dtype=np.float64 if scale is None else np.int64)
        for chunk in records.chunks(min(CHUNK, self._at_once(records))):
            total += self.rows(chunk).sum(self.size, scale)
        return total

    def by_client(self, federation: Federation, randomness: Randomness) -> Iterator[ClientTerms]:
        """Add up each client's rows, sparse, some clients at a time."""
        most = self._at_once(federation.records)
        for first, last in groups(federation.offsets, most):
            start, stop = int(federation.offsets[first]), int(federation.offsets[last])
            records = federation.records.take(slice(start, stop))
            if stop - start > most:  # one client
                yield of_one(self.pooled(records))
            else:
                owner = np.repeat(np.arange(last - first), federation.sizes[first:last])
                yield coordinates(self.rows(records), owner, last - first, self.size)

    def _at_once(self, records: Records) -> int:
        """Count the records whose rows may be written out at a time: fewer, the more cells a row touches."""
        width = self.rows(records.take(slice(0, 1))).width if len(records) else 1
        return max(1, min(4 * CHUNK, _MOST_ENTRIES // max(1, width)))


class ClientQuery(Query):
    """A question to which each client adds one bounded vector."""

    @abstractmethod
    def term(self, records: Records, rng: np.random.Generator) -> Floats:
        """Say what a client adds, (size,), within the bound; `rng` is for local training."""

    def terms(self, federation: Federation, randomness: Randomness) -> Floats:
        """Stack the clients' vectors, (clients, size); override to work on all clients at once."""
        vectors = [
            self.term(records, randomness.derive("term", client).generator())
            for client, records in enumerate(federation.clients())
        ]
        return np.stack(vectors) if vectors else np.zeros((0, self.size))

    def total(self, federation: Federation, randomness: Randomness, scale: Floats | None = None) -> Array:
        """Sum the clients' vectors."""
        return dense_sum(self.terms(federation, randomness), scale)

    def by_client(self, federation: Federation, randomness: Randomness) -> Iterator[ClientTerms]:
        """Give the clients' vectors as coordinates, some clients at a time."""
        terms = self.terms(federation, randomness)
        for first in range(0, len(terms), step := max(_MOST_ENTRIES // self.size, 1)):
            part = terms[first : first + step]
            owner, cell = np.divmod(np.arange(part.size), self.size)
            yield ClientTerms(len(part), owner, cell, part.reshape(-1))


@final
@dataclass(frozen=True)
class Join(Query):
    """Several independent questions in one message; block `name` of part i is called `i.name`."""

    parts: tuple[Query, ...]

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Name each part's blocks after the part."""
        return {f"{i}.{name}": block for i, part in enumerate(self.parts) for name, block in part.blocks.items()}

    @property
    def sufficient(self) -> Query:
        """Shorten each part."""
        return Join(tuple(part.sufficient for part in self.parts))

    def expand(self, exact: Array) -> Array:
        """Expand each part."""
        edges = np.cumsum([0, *(part.sufficient.size for part in self.parts)])
        pieces = (exact[start:stop] for start, stop in pairwise(edges))
        return np.concatenate([part.expand(piece) for part, piece in zip(self.parts, pieces, strict=True)])

    def total(self, federation: Federation, randomness: Randomness, scale: Floats | None = None) -> Array:
        """Sum each part on its own."""
        edges = np.cumsum([0, *(part.size for part in self.parts)])
        scales = [None if scale is None else scale[start:stop] for start, stop in pairwise(edges)]
        totals = [part.total(federation, randomness.derive(i), scales[i]) for i, part in enumerate(self.parts)]
        return np.concatenate(totals)

    def rows(self, records: Records) -> Rows:
        """Lay the parts' rows side by side."""
        cells, values, offset = [], [], 0
        for part in self.parts:
            rows = part.rows(records)
            index = np.tile(np.arange(part.size), (len(records), 1)) if rows.cells is None else rows.cells
            cells.append(np.where(index < 0, -1, index + offset))
            values.append(np.ones(index.shape) if rows.values is None else rows.values)
            offset += part.size
        return Rows(np.concatenate(cells, axis=1), np.concatenate(values, axis=1))

    def by_client(self, federation: Federation, randomness: Randomness) -> Iterator[ClientTerms]:
        """Merge the parts' coordinates; all clients at once, since parts may group them differently."""
        owner: list[Ints] = []
        cell: list[Ints] = []
        value: list[Floats] = []
        offset = 0
        for i, part in enumerate(self.parts):
            first = 0
            for terms in part.by_client(federation, randomness.derive(i)):
                owner.append(terms.owner + first)
                cell.append(terms.cell + offset)
                value.append(terms.value)
                first += terms.clients
            offset += part.size
        yield ClientTerms(len(federation), np.concatenate(owner), np.concatenate(cell), np.concatenate(value))
