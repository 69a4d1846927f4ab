"""Searches for one number, as sub-protocols: every look costs a noisy answer, so each search says how many it takes.

A *probe* asks for a function's values at some points, all in one message, and gives them back. Points may be moved by
answers; how many there are in each message may not, so that a budget can be planned.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import TypeAlias, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.method import Flow
from fedcalib.types import Floats

Probe: TypeAlias = Callable[[tuple[float, ...]], Flow[Floats]]

_GOLDEN = (sqrt(5) - 1) / 2


@final
@dataclass(frozen=True)
class Found:
    """Where a search ended, and whether that is an end of its bracket or beyond where it looked.

    Then the true place may lie elsewhere.
    """

    place: float
    at_end: bool


class RootSearch(ABC):
    """Finds where a rising function crosses zero."""

    @abstractmethod
    def root(self, probe: Probe, low: float, high: float) -> Flow[Found]:
        """Look for the crossing in a bracket."""


class MinimumSearch(ABC):
    """Finds where a function is smallest."""

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
class OnMagnitude(RootSearch):
    """Find a crossing as the minimum of the magnitude, as published; comparing signs does better."""

    search: MinimumSearch = GoldenSection()

    def root(self, probe: Probe, low: float, high: float) -> Flow[Found]:
        """Minimise the absolute value."""

        def magnitude(places: tuple[float, ...]) -> Flow[Floats]:
            return np.abs((yield from probe(places)))

        return (yield from self.search.minimum(magnitude, low, high))


@final
@dataclass(frozen=True)
class Bisection(RootSearch):
    """Halve a bracket by the sign in its middle, `looks` times."""

    looks: int = 4

    def __post_init__(self) -> None:
        if self.looks < 1:
            raise InputError(f"Expected at least one look, found {self.looks}.")

    def root(self, probe: Probe, low: float, high: float) -> Flow[Found]:
        """Halve, and give the middle of what is left."""
        start = (low, high)
        for _ in range(self.looks):
            middle = (low + high) / 2
            value = float((yield from probe((middle,)))[0])
            low, high = (middle, high) if value < 0 else (low, middle)
        return Found((low + high) / 2, low == start[0] or high == start[1])


@final
@dataclass(frozen=True)
class Interpolation(RootSearch):
    """Look at fixed `places` in one message and read the crossing off the line through them, in the logarithm."""

    places: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)

    def __post_init__(self) -> None:
        if len(self.places) < 2 or not all(0 < a < b for a, b in zip(self.places, self.places[1:], strict=False)):
            raise InputError(f"Expected two or more rising places above 0, found {self.places}.")

    def root(self, probe: Probe, low: float, high: float) -> Flow[Found]:
        """Ask once and interpolate; beyond the outer places the line goes on to the ends of the bracket."""
        values = yield from probe(self.places)
        root = crossing_of_line(np.log(np.array(self.places)), values, log(low), log(high))
        place = min(max(exp(root), low), high)
        beyond = not self.places[0] <= place <= self.places[-1]
        return Found(place, beyond or root in (log(low), log(high)))


def crossing_of_line(places: Floats, values: Floats, low: float, high: float) -> float:
    """Cross zero on the piece of a rising polygon that does, or on the outer pieces prolonged; stay in [low, high]."""
    rising = np.maximum.accumulate(values)
    if rising[0] >= 0:
        piece = 0
    elif rising[-1] < 0:
        piece = len(values) - 2
    else:
        piece = int(np.searchsorted(rising, 0.0)) - 1
    run, rise = places[piece + 1] - places[piece], values[piece + 1] - values[piece]
    if not rise > 0:
        return low if values[piece] + values[piece + 1] > 0 else high
    return float(np.clip(places[piece] - values[piece] * run / rise, low, high))
