"""Local fits: Newton's method for one large client, L-BFGS for many small ones at once, and temperatures.

Fits of many clients are batched: one pass over all records serves a step of every client. A client that holds very many
records is fitted on its own by few passes, whose Hessian comes from a sample of its records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final, final

import numpy as np

from fedcalib.types import Floats, Ints

Loss = Callable[[Floats, Floats, Ints], tuple[float, Floats]]  # parameters, logits, labels: loss and gradient
SmoothFunction = Callable[[Floats], tuple[float, Floats]]  # parameters: value and gradient
Hessian = Callable[[Floats, Floats, Ints], Floats]  # of the same
# parameters per record (n, size), logits and labels: losses (n,) and gradients (n, size)
RecordLosses = Callable[[Floats, Floats, Ints], tuple[Floats, Floats]]
# parameters (k, size) of these clients (k,): losses (k,) and gradients (k, size)
Objective = Callable[[Floats, Ints], tuple[Floats, Floats]]

MIN_RECORDS_FOR_NEWTON: Final = 1 << 13  # of a client that is fitted on its own
MAX_PARAMETERS_FOR_NEWTON: Final = 512  # more, and the Hessian is too large
_CACHED_LOGITS: Final = 1 << 15  # logits that are worked on at a time
_CONVERGENCE_TOLERANCE: Final = 2e-9  # relative gain of a step
_FLAT_GRADIENT: Final = 1e-5
_MAX_HALVINGS: Final = 30
_ARMIJO_FRACTION: Final = 1e-4  # of the decrease that the gradient promises
_MEMORY: Final = 10  # earlier steps in an L-BFGS update
_TEMPERATURE_TOLERANCE: Final = 1e-13  # of ln T
_MAX_TEMPERATURE_STEPS: Final = 100


def fit_by_newton(
    loss: Loss, hessian: Hessian, parameters: Floats, data: tuple[Floats, Ints], *, ridge: float, steps: int
) -> Floats:
    """Fit one client's logits and labels by Newton steps, with the gradient of all records and the Hessian of some.

    The Hessian of a sample is near that of all records, so the error shrinks manyfold per step, and a step takes one
    pass. A ridge penalty draws the fit toward where it starts.
    """
    logits, labels = data
    sample = np.arange(0, len(labels), max(len(labels) // MIN_RECORDS_FOR_NEWTON, 1))

    def objective(at: Floats) -> tuple[float, Floats]:
        offset = at - parameters
        value, gradient = _sum_loss(loss, at, logits, labels)
        return value + ridge / 2 * float(offset @ offset), gradient + ridge * offset

    place = parameters.copy()
    value, gradient = objective(place)
    for _ in range(steps):
        h = hessian(place, logits[sample], labels[sample]) * (len(labels) / len(sample))
        direction = -np.linalg.solve(h + (ridge + 1e-9 * np.trace(h) / len(h)) * np.eye(len(h)), gradient)
        lower, place, gradient = _line_search(objective, place, value, gradient, direction)
        gain, value = value - lower, lower
        if gain <= _CONVERGENCE_TOLERANCE * max(abs(value), 1.0):
            break
    return place


def _line_search(
    objective: SmoothFunction, place: Floats, value: float, gradient: Floats, direction: Floats
) -> tuple[float, Floats, Floats]:
    """Halve a step until the loss falls enough; where it never does, stay."""
    promise, size = float(gradient @ direction), 1.0
    for _ in range(_MAX_HALVINGS):
        tried: Floats = place + size * direction
        lower, new_gradient = objective(tried)
        if lower <= value + _ARMIJO_FRACTION * size * promise:
            return lower, tried, new_gradient
        size /= 2
    return value, place, gradient


def _sum_loss(loss: Loss, at: Floats, logits: Floats, labels: Ints) -> tuple[float, Floats]:
    """Loss and gradient summed over records, a slice at a time."""
    total, gradient = 0.0, np.zeros(len(at))
    for start in range(0, len(labels), step := max(_CACHED_LOGITS // logits.shape[1], 16)):
        value, part = loss(at, logits[start : start + step], labels[start : start + step])
        total += value
        gradient += part
    return total, gradient


def fit_batched(
    losses: RecordLosses, parameters: Floats, data: tuple[Floats, Ints, Ints], *, ridge: float, steps: int
) -> Floats:
    """Fit every client's own records from common parameters, shape (clients, size), with a ridge toward the start.

    The data are logits, labels and the offsets at which each client's records begin, the end included.
    """
    logits, labels, offsets = data
    sizes = np.diff(offsets)
    fitted = np.tile(parameters, (len(sizes), 1))
    nonempty = np.flatnonzero(sizes)

    def objective(tried: Floats, which: Ints) -> tuple[Floats, Floats]:
        counts = sizes[nonempty[which]]
        starts = np.cumsum(counts) - counts
        rows = np.arange(counts.sum()) + np.repeat(offsets[nonempty[which]] - starts, counts)
        value, gradient = losses(np.repeat(tried, counts, axis=0), logits[rows], labels[rows])
        offset = tried - parameters
        penalised = np.add.reduceat(value, starts) + ridge / 2 * np.einsum("ij,ij->i", offset, offset)
        return penalised, np.add.reduceat(gradient, starts, axis=0) + ridge * offset

    if nonempty.size:
        fitted[nonempty] = minimise_batched(objective, fitted[nonempty], steps)
    return fitted


def minimise_batched(objective: Objective, start: Floats, steps: int) -> Floats:
    """Minimise one function per client by L-BFGS, shape (clients, size)."""
    place = start.copy()
    active = np.arange(len(place))
    loss, gradient = objective(place, active)
    history = _History()
    for _ in range(steps):
        direction = history.direction(gradient)
        of_active = partial(_restricted, objective, active)
        moved, lower, new_gradient = _batched_line_search(of_active, place[active], loss, gradient, direction)
        history.add(moved - place[active], new_gradient - gradient)
        tolerance = _CONVERGENCE_TOLERANCE * np.maximum(np.maximum(np.abs(loss), np.abs(lower)), 1.0)
        place[active] = moved
        left = ~((loss - lower <= tolerance) | (np.abs(new_gradient).max(axis=1, initial=0.0) <= _FLAT_GRADIENT))
        if not left.any():
            break
        active, loss, gradient = active[left], lower[left], new_gradient[left]
        history.keep(left)
    return place


def _restricted(objective: Objective, active: Ints, tried: Floats, which: Ints) -> tuple[Floats, Floats]:
    return objective(tried, active[which])


def _batched_line_search(
    objective: Objective, place: Floats, loss: Floats, gradient: Floats, direction: Floats
) -> tuple[Floats, Floats, Floats]:
    """Halve each client's step until its loss falls enough; a client whose loss never does stays where it is."""
    promise = np.einsum("ij,ij->i", gradient, direction)
    size = np.ones(len(place))
    moved, lower, new_gradient = place.copy(), loss.copy(), gradient.copy()
    trying = np.arange(len(place))
    for _ in range(_MAX_HALVINGS):
        tried = place[trying] + size[trying, None] * direction[trying]
        with np.errstate(over="ignore", invalid="ignore"):
            value, tried_gradient = objective(tried, trying)
        good = value <= loss[trying] + _ARMIJO_FRACTION * size[trying] * promise[trying]
        accepted = trying[good]
        moved[accepted], lower[accepted], new_gradient[accepted] = tried[good], value[good], tried_gradient[good]
        trying = trying[~good]
        if not trying.size:
            break
        size[trying] /= 2
    return moved, lower, new_gradient


