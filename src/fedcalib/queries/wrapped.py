"""Queries about queries: the same on calibrated records, by group or clipped per client, or sizes of clients' answers.

Sizes are in records: a client's norm is the largest, over blocks, of the L2 norm of its sum in the block divided by the
most that one record can add there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import sqrt
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.numeric import MAX_STEPS, ExactSum
from fedcalib.privacy.ring import clipped, norms
from fedcalib.queries.scores import Values, check_groups, groups_of
from fedcalib.query import Answer, Block, Bound, ClientQuery, ClientTerms, Query, RecordQuery, Rows, counted_on
from fedcalib.randomness import Randomness, Simulated
from fedcalib.records import Records
from fedcalib.types import Array, Floats, Ints


@final
@dataclass(frozen=True)
class Calibrated(RecordQuery):
    """The same query, answered after each client has applied a calibrator to its own records.

    A calibrator changes probabilities and nothing else, and the query's bounds hold for any probabilities; so they hold
    here.
    """

    query: Query
    before: Calibrator

    @property
    def blocks(self) -> Mapping[str, Block]:
        return self.query.blocks

    def rows(self, records: Records) -> Rows:
        return self.query.rows(self.before.over(records))

    def total(self, federation: Federation, randomness: Randomness, scale: Floats | None = None) -> Array:
        """Calibrate a slice of records at a time, and let the query sum it."""
        parts = (self.query.total(chunk, randomness, scale) for chunk in self._chunks(federation))
        return sum(parts, np.zeros(self.size)) if scale is None else self._exact(parts)

    def rounded(self, federation: Federation, randomness: Randomness, scale: Floats) -> Array:
        return self._exact(self.query.rounded(chunk, randomness, scale) for chunk in self._chunks(federation))

    def _chunks(self, federation: Federation) -> Iterator[Federation]:
        return (Federation.of([self.before.over(chunk)]) for chunk in federation.records.chunks())

    def _exact(self, parts: Iterator[Array]) -> Array:
        total = ExactSum(self.size)
        for part in parts:
            total.add(part, MAX_STEPS)
        return total.value()

    @property
    def sufficient(self) -> Query:
        shorter = self.query.sufficient
        return self if shorter is self.query else Calibrated(shorter, self.before)

    def expand(self, exact: Array) -> Array:
        return self.query.expand(exact)


@final
@dataclass(frozen=True)
class ByGroup(RecordQuery):
    """The same query for each group of a public list, and once more for records that are in none of them.

    A record adds to the copy of its own group what it would add without groups, and nothing to the others. So every
    bound stays as it is, and a budget holds for all groups at once.

    Parameters
    ----------
    query
        The query; each of its blocks becomes one of shape (groups + 1, ...).
    group
        The column that says to which group a record belongs.
    groups
        The values of that column that define groups, a public list.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.queries.class_tables import LabelCounts
    >>> from fedcalib.queries.wrapped import ByGroup
    >>> records = fc.Records.of_scores([0.1, 0.9, 0.8], [0, 1, 0], sex=["F", "M", "X"])
    >>> ByGroup(LabelCounts(2), "sex", ("F", "M")).pooled(records).tolist()
    [1.0, 0.0, 0.0, 1.0, 1.0, 0.0]
    """

    query: Query
    group: str
    groups: Values

    def __post_init__(self) -> None:
        if not self.group or not isinstance(self.query, RecordQuery):
            raise InputError("Expected a column of groups and a query about records, found others.")
        check_groups(self.group, self.groups)

    @property
    def blocks(self) -> Mapping[str, Block]:
        copies = len(self.groups) + 1
        return {name: replace(block, shape=(copies, *block.shape)) for name, block in self.query.blocks.items()}

    def rows(self, records: Records) -> Rows:
        rows = self.query.rows(records)
        group = groups_of(records, self.group, self.groups)[:, None]
        cells = np.arange(self.query.size)[None] if rows.cells is None else rows.cells
        sizes = np.array([block.size for block in self.query.blocks.values()])
        starts = np.cumsum(sizes) - sizes
        block = np.searchsorted(starts, np.maximum(cells, 0), side="right") - 1
        moved = cells + starts[block] * len(self.groups) + group * sizes[block]
        return Rows(np.where((cells < 0) | (cells >= self.query.size), -1, moved), rows.values)

    def part(self, answer: Answer, group: int) -> Answer:
        """The answer of one group to the query itself."""
        values, variances = (
            {name: one[group] for name, one in part.items()} for part in (answer.values, answer.variances)
        )
        return Answer(values, variances, answer.clients)


_CLIP_SLACK = 1 + 2.0**-32  # keeps a norm within its bound whatever its rounding in floating point


@final
@dataclass(frozen=True)
class Clipped(ClientQuery):
    """A query in which each client's answer is clipped to the size of `clip` records and divided by that.

    One factor shrinks all blocks of a client, so the L2 norm of each block is at most 1, attained by a client that is
    clipped; its L1 norm is at most sqrt(cells). So the bounds stay the same whatever the clip, which may come from an
    answer.
    """

    query: Query
    clip: float

    def __post_init__(self) -> None:
        if not 0 < self.clip < float("inf"):
            raise InputError(f"Expected a clip above 0, found {self.clip}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {
            name: Block(block.shape, Bound(sqrt(block.size), 1.0, 1.0, "client"), weight=block.weight, clip=1.0)
            for name, block in self.query.blocks.items()
        }

    @property
    def units(self) -> dict[str, float]:
        """What one in each block stands for."""
        return {name: self.clip * block.bound.l2 * _CLIP_SLACK for name, block in self.query.blocks.items()}

    def term(self, records: Records, rng: np.random.Generator) -> Floats:
        source = Simulated(int(rng.integers(1 << 62)))
        return self.total(Federation.of([records]), source)

    def by_client(self, federation: Federation, randomness: Randomness) -> Iterator[ClientTerms]:
        limits = {name: self.clip * block.bound.l2 for name, block in self.query.blocks.items()}
        units = self.spread(self.units)
        for terms in self.query.by_client(federation, randomness):
            values = clipped(self.query, terms, limits) / units[terms.cell]
            yield ClientTerms(terms.clients, terms.owner, terms.cell, values)

    def total(self, federation: Federation, randomness: Randomness, scale: Floats | None = None) -> Array:
        clients = self.by_client(federation, randomness)
        if scale is None:
            return sum((np.bincount(terms.cell, terms.value, self.size) for terms in clients), np.zeros(self.size))
        grid, total = self.grid(scale), ExactSum(self.size)
        for terms in clients:
            grid.add_terms(terms.clients, terms.owner, terms.cell, terms.value, total)
        return total.value()


@final
@dataclass(frozen=True)
class NormHistogram(ClientQuery):
    """Number of clients whose answer to a query has a norm up to each edge: one cell of one, so every norm is 1.

    The cell past the last edge holds the clients beyond it. A client whose answer is zero adds nothing, so an empty
    client adds nothing either, and replacing a client by an empty one moves one cell by one.
    """

    query: Query
    edges: tuple[float, ...]
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.edges or not all(0 < low < high for low, high in pairwise((*self.edges, float("inf")))):
            raise InputError(f"Expected increasing edges above 0, found {self.edges[:5]}.")
        if not 0 < self.weight < float("inf"):
            raise InputError(f"Expected a weight above 0, found {self.weight}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        bound = Bound(1.0, 1.0, 1.0, "client")
        return {"norms": Block((len(self.edges) + 1,), bound, integral=True, one_hot=True, weight=self.weight)}

    def term(self, records: Records, rng: np.random.Generator) -> Floats:
        source = Simulated(int(rng.integers(1 << 62)))
        return self.total(Federation.of([records]), source).astype(np.float64)

    def by_client(self, federation: Federation, randomness: Randomness) -> Iterator[ClientTerms]:
        for clients, owner, cells in self._cells(federation, randomness):
            yield ClientTerms(clients, owner, cells, np.ones(len(owner)))

    def total(self, federation: Federation, randomness: Randomness, scale: Floats | None = None) -> Array:
        total = np.zeros(self.size, dtype=np.int64)
        for _, _, cells in self._cells(federation, randomness):
            total += np.bincount(cells, minlength=self.size)
        return counted_on(self, total, scale)

    def _cells(self, federation: Federation, randomness: Randomness) -> Iterator[tuple[int, Ints, Ints]]:
        """The number of clients of a group, those that count, and the cell of each."""
        bounds = np.array([block.bound.l2 for block in self.query.blocks.values()])
        for terms in self.query.by_client(federation, randomness):
            sizes = (norms(self.query, terms) / bounds).max(axis=1)
            owner = np.flatnonzero(sizes)
            yield terms.clients, owner, np.searchsorted(np.asarray(self.edges), sizes[owner])
