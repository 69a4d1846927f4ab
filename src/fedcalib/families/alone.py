"""The local fit of one client that holds very many records: few passes over all of them, guided by some of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

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
