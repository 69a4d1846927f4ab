"""The local fit of one client that holds very many records: few passes over all of them, guided by some of them.

Local fits of many clients side by side: one pass over all records serves a step of every client.

The best temperature of each of many clients, side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final, final

import numpy as np

from fedcalib.types import Floats, Ints

Loss = Callable[[Floats, Floats, Ints], tuple[float, Floats]]
Curvature = Callable[[Floats, Floats, Ints], Floats]

MANY: Final = 1 << 13  # records from which a client is fitted alone
MOST: Final = 512  # parameters whose curvature is worth a matrix
_AT_ONCE: Final = 1 << 15  # logits: what is worked on stays in cache
_STILL: Final = 2e-9  # a relative gain below is none
_HALVINGS: Final = 30
_ENOUGH: Final = 1e-4  # of the gain that the slope promises


def fit_alone(
    loss: Loss,
    curvature: Curvature,
    parameters: Floats,
    held: tuple[Floats, Ints],
    *,
    ridge: float,
    steps: int,
) -> Floats:
    """Improve parameters by steps whose slope is that of all records and whose curvature is that of some.

    A sample of records bends nearly as all do, so the error shrinks manyfold a step, and a step costs one pass.
    """
    logits, labels = held
    some = np.arange(0, len(labels), max(len(labels) // MANY, 1))

    def objective(at: Floats) -> tuple[float, Floats]:
        off = at - parameters
        value, slope = _summed(loss, at, logits, labels)
        return value + ridge / 2 * float(off @ off), slope + ridge * off

    place = parameters.copy()
    value, slope = objective(place)
    for _ in range(steps):
        bend = curvature(place, logits[some], labels[some]) * (len(labels) / len(some))
        way = -np.linalg.solve(bend + (ridge + 1e-9 * np.trace(bend) / len(bend)) * np.eye(len(bend)), slope)
        lower, moved, turned = _search(objective, place, value, slope, way)
        gain = value - lower
        place, value, slope = moved, lower, turned
        if gain <= _STILL * max(abs(value), 1.0):
            break
    return place


def _search(
    objective: Callable[[Floats], tuple[float, Floats]], place: Floats, value: float, slope: Floats, way: Floats
) -> tuple[float, Floats, Floats]:
    """Halve a step until the loss falls enough; where it never does, stay."""
    promise, size = float(slope @ way), 1.0
    for _ in range(_HALVINGS):
        moved: Floats = place + size * way
        lower, turned = objective(moved)
        if lower <= value + _ENOUGH * size * promise:
            return lower, moved, turned
        size /= 2
    return value, place, slope


def _summed(loss: Loss, at: Floats, logits: Floats, labels: Ints) -> tuple[float, Floats]:
    """Sum loss and slope over records, a slice at a time."""
    total, slope = 0.0, np.zeros(len(at))
    for start in range(0, len(labels), step := max(_AT_ONCE // logits.shape[1], 16)):
        value, part = loss(at, logits[start : start + step], labels[start : start + step])
        total += value
        slope += part
    return total, slope


RecordLosses = Callable[[Floats, Floats, Ints], tuple[Floats, Floats]]
# parameters a record (n, size), logits and labels: losses (n,) and slopes (n, size)
Objective = Callable[
    [Floats, Ints], tuple[Floats, Floats]
]  # (k, size) and which clients: losses (k,), slopes (k, size)

_MEMORY: Final = 10  # steps that shape the next one
_FLAT: Final = 1e-5  # a slope below is none
_SIDE_BY_SIDE_STILL: Final = 2e-9  # a relative gain below is none
_SIDE_BY_SIDE_HALVINGS: Final = 30
_SIDE_BY_SIDE_ENOUGH: Final = 1e-4  # of the gain that the slope promises


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
        moved, lower, bent = _side_by_side_search(partial(_of, objective, going), place[going], loss, slope, way)
        past.add(moved - place[going], bent - slope)
        still = loss - lower <= _SIDE_BY_SIDE_STILL * np.maximum(np.maximum(np.abs(loss), np.abs(lower)), 1.0)
        place[going] = moved
        left = ~(still | (np.abs(bent).max(axis=1, initial=0.0) <= _FLAT))
        if not left.any():
            break
        going, loss, slope = going[left], lower[left], bent[left]
        past.keep(left)
    return place


def _of(objective: Objective, going: Ints, tried: Floats, which: Ints) -> tuple[Floats, Floats]:
    return objective(tried, going[which])


def _side_by_side_search(
    objective: Objective, place: Floats, loss: Floats, slope: Floats, way: Floats
) -> tuple[Floats, Floats, Floats]:
    """Halve each client's step until its loss falls enough; a client whose loss never does stays where it is."""
    promise = np.einsum("ij,ij->i", slope, way)
    size = np.ones(len(place))
    moved, lower, bent = place.copy(), loss.copy(), slope.copy()
    trying = np.arange(len(place))
    for _ in range(_SIDE_BY_SIDE_HALVINGS):
        there = place[trying] + size[trying, None] * way[trying]
        with np.errstate(over="ignore", invalid="ignore"):
            value, gradient = objective(there, trying)
        good = value <= loss[trying] + _SIDE_BY_SIDE_ENOUGH * size[trying] * promise[trying]
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


