"""Searches for one number, as sub-protocols: every look costs a noisy answer, so each search says how many it takes.

A *probe* asks for a function's values at some points, all in one message, and gives them back. Points may be moved by
answers; how many there are in each message may not, so that a budget can be planned.
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
_MOST = 256  # places in one message of a grid


@final
@dataclass(frozen=True)
class Found:
    """Where a search ended, and whether it never left an end of its bracket: then the true place may lie beyond."""

    place: float
    at_end: bool

    def within(self, low: float, high: float) -> float:
        """Give the place, or the end of the bracket that the search never left."""
        if not self.at_end:
            return self.place
        return low if self.place - low < high - self.place else high


class RootSearch(ABC):
    """Finds where a rising function crosses zero, or flags that it does not in the bracket."""

    @abstractmethod
    def root(self, probe: Probe, low: float, high: float) -> Flow[Found]:
        """Look for the crossing in a bracket."""


class MinimumSearch(ABC):
    """Finds where a function is smallest, and flags an end of the bracket that it never left."""

    @abstractmethod
    def minimum(self, probe: Probe, low: float, high: float) -> Flow[Found]:
        """Look for the lowest place in a bracket."""


@final
@dataclass(frozen=True)
class GoldenSection(MinimumSearch):
    """Shrink a bracket `steps` times around the smaller of two inner points; takes steps + 1 looks.

    Each shrink reuses one of the two values, so after the first pair every step but the last costs one look, and the
    last none. The new point is placed in the *new* bracket: placed in the old one, as once published, both points
    coincide and the bracket turns inside out.
    """

    steps: int = 5

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(f"Expected at least one step, found {self.steps}.")

    def minimum(self, probe: Probe, low: float, high: float) -> Flow[Found]:
        """Shrink, and give the middle of what is left."""
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
        return Found((low + high) / 2, low == start[0] or high == start[1])


@final
@dataclass(frozen=True)
class GridSearch(MinimumSearch):
    """Look at an even grid of `places`, then as often around the `kept` lowest ones, again and again.

    It finds the lowest of many valleys, where golden section finds one of them. For exact answers only: under noise
    every look costs, and the lowest of many noisy values is luck.
    """

    places: int = 1024
    kept: int = 16
    zooms: int = 3

    def __post_init__(self) -> None:
        if self.kept < 1 or self.zooms < 0 or self.places < 4 * self.kept:
            raise InputError(
                f"Expected at least one place to keep and four times as many to look at, found {self.kept} and "
                f"{self.places} with {self.zooms} zooms."
            )

    def minimum(self, probe: Probe, low: float, high: float) -> Flow[Found]:
        """Look, zoom in, and give the lowest place of all."""
        places, spacing = np.linspace(low, high, self.places), (high - low) / (self.places - 1)
        values = yield from _looked(probe, places)
        for _ in range(self.zooms):
            around = np.linspace(-spacing, spacing, self.places // self.kept)
            best = places[np.argsort(values, kind="stable")[: self.kept]]
            finer = np.clip((best[:, None] + around).reshape(-1), low, high)
            values = np.concatenate([values, (yield from _looked(probe, finer))])
            places, spacing = np.concatenate([places, finer]), float(around[1] - around[0])
        place = float(places[int(values.argmin())])
        return Found(place, place in (low, high))


def _looked(probe: Probe, places: Floats) -> Flow[Floats]:
    """Look at many places, some in each message, so that no message grows beyond what a client can hold."""
    parts = []
    for first in range(0, len(places), _MOST):
        parts.append((yield from probe(tuple(places[first : first + _MOST].tolist()))))
    return np.concatenate(parts)


@final
@dataclass(frozen=True)
class OnMagnitude(RootSearch):
    """Find a crossing as the minimum of the magnitude, as published; comparing signs does better."""

    search: MinimumSearch = GoldenSection()

    def root(self, probe: Probe, low: float, high: float) -> Flow[Found]:
        """Minimise the absolute value; signs on both sides show that there is a crossing."""
        seen: list[float] = []

        def magnitude(places: tuple[float, ...]) -> Flow[Floats]:
            values = yield from probe(places)
            seen.extend(values.tolist())
            return np.abs(values)

        found = yield from self.search.minimum(magnitude, low, high)
        return Found(found.place, found.at_end and not min(seen) < 0 < max(seen))


@final
@dataclass(frozen=True)
class Bisection(RootSearch):
    """Halve a bracket by the sign in its middle; takes `looks` looks.

    If what is left before the last look still touches an end of the bracket, that look is spent on the end: it tells
    whether the crossing is in the bracket at all.
    """

    looks: int = 4

    def __post_init__(self) -> None:
        if self.looks < 2:
            raise InputError(f"Expected at least two looks, found {self.looks}.")

    def root(self, probe: Probe, low: float, high: float) -> Flow[Found]:
        """Halve, and give the middle of what is left, or an end that the crossing is beyond."""
        start = (low, high)
        for _ in range(self.looks - 1):
            low, high = yield from _halved(probe, low, high)
        if low != start[0] and high != start[1]:
            low, high = yield from _halved(probe, low, high)
            return Found((low + high) / 2, False)
        end = low if low == start[0] else high
        below = float((yield from probe((end,)))[0]) < 0
        beyond = below == (end == start[1])
        return Found(end if beyond else (low + high) / 2, beyond)


def _halved(probe: Probe, low: float, high: float) -> Flow[tuple[float, float]]:
    middle = (low + high) / 2
    value = float((yield from probe((middle,)))[0])
    return (middle, high) if value < 0 else (low, middle)


@final
@dataclass(frozen=True)
class Interpolation(RootSearch):
    """Look at both ends of a bracket and at `places` between them, all in one message.

    The crossing is read off the rising cubic through the answers, in the logarithm. Places outside the bracket are
    left out.
    """

    places: tuple[float, ...] = (1.0, 2.0, 5.0)

    def __post_init__(self) -> None:
        if not all(a < b for a, b in pairwise((0.0, *self.places))):
            raise InputError(f"Expected rising places above 0, found {self.places}.")

    def root(self, probe: Probe, low: float, high: float) -> Flow[Found]:
        """Ask once and interpolate; the signs at the ends say whether there is a crossing."""
        places = self.within(low, high)
        values = yield from probe(places)
        place = float(np.exp(cubic_roots(np.log(np.array(places)), values[None]))[0])
        if values[-1] <= 0 or values[0] >= 0:
            return Found(high if values[-1] <= 0 else low, True)
        return Found(min(max(place, low), high), False)

    def within(self, low: float, high: float) -> tuple[float, ...]:
        """Give all places of a bracket, its ends included."""
        return (low, *(place for place in self.places if low < place < high), high)
