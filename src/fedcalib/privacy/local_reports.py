"""Reports under local differential privacy: how a record's row becomes one symbol, and how the symbol is hidden.

`Symbols` turn a row into one symbol, and counts of symbols into an estimate of the sum. Their random choices protect
nobody (the encoder does, whatever the symbol), so they may use a fast generator.

An `Encoder` reports a symbol so that nobody can tell which it was. Symbols count from 0; a record with nothing to
report has the symbol -1, called null. `encoded` uses random numbers of every single record. `total` draws the sum over
many records from its distribution, which is the same: records with the same symbol are alike, so only their number
matters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import exp
from typing import final

import numpy as np

from fedcalib.numeric import finite
from fedcalib.randomness import Randomness, Rate
from fedcalib.types import Bools, Floats, Ints


@final
@dataclass(frozen=True, eq=False)
class Entries:
    """What some records add to one block, as (row, cell, value) ordered by record."""

    records: int
    row: Ints  # (entries,)
    cell: Ints  # (entries,): from 0 within the block
    value: Floats  # (entries,)


def _inside(entries: Entries, cells: int) -> Bools:
    return (entries.cell >= 0) & (entries.cell < cells)


class Symbols(ABC):
    """A way to write what a record adds to a block of `cells` cells as one symbol."""

    cells: int

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of symbols, without null."""

    @abstractmethod
    def draw(self, entries: Entries, generator: np.random.Generator) -> Ints:
        """Each record's symbol, (records,); -1 is null."""

    @abstractmethod
    def read(self, encoder: Encoder, reported: Ints, reports: int, records: int) -> tuple[Floats, Floats]:
        """The estimated sum over `records` records, from the reports of a sample of `reports`, and its variance."""

    @abstractmethod
    def error(self, encoder: Encoder) -> float:
        """The predicted squared error that one record's report adds to all cells together."""


@final
@dataclass(frozen=True)
class Cell(Symbols):
    """A record's one cell is its symbol."""

    cells: int

    @property
    def count(self) -> int:
        return self.cells

    def draw(self, entries: Entries, generator: np.random.Generator) -> Ints:
        chosen = np.full(entries.records, -1, dtype=np.int64)
        chosen[entries.row] = np.where(_inside(entries, self.cells), entries.cell, -1)
        return chosen

    def read(self, encoder: Encoder, reported: Ints, reports: int, records: int) -> tuple[Floats, Floats]:
        """Subtract the expected false reports. The variance has a term that grows with the count itself.

        Of n sampled out of M records, the number in a cell that holds a fraction f has the variance
        n f (1 - f) (M - n)/(M - 1).
        """
        own, other = encoder.probabilities(self.count)
        counts = (reported - reports * other) / (own - other)
        fraction = np.clip(counts / reports, 0.0, 1.0)
        randomised = (fraction * own * (1 - own) + (1 - fraction) * other * (1 - other)) / (own - other) ** 2
        sampled = fraction * (1 - fraction) * (records - reports) / max(records - 1, 1)
        factor = records / reports
        return counts * factor, factor**2 * reports * (randomised + sampled)

    def error(self, encoder: Encoder) -> float:
        """False reports in all other cells, and lost reports in the record's own."""
        own, other = encoder.probabilities(self.count)
        false, lost = other * (1 - other), own * (1 - own)
        return ((self.cells - 1) * false + lost) / (own - other) ** 2


