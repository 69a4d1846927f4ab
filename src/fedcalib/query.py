"""Queries: what each record or client adds to a sum, and how large that can be.

A `Query` names the blocks of its answer, each with a `Bound`. A `RecordQuery` states what a record adds as `Rows` (a
few cells and their values, or all cells); a `ClientQuery` computes one vector per client; a `Join` sends several
queries in one message. An `Answer` is the sum, perhaps noisy, with the variance of the noise. Sums of sparse rows and
of clients' own vectors are worked out here, so that a query has to state its contribution only once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from math import isfinite, prod
from typing import Literal, final

import numpy as np

from fedcalib.display import brief
from fedcalib.errors import InputError, RefusedError
from fedcalib.federation import Federation
from fedcalib.numeric import ExactSum, Grid, finite, known_cells
from fedcalib.randomness import Randomness
from fedcalib.records import CHUNK, Records
from fedcalib.types import Array, Floats, Ints


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """What each record adds: a few cells and their values, or all cells.

    Parameters
    ----------
    cells
        Cells that each record touches, shape (n, k); a negative cell is no cell. None: every record touches every cell,
        in order.
    values
        What it adds to them, shape (n, k). None: one to each.
    lanes
        Increasing edges, shape (k + 1,): entry j only touches cells from lanes[j] up to lanes[j + 1], all of one block.
        Bounds are then enforced faster, since no two entries share a cell. None: entries may touch any cell.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcalib.query import Rows
    >>> Rows(cells=np.array([[0], [2], [2]]), values=None).sum(size=3).tolist()
    [1, 0, 2]
    """

    cells: Ints | None  # (n, k)
    values: Floats | None  # (n, k)
    lanes: Ints | None = None  # (k + 1,)

    @property
    def width(self) -> int:
        """Number of cells that a record touches."""
        touched = self.values if self.cells is None else self.cells
        return 0 if touched is None else int(touched.shape[1])

    def sum(self, size: int, grid: Grid | None = None) -> Array:
        """The sum of all rows, shape (size,), without entries that are not finite or outside the cells.

        On a grid every row first becomes integers within the grid's bounds.
        """
        if grid is not None:
            total = ExactSum(size)
            self.add_to(grid, total)
            return total.value()
        if self.cells is None:
            return dense_sum(self.values)
        cells = known_cells(self.cells, size).reshape(-1)
        weights = None if self.values is None else finite(np.asarray(self.values).reshape(-1))
        return np.bincount(cells, weights, minlength=size + 1)[:-1]

    def add_to(self, grid: Grid, total: ExactSum) -> None:
        """Add all rows to a total on a grid, each within the bounds of the grid."""
        if self.cells is not None and self.lanes is not None:
            grid.add_lanes(self.cells, self.values, self.lanes, total)
        elif self.cells is not None:
            grid.add_sparse(self.cells, self.values, total)
        elif self.values is not None:
            grid.add_dense(self.values, total)

    def dense(self, size: int) -> Floats:
        """The rows written out in full, shape (n, size): for tests and small local reports."""
        if self.cells is None:
            return np.asarray(self.values, dtype=np.float64)
        n, k = self.cells.shape
        matrix = np.zeros((n, size + 1))
        values = np.ones((n, k)) if self.values is None else self.values
        cells = known_cells(self.cells, size).reshape(-1)
        np.add.at(matrix, (np.repeat(np.arange(n), k), cells), np.asarray(values).reshape(-1))
        return matrix[:, :size]


def dense_sum(values: Floats | None) -> Array:
    """The sum of rows that touch every cell, shape (size,), without entries that are not finite."""
    if values is None:
        raise InputError("Expected values for rows that touch every cell, found none.")
    return np.asarray(finite(values).sum(axis=0, dtype=np.float64))


@final
@dataclass(frozen=True, eq=False)
class ClientTerms:
    """Sums of some clients as coordinates: each entry names its client, its cell and its value."""

    clients: int
    owner: Ints  # (entries,): from 0 within these clients
    cell: Ints  # (entries,)
    value: Floats  # (entries,)


def groups(offsets: Ints, max_records: int) -> Iterator[tuple[int, int]]:
    """Ranges of neighbouring clients with at most `max_records` records together, or one client with more."""
    first, clients = 0, len(offsets) - 1
    while first < clients:
        last = int(np.searchsorted(offsets, offsets[first] + max_records, side="right")) - 1
        last = min(max(last, first + 1), clients)
        yield first, last
        first = last


def coordinates(rows: Rows, owner: Ints, clients: int, size: int) -> ClientTerms:
    """Sums of each client's rows, by client and cell; what is not finite or outside the cells is left out."""
    cells = np.broadcast_to(np.arange(size), (len(owner), size)) if rows.cells is None else rows.cells
    cells = known_cells(cells, size)
    keys = np.where(cells < size, owner[:, None] * size + cells, clients * size).reshape(-1)
    values = None if rows.values is None else finite(np.asarray(rows.values, np.float64).reshape(-1))
    if clients * size <= 8 * max(len(keys), CHUNK):  # dense is faster and no larger than the entries themselves
        summed = np.bincount(keys, values, clients * size + 1)[:-1].astype(np.float64)
        found = np.flatnonzero(summed)
        return ClientTerms(clients, found // size, found % size, summed[found])
    found, inverse = np.unique(keys, return_inverse=True)
    summed = np.bincount(inverse.reshape(-1), values, len(found)).astype(np.float64)
    known = found < clients * size
    return ClientTerms(clients, found[known] // size, found[known] % size, summed[known])


def single_client(total: Array) -> ClientTerms:
    """One client's sum as coordinates."""
    found = np.flatnonzero(total)
    return ClientTerms(1, np.zeros_like(found), found, total[found].astype(np.float64))


Unit = Literal["record", "client"]

_MAX_ENTRIES = 1 << 22  # coordinates of client vectors at a time


@final
@dataclass(frozen=True)
class Bound:
    """The most that one unit can add to a block, in three norms.

    Parameters
    ----------
    l1, l2, linf
        Norms of the vector that one unit adds; positive and finite.
    unit
        Whose contribution is bounded: one "record", or one "client" with all its records.

    Examples
    --------
    >>> from fedcalib.query import Bound
    >>> Bound(l1=2.0, l2=2**0.5, linf=1.0).unit
    'record'
    """

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

    Parameters
    ----------
    shape
        Shape of the block in the answer.
    bound
        The most that one unit can add to it.
    integral
        Whether every contribution is a whole number.
    one_hot
        Whether a record adds one to exactly one cell, which local reports make use of.
    weight
        The block's part of the budget, relative to all blocks of all queries of the method.
    clip
        A public constant: the L2 norm to which a client's whole sum is clipped where the client is the unit.

    Examples
    --------
    >>> from fedcalib.query import Block
    >>> Block((2, 15), integral=True, one_hot=True).size
    30
    """

    shape: tuple[int, ...]
    bound: Bound = ONE
    integral: bool = False
    one_hot: bool = False
    weight: float = 1.0
    clip: float | None = None

    @property
    def size(self) -> int:
        """Number of cells."""
        return prod(self.shape)


class Query(ABC):
    """A vector per client, whose sum over all clients is the answer.

    Write a `RecordQuery` or a `ClientQuery`; join several with `Join`.

    Examples
    --------
    >>> import fedcalib as fc
    >>> query = fc.method.Plan.of(fc.FedBin(bins=5), fc.Schema(classes=2, clients=3)).queries[0]
    >>> {name: block.shape for name, block in query.blocks.items()}
    {'1': (2, 5)}
    >>> query.size
    10
    """

    @property
    @abstractmethod
    def blocks(self) -> Mapping[str, Block]:
        """The named parts of the answer, in order, with their bounds."""

    @abstractmethod
    def total(self, federation: Federation, randomness: Randomness, scale: Floats | None = None) -> Array:
        """The sum over all clients, shape (size,); with a scale, each unit adds integers within its bounds."""

    def rounded(self, federation: Federation, randomness: Randomness, scale: Floats) -> Array:
        """The sum on a grid where nobody's part has to stay within a bound, for models without noise.

        Override it where a sum can be had faster if it is cut to the grid as a whole, instead of each unit on its own.
        """
        return self.total(federation, randomness, scale)

    @abstractmethod
    def by_client(self, federation: Federation, randomness: Randomness) -> Iterator[ClientTerms]:
        """Each client's own sum as coordinates, some clients at a time."""

    def rows(self, records: Records) -> Rows:
        """What each record adds; refused by queries about whole clients."""
        raise RefusedError(f"{type(self).__name__} is about whole clients, so single records have no rows.")

    @property
    def sufficient(self) -> Query:
        """The shortest query whose exact answer determines this one's; exact privacy models send that instead."""
        return self

    def expand(self, exact: Array) -> Array:
        """This query's answer, shape (size,), from the exact answer to the sufficient one."""
        return exact

    @property
    def size(self) -> int:
        """Number of cells of the whole message."""
        return sum(block.size for block in self.blocks.values())

    def split(self, vector: Array) -> dict[str, Array]:
        """A message, cut into its named blocks."""
        blocks = self.blocks
        edges = accumulate((block.size for block in blocks.values()), initial=0)
        parts = (vector[start:stop] for start, stop in pairwise(edges))
        return {name: part.reshape(block.shape) for (name, block), part in zip(blocks.items(), parts, strict=True)}

    def grid(self, scale: Floats) -> Grid:
        """The integer grid of this scale, shape (size,), one number per block, with the bounds of the blocks."""
        parts = {name: part.reshape(-1) for name, part in self.split(scale).items()}
        scales = {name: float(part[0]) for name, part in parts.items()}
        if not all((part == scales[name]).all() for name, part in parts.items()):
            raise InputError("Expected one scale for all cells of a block, found several.")
        return self.grid_within(scales, {name: block.bound for name, block in self.blocks.items()})

    def grid_within(self, scales: Mapping[str, float], bounds: Mapping[str, Bound]) -> Grid:
        """The integer grid of these scales and bounds, by name of the block."""
        sizes = [block.size for block in self.blocks.values()]
        return Grid(
            sizes,
            [scales[name] for name in self.blocks],
            [(bounds[name].l1, bounds[name].l2, bounds[name].linf) for name in self.blocks],
        )

    def spread(self, values: Mapping[str, float]) -> Floats:
        """One number per block, repeated over the block's cells, shape (size,)."""
        blocks = self.blocks
        return np.repeat(np.array([float(values[name]) for name in blocks]), [block.size for block in blocks.values()])


class RecordQuery(Query):
    """A query to which each record adds its own row.

    A subclass is a frozen dataclass with two members: `blocks`, whose bounds its docstring argues, and `rows`. The
    bounds are enforced where rows become integers, so a mistake in the argument costs accuracy and never privacy.
    Override `pooled` where a sum can be had faster than row by row; it must stay within the bounds for any floats, and
    a test compares both.

    Examples
    --------
    A count of confident records: a record adds one to one of two cells, so every norm is 1.

    >>> from dataclasses import dataclass
    >>> import fedcalib as fc
    >>> from fedcalib.query import Block, RecordQuery, Rows
    >>> @dataclass(frozen=True)
    ... class Confident(RecordQuery):
    ...     @property
    ...     def blocks(self):
    ...         return {"count": Block((2,), integral=True, one_hot=True)}
    ...
    ...     def rows(self, records):
    ...         return Rows((records.probs.max(axis=1, keepdims=True) > 0.9).astype(int), None)
    >>> records = fc.Records.of_scores([0.95, 0.6, 0.01], labels=[1, 0, 0])
    >>> Confident().pooled(records).tolist()
    [1.0, 2.0]
    """

    @abstractmethod
    def rows(self, records: Records) -> Rows:
        """What each record adds."""

    def total(self, federation: Federation, randomness: Randomness, scale: Floats | None = None) -> Array:
        return self.pooled(federation.records, scale)

    def pooled(self, records: Records, scale: Floats | None = None) -> Array:
        """The sum over pooled records, a slice at a time; with a scale, in integers within the bounds."""
        rows = (self.rows(chunk) for chunk in records.chunks(min(CHUNK, self._at_once(records))))
        if scale is None:
            return sum((each.sum(self.size) for each in rows), np.zeros(self.size))
        grid, total = self.grid(scale), ExactSum(self.size)
        for each in rows:
            each.add_to(grid, total)
        return total.value()

    def by_client(self, federation: Federation, randomness: Randomness) -> Iterator[ClientTerms]:
        max_records = self._at_once(federation.records)
        for first, last in groups(federation.offsets, max_records):
            start, stop = int(federation.offsets[first]), int(federation.offsets[last])
            records = federation.records.take(slice(start, stop))
            if stop - start > max_records:  # one client
                yield single_client(self.pooled(records))
            else:
                owner = np.repeat(np.arange(last - first), federation.sizes[first:last])
                yield coordinates(self.rows(records), owner, last - first, self.size)

    def _at_once(self, records: Records) -> int:
        """Number of records whose rows may be written out at a time: fewer, the more cells each row touches."""
        width = self.rows(records.take(slice(0, 1))).width if len(records) else 1
        return max(1, min(4 * CHUNK, _MAX_ENTRIES // max(1, width)))


def counted_on(query: Query, counts: Ints, scale: Floats | None) -> Array:
    """The sum of terms that each are one in one cell per block, from their number per cell, shape (size,)."""
    if scale is None:
        return counts
    total = ExactSum(query.size)
    query.grid(scale).add_counts(counts, total)
    return total.value()


class ClientQuery(Query):
    """A query to which each client adds one bounded vector, for instance the change that local training makes.

    A subclass is a frozen dataclass with two members: `blocks`, whose bounds have the unit "client", and `term`.

    Examples
    --------
    Whether a client holds at least ten records: one cell, so every norm is 1.

    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> import fedcalib as fc
    >>> from fedcalib.query import Block, Bound, ClientQuery
    >>> @dataclass(frozen=True)
    ... class Large(ClientQuery):
    ...     @property
    ...     def blocks(self):
    ...         return {"large": Block((1,), Bound(1.0, 1.0, 1.0, "client"))}
    ...
    ...     def term(self, records, rng):
    ...         return np.array([float(len(records) >= 10)])
    >>> Large().total(fc.Federation.simulated(clients=5, records=100), fc.Simulated(0)).tolist()
    [5.0]
    """

    @abstractmethod
    def term(self, records: Records, rng: np.random.Generator) -> Floats:
        """What a client adds, shape (size,), within the bound; `rng` is for local training."""

    def terms(self, federation: Federation, randomness: Randomness) -> Floats:
        """All clients' vectors, shape (clients, size); override it to work on all clients at once."""
        vectors = [
            self.term(records, randomness.derive("term", client).generator())
            for client, records in enumerate(federation.clients())
        ]
        return np.stack(vectors) if vectors else np.zeros((0, self.size))

    def total(self, federation: Federation, randomness: Randomness, scale: Floats | None = None) -> Array:
        terms = self.terms(federation, randomness)
        if scale is None:
            return dense_sum(terms)
        total = ExactSum(self.size)
        self.grid(scale).add_dense(terms, total)
        return total.value()

    def by_client(self, federation: Federation, randomness: Randomness) -> Iterator[ClientTerms]:
        terms = self.terms(federation, randomness)
        for first in range(0, len(terms), step := max(_MAX_ENTRIES // self.size, 1)):
            part = terms[first : first + step]
            owner, cell = np.divmod(np.arange(part.size), self.size)
            yield ClientTerms(len(part), owner, cell, part.reshape(-1))


@final
@dataclass(frozen=True)
class Join(Query):
    """Several independent queries in one message; block `name` of part i is called `i.name`.

    Parameters
    ----------
    parts
        The queries, in order.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.queries.shift import Confidence, Predictions
    >>> list(fc.query.Join((Confidence(), Predictions(3))).blocks)
    ['0.confidence', '1.predictions']
    """

    parts: tuple[Query, ...]

    @cached_property
    def blocks(self) -> Mapping[str, Block]:
        return {f"{i}.{name}": block for i, part in enumerate(self.parts) for name, block in part.blocks.items()}

    @property
    def sufficient(self) -> Query:
        return Join(tuple(part.sufficient for part in self.parts))

    def expand(self, exact: Array) -> Array:
        edges = np.cumsum([0, *(part.sufficient.size for part in self.parts)])
        pieces = (exact[start:stop] for start, stop in pairwise(edges))
        return np.concatenate([part.expand(piece) for part, piece in zip(self.parts, pieces, strict=True)])

    def total(self, federation: Federation, randomness: Randomness, scale: Floats | None = None) -> Array:
        edges = np.cumsum([0, *(part.size for part in self.parts)])
        scales = [None if scale is None else scale[start:stop] for start, stop in pairwise(edges)]
        totals = [part.total(federation, randomness.derive(i), scales[i]) for i, part in enumerate(self.parts)]
        return np.concatenate(totals)

    def rounded(self, federation: Federation, randomness: Randomness, scale: Floats) -> Array:
        edges = np.cumsum([0, *(part.size for part in self.parts)])
        scales = [scale[start:stop] for start, stop in pairwise(edges)]
        totals = [part.rounded(federation, randomness.derive(i), scales[i]) for i, part in enumerate(self.parts)]
        return np.concatenate(totals)

    def rows(self, records: Records) -> Rows:
        cells, values, offset = [], [], 0
        for part in self.parts:
            rows = part.rows(records)
            index = np.tile(np.arange(part.size), (len(records), 1)) if rows.cells is None else rows.cells
            index = known_cells(index, part.size)
            cells.append(np.where(index < part.size, index + offset, -1))
            values.append(np.ones(index.shape) if rows.values is None else rows.values)
            offset += part.size
        return Rows(np.concatenate(cells, axis=1), np.concatenate(values, axis=1))

    def by_client(self, federation: Federation, randomness: Randomness) -> Iterator[ClientTerms]:
        """All clients at once, since parts may group them differently."""
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


@final
@dataclass(frozen=True, eq=False)
class Answer:
    """The sum over clients, block by block, and the variance of the noise in it.

    `answer["block"]` is a block's value.

    Parameters
    ----------
    values
        The sum, by name of the block.
    variances
        Variance of the added noise, shaped like the values; 0 where the sum is exact.
    clients
        Number of clients that answered where that is public, otherwise None.

    Examples
    --------
    >>> import numpy as np
    >>> import fedcalib as fc
    >>> from fedcalib.queries.shift import Predictions
    >>> answer = fc.query.Answer.of(Predictions(2), np.array([7.0, 3.0]), np.zeros(2), clients=4)
    >>> answer["predictions"].tolist(), answer.variance("predictions").tolist()
    ([7.0, 3.0], [0.0, 0.0])
    """

    values: Mapping[str, Floats]
    variances: Mapping[str, Floats]  # of the added noise, shaped like the values; 0 when exact
    clients: int | None

    def __repr__(self) -> str:
        return brief(self)

    @classmethod
    def of(cls, query: Query, value: Floats, variance: Floats, clients: int | None) -> Answer:
        """A decoded message, cut into the query's blocks."""
        return cls(query.split(value), query.split(variance), clients)

    @classmethod
    def empty(cls, query: Query) -> Answer:
        """The answer of a federation without records, without noise."""
        zeros = np.zeros(query.size)
        return cls.of(query, zeros, zeros, 0)

    def __getitem__(self, block: str) -> Floats:
        return self.values[block]

    def variance(self, block: str) -> Floats:
        """Variance of the noise in each cell of a block."""
        return self.variances[block]

    def part(self, join: Join, index: int) -> Answer:
        """The answer to one part of a joined query."""
        names = {name: f"{index}.{name}" for name in join.parts[index].blocks}
        return Answer(
            {name: self.values[full] for name, full in names.items()},
            {name: self.variances[full] for name, full in names.items()},
            self.clients,
        )
