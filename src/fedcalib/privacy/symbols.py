"""How a record's row becomes one symbol, and how counts of symbols become a sum again.

None of the draws here protects anybody: an encoder does, whatever the symbol. So they may be fast.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.privacy.encoders import Encoder
from fedcalib.rows import finite
from fedcalib.types import Floats, Ints


@final
@dataclass(frozen=True, eq=False)
class Entries:
    """What some records add to one block, as coordinates ordered by record."""

    records: int
    row: Ints  # (entries,)
    cell: Ints  # (entries,): from 0 within the block
    value: Floats  # (entries,)


class Symbols(ABC):
    """A way to say what a record adds to a block of `cells` cells in one symbol."""

    cells: int

    @property
    @abstractmethod
    def count(self) -> int:
        """Count the symbols, without null."""

    @abstractmethod
    def draw(self, entries: Entries, generator: np.random.Generator) -> Ints:
        """Choose each record's symbol, (records,); -1 is null."""

    @abstractmethod
    def read(self, encoder: Encoder, reported: Ints, reports: int, records: int) -> tuple[Floats, Floats]:
        """Estimate the sum over `records` records from the reports of a random `reports` of them, with variance."""

    @abstractmethod
    def error(self, encoder: Encoder) -> float:
        """Predict the squared error that one record's report brings to all cells together."""


@final
@dataclass(frozen=True)
class Cell(Symbols):
    """A record's one cell is its symbol."""

    cells: int

    @property
    def count(self) -> int:
        """Count the cells."""
        return self.cells

    def draw(self, entries: Entries, generator: np.random.Generator) -> Ints:
        """Look the cell up."""
        chosen = np.full(entries.records, -1, dtype=np.int64)
        chosen[entries.row] = entries.cell
        return chosen

    def read(self, encoder: Encoder, reported: Ints, reports: int, records: int) -> tuple[Floats, Floats]:
        """Take the expected false reports out. The variance has a term that grows with the count itself.

        A sample of n out of M records holds a share f of the cell with variance n f (1 - f) (M - n)/(M - 1).
        """
        own, other = encoder.chances(self.count)
        counts = (reported - reports * other) / (own - other)
        share = np.clip(counts / reports, 0.0, 1.0)
        tossed = (share * own * (1 - own) + (1 - share) * other * (1 - other)) / (own - other) ** 2
        sampled = share * (1 - share) * (records - reports) / max(records - 1, 1)
        times = records / reports
        return counts * times, times**2 * reports * (tossed + sampled)

    def error(self, encoder: Encoder) -> float:
        """Count the false reports of all cells, and the lost ones of one."""
        own, other = encoder.chances(self.count)
        false, lost = other * (1 - other), own * (1 - own)
        return ((self.cells - 1) * false + lost) / (own - other) ** 2


@final
@dataclass(frozen=True)
class SignedCell(Symbols):
    """A cell drawn with chance |value| / l1, and its sign: for rows that are small in L1, however many cells there are.

    Symbols 2j and 2j + 1 are cell j with a minus and with a plus.
    """

    cells: int
    l1: float

    @property
    def count(self) -> int:
        """Count cells and signs."""
        return 2 * self.cells

    def draw(self, entries: Entries, generator: np.random.Generator) -> Ints:
        """Lay a record's entries end to end on [0, l1) and see where a uniform point falls.

        Each record's are added up on their own, so that no record's symbol depends on another record.
        """
        first = np.searchsorted(entries.row, np.arange(entries.records))
        place = np.arange(len(entries.row)) - first[entries.row]
        sizes = np.zeros((entries.records, int(place.max(initial=-1)) + 1))
        sizes[entries.row, place] = np.abs(finite(entries.value))
        point = self.l1 * generator.random(entries.records)
        passed = (np.cumsum(sizes, axis=1) <= point[:, None]).sum(axis=1)
        hit = np.flatnonzero(passed < sizes.shape[1])
        entry = first[hit] + passed[hit]
        chosen = np.full(entries.records, -1, dtype=np.int64)
        chosen[hit] = 2 * entries.cell[entry] + (entries.value[entry] > 0)
        return chosen

    def read(self, encoder: Encoder, reported: Ints, reports: int, records: int) -> tuple[Floats, Floats]:
        """Take minus from plus. The variance holds if all records add the same, and is an upper bound otherwise."""
        own, other = encoder.chances(self.count)
        minus, plus = ((reported - reports * other) / (own - other) / reports).reshape(-1, 2).T
        mean = self.l1 * (plus - minus)
        share = np.clip(plus + minus, 0.0, 1.0)
        square = self._square(encoder, share)
        return records * mean, records**2 / reports * np.maximum(square - mean**2, 0.0)

    def _square(self, encoder: Encoder, share: Floats | float) -> Floats:
        """Give the mean square of a report in one cell, if this share of the records drew the cell."""
        own, other = encoder.chances(self.count)
        both = 2.0 if encoder.several else 0.0  # plus and minus reported together cancel
        hit, missed = own + other - both * own * other, 2 * other - both * other**2
        return np.asarray(share * hit + (1 - share) * missed) * (self.l1 / (own - other)) ** 2

    def error(self, encoder: Encoder) -> float:
        """Count one cell as drawn and all others as not."""
        return float(self._square(encoder, 1.0) + (self.cells - 1) * self._square(encoder, 0.0))


@final
@dataclass(frozen=True)
class Coordinate(Symbols):
    """A cell drawn at random, whatever the row, and a sign whose mean is the row's value there, over `linf`."""

    cells: int
    linf: float

    @property
    def count(self) -> int:
        """Count cells and signs."""
        return 2 * self.cells

    def draw(self, entries: Entries, generator: np.random.Generator) -> Ints:
        """Draw the cell, then round its value to a sign at random."""
        cell = generator.integers(self.cells, size=entries.records)
        here = entries.cell == cell[entries.row]
        value = np.bincount(entries.row[here], finite(entries.value[here]), entries.records) / self.linf
        plus = generator.random(entries.records) < (1 + value) / 2
        return np.asarray(2 * cell + plus, dtype=np.int64)

    def read(self, encoder: Encoder, reported: Ints, reports: int, records: int) -> tuple[Floats, Floats]:
        """Average each cell's signs. The variance holds if all records add the same, and is an upper bound else."""
        own, other = encoder.chances(self.count)
        signs = reported.reshape(-1, 2)
        heard = np.maximum(signs.sum(axis=1), 1)
        reach = self.linf / (own - other)
        mean = reach * (signs[:, 1] - signs[:, 0]) / heard
        return records * mean, records**2 / heard * np.maximum(reach**2 - mean**2, 0.0)

    def error(self, encoder: Encoder) -> float:
        """Each cell hears of one record in `cells`."""
        own, other = encoder.chances(self.count)
        return (self.cells * self.linf / (own - other)) ** 2