@final
@dataclass(frozen=True)
class SignedCell(Symbols):
    """A cell sampled with probability |value| / l1, and its sign: for rows that are small in L1.

    Symbols 2j and 2j + 1 are cell j with a minus and with a plus.
    """

    cells: int
    l1: float

    @property
    def count(self) -> int:
        return 2 * self.cells

    def draw(self, entries: Entries, generator: np.random.Generator) -> Ints:
        """Lay a record's entries end to end on [0, l1) and take the one in which a uniform point falls.

        Each record's entries are added up on their own, so that no record's symbol depends on another record.
        """
        first = np.searchsorted(entries.row, np.arange(entries.records))
        place = np.arange(len(entries.row)) - first[entries.row]
        sizes = np.zeros((entries.records, int(place.max(initial=-1)) + 1))
        values = np.where(_inside(entries, self.cells), finite(entries.value), 0.0)
        sizes[entries.row, place] = np.minimum(np.abs(values), self.l1)
        point = self.l1 * generator.random(entries.records)
        passed = (np.cumsum(sizes, axis=1) <= point[:, None]).sum(axis=1)
        hit = np.flatnonzero(passed < sizes.shape[1])
        entry = first[hit] + passed[hit]
        chosen = np.full(entries.records, -1, dtype=np.int64)
        chosen[hit] = 2 * entries.cell[entry] + (entries.value[entry] > 0)
        return chosen

    def read(self, encoder: Encoder, reported: Ints, reports: int, records: int) -> tuple[Floats, Floats]:
        """The difference of the signs. The variance is exact if all records add the same, else an upper bound."""
        own, other = encoder.probabilities(self.count)
        minus, plus = ((reported - reports * other) / (own - other) / reports).reshape(-1, 2).T
        mean = self.l1 * (plus - minus)
        fraction = np.clip(plus + minus, 0.0, 1.0)
        square = self._mean_square(encoder, fraction)
        return records * mean, records**2 / reports * np.maximum(square - mean**2, 0.0)

    def _mean_square(self, encoder: Encoder, fraction: Floats | float) -> Floats:
        """The mean square of a report in one cell, if this fraction of the records sampled the cell."""
        own, other = encoder.probabilities(self.count)
        both = 2.0 if encoder.several else 0.0  # plus and minus reported together cancel
        hit, missed = own + other - both * own * other, 2 * other - both * other**2
        return np.asarray(fraction * hit + (1 - fraction) * missed) * (self.l1 / (own - other)) ** 2

    def error(self, encoder: Encoder) -> float:
        """One cell is the sampled one, and all others are not."""
        return float(self._mean_square(encoder, 1.0) + (self.cells - 1) * self._mean_square(encoder, 0.0))


@final
@dataclass(frozen=True)
class Coordinate(Symbols):
    """A cell sampled uniformly, whatever the row, and a sign whose mean is the row's value there divided by `linf`."""

    cells: int
    linf: float

    @property
    def count(self) -> int:
        return 2 * self.cells

    def draw(self, entries: Entries, generator: np.random.Generator) -> Ints:
        """Sample the cell, then round its value to a sign at random."""
        cell = generator.integers(self.cells, size=entries.records)
        here = np.where(entries.cell == cell[entries.row], np.clip(finite(entries.value), -self.linf, self.linf), 0.0)
        value = np.clip(np.bincount(entries.row, here, entries.records) / self.linf, -1.0, 1.0)
        plus = generator.random(entries.records) < (1 + value) / 2
        return np.asarray(2 * cell + plus, dtype=np.int64)

    def read(self, encoder: Encoder, reported: Ints, reports: int, records: int) -> tuple[Floats, Floats]:
        """Average each cell's signs. The variance is exact if all records add the same, else an upper bound."""
        own, other = encoder.probabilities(self.count)
        signs = reported.reshape(-1, 2)
        per_cell = np.maximum(signs.sum(axis=1), 1)
        limit = self.linf / (own - other)
        mean = limit * (signs[:, 1] - signs[:, 0]) / per_cell
        return records * mean, records**2 / per_cell * np.maximum(limit**2 - mean**2, 0.0)

    def error(self, encoder: Encoder) -> float:
        """Each cell is reported by one record in `cells`."""
        own, other = encoder.probabilities(self.count)
        return (self.cells * self.linf / (own - other)) ** 2


_HALF = Rate(1 << 31)


class Encoder(ABC):
    """A way to report symbols that is epsilon-locally private, whatever the symbols are."""

    epsilon: float

    @property
    def several(self) -> bool:
        """Whether one record may report several symbols at once."""
        return False

    @abstractmethod
    def probabilities(self, symbols: int) -> tuple[float, float]:
        """The probability that a record reports its own symbol, and that it reports a given other one."""

    @abstractmethod
    def encoded(self, chosen: Ints, symbols: int, randomness: Randomness) -> Ints:
        """How often each symbol is reported, (symbols,), when each record, (n,), draws its own random numbers."""

    @abstractmethod
    def reports(self, chosen: Ints, symbols: int, randomness: Randomness) -> Bools:
        """Which symbols each record reports, (n, symbols), from the same random numbers as `encoded`."""

    @abstractmethod
    def total(self, counts: Ints, randomness: Randomness) -> Ints:
        """Draw counts distributed as `encoded`, (symbols,), from the number of records per symbol, null last."""


