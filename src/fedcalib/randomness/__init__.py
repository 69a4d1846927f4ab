"""Sources of randomness: the operating system for a release, a seed for a simulation.

Privacy models draw their noise from a `Randomness` and never learn which kind it is. `Secure` cannot be seeded and is
the default of every release; whatever is made with `Simulated` says that it is a simulation and not private.
"""

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
from fedcalib.randomness import polya, samplers
from fedcalib.types import Bools, Floats, Ints, Words

Size: TypeAlias = int | tuple[int, ...]
Real: TypeAlias = Fraction | float

MAX_NOISE: Final = 1 << 50  # grid steps: draws beyond 64 bits then have a probability below e^-8000
SIMULATED: Final = (
    "simulation: not private. The noise follows from a seed, so it hides nobody; leave simulate (--simulate-seed) out "
    "for a release."
)
_MAX_TABLE_SIGMA: Final = 1024.0  # widest discrete Gaussian that a simulation draws from a table


@final
@dataclass(frozen=True)
class Rate:
    """A probability in steps of 2^-32: exactly what is sampled, and so what is accounted and corrected for."""

    numerator: int

    def __post_init__(self) -> None:
        if not 0 <= self.numerator <= 1 << 32:
            raise InputError(f"Expected a numerator from 0 to 2^32, found {self.numerator}.")

    @classmethod
    def at_least(cls, probability: Real) -> Rate:
        """Round a probability up to a rate; where the coin hides something, it then hides no less."""
        if not 0 <= probability <= 1:
            raise InputError(f"Expected a probability from 0 to 1, found {probability}.")
        return cls(ceil(Fraction(probability) * (1 << 32)))

    @classmethod
    def flip(cls, epsilon: float) -> Rate:
        """The smallest rate q with (1 - q)/q at most e^epsilon: how often randomised response must flip a bit."""
        if not epsilon > 0:
            raise InputError(f"Expected an epsilon above 0, found {epsilon}.")
        return cls.at_least(min(exp(-epsilon) / (1 + exp(-epsilon)) * (1 + 2**-48), 1))  # past the float's own rounding

    @property
    def value(self) -> Fraction:
        return Fraction(self.numerator, 1 << 32)

    def __float__(self) -> float:
        return self.numerator / (1 << 32)


class Randomness(ABC):
    """A source of random numbers. Mechanisms draw noise from it and never learn which kind it is."""

    @property
    @abstractmethod
    def simulated(self) -> bool:
        """Whether a seed decides the draws, so that nothing made with them is private."""

    @abstractmethod
    def words(self, count: int) -> Words:
        """Draw uniform 64-bit words."""

    @abstractmethod
    def derive(self, *key: int | str) -> Randomness:
        """The source for one purpose, such as (run, step, client); sources of different keys are independent."""

    @abstractmethod
    def generator(self) -> np.random.Generator:
        """A fast NumPy generator for what needs no privacy, such as local training."""

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
    def binomial(self, trials: int | Ints, rate: Rate, size: Size) -> Ints:
        """Draw the number of successes among `trials` trials of probability `rate`."""

    def bernoulli(self, rate: Rate, size: Size) -> Bools:
        """Draw booleans that are true with probability `rate`."""
        return samplers.tosses(self.words, rate.numerator, _count(size)).reshape(size)

    def integers(self, high: int, size: Size) -> Ints:
        """Draw integers uniform from 0 to just below `high`, without the bias of a plain remainder."""
        if not 0 < high <= samplers.MAX_BOUND:
            raise InputError(f"Expected a bound from 1 to 2^62, found {high}.")
        return samplers.below(self.words, high, _count(size)).astype(np.int64).reshape(size)


@final
@dataclass(frozen=True)
class Secure(Randomness):
    """Randomness from the operating system, for real releases.

    It cannot be seeded. Its noise comes from exact integer samplers, so a privacy proof holds for it without rounding.

    Examples
    --------
    >>> import fedcalib as fc
    >>> source = fc.Secure()
    >>> source.simulated
    False
    >>> source.discrete_laplace(2.0, 5).shape
    (5,)
    """

    @property
    def simulated(self) -> bool:
        return False

    def words(self, count: int) -> Words:
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)

    def derive(self, *key: int | str) -> Randomness:
        """This source itself: its draws are independent whatever they are for."""
        return self

    def generator(self) -> np.random.Generator:
        return np.random.default_rng()

    def discrete_laplace(self, scale: Real, size: Size) -> Ints:
        return samplers.laplace(_noise(scale), _count(size)).reshape(size)

    def discrete_gaussian(self, sigma: Real, size: Size) -> Ints:
        return samplers.gaussian(_noise(sigma), _count(size)).reshape(size)

    def polya(self, r: Real, scale: Real, size: Size) -> Ints:
        """Draw whole units of shape with OpenDP, which is faster, and the fractional rest as a Polya share."""
        whole, rest = divmod(_positive(r, "shape"), 1)
        scale, count = _noise(scale), _count(size)
        noise = polya.shares(self.words, rest, scale, count)
        for _ in range(int(whole)):
            noise += samplers.laplace(scale, count)
        return noise.reshape(size)

    def binomial(self, trials: int | Ints, rate: Rate, size: Size) -> Ints:
        each = np.broadcast_to(np.asarray(trials, dtype=np.int64), size)
        return samplers.heads(self.words, rate.numerator, each.ravel()).reshape(size)


