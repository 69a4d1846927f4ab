"""How a record's row becomes one symbol, and how counts of symbols become a sum again.

None of the draws here protects anybody: an encoder does, whatever the symbol. So they may be fast.

How a record reports one of several symbols so that nobody can tell which it meant.

An encoder takes symbols from 0 up; a record with nothing to report has the symbol -1, which reads as null. `encoded`
tosses every record's own coins. `total` draws the sum over many records from its law, which is the same law: coins of
records with the same symbol are alike, so only their number matters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import exp
from typing import final

import numpy as np

from fedcalib.query import finite
from fedcalib.randomness import Randomness, Rate
from fedcalib.types import Bools, Floats, Ints


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


_HALF = Rate(1 << 31)


class Encoder(ABC):
    """A way to report symbols that is epsilon-locally private, whatever the symbols are."""

    epsilon: float

    @property
    def several(self) -> bool:
        """Say whether one record may report several symbols at once."""
        return False

    @abstractmethod
    def chances(self, symbols: int) -> tuple[float, float]:
        """Say how likely a record reports its own symbol, and how likely another one."""

    @abstractmethod
    def encoded(self, chosen: Ints, symbols: int, randomness: Randomness) -> Ints:
        """Toss coins for each record, (n,), and count how often each symbol is reported, (symbols,)."""

    @abstractmethod
    def reports(self, chosen: Ints, symbols: int, randomness: Randomness) -> Bools:
        """Toss the same coins, and say which symbols each record reports, (n, symbols)."""

    @abstractmethod
    def total(self, counts: Ints, randomness: Randomness) -> Ints:
        """Draw the same counts, (symbols,), from how many records have each symbol, null last, (symbols + 1,)."""


@final
@dataclass(frozen=True)
class Unary(Encoder):
    """Report one bit a symbol: a fair coin for the own one, and 1 with chance q = 1/(e^epsilon + 1) for every other.

    Two records differ in two bits, and (1/2)/q * (1 - q)/(1/2) = (1 - q)/q <= e^epsilon; a null differs from a symbol
    in one bit, by less. q is rounded up to a multiple of 2^-32.
    """

    epsilon: float

    @property
    def several(self) -> bool:
        """Say yes: bits are independent."""
        return True

    @property
    def rate(self) -> Rate:
        """Give q."""
        return Rate.flip(self.epsilon)

    def chances(self, symbols: int) -> tuple[float, float]:
        """Give 1/2 and q."""
        return 0.5, float(self.rate)

    def encoded(self, chosen: Ints, symbols: int, randomness: Randomness) -> Ints:
        """Add up the bits."""
        return np.asarray(self.reports(chosen, symbols, randomness).sum(axis=0, dtype=np.int64))

    def reports(self, chosen: Ints, symbols: int, randomness: Randomness) -> Bools:
        """Toss a coin for each record and symbol."""
        bits = randomness.derive("other").bernoulli(self.rate, (len(chosen), symbols))
        own = np.flatnonzero(chosen >= 0)
        bits[own, chosen[own]] = randomness.derive("own").bernoulli(_HALF, len(own))
        return bits

    def total(self, counts: Ints, randomness: Randomness) -> Ints:
        """Draw two binomials a symbol."""
        own, records = counts[:-1], int(counts.sum())
        ones = randomness.derive("own").binomial(own, _HALF, own.shape)
        return ones + randomness.derive("other").binomial(records - own, self.rate, own.shape)


@final
@dataclass(frozen=True)
class RandomSymbol(Encoder):
    """Report the own symbol, or with chance g a uniform one of all D, null among them: randomised response.

    The own symbol is likelier than any other by (1 - g) D/g + 1 <= e^epsilon for g >= D/(e^epsilon - 1 + D). g is
    rounded up to a multiple of 2^-32.
    """

    epsilon: float

    def rate(self, symbols: int) -> Rate:
        """Give g."""
        odds = exp(-self.epsilon)
        return Rate.at_least(min((symbols + 1) * odds / (1 + symbols * odds) * (1 + 2**-40), 1.0))

    def chances(self, symbols: int) -> tuple[float, float]:
        """Add the chance of a uniform draw to both."""
        replaced = float(self.rate(symbols))
        return 1 - replaced + replaced / (symbols + 1), replaced / (symbols + 1)

    def encoded(self, chosen: Ints, symbols: int, randomness: Randomness) -> Ints:
        """Count the symbols that are left."""
        return np.bincount(self._reported(chosen, symbols, randomness), minlength=symbols + 1)[:-1]

    def reports(self, chosen: Ints, symbols: int, randomness: Randomness) -> Bools:
        """Mark the symbol that is left."""
        return np.equal.outer(self._reported(chosen, symbols, randomness), np.arange(symbols))

    def _reported(self, chosen: Ints, symbols: int, randomness: Randomness) -> Ints:
        """Toss one coin a record, and draw a symbol for those that it replaces."""
        replaced = randomness.derive("own").bernoulli(self.rate(symbols), len(chosen))
        drawn = randomness.derive("other").integers(symbols + 1, len(chosen))
        return np.where(replaced, drawn, np.where(chosen < 0, symbols, chosen))

    def total(self, counts: Ints, randomness: Randomness) -> Ints:
        """Draw how many records of each symbol are replaced, and what they become."""
        replaced = randomness.derive("own").binomial(counts, self.rate(len(counts) - 1), counts.shape)
        drawn = randomness.derive("other").integers(len(counts), int(replaced.sum()))
        reported: Ints = counts - replaced + np.bincount(drawn, minlength=len(counts))
        return reported[:-1]


@final
@dataclass(frozen=True)
class FlippedSign(Encoder):
    """Report symbol 2j or 2j + 1, the two signs of coordinate j, flipped with chance q = 1/(e^epsilon + 1).

    Which coordinate a record reports must not depend on its data; the sign's odds move by at most (1 - q)/q. q is
    rounded up to a multiple of 2^-32.
    """

    epsilon: float

    @property
    def rate(self) -> Rate:
        """Give q."""
        return Rate.flip(self.epsilon)

    def chances(self, symbols: int) -> tuple[float, float]:
        """Give 1 - q and q."""
        return 1 - float(self.rate), float(self.rate)

    def encoded(self, chosen: Ints, symbols: int, randomness: Randomness) -> Ints:
        """Toss one coin a record."""
        return np.bincount(chosen ^ randomness.bernoulli(self.rate, len(chosen)), minlength=symbols)

    def reports(self, chosen: Ints, symbols: int, randomness: Randomness) -> Bools:
        """Mark the sign that is left."""
        left: Ints = chosen ^ randomness.bernoulli(self.rate, len(chosen))
        marked: Bools = left[:, None] == np.arange(symbols)
        return marked

    def total(self, counts: Ints, randomness: Randomness) -> Ints:
        """Draw how many records of each sign are flipped."""
        flipped = randomness.binomial(counts[:-1], self.rate, (len(counts) - 1,))
        arrived = flipped.reshape(-1, 2)[:, ::-1].reshape(-1)
        reported: Ints = counts[:-1] - flipped + arrived
        return reported
