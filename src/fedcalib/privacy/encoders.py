"""How a record reports one of several symbols so that nobody can tell which it meant.

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

from fedcalib.randomness import Randomness, Rate
from fedcalib.types import Bools, Ints

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