@final
class Simulated(Randomness):
    """Randomness from a seed: fast and repeatable, for simulations and tests only.

    Whatever is made with it is a simulation and not private, and says so.

    Parameters
    ----------
    seed
        Any integer. The same seed and the same key of `derive` give the same draws.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.Simulated(7).discrete_laplace(2.0, 5).tolist() == fc.Simulated(7).discrete_laplace(2.0, 5).tolist()
    True
    >>> fc.Simulated(7).simulated
    True
    """

    def __init__(self, seed: int) -> None:
        self.seed: Final = operator.index(seed)
        self._digest = _chain(b"", self.seed)
        self._stream: np.random.Generator | None = None

    def __repr__(self) -> str:
        return f"Simulated({self.seed})"

    @property
    def simulated(self) -> bool:
        return True

    def words(self, count: int) -> Words:
        return self.generator().integers(0, (1 << 64) - 1, count, dtype=np.uint64, endpoint=True)

    def derive(self, *key: int | str) -> Randomness:
        """Hash the key onto this source's own, part by part; earlier draws play no role."""
        derived = Simulated(self.seed)
        derived._digest = self._digest
        for part in key:
            derived._digest = _chain(derived._digest, part)
        return derived

    def generator(self) -> np.random.Generator:
        """The stream of this source itself; every call returns the same generator."""
        if self._stream is None:
            self._stream = np.random.Generator(np.random.PCG64(int.from_bytes(self._digest, "big")))
        return self._stream

    def discrete_laplace(self, scale: Real, size: Size) -> Ints:
        """Draw the difference of two geometric variables."""
        success = -expm1(-1 / float(_noise(scale)))
        first, second = self.generator().geometric(success, (2, *_shape(size)))
        return np.asarray(first - second, dtype=np.int64)

    def discrete_gaussian(self, sigma: Real, size: Size) -> Ints:
        """Draw from a table, or round a normal variable where that changes no probability by more than one in 10^7."""
        width = float(_noise(sigma))
        if width > _MAX_TABLE_SIGMA:
            return np.rint(self.generator().normal(0, sqrt(width**2 - 1 / 12), size)).astype(np.int64)
        cumulative = _gaussian_table(width)
        ranks = np.searchsorted(cumulative, self.generator().random(size), side="right")
        return np.asarray(ranks, dtype=np.int64) - cumulative.size // 2

    def polya(self, r: Real, scale: Real, size: Size) -> Ints:
        """Draw two Poisson variables whose means are gamma variables."""
        a = 1 / float(_noise(scale))
        means = self.generator().gamma(float(_positive(r, "shape")), exp(-a) / -expm1(-a), (2, *_shape(size)))
        first, second = self.generator().poisson(means)
        return np.asarray(first - second, dtype=np.int64)

    def binomial(self, trials: int | Ints, rate: Rate, size: Size) -> Ints:
        return np.asarray(self.generator().binomial(trials, float(rate), size), dtype=np.int64)


def _gaussian_table(sigma: float) -> Floats:
    """The cumulative probabilities of a discrete Gaussian out to ten sigma on either side."""
    limit = ceil(10 * sigma) + 1
    weights = np.exp(-0.5 * (np.arange(-limit, limit + 1) / sigma) ** 2)
    cumulative = np.cumsum(weights)
    return np.asarray(cumulative / cumulative[-1])


def _chain(digest: bytes, part: int | str) -> bytes:
    """Hash one part of a key together with its type, so that 1 and "1" differ."""
    text = f"str:{part}" if isinstance(part, str) else f"int:{operator.index(part)}"
    return blake2b(digest + text.encode(), digest_size=16).digest()


def _shape(size: Size) -> tuple[int, ...]:
    return size if isinstance(size, tuple) else (size,)


def _count(size: Size) -> int:
    return prod(_shape(size))


def _positive(value: Real, name: str) -> Fraction:
    """The exact value of a number, which must be finite and above 0."""
    if not isfinite(value) or value <= 0:
        raise InputError(f"Expected a finite {name} above 0, found {value}.")
    return Fraction(value)


def _noise(scale: Real) -> Fraction:
    """The exact scale of noise, refused where draws would not fit into 64 bits.

    A sampler that saturates returns a constant, and noise that is constant hides nothing.
    """
    exact = _positive(scale, "noise scale")
    if exact >= MAX_NOISE:
        raise InputError(
            f"Expected noise below 2^50 grid steps, found {float(exact):.3g}, which no sampler can draw. Raise "
            "epsilon, send fewer queries, or use a coarser grid."
        )
    return exact
