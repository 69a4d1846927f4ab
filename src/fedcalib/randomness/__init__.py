"""Where chance comes from: the operating system for a release, a seed for a simulation."""

from __future__ import annotations

import operator
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from hashlib import blake2b
from math import ceil, exp, expm1, isfinite, prod, sqrt
from typing import Final, TypeAlias, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.types import Bools, Floats, Ints, Words

Size: TypeAlias = int | tuple[int, ...]
Real: TypeAlias = Fraction | float

_TABLE: Final = 1024.0  # widest discrete Gaussian that a simulation draws from a table


@final
@dataclass(frozen=True)
class Rate:
    """The chance of a coin, in steps of 2^-32: what is tossed, so what is accounted and unbiased."""

    numerator: int

    def __post_init__(self) -> None:
        if not 0 <= self.numerator <= 1 << 32:
            raise InputError(f"Expected a numerator from 0 to 2^32, found {self.numerator}.")

    @classmethod
    def at_least(cls, chance: Real) -> Rate:
        """Take the smallest rate that is no smaller than a chance; for a coin that hides, this hides no less."""
        if not 0 <= chance <= 1:
            raise InputError(f"Expected a probability from 0 to 1, found {chance}.")
        return cls(ceil(Fraction(chance) * (1 << 32)))

    @classmethod
    def flip(cls, epsilon: float) -> Rate:
        """Take the smallest rate q with (1 - q)/q at most e^epsilon: how often a private bit has to be flipped."""
        if not epsilon > 0:
            raise InputError(f"Expected an epsilon above 0, found {epsilon}.")
        return cls.at_least(min(exp(-epsilon) / (1 + exp(-epsilon)) * (1 + 2**-48), 1))  # past the float's own rounding

    @property
    def value(self) -> Fraction:
        """Give the exact chance."""
        return Fraction(self.numerator, 1 << 32)

    def __float__(self) -> float:
        return self.numerator / (1 << 32)


class Randomness(ABC):
    """A source of chance. Mechanisms ask it for noise and never learn which kind it is."""

    @property
    @abstractmethod
    def simulated(self) -> bool:
        """Say whether a seed decides the draws, so that nothing made with them is private."""

    @abstractmethod
    def words(self, count: int) -> Words:
        """Draw uniform 64-bit words."""

    @abstractmethod
    def derive(self, *key: int | str) -> Randomness:
        """Give the source for one purpose, say (run, step, client); other keys give independent ones."""

    @abstractmethod
    def generator(self) -> np.random.Generator:
        """Give a fast generator for what needs no privacy, such as local training."""

    @abstractmethod
    def discrete_laplace(self, scale: Real, size: Size) -> Ints:
        """Draw integers k with probability proportional to e^(-|k|/scale)."""

    @abstractmethod
    def discrete_gaussian(self, sigma: Real, size: Size) -> Ints:
        """Draw integers k with probability proportional to e^(-k^2 / (2 sigma^2))."""

    @abstractmethod
    def polya(self, r: Real, scale: Real, size: Size) -> Ints:
        """Draw X - Y with X, Y negative binomial of shape r and decay e^(-1/scale).

        Shapes add up: n shares of shape 1/n make one discrete Laplace variable of that scale.
        """

    @abstractmethod
    def binomial(self, tossed: int | Ints, rate: Rate, size: Size) -> Ints:
        """Count the heads among so many coins of a rate."""

    def bernoulli(self, rate: Rate, size: Size) -> Bools:
        """Toss coins of a rate."""
        from fedcalib.randomness.samplers import tosses

        return tosses(self.words, rate.numerator, _count(size)).reshape(size)

    def integers(self, high: int, size: Size) -> Ints:
        """Draw integers uniform from 0 to just below `high`, without the bias of a plain remainder."""
        from fedcalib.randomness.samplers import LARGEST, below

        if not 0 < high <= LARGEST:
            raise InputError(f"Expected a bound from 1 to 2^62, found {high}.")
        return below(self.words, high, _count(size)).astype(np.int64).reshape(size)