_TEMPERATURES_AT_ONCE: Final = 1 << 15  # logits: what is worked on stays in cache
_TEMPERATURES_ENOUGH: Final = 1e-13
_STEPS: Final = 100


@final
@dataclass(frozen=True, eq=False)
class Slice:
    """A few records, class by class: logits below each record's largest, the label's, and whose they are."""

    below: Floats  # (classes, n)
    own: Floats  # (n,)
    owner: Ints  # (n,)

    def slopes(self, inverse: Floats) -> tuple[Floats, Floats]:
        """Give each record's slope and curvature of the log loss in the inverse temperature of its client."""
        weights = np.exp(self.below * inverse[self.owner])
        mass = weights.sum(axis=0)
        weights *= self.below
        mean = weights.sum(axis=0) / mass
        weights *= self.below
        return mean - self.own, weights.sum(axis=0) / mass - mean**2


def slices(logits: Floats, labels: Ints, owner: Ints) -> Iterator[Slice]:
    """Cut records into slices that fit into cache."""
    step = max(_TEMPERATURES_AT_ONCE // max(logits.shape[1], 1), 16)
    for start in range(0, len(logits), step):
        below = np.ascontiguousarray(logits[start : start + step].T)
        below = below - below.max(axis=0)
        label = labels[start : start + step]
        yield Slice(below, below[label, np.arange(len(label))], owner[start : start + step])


def best_logarithms(parts: list[Slice], start: Floats, ridge: float, low: float, high: float) -> Floats:
    """Find each client's best ln T within [low, high], drawn toward 0 by ridge * (ln T)^2 / 2 on its summed loss.

    Newton's steps, and halvings of the bracket wherever a step leaves it or the slope does not shrink; but a step that
    leaves it at an end where nobody looked yet goes to that end, where many a client's best is.
    """
    clients = len(start)
    lows, highs = np.full(clients, low), np.full(clients, high)
    place, before = np.clip(start, low, high), np.full(clients, np.inf)
    fresh = np.ones((2, clients), dtype=bool)  # nobody looked at the lower, the upper end
    for _ in range(_STEPS):
        slope, curvature = _totals(parts, place, ridge)
        fresh &= place != np.array([[low], [high]])
        lows, highs = np.where(slope < 0, place, lows), np.where(slope < 0, highs, place)
        aim = place - slope / np.where(curvature > 0, curvature, np.inf)
        there = np.abs(aim - place) <= _TEMPERATURES_ENOUGH
        good = (curvature > 0) & (lows <= aim) & (aim <= highs) & (there | (np.abs(slope) <= before / 2))
        moved = np.where(good, aim, (lows + highs) / 2)
        moved = np.where((aim < low) & fresh[0], low, np.where((aim > high) & fresh[1], high, moved))
        done = np.abs(moved - place) <= _TEMPERATURES_ENOUGH
        place, before = moved, np.abs(slope)
        if done.all():
            break
    return place


def _totals(parts: list[Slice], place: Floats, ridge: float) -> tuple[Floats, Floats]:
    """Sum the slopes and curvatures in ln T by client, the pull toward 0 included."""
    inverse = np.exp(-place)
    pull, spread = np.zeros(len(place)), np.zeros(len(place))
    for part in parts:
        slopes, curvatures = part.slopes(inverse)
        pull += np.bincount(part.owner, slopes, len(place))
        spread += np.bincount(part.owner, curvatures, len(place))
    return ridge * place - inverse * pull, ridge + inverse * pull + inverse**2 * spread