@final
@dataclass(eq=False)
class _History:
    """The last steps of every client and how its gradient changed along them."""

    steps: list[Floats] = field(default_factory=list)
    changes: list[Floats] = field(default_factory=list)

    def add(self, step: Floats, change: Floats) -> None:
        self.steps, self.changes = [*self.steps, step][-_MEMORY:], [*self.changes, change][-_MEMORY:]

    def keep(self, left: Floats) -> None:
        self.steps, self.changes = [part[left] for part in self.steps], [part[left] for part in self.changes]

    def direction(self, gradient: Floats) -> Floats:
        """L-BFGS directions (two-loop recursion); steepest descent at first and where they would not descend."""
        if not self.steps:
            first: Floats = -gradient / np.maximum(np.linalg.norm(gradient, axis=1, keepdims=True), 1.0)
            return first
        direction, coefficients = -gradient, []
        inner = [np.einsum("ij,ij->i", step, change) for step, change in zip(self.steps, self.changes, strict=True)]
        inverses = [np.where(value > 1e-12, 1 / np.maximum(value, 1e-12), 0.0) for value in inner]
        pairs = list(zip(self.steps, self.changes, inverses, strict=True))
        for step, change, inverse in reversed(pairs):
            coefficient = inverse * np.einsum("ij,ij->i", step, direction)
            direction = direction - coefficient[:, None] * change
            coefficients.append(coefficient)
        squares = np.einsum("ij,ij->i", self.changes[-1], self.changes[-1])
        direction = direction * np.where(inverses[-1] > 0, inner[-1] / np.maximum(squares, 1e-300), 1.0)[:, None]
        for (step, change, inverse), coefficient in zip(pairs, reversed(coefficients), strict=True):
            direction = direction + (coefficient - inverse * np.einsum("ij,ij->i", change, direction))[:, None] * step
        downhill = np.einsum("ij,ij->i", direction, gradient) < 0
        return np.where(downhill[:, None], direction, -gradient)


