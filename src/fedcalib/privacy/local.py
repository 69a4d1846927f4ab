"""Local differential privacy: each record is randomised before it leaves, and nobody is trusted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from statistics import fmean
from typing import final

import numpy as np

from fedcalib.accounting.events import Event, Pure
from fedcalib.accounting.spending import Spending
from fedcalib.cohort import Cohort, Participation
from fedcalib.errors import InputError, RefusedError
from fedcalib.federation import Federation
from fedcalib.method import Budget, Plan
from fedcalib.numeric import known_cells, unwarned
from fedcalib.privacy import Mechanism, Privacy, protected
from fedcalib.privacy.local_reports import (
    Cell,
    Coordinate,
    Encoder,
    Entries,
    FlippedSign,
    RandomSymbol,
    SignedCell,
    Symbols,
    Unary,
)
from fedcalib.query import ONE, Block, ClientQuery, Join, Query, Rows
from fedcalib.randomness import Randomness
from fedcalib.records import CHUNK, Records
from fedcalib.types import Array, Floats, Ints
from fedcalib.wire import ADDED

_COINS_PER_CHUNK = 1 << 22
_MAX_EPSILON = 500.0  # far beyond any protection, and where e^-epsilon still is a float
_MIN_PROBABILITY_GAP = 2.0**-20  # below it, the rounding of probabilities to 2^-32 would show in the estimate


@final
@dataclass(frozen=True)
class Coder:
    """How records report one block: the symbols that they report, and the encoder that randomises them."""

    symbols: Symbols
    encoder: Encoder

    def __post_init__(self) -> None:
        # a flipped sign hides the sign alone, so its coordinate must not depend on the record
        if isinstance(self.encoder, FlippedSign) != isinstance(self.symbols, Coordinate):
            raise InputError("Expected flipped signs for coordinates and for nothing else, found another pair.")
        if not 0 < self.encoder.epsilon <= _MAX_EPSILON:
            raise InputError(f"Expected epsilon above 0 and at most {_MAX_EPSILON:g}, found {self.encoder.epsilon}.")

    @property
    def error(self) -> float:
        """The predicted squared error of one report; infinite where a report holds almost no information."""
        own, other = self.encoder.probabilities(self.symbols.count)
        return self.symbols.error(self.encoder) if own - other > _MIN_PROBABILITY_GAP else inf


@final
@dataclass(frozen=True)
class RandomisedReports(Mechanism):
    """Each record reports every block, or one that it samples with the given `chances`, through the block's encoder.

    A share holds, block after block, how often each symbol was reported, and how many records reported. The number of
    records, and which block a record samples, do not depend on what the records hold.
    """

    unit = "record"
    adjacency = "replace-one"
    renewed = False

    coders: Mapping[str, Coder]
    chances: Mapping[str, float] | None = None  # None: every record reports every block

    def __post_init__(self) -> None:
        if not all(isinstance(coder, Coder) for coder in self.coders.values()):
            raise InputError("Expected one coder per block, found something else.")

    @property
    def modulus(self) -> int | None:
        return None

    def width(self, query: Query) -> int:
        """The symbols of all blocks, and one count of reports per block."""
        return sum(coder.symbols.count + 1 for coder in self.coders.values())

    def encode(self, query: Query, records: Records, randomness: Randomness) -> Array:
        generator = randomness.derive("draw").generator()
        total = np.zeros(self.width(query), dtype=np.int64)
        for number, chunk in enumerate(records.chunks(max(1, min(CHUNK, _COINS_PER_CHUNK // self.width(query))))):
            stream = randomness.derive("coins", number)
            total += np.concatenate([self._encoded(n, s, stream) for n, s in self._symbols(query, chunk, generator)])
        return total

    def _encoded(self, name: str, chosen: Ints, randomness: Randomness) -> Ints:
        coder = self.coders[name]
        reported = coder.encoder.encoded(chosen, coder.symbols.count, randomness.derive(name))
        return np.append(reported, len(chosen))

    def reports(self, query: Query, records: Records, randomness: Randomness) -> Ints:
        """The reports of single records, (n, width), from the same random numbers as `encode`; for audits."""
        if self.chances is not None:
            raise RefusedError("Expected a mechanism in which every record reports every block, found sampled blocks.")
        generator, stream = randomness.derive("draw").generator(), randomness.derive("coins", 0)
        parts: list[Array] = []
        for name, chosen in self._symbols(query, records, generator):
            coder = self.coders[name]
            parts += [
                coder.encoder.reports(chosen, coder.symbols.count, stream.derive(name)),
                np.ones((len(chosen), 1)),
            ]
        return np.concatenate(parts, axis=1).astype(np.int64)

    def gather(self, query: Query, federation: Federation, randomness: Randomness) -> Array:
        """Count the symbols of all records, then draw the number of reports from its distribution."""
        generator = randomness.derive("draw").generator()
        counts = {name: np.zeros(coder.symbols.count + 1, dtype=np.int64) for name, coder in self.coders.items()}
        for chunk in federation.records.chunks():
            for name, chosen in self._symbols(query, chunk, generator):
                null = self.coders[name].symbols.count
                counts[name] += np.bincount(np.where(chosen < 0, null, chosen), minlength=null + 1)
        stream = randomness.derive("coins")
        totals = [
            np.append(coder.encoder.total(counts[name], stream.derive(name)), counts[name].sum())
            for name, coder in self.coders.items()
        ]
        return np.concatenate(totals)

    def _symbols(self, query: Query, records: Records, generator: np.random.Generator) -> Iterator[tuple[str, Ints]]:
        """Block after block, the symbols of the records that report it."""
        sampled = None if self.chances is None else _sampled(list(self.chances.values()), len(records), generator)
        for name, entries in _entries(query, records, sampled):
            yield name, self.coders[name].symbols.draw(entries, generator)

    def decode(self, query: Query, total: Array, clients: int, randomness: Randomness) -> tuple[Floats, Floats]:
        """Remove the bias, and scale up blocks that only some records reported."""
        edges = np.cumsum([0, *(coder.symbols.count + 1 for coder in self.coders.values())])
        parts = [np.asarray(total[start:stop]) for start, stop in pairwise(edges)]
        counts = [int(part[-1]) for part in parts]
        records = max(counts, default=0) if self.chances is None else sum(counts)
        estimates = [
            _estimate(coder, query.blocks[name], part[:-1], reports, records)
            for (name, coder), part, reports in zip(self.coders.items(), parts, counts, strict=True)
        ]
        return np.concatenate([value for value, _ in estimates]), np.concatenate([noise for _, noise in estimates])

    def event(self, query: Query, cohort: Cohort) -> Event | None:
        """The sum over blocks if a record reports all of them; the largest epsilon if it reports one."""
        epsilons = [coder.encoder.epsilon for coder in self.coders.values()]
        return Pure(sum(epsilons) if self.chances is None else max(epsilons))


@final
@dataclass(frozen=True)
class LocalDP(Privacy):
    """Each record is randomised before it leaves its client: pure epsilon, and nobody is trusted.

    A record reports counts by unary encoding or randomised response, and real values by a random cell and sign,
    whichever has the smaller predicted error for the block. With several blocks, each record reports all of them with a
    part of epsilon each, or samples one and reports it with all of epsilon, again whichever predicts less. Neighbours
    differ in the content of one record; the number of records is public.

    Parameters
    ----------
    epsilon
        The privacy loss of a whole run, above 0 and at most 500.
    unary
        Report counts by optimal unary encoding even where randomised response has the smaller error; only to reproduce
        papers that do.

    Examples
    --------
    >>> import fedcalib as fc
    >>> federation = fc.Federation.simulated(classes=2, clients=10)
    >>> result = fc.run(fc.FedBin(), fc.InProcess(federation), fc.LocalDP(epsilon=4.0))
    >>> result.privacy.unit, result.privacy.adjacency
    ('record', 'replace-one')
    """

    epsilon: float
    unary: bool = field(default=False, metadata=ADDED)

    def __post_init__(self) -> None:
        if not 0 < self.epsilon <= _MAX_EPSILON:
            raise InputError(
                f"Expected epsilon above 0 and at most {_MAX_EPSILON:g}, found {self.epsilon}; 1 to 8 is usual."
            )

    @property
    def budget(self) -> Budget:
        """Every record adds noise of its own."""
        return Budget(self.epsilon, "record", alone="record")

    @property
    def private(self) -> bool:
        return True

    def mechanism(self, query: Query, plan: Plan, cohort: Cohort, participation: Participation) -> Mechanism:
        """Choose encoders, and whether to divide epsilon or the records among the blocks."""
        _check_records(query)
        fractions = plan.shares(query, participation)
        whole = sum(fractions.values())
        split = {name: self._coder(block, self.epsilon * fractions[name]) for name, block in query.blocks.items()}
        sampled = {name: self._coder(block, self.epsilon * whole) for name, block in query.blocks.items()}
        chances = {name: fraction / whole for name, fraction in fractions.items()}
        ratio = fmean(
            _ratio(_sampled_error(sampled[name], chances[name], block), split[name].error)
            for name, block in query.blocks.items()
        )
        chosen = RandomisedReports(sampled, chances) if len(chances) > 1 and ratio < 1 else RandomisedReports(split)
        if any(coder.error == inf for coder in chosen.coders.values()):
            raise RefusedError(
                f"LocalDP has too little epsilon left for {type(query).__name__}: single records would report almost "
                "no information. Send fewer queries, raise epsilon, or use DistributedDP."
            )
        return chosen

    def _coder(self, block: Block, epsilon: float) -> Coder:
        if self.unary and _counts(block):
            return Coder(Cell(block.size), Unary(epsilon))
        return _coder(block, epsilon)

    def spending(self, plan: Plan, cohort: Cohort, participation: Participation) -> Spending:
        statement = (
            f"Local differential privacy with epsilon = {self.epsilon:g} (pure) for {protected('record')} "
            "(replace-one): each record is randomised before it leaves its client, so it holds against everybody, the "
            "server included. The number of records is public."
        )
        return Spending("LocalDP", "record", self.epsilon, 0.0, "replace-one", False, statement)


def _coder(block: Block, epsilon: float) -> Coder:
    """The encoding with the smallest predicted error."""
    candidates = [
        Coder(symbols, encoder)
        for symbols in ([Cell(block.size)] if _counts(block) else [SignedCell(block.size, block.bound.l1)])
        for encoder in (Unary(epsilon), RandomSymbol(epsilon))
    ]
    if not _counts(block):
        candidates.append(Coder(Coordinate(block.size, block.bound.linf), FlippedSign(epsilon)))
    return min(candidates, key=lambda coder: coder.error)


def _counts(block: Block) -> bool:
    return block.one_hot and block.bound == ONE


def _sampled_error(coder: Coder, probability: float, block: Block) -> float:
    """The error of reports from a sample of the records: that of the encoder, and that of sampling rows."""
    return (coder.error + (1 - probability) * block.bound.l2**2) / probability


def _ratio(one: float, other: float) -> float:
    return 1.0 if one == other == inf else one / other


def _check_records(query: Query) -> None:
    parts = query.parts if isinstance(query, Join) else (query,)
    for part in parts:
        if isinstance(part, ClientQuery) or any(block.bound.unit == "client" for block in part.blocks.values()):
            raise RefusedError(
                f"LocalDP randomises single records, and {type(part).__name__} is a query on whole clients. "
                "Use UserGaussian or DistributedDP for it."
            )


def _sampled(chances: list[float], records: int, generator: np.random.Generator) -> Ints:
    """Which block each record reports, sampled independently of what it holds."""
    edges = np.cumsum(chances) / sum(chances)
    return np.minimum(np.searchsorted(edges, generator.random(records), side="right"), len(chances) - 1)


def _entries(query: Query, records: Records, sampled: Ints | None) -> Iterator[tuple[str, Entries]]:
    """What records add, block by block; where each record samples one block, its other blocks drop out."""
    with unwarned():
        rows, sizes = query.rows(records), [block.size for block in query.blocks.values()]
    if sampled is not None and _one_cell_per_block(rows, sizes):
        yield from _sampled_cells(query, rows, sizes, sampled)
        return
    cells = np.broadcast_to(np.arange(query.size), (len(records), query.size)) if rows.cells is None else rows.cells
    block = np.append(np.repeat(np.arange(len(sizes)), sizes), -1)[known_cells(cells, query.size)]
    kept = block >= 0 if sampled is None else block == sampled[:, None]
    row = np.repeat(np.arange(len(records)), kept.sum(axis=1))
    cell, block = cells[kept], block[kept]
    value = np.ones(len(cell)) if rows.values is None else np.asarray(rows.values, dtype=np.float64)[kept]
    for index, (name, start) in enumerate(zip(query.blocks, np.cumsum([0, *sizes[:-1]]), strict=True)):
        here = block == index
        members = np.arange(len(records)) if sampled is None else np.flatnonzero(sampled == index)
        place = row[here] if sampled is None else np.searchsorted(members, row[here])
        yield name, Entries(len(members), place, cell[here] - start, value[here])


def _one_cell_per_block(rows: Rows, sizes: list[int]) -> bool:
    """Whether every record adds one to one cell of each block, in the blocks' order, as levels of a tree do."""
    if rows.cells is None or rows.values is not None or rows.cells.shape[1] != len(sizes):
        return False
    ends = np.cumsum(sizes)  # whether it holds follows from the query, whose bins have a cell for any float
    return bool(((rows.cells >= ends - sizes) & (rows.cells < ends)).all())


def _sampled_cells(query: Query, rows: Rows, sizes: list[int], sampled: Ints) -> Iterator[tuple[str, Entries]]:
    """The one cell of each record's sampled block, without a look at its other blocks."""
    cells = np.asarray(rows.cells)[np.arange(len(sampled)), sampled]
    for index, (name, start) in enumerate(zip(query.blocks, np.cumsum([0, *sizes[:-1]]), strict=True)):
        members = np.flatnonzero(sampled == index)
        yield name, Entries(len(members), np.arange(len(members)), cells[members] - start, np.ones(len(members)))


def _estimate(coder: Coder, block: Block, reported: Ints, reports: int, records: int) -> tuple[Floats, Floats]:
    """The estimate of one block and its variance; where nobody reported, only the bound is known."""
    if reports == 0:
        return np.zeros(block.size), np.full(block.size, (records * block.bound.linf) ** 2)
    return coder.symbols.read(coder.encoder, reported, reports, records)