@final
@dataclass(frozen=True)
class Secure(Randomness):
    """Chance from the operating system. It cannot be seeded, and its noise is exact, integer by integer."""

    @property
    def simulated(self) -> bool:
        """Say no."""
        return False

    def words(self, count: int) -> Words:
        """Ask the operating system."""
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)

    def derive(self, *key: int | str) -> Randomness:
        """Give this source itself: its draws are independent whatever they are for."""
        return self

    def generator(self) -> np.random.Generator:
        """Start a generator from fresh entropy."""
        return np.random.default_rng()

    def discrete_laplace(self, scale: Real, size: Size) -> Ints:
        """Draw with OpenDP."""
        from fedcalib.randomness.samplers import laplace

        return laplace(_positive(scale, "noise scale"), _count(size)).reshape(size)

    def discrete_gaussian(self, sigma: Real, size: Size) -> Ints:
        """Draw with OpenDP."""
        from fedcalib.randomness.samplers import gaussian

        return gaussian(_positive(sigma, "noise width"), _count(size)).reshape(size)

    def polya(self, r: Real, scale: Real, size: Size) -> Ints:
        """Draw whole units of shape with OpenDP, which is the faster, and the rest as a share."""
        from fedcalib.randomness.polya import shares
        from fedcalib.randomness.samplers import laplace

        whole, rest = divmod(_positive(r, "shape"), 1)
        scale, count = _positive(scale, "noise scale"), _count(size)
        drawn = shares(self.words, rest, scale, count)
        for _ in range(int(whole)):
            drawn += laplace(scale, count)
        return drawn.reshape(size)

    def binomial(self, tossed: int | Ints, rate: Rate, size: Size) -> Ints:
        """Compare all coins with the rate, bit by bit."""
        from fedcalib.randomness.samplers import heads

        each = np.broadcast_to(np.asarray(tossed, dtype=np.int64), size)
        return heads(self.words, rate.numerator, each.ravel()).reshape(size)


@final
class Simulated(Randomness):
    """Chance from a seed: fast and repeatable. What is made with it is a simulation and not private."""

    def __init__(self, seed: int) -> None:
        self.seed: Final = operator.index(seed)
        self._digest = _chain(b"", self.seed)
        self._stream: np.random.Generator | None = None

    def __repr__(self) -> str:
        return f"Simulated({self.seed})"

    @property
    def simulated(self) -> bool:
        """Say yes."""
        return True

    def words(self, count: int) -> Words:
        """Draw from the stream."""
        return self.generator().integers(0, (1 << 64) - 1, count, dtype=np.uint64, endpoint=True)

    def derive(self, *key: int | str) -> Randomness:
        """Hash the key onto this source's own, one part after the other; what was drawn so far plays no role."""
        derived = Simulated(self.seed)
        derived._digest = self._digest
        for part in key:
            derived._digest = _chain(derived._digest, part)
        return derived

    def generator(self) -> np.random.Generator:
        """Give the stream itself: asked twice, it goes on where it was."""
        if self._stream is None:
            self._stream = np.random.Generator(np.random.PCG64(int.from_bytes(self._digest, "big")))
        return self._stream

    def discrete_laplace(self, scale: Real, size: Size) -> Ints:
        """Draw the difference of two geometric variables."""
        success = -expm1(-1 / float(_positive(scale, "noise scale")))
        first, second = self.generator().geometric(success, (2, *_shape(size)))
        return np.asarray(first - second, dtype=np.int64)

    def discrete_gaussian(self, sigma: Real, size: Size) -> Ints:
        """Draw from a table, or round a normal variable where that changes no probability by more than one in 10^7."""
        width = float(_positive(sigma, "noise width"))
        if width > _TABLE:
            return np.rint(self.generator().normal(0, sqrt(width**2 - 1 / 12), size)).astype(np.int64)
        cumulative = _gaussian_table(width)
        ranks = np.searchsorted(cumulative, self.generator().random(size), side="right")
        return np.asarray(ranks, dtype=np.int64) - cumulative.size // 2

    def polya(self, r: Real, scale: Real, size: Size) -> Ints:
        """Draw two Poisson variables whose means are gamma variables."""
        a = 1 / float(_positive(scale, "noise scale"))
        means = self.generator().gamma(float(_positive(r, "shape")), exp(-a) / -expm1(-a), (2, *_shape(size)))
        first, second = self.generator().poisson(means)
        return np.asarray(first - second, dtype=np.int64)

    def binomial(self, tossed: int | Ints, rate: Rate, size: Size) -> Ints:
        """Draw with numpy."""
        return np.asarray(self.generator().binomial(tossed, float(rate), size), dtype=np.int64)


def _gaussian_table(sigma: float) -> Floats:
    """Add up the probabilities of a discrete Gaussian from far left to far right."""
    reach = ceil(10 * sigma) + 1
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    cumulative = np.cumsum(weights)
    return np.asarray(cumulative / cumulative[-1])


def _chain(digest: bytes, part: int | str) -> bytes:
    """Add one part of a key, with its type, so that 1 and "1" differ."""
    text = f"str:{part}" if isinstance(part, str) else f"int:{operator.index(part)}"
    return blake2b(digest + text.encode(), digest_size=16).digest()


def _shape(size: Size) -> tuple[int, ...]:
    return size if isinstance(size, tuple) else (size,)


def _count(size: Size) -> int:
    return prod(_shape(size))


def _positive(value: Real, name: str) -> Fraction:
    """Read a number that has to be finite and above 0, exactly."""
    if not isfinite(value) or value <= 0:
        raise InputError(f"Expected a finite {name} above 0, found {value}.")
    return Fraction(value)