@final
@dataclass(frozen=True, eq=False)
class Slice:
    """Some records, class by class: logits minus each record's largest, the label's, and the owners."""

    below: Floats  # (classes, n)
    own: Floats  # (n,)
    owner: Ints  # (n,)

    def derivatives(self, inverse: Floats) -> tuple[Floats, Floats]:
        """First two derivatives of each record's log loss in the inverse temperature of its client."""
        weights = np.exp(self.below * inverse[self.owner])
        mass = weights.sum(axis=0)
        weights *= self.below
        mean = weights.sum(axis=0) / mass
        weights *= self.below
        return mean - self.own, weights.sum(axis=0) / mass - mean**2


def slices(logits: Floats, labels: Ints, owner: Ints) -> Iterator[Slice]:
    """Slices of records that fit into cache."""
    step = max(_CACHED_LOGITS // max(logits.shape[1], 1), 16)
    for start in range(0, len(logits), step):
        below = np.ascontiguousarray(logits[start : start + step].T)
        below = below - below.max(axis=0)
        label = labels[start : start + step]
        yield Slice(below, below[label, np.arange(len(label))], owner[start : start + step])


def best_log_temperatures(parts: list[Slice], start: Floats, ridge: float, low: float, high: float) -> Floats:
    """Each client's best ln T within [low, high], with a penalty of ridge * (ln T - start)^2 / 2 on its summed loss.

    Newton steps, and bisection wherever a step leaves the bracket or the gradient does not shrink; but a step that
    leaves it at an end that was not evaluated yet goes to that end, where many clients have their best.
    """
    clients = len(start)
    lows, highs = np.full(clients, low), np.full(clients, high)
    place, before = np.clip(start, low, high), np.full(clients, np.inf)
    unvisited = np.ones((2, clients), dtype=bool)  # the lower and the upper end
    for _ in range(_MAX_TEMPERATURE_STEPS):
        gradient, curvature = _temperature_derivatives(parts, place, start, ridge)
        unvisited &= place != np.array([[low], [high]])
        lows, highs = np.where(gradient < 0, place, lows), np.where(gradient < 0, highs, place)
        aim = place - gradient / np.where(curvature > 0, curvature, np.inf)
        arrived = np.abs(aim - place) <= _TEMPERATURE_TOLERANCE
        good = (curvature > 0) & (lows <= aim) & (aim <= highs) & (arrived | (np.abs(gradient) <= before / 2))
        moved = np.where(good, aim, (lows + highs) / 2)
        moved = np.where((aim < low) & unvisited[0], low, np.where((aim > high) & unvisited[1], high, moved))
        done = np.abs(moved - place) <= _TEMPERATURE_TOLERANCE
        place, before = moved, np.abs(gradient)
        if done.all():
            break
    return place


def _temperature_derivatives(parts: list[Slice], place: Floats, start: Floats, ridge: float) -> tuple[Floats, Floats]:
    """First two derivatives in ln T per client, the penalty included."""
    inverse = np.exp(-place)
    first, second = np.zeros(len(place)), np.zeros(len(place))
    for part in parts:
        gradients, curvatures = part.derivatives(inverse)
        first += np.bincount(part.owner, gradients, len(place))
        second += np.bincount(part.owner, curvatures, len(place))
    return ridge * (place - start) - inverse * first, ridge + inverse * first + inverse**2 * second
