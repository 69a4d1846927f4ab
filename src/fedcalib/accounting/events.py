"""Privacy events: what a release reveals about a unit, in three notions of privacy.

Each notion is weaker than the one before. A pure event has an epsilon that holds with delta = 0. A concentrated event
has a rho: its Renyi divergence is at most rho * alpha at every order alpha. Every event has a Renyi curve.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import inf, log, log1p, tanh
from typing import final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.types import Floats, Ints


class Event(ABC):
    """One release or several, described by their privacy loss."""

    @abstractmethod
    def pure(self) -> float:
        """The epsilon that holds with delta = 0; infinite where there is none."""

    @abstractmethod
    def concentrated(self) -> float:
        """The rho of zero-concentrated differential privacy; infinite where there is none."""

    @abstractmethod
    def renyi(self, orders: Ints) -> Floats:
        """A bound on the Renyi divergence at integer orders from 2 up."""

    @abstractmethod
    def grouped(self, size: int) -> Event:
        """The event as seen by a group of `size` units."""

    def parts(self) -> Iterable[Event]:
        """The events that happened one after the other."""
        return (self,)


@final
@dataclass(frozen=True)
class Pure(Event):
    """A release with pure differential privacy."""

    epsilon: float

    def __post_init__(self) -> None:
        require(0 <= self.epsilon < inf, "a finite epsilon of at least 0", self.epsilon)

    def pure(self) -> float:
        return self.epsilon

    def concentrated(self) -> float:
        """The rho of randomised response, the worst release of this epsilon; at most epsilon^2/2."""
        return self.epsilon * tanh(self.epsilon / 2)

    def renyi(self, orders: Ints) -> Floats:
        """The divergence of randomised response."""
        moments = np.logaddexp(orders * self.epsilon, (1 - orders) * self.epsilon) - np.logaddexp(0, self.epsilon)
        return np.asarray(moments / (orders - 1))

    def grouped(self, size: int) -> Event:
        return Pure(total([self.epsilon], size))


@final
@dataclass(frozen=True)
class Concentrated(Event):
    """A release with zero-concentrated differential privacy, such as discrete Gaussian noise gives."""

    rho: float

    def __post_init__(self) -> None:
        require(0 <= self.rho < inf, "a finite rho of at least 0", self.rho)

    def pure(self) -> float:
        return 0.0 if self.rho == 0 else inf

    def concentrated(self) -> float:
        return self.rho

    def renyi(self, orders: Ints) -> Floats:
        return np.asarray(orders * self.rho)

    def grouped(self, size: int) -> Event:
        return Concentrated(self.rho * size**2)


@final
@dataclass(frozen=True)
class SampledGaussian(Event):
    """Gaussian noise, discrete or not, on the sum over a secret Poisson sample of the units.

    `multiplier` is the noise's standard deviation over the L2 norm of a unit's term; each unit is in the sample with
    probability `rate`, on its own. The discrete Gaussian qualifies at integer orders: its moments are no larger than
    the Gaussian's there, and the reflection that swaps two neighbouring distributions maps the integer grid to itself.
    """

    multiplier: float
    rate: float = 1.0

    def __post_init__(self) -> None:
        require(self.multiplier > 0, "a noise multiplier above 0", self.multiplier)
        require(0 < self.rate <= 1, "a sampling rate above 0 and at most 1", self.rate)

    def pure(self) -> float:
        return inf

    def concentrated(self) -> float:
        """1/(2 multiplier^2) without sampling; there is no rho under sampling."""
        return 0.5 / self.multiplier**2 if self.rate == 1 else inf

    def renyi(self, orders: Ints) -> Floats:
        """The binomial expansion of the moment of a mixture at each integer order, in one flat array of logarithms."""
        if self.rate == 1:
            return np.asarray(orders * self.concentrated())
        starts = np.cumsum(orders + 1) - (orders + 1)
        n, k = np.repeat(orders, orders + 1), np.arange((orders + 1).sum()) - np.repeat(starts, orders + 1)
        factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, orders.max() + 1)))])
        terms = factorials[n] - factorials[k] - factorials[n - k]
        terms += k * log(self.rate) + (n - k) * log1p(-self.rate) + k * (k - 1) / (2 * self.multiplier**2)
        peaks = np.maximum.reduceat(terms, starts)
        sums = np.add.reduceat(np.exp(terms - np.repeat(peaks, orders + 1)), starts)
        return np.asarray((np.log(sums) + peaks) / (orders - 1))

    def grouped(self, size: int) -> Event:
        """A smaller multiplier without sampling; refused under sampling."""
        require(self.rate == 1, "a release without sampling to account for a group", self)
        return SampledGaussian(self.multiplier / size)


@final
@dataclass(frozen=True)
class Repeated(Event):
    """The same event several times, one after the other."""

    event: Event
    times: int

    def __post_init__(self) -> None:
        require(self.times >= 0, "a number of times from 0 up", self.times)

    def pure(self) -> float:
        return total([self.event.pure()], self.times)

    def concentrated(self) -> float:
        return total([self.event.concentrated()], self.times)

    def renyi(self, orders: Ints) -> Floats:
        return np.asarray(self.event.renyi(orders) * self.times)

    def grouped(self, size: int) -> Event:
        return Repeated(self.event.grouped(size), self.times)

    def parts(self) -> Iterable[Event]:
        return (Repeated(part, self.times) if part is not self.event else self for part in self.event.parts())


@final
@dataclass(frozen=True)
class Composed(Event):
    """Several events on the same units, one after the other."""

    events: tuple[Event, ...]

    def pure(self) -> float:
        return total([event.pure() for event in self.events])

    def concentrated(self) -> float:
        return total([event.concentrated() for event in self.events])

    def renyi(self, orders: Ints) -> Floats:
        return np.asarray(sum((event.renyi(orders) for event in self.events), np.zeros(len(orders))))

    def grouped(self, size: int) -> Event:
        return Composed(tuple(event.grouped(size) for event in self.events))

    def parts(self) -> Iterable[Event]:
        return (part for event in self.events for part in event.parts())


@final
@dataclass(frozen=True)
class Parallel(Event):
    """Several events on disjoint sets of units: each unit is in one of them, so the largest loss counts."""

    events: tuple[Event, ...]

    def pure(self) -> float:
        return max((event.pure() for event in self.events), default=0.0)

    def concentrated(self) -> float:
        return max((event.concentrated() for event in self.events), default=0.0)

    def renyi(self, orders: Ints) -> Floats:
        return np.asarray(np.max([event.renyi(orders) for event in self.events], axis=0, initial=0.0))

    def grouped(self, size: int) -> Event:
        """The largest loss to a group; a group that is spread over several of the sets loses no more."""
        return Parallel(tuple(event.grouped(size) for event in self.events))


def total(losses: Iterable[float], times: int = 1) -> float:
    """Add numbers as the decimals that they print as, so that ten times 0.1 is 1; the empty sum is 0."""
    losses = list(losses) if times else []
    if inf in losses:
        return inf
    return float(sum((Fraction(repr(float(loss))) for loss in losses), Fraction(0)) * times)


def require(holds: bool, expected: str, found: object) -> None:
    """Raise InputError unless a condition holds."""
    if not holds:
        raise InputError(f"Expected {expected}, found {found}.")
