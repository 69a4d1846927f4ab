"""Local fits of many clients side by side: one pass over all records serves a step of every client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, final

import numpy as np

from fedcalib.types import Floats, Ints

RecordLosses = Callable[[Floats, Floats, Ints], tuple[Floats, Floats]]
# parameters a record (n, size), logits and labels: losses (n,) and slopes (n, size)
Objective = Callable[
    [Floats, Ints], tuple[Floats, Floats]
]  # (k, size) and which clients: losses (k,), slopes (k, size)

_MEMORY: Final = 10  # steps that shape the next one
_FLAT: Final = 1e-5  # a slope below is none
_STILL: Final = 2e-9  # a relative gain below is none
_HALVINGS: Final = 30
_ENOUGH: Final = 1e-4  # of the gain that the slope promises


def fit_side_by_side(
    losses: RecordLosses, parameters: Floats, held: tuple[Floats, Ints, Ints], *, ridge: float, steps: int
) -> Floats:
    """Improve parameters on each client's own records, drawn by `ridge` toward where they started, (clients, size).

    What is held is logits, labels and the offsets at which each client's records begin, the end included.
    """
    logits, labels, offsets = held
    sizes = np.diff(offsets)
    fitted = np.tile(parameters, (len(sizes), 1))
    some = np.flatnonzero(sizes)

    def objective(tried: Floats, which: Ints) -> tuple[Floats, Floats]:
        counts = sizes[some[which]]
        starts = np.cumsum(counts) - counts
        rows = np.arange(counts.sum()) + np.repeat(offsets[some[which]] - starts, counts)
        value, slope = losses(np.repeat(tried, counts, axis=0), logits[rows], labels[rows])
        off = tried - parameters
        drawn = np.add.reduceat(value, starts) + ridge / 2 * np.einsum("ij,ij->i", off, off)
        return drawn, np.add.reduceat(slope, starts, axis=0) + ridge * off

    if some.size:
        fitted[some] = best_each(objective, fitted[some], steps)
    return fitted


def best_each(objective: Objective, start: Floats, steps: int) -> Floats:
    """Minimise one function a client from common parameters by limited-memory quasi-Newton steps, (clients, size)."""
    place = start.copy()
    going = np.arange(len(place))
    loss, slope = objective(place, going)
    past = _Past()
    for _ in range(steps):
        way = past.direction(slope)
        moved, lower, bent = _search(partial(_of, objective, going), place[going], loss, slope, way)
        past.add(moved - place[going], bent - slope)
        still = loss - lower <= _STILL * np.maximum(np.maximum(np.abs(loss), np.abs(lower)), 1.0)
        place[going] = moved
        left = ~(still | (np.abs(bent).max(axis=1, initial=0.0) <= _FLAT))
        if not left.any():
            break
        going, loss, slope = going[left], lower[left], bent[left]
        past.keep(left)
    return place


def _of(objective: Objective, going: Ints, tried: Floats, which: Ints) -> tuple[Floats, Floats]:
    return objective(tried, going[which])


def _search(
    objective: Objective, place: Floats, loss: Floats, slope: Floats, way: Floats
) -> tuple[Floats, Floats, Floats]:
    """Halve each client's step until its loss falls enough; a client whose loss never does stays where it is."""
    promise = np.einsum("ij,ij->i", slope, way)
    size = np.ones(len(place))
    moved, lower, bent = place.copy(), loss.copy(), slope.copy()
    trying = np.arange(len(place))
    for _ in range(_HALVINGS):
        there = place[trying] + size[trying, None] * way[trying]
        with np.errstate(over="ignore", invalid="ignore"):
            value, gradient = objective(there, trying)
        good = value <= loss[trying] + _ENOUGH * size[trying] * promise[trying]
        took = trying[good]
        moved[took], lower[took], bent[took] = there[good], value[good], gradient[good]
        trying = trying[~good]
        if not trying.size:
            break
        size[trying] /= 2
    return moved, lower, bent


@final
@dataclass(eq=False)
class _Past:
    """The last steps of every client and how its slope changed along them."""

    steps: list[Floats] = field(default_factory=list)
    bends: list[Floats] = field(default_factory=list)

    def add(self, step: Floats, bend: Floats) -> None:
        self.steps, self.bends = [*self.steps, step][-_MEMORY:], [*self.bends, bend][-_MEMORY:]

    def keep(self, left: Floats) -> None:
        self.steps, self.bends = [part[left] for part in self.steps], [part[left] for part in self.bends]

    def direction(self, slope: Floats) -> Floats:
        """Turn slopes into steps: against the slope at first, then as the past has bent."""
        if not self.steps:
            first: Floats = -slope / np.maximum(np.linalg.norm(slope, axis=1, keepdims=True), 1.0)
            return first
        way, shares = -slope, []
        inner = [np.einsum("ij,ij->i", step, bend) for step, bend in zip(self.steps, self.bends, strict=True)]
        sound = [np.where(value > 1e-12, 1 / np.maximum(value, 1e-12), 0.0) for value in inner]
        pairs = list(zip(self.steps, self.bends, sound, strict=True))
        for step, bend, inverse in reversed(pairs):
            share = inverse * np.einsum("ij,ij->i", step, way)
            way = way - share[:, None] * bend
            shares.append(share)
        squares = np.einsum("ij,ij->i", self.bends[-1], self.bends[-1])
        way = way * np.where(sound[-1] > 0, inner[-1] / np.maximum(squares, 1e-300), 1.0)[:, None]
        for (step, bend, inverse), share in zip(pairs, reversed(shares), strict=True):
            way = way + (share - inverse * np.einsum("ij,ij->i", bend, way))[:, None] * step
        downhill = np.einsum("ij,ij->i", way, slope) < 0
        turned: Floats = np.where(downhill[:, None], way, -slope)
        return turned
