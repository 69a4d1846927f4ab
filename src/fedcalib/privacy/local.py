"""Local differential privacy: each record is randomised before it leaves, and nobody is trusted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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

_COINS = 1 << 22  # coins tossed at a time
_LARGEST = 500.0  # far beyond any protection, and where e^-epsilon still is a float
_FAINTEST = 2.0**-20  # below such a difference of chances, the rounding to 2^-32 would show in the estimate


@final
@dataclass(frozen=True)
class Coder:
    """How records report one block: what they say, and how it is hidden."""

    symbols: Symbols
    encoder: Encoder

    def __post_init__(self) -> None:
        # a flipped sign hides the sign alone, so which coordinate it is of must not come from the record
        if isinstance(self.encoder, FlippedSign) != isinstance(self.symbols, Coordinate):
            raise InputError("Expected flipped signs for coordinates and for nothing else, found another pair.")
        if not 0 < self.encoder.epsilon <= _LARGEST:
            raise InputError(f"Expected epsilon above 0 and at most {_LARGEST:g}, found {self.encoder.epsilon}.")

    @property
    def error(self) -> float:
        """Predict the squared error of one report; infinite where a report tells next to nothing."""
        own, other = self.encoder.chances(self.symbols.count)
        return self.symbols.error(self.encoder) if own - other > _FAINTEST else inf


@final
@dataclass(frozen=True)
class RandomisedReports(Mechanism):
    """Each record reports every block, or only one that it draws with the given chances, through the block's encoder.

    A share holds, block after block, how often each symbol was reported, and how many records reported. The number of
    records, and which block a record draws, do not depend on what the records hold.
    """

    unit = "record"
    adjacency = "replace-one"
    renewed = False

    coders: Mapping[str, Coder]
    chances: Mapping[str, float] | None = None  # None: every record reports every block

    def __post_init__(self) -> None:
        if not all(isinstance(coder, Coder) for coder in self.coders.values()):
            raise InputError("Expected a coder a block, found something else.")

    @property
    def modulus(self) -> int | None:
        """Let the server see each client's reports."""
        return None

    def width(self, query: Query) -> int:
        """Count the symbols of all blocks, and one count of reports a block."""
        return sum(coder.symbols.count + 1 for coder in self.coders.values())

    def encode(self, query: Query, records: Records, randomness: Randomness) -> Array:
        """Toss the coins of every record."""
        generator = randomness.derive("draw").generator()
        total = np.zeros(self.width(query), dtype=np.int64)
        for number, chunk in enumerate(records.chunks(max(1, min(CHUNK, _COINS // self.width(query))))):
            stream = randomness.derive("coins", number)
            total += np.concatenate([self._encoded(n, s, stream) for n, s in self._symbols(query, chunk, generator)])
        return total

    def _encoded(self, name: str, chosen: Ints, randomness: Randomness) -> Ints:
        coder = self.coders[name]
        reported = coder.encoder.encoded(chosen, coder.symbols.count, randomness.derive(name))
        return np.append(reported, len(chosen))

    def reports(self, query: Query, records: Records, randomness: Randomness) -> Ints:
        """Toss the same coins and keep the records apart, (n, width): what a reader of single reports would see."""
        if self.chances is not None:
            raise RefusedError("Expected a mechanism in which every record reports every block, found drawn blocks.")
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
        """Count the symbols of all records, then draw the reports from their law."""
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
        """Give, block after block, the symbols of the records that report it."""
        drawn = None if self.chances is None else _drawn(list(self.chances.values()), len(records), generator)
        for name, entries in _entries(query, records, drawn):
            yield name, self.coders[name].symbols.draw(entries, generator)

    def decode(self, query: Query, total: Array, clients: int, randomness: Randomness) -> tuple[Floats, Floats]:
        """Take the noise's mean out, and scale up what only some records reported."""
        edges = np.cumsum([0, *(coder.symbols.count + 1 for coder in self.coders.values())])
        parts = [np.asarray(total[start:stop]) for start, stop in pairwise(edges)]
        heard = [int(part[-1]) for part in parts]
        records = max(heard, default=0) if self.chances is None else sum(heard)
        read = [
            _read(coder, query.blocks[name], part[:-1], reports, records)
            for (name, coder), part, reports in zip(self.coders.items(), parts, heard, strict=True)
        ]
        return np.concatenate([value for value, _ in read]), np.concatenate([variance for _, variance in read])

    def event(self, query: Query, cohort: Cohort) -> Event | None:
        """Add up what a record reports: all blocks, or at worst the dearest one."""
        costs = [coder.encoder.epsilon for coder in self.coders.values()]
        return Pure(sum(costs) if self.chances is None else max(costs))


@final
@dataclass(frozen=True)
class LocalDP(Privacy):
    """Each record is randomised before it leaves its client: pure epsilon, and nobody is trusted.

    A record reports counts by unary encoding or randomised response, and real values by a random cell and sign,
    whichever predicts the smaller error for the block. With several blocks, each record reports all of them with a part
    of epsilon each, or draws one and reports it with all of epsilon, again whichever predicts less. Neighbours differ
    in the content of one record; how many records there are is public. `epsilon` is the total of a run.
    """

    epsilon: float

    def __post_init__(self) -> None:
        if not 0 < self.epsilon <= _LARGEST:
            raise InputError(f"Expected epsilon above 0 and at most {_LARGEST:g}, found {self.epsilon}.")

    @property
    def budget(self) -> Budget:
        """Say that every record adds noise of its own."""
        return Budget(self.epsilon, "record", alone="record")

    @property
    def private(self) -> bool:
        """Hide exact counts."""
        return True

    def mechanism(self, query: Query, plan: Plan, cohort: Cohort, participation: Participation) -> Mechanism:
        """Choose encoders, and whether to split epsilon or the records among the blocks."""
        _check_records(query)
        shares = plan.shares(query, participation)
        whole = sum(shares.values())
        split = {name: _coder(block, self.epsilon * shares[name]) for name, block in query.blocks.items()}
        drawn = {name: _coder(block, self.epsilon * whole) for name, block in query.blocks.items()}
        chances = {name: share / whole for name, share in shares.items()}
        worse = fmean(
            _ratio(_drawn_error(drawn[name], chances[name], block), split[name].error)
            for name, block in query.blocks.items()
        )
        chosen = RandomisedReports(drawn, chances) if len(chances) > 1 and worse < 1 else RandomisedReports(split)
        if any(coder.error == inf for coder in chosen.coders.values()):
            raise RefusedError(
                f"LocalDP has too little epsilon left for {type(query).__name__}: single records would report next to "
                "nothing. Ask fewer queries, raise epsilon, or use DistributedDP."
            )
        return chosen

    def spending(self, plan: Plan, cohort: Cohort, participation: Participation) -> Spending:
        """Promise the whole budget, whatever the number of queries."""
        statement = (
            f"Local differential privacy with epsilon = {self.epsilon:g} (pure) for {protected('record')} "
            "(replace-one): each record is randomised before it leaves its client, so it holds against everybody, the "
            "server included. The number of records is public."
        )
        return Spending("LocalDP", "record", self.epsilon, 0.0, "replace-one", False, statement)


def _coder(block: Block, epsilon: float) -> Coder:
    """Take the encoding with the smallest predicted error."""
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


def _drawn_error(coder: Coder, chance: float, block: Block) -> float:
    """Add the error of hearing only some records: a record's own row, more or less often than on average."""
    return (coder.error + (1 - chance) * block.bound.l2**2) / chance


def _ratio(one: float, other: float) -> float:
    return 1.0 if one == other == inf else one / other


def _check_records(query: Query) -> None:
    parts = query.parts if isinstance(query, Join) else (query,)
    for part in parts:
        if isinstance(part, ClientQuery) or any(block.bound.unit == "client" for block in part.blocks.values()):
            raise RefusedError(
                f"LocalDP randomises single records, and {type(part).__name__} asks about whole clients. "
                "Use UserGaussian or DistributedDP for it."
            )


def _drawn(chances: list[float], records: int, generator: np.random.Generator) -> Ints:
    """Draw which block each record reports; that tells nothing about the record."""
    edges = np.cumsum(chances) / sum(chances)
    return np.minimum(np.searchsorted(edges, generator.random(records), side="right"), len(chances) - 1)


def _entries(query: Query, records: Records, drawn: Ints | None) -> Iterator[tuple[str, Entries]]:
    """Sort what records add by block; where each record draws one block, the others drop out."""
    rows, sizes = query.rows(records), [block.size for block in query.blocks.values()]
    if drawn is not None and _one_a_block(rows, sizes):
        yield from _picked(query, rows, sizes, drawn)
        return
    cells = np.broadcast_to(np.arange(query.size), (len(records), query.size)) if rows.cells is None else rows.cells
    block = np.where(cells < 0, -1, np.repeat(np.arange(len(sizes)), sizes)[cells])
    kept = block >= 0 if drawn is None else block == drawn[:, None]
    row = np.repeat(np.arange(len(records)), kept.sum(axis=1))
    cell, block = cells[kept], block[kept]
    value = np.ones(len(cell)) if rows.values is None else np.asarray(rows.values, dtype=np.float64)[kept]
    for index, (name, start) in enumerate(zip(query.blocks, np.cumsum([0, *sizes[:-1]]), strict=True)):
        here = block == index
        members = np.arange(len(records)) if drawn is None else np.flatnonzero(drawn == index)
        place = row[here] if drawn is None else np.searchsorted(members, row[here])
        yield name, Entries(len(members), place, cell[here] - start, value[here])


def _one_a_block(rows: Rows, sizes: list[int]) -> bool:
    """Say whether every record adds one to one cell of each block, in the blocks' order, as levels of a tree do."""
    if rows.cells is None or rows.values is not None or rows.cells.shape[1] != len(sizes):
        return False
    ends = np.cumsum(sizes)
    return bool(((rows.cells >= ends - sizes) & (rows.cells < ends)).all())


def _picked(query: Query, rows: Rows, sizes: list[int], drawn: Ints) -> Iterator[tuple[str, Entries]]:
    """Look the drawn block's one cell up, which spares looking at all the others."""
    cells = np.asarray(rows.cells)[np.arange(len(drawn)), drawn]
    for index, (name, start) in enumerate(zip(query.blocks, np.cumsum([0, *sizes[:-1]]), strict=True)):
        members = np.flatnonzero(drawn == index)
        yield name, Entries(len(members), np.arange(len(members)), cells[members] - start, np.ones(len(members)))


def _read(coder: Coder, block: Block, reported: Ints, reports: int, records: int) -> tuple[Floats, Floats]:
    """Read one block; where nobody reported, nothing is known but the bound."""
    if reports == 0:
        return np.zeros(block.size), np.full(block.size, (records * block.bound.linf) ** 2)
    return coder.symbols.read(coder.encoder, reported, reports, records)