@final
@dataclass(frozen=True)
class Unary(Encoder):
    """One bit per symbol: a fair coin for the own symbol, and 1 with probability q = 1/(e^epsilon + 1) for any other.

    Two records differ in two bits, and (1/2)/q * (1 - q)/(1/2) = (1 - q)/q <= e^epsilon; a null differs from a symbol
    in one bit, by less. q is rounded up to a multiple of 2^-32.
    """

    epsilon: float

    @property
    def several(self) -> bool:
        return True

    @property
    def rate(self) -> Rate:
        """The probability q."""
        return Rate.flip(self.epsilon)

    def probabilities(self, symbols: int) -> tuple[float, float]:
        return 0.5, float(self.rate)

    def encoded(self, chosen: Ints, symbols: int, randomness: Randomness) -> Ints:
        return np.asarray(self.reports(chosen, symbols, randomness).sum(axis=0, dtype=np.int64))

    def reports(self, chosen: Ints, symbols: int, randomness: Randomness) -> Bools:
        bits = randomness.derive("other").bernoulli(self.rate, (len(chosen), symbols))
        own = np.flatnonzero(chosen >= 0)
        bits[own, chosen[own]] = randomness.derive("own").bernoulli(_HALF, len(own))
        return bits

    def total(self, counts: Ints, randomness: Randomness) -> Ints:
        """Two binomials per symbol."""
        own, records = counts[:-1], int(counts.sum())
        ones = randomness.derive("own").binomial(own, _HALF, own.shape)
        return ones + randomness.derive("other").binomial(records - own, self.rate, own.shape)


@final
@dataclass(frozen=True)
class RandomSymbol(Encoder):
    """Randomised response: the own symbol, or with probability g a uniform one of all D symbols, null included.

    The own symbol is more likely than any other by the factor (1 - g) D/g + 1, which is at most e^epsilon for
    g >= D/(e^epsilon - 1 + D). g is rounded up to a multiple of 2^-32.
    """

    epsilon: float

    def rate(self, symbols: int) -> Rate:
        """The probability g that a symbol is replaced."""
        odds = exp(-self.epsilon)
        return Rate.at_least(min((symbols + 1) * odds / (1 + symbols * odds) * (1 + 2**-40), 1.0))

    def probabilities(self, symbols: int) -> tuple[float, float]:
        replaced = float(self.rate(symbols))
        return 1 - replaced + replaced / (symbols + 1), replaced / (symbols + 1)

    def encoded(self, chosen: Ints, symbols: int, randomness: Randomness) -> Ints:
        return np.bincount(self._reported(chosen, symbols, randomness), minlength=symbols + 1)[:-1]

    def reports(self, chosen: Ints, symbols: int, randomness: Randomness) -> Bools:
        return np.equal.outer(self._reported(chosen, symbols, randomness), np.arange(symbols))

    def _reported(self, chosen: Ints, symbols: int, randomness: Randomness) -> Ints:
        replaced = randomness.derive("own").bernoulli(self.rate(symbols), len(chosen))
        uniform = randomness.derive("other").integers(symbols + 1, len(chosen))
        return np.where(replaced, uniform, np.where(chosen < 0, symbols, chosen))

    def total(self, counts: Ints, randomness: Randomness) -> Ints:
        """Draw the number of records per symbol that are replaced, and the symbols that they become."""
        replaced = randomness.derive("own").binomial(counts, self.rate(len(counts) - 1), counts.shape)
        uniform = randomness.derive("other").integers(len(counts), int(replaced.sum()))
        reported: Ints = counts - replaced + np.bincount(uniform, minlength=len(counts))
        return reported[:-1]


@final
@dataclass(frozen=True)
class FlippedSign(Encoder):
    """Symbol 2j or 2j + 1, the two signs of coordinate j, flipped with probability q = 1/(e^epsilon + 1).

    Which coordinate a record reports must not depend on its data; the sign's odds move by at most (1 - q)/q. q is
    rounded up to a multiple of 2^-32.
    """

    epsilon: float

    @property
    def rate(self) -> Rate:
        """The probability q."""
        return Rate.flip(self.epsilon)

    def probabilities(self, symbols: int) -> tuple[float, float]:
        return 1 - float(self.rate), float(self.rate)

    def encoded(self, chosen: Ints, symbols: int, randomness: Randomness) -> Ints:
        return np.bincount(chosen ^ randomness.bernoulli(self.rate, len(chosen)), minlength=symbols)

    def reports(self, chosen: Ints, symbols: int, randomness: Randomness) -> Bools:
        left: Ints = chosen ^ randomness.bernoulli(self.rate, len(chosen))
        marked: Bools = left[:, None] == np.arange(symbols)
        return marked

    def total(self, counts: Ints, randomness: Randomness) -> Ints:
        flipped = randomness.binomial(counts[:-1], self.rate, (len(counts) - 1,))
        arrived = flipped.reshape(-1, 2)[:, ::-1].reshape(-1)
        reported: Ints = counts[:-1] - flipped + arrived
        return reported
