"""Searches for one number, as sub-protocols of a method.

A *probe* sends a query for a function's values at some points, all in one message, and returns them. Every message
costs a noisy answer, so each search states how many it takes. Points may depend on answers; how many there are in each
message may not, so that a budget can be planned. A `RootSearch` finds where an increasing function crosses zero, a
`MinimumSearch` where a function is smallest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from typing import TypeAlias, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.estimation.roots import cubic_roots
from fedcalib.method import Flow
from fedcalib.types import Floats

Probe: TypeAlias = Callable[[tuple[float, ...]], Flow[Floats]]

_GOLDEN = (sqrt(5) - 1) / 2
_MAX_POINTS = 256  # of a grid in one message


@final
@dataclass(frozen=True)
class SearchResult:
    """Where a search ended.

    Parameters
    ----------
    place
        The point that was found.
    at_end
        Whether the search never left an end of its bracket: then the true point may lie beyond.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.search.SearchResult(place=2.9, at_end=True).within(0.5, 3.0)
    3.0
    """

    place: float
    at_end: bool

    def within(self, low: float, high: float) -> float:
        """The point, or the end of the bracket that the search never left."""
        if not self.at_end:
            return self.place
        return low if self.place - low < high - self.place else high


class RootSearch(ABC):
    """Finds where an increasing function crosses zero, or flags that it does not do so in the bracket.

    Examples
    --------
    >>> import fedcalib as fc
    >>> issubclass(fc.search.Bisection, fc.search.RootSearch)
    True
    """

    @abstractmethod
    def root(self, probe: Probe, low: float, high: float) -> Flow[SearchResult]:
        """Search for the crossing in a bracket."""


class MinimumSearch(ABC):
    """Finds where a function is smallest, and flags an end of the bracket that it never left.

    Examples
    --------
    >>> import fedcalib as fc
    >>> issubclass(fc.search.GoldenSection, fc.search.MinimumSearch)
    True
    """

    @abstractmethod
    def minimum(self, probe: Probe, low: float, high: float) -> Flow[SearchResult]:
        """Search for the minimum in a bracket."""


@final
@dataclass(frozen=True)
class GoldenSection(MinimumSearch):
    """Shrink a bracket `steps` times around the smaller of two inner points, with steps + 1 messages.

    Each shrink reuses one of the two values, so after the first pair every step but the last takes one message, and the
    last none. The new point is placed in the *new* bracket: placed in the old one, as once published, both points
    coincide and the bracket turns inside out.

    Parameters
    ----------
    steps
        Number of times that the bracket is shrunk.

    Examples
    --------
    >>> import fedcalib as fc
    >>> method = fc.methods.NLLT(search=fc.search.GoldenSection(steps=5))
    >>> len(fc.method.Plan.of(method, fc.Schema(classes=3, clients=10)).queries)
    6
    """

    steps: int = 5

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(f"Expected at least one step, found {self.steps}.")

    def minimum(self, probe: Probe, low: float, high: float) -> Flow[SearchResult]:
        start = (low, high)
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        at_left = float((yield from probe((left,)))[0])
        at_right = float((yield from probe((right,)))[0])
        for step in range(self.steps):
            rising = at_left < at_right
            if rising:
                high, right, at_right = right, left, at_left
                left = high - _GOLDEN * (high - low)
            else:
                low, left, at_left = left, right, at_right
                right = low + _GOLDEN * (high - low)
            if step == self.steps - 1:
                break
            fresh = float((yield from probe((left if rising else right,)))[0])
            at_left, at_right = (fresh, at_right) if rising else (at_left, fresh)
        return SearchResult((low + high) / 2, low == start[0] or high == start[1])


@final
@dataclass(frozen=True)
class GridSearch(MinimumSearch):
    """Evaluate an even grid of `places`, then as many points around the `kept` lowest ones, `zooms` times.

    It finds the lowest of many local minima, where golden section finds one of them. For exact answers only: under
    noise every message costs budget, and the lowest of many noisy values is chance.

    Parameters
    ----------
    places
        Number of points of each grid.
    kept
        Number of lowest points around which the next grid is laid.
    zooms
        Number of further grids.

    Examples
    --------
    >>> import fedcalib as fc
    >>> method = fc.methods.ECET(search=fc.search.GridSearch(places=64, kept=4))
    >>> result = fc.run(method, fc.InProcess(fc.Federation.simulated(temperature=2.0)), fc.SecAgg())
    >>> 1.5 < result.artifact.temperature < 2.5
    True
    """

    places: int = 1024
    kept: int = 16
    zooms: int = 3

    def __post_init__(self) -> None:
        if self.kept < 1 or self.zooms < 0 or self.places < 4 * self.kept:
            raise InputError(
                f"Expected at least one place to keep and a grid of at least four times as many, found {self.kept} and "
                f"{self.places} with {self.zooms} zooms."
            )

    def minimum(self, probe: Probe, low: float, high: float) -> Flow[SearchResult]:
        places, spacing = np.linspace(low, high, self.places), (high - low) / (self.places - 1)
        values = yield from _probe_all(probe, places)
        for _ in range(self.zooms):
            around = np.linspace(-spacing, spacing, self.places // self.kept)
            best = places[np.argsort(values, kind="stable")[: self.kept]]
            finer = np.clip((best[:, None] + around).reshape(-1), low, high)
            values = np.concatenate([values, (yield from _probe_all(probe, finer))])
            places, spacing = np.concatenate([places, finer]), float(around[1] - around[0])
        place = float(places[int(values.argmin())])
        return SearchResult(place, place in (low, high))


def _probe_all(probe: Probe, places: Floats) -> Flow[Floats]:
    """Probe many points, some in each message, so that no message grows beyond what a client can hold."""
    parts = []
    for first in range(0, len(places), _MAX_POINTS):
        parts.append((yield from probe(tuple(places[first : first + _MAX_POINTS].tolist()))))
    return np.concatenate(parts)


@final
@dataclass(frozen=True)
class OnMagnitude(RootSearch):
    """Find a crossing as the minimum of the absolute value, as published; comparing signs does better.

    Parameters
    ----------
    search
        How the minimum is found.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.AccT(search=fc.search.OnMagnitude(fc.search.GoldenSection(steps=8))).search.search.steps
    8
    """

    search: MinimumSearch = GoldenSection()

    def root(self, probe: Probe, low: float, high: float) -> Flow[SearchResult]:
        """Values of both signs show that there is a crossing."""
        seen: list[float] = []

        def magnitude(places: tuple[float, ...]) -> Flow[Floats]:
            values = yield from probe(places)
            seen.extend(values.tolist())
            return np.abs(values)

        found = yield from self.search.minimum(magnitude, low, high)
        return SearchResult(found.place, found.at_end and not min(seen) < 0 < max(seen))


@final
@dataclass(frozen=True)
class Bisection(RootSearch):
    """Halve a bracket by the sign in its middle, with `looks` messages.

    If what is left before the last message still touches an end of the bracket, that message probes the end: it shows
    whether the crossing is in the bracket at all.

    Parameters
    ----------
    looks
        Number of messages, at least two.

    Examples
    --------
    >>> import fedcalib as fc
    >>> method = fc.AccT(search=fc.search.Bisection(looks=6))
    >>> result = fc.run(method, fc.InProcess(fc.Federation.simulated(temperature=2.0)), fc.SecAgg())
    >>> 1.5 < result.artifact.temperature < 2.5
    True
    """

    looks: int = 4

    def __post_init__(self) -> None:
        if self.looks < 2:
            raise InputError(f"Expected at least two messages (looks), found {self.looks}.")

    def root(self, probe: Probe, low: float, high: float) -> Flow[SearchResult]:
        start = (low, high)
        for _ in range(self.looks - 1):
            low, high = yield from _halved(probe, low, high)
        if low != start[0] and high != start[1]:
            low, high = yield from _halved(probe, low, high)
            return SearchResult((low + high) / 2, False)
        end = low if low == start[0] else high
        below = float((yield from probe((end,)))[0]) < 0
        beyond = below == (end == start[1])
        return SearchResult(end if beyond else (low + high) / 2, beyond)


def _halved(probe: Probe, low: float, high: float) -> Flow[tuple[float, float]]:
    middle = (low + high) / 2
    value = float((yield from probe((middle,)))[0])
    return (middle, high) if value < 0 else (low, middle)


@final
@dataclass(frozen=True)
class Interpolation(RootSearch):
    """Probe both ends of a bracket and the `places` between them in one message, and interpolate.

    The crossing is that of the monotone cubic through the answers, in the logarithm. Places outside the bracket are
    left out.

    Parameters
    ----------
    places
        Increasing points above 0.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.search.Interpolation().within(0.5, 3.0)
    (0.5, 1.0, 2.0, 3.0)
    """

    places: tuple[float, ...] = (1.0, 2.0, 5.0)

    def __post_init__(self) -> None:
        if not all(a < b for a, b in pairwise((0.0, *self.places))):
            raise InputError(f"Expected increasing places above 0, found {self.places}.")

    def root(self, probe: Probe, low: float, high: float) -> Flow[SearchResult]:
        """The signs at the ends show whether there is a crossing."""
        places = self.within(low, high)
        values = yield from probe(places)
        place = float(np.exp(cubic_roots(np.log(np.array(places)), values[None]))[0])
        if values[-1] <= 0 or values[0] >= 0:
            return SearchResult(high if values[-1] <= 0 else low, True)
        return SearchResult(min(max(place, low), high), False)

    def within(self, low: float, high: float) -> tuple[float, ...]:
        """All points in a bracket, its ends included."""
        return (low, *(place for place in self.places if low < place < high), high)
