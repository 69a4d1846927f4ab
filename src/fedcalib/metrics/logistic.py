"""Logistic regression: log-odds linear in features, fitted to counts in cells or to records, which are cells of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from fedcalib.metrics.inputs import BLOCK
from fedcalib.types import Floats

_STEPS = 100
_SMALL = 1e-10
_JITTER = 1e-12


@final
@dataclass(frozen=True)
class Point:
    """The cost of weights (what they lack of likelihood), its slope (k,) and its curvature (k, k)."""

    weights: Floats
    cost: float
    slope: Floats
    curve: Floats


@final
@dataclass(frozen=True)
class Logistic:
    """What weights are judged by: counts in cells, and a ridge that draws them toward `pull`."""

    features: Floats  # (cells, k)
    positive: Floats  # (cells,)
    held: Floats  # (cells,): positives and negatives
    offset: Floats | float = 0.0  # (cells,): log-odds that are not for the fit to change
    strength: float = 0.0
    pull: Floats | float = 0.0

    def at(self, weights: Floats) -> Point:
        """Judge weights in one pass."""
        k = self.features.shape[1]
        away, cost, slope, curve = weights - self.pull, 0.0, np.zeros(k), np.zeros((k, k))
        offset = np.broadcast_to(self.offset, self.held.shape)
        for start in range(0, len(self.held), BLOCK):
            rows = slice(start, start + BLOCK)
            x, up, held = self.features[rows], self.positive[rows], self.held[rows]
            height = x @ weights + offset[rows]
            decay = np.exp(-np.abs(height))  # at most 1: nothing overflows
            mean = np.where(height >= 0, 1.0, decay) / (1 + decay)
            cost += float(held @ (np.maximum(height, 0) + np.log1p(decay)) - up @ height)
            slope += (held * mean - up) @ x
            curve += (x.T * (held * decay / np.square(1 + decay))) @ x
        return Point(
            weights,
            cost + self.strength / 2 * float(away @ away),
            slope + self.strength * away,
            curve + self.strength * np.eye(k),
        )

    def fit(self, start: Floats) -> Point:
        """Go down by Newton steps, halving any that overshoots; the cost is convex, so its floor is the only one."""
        here, moved = self.at(start), np.inf
        for _ in range(_STEPS):
            if moved <= _SMALL:
                break
            here, moved = self._descend(here)
        return here

    def _descend(self, here: Point) -> tuple[Point, float]:
        step = np.linalg.solve(here.curve + _JITTER * np.eye(len(here.weights)), here.slope)
        share = 1.0
        while share > _SMALL:
            there = self.at(here.weights - share * step)
            if there.cost <= here.cost:
                return there, share * float(np.abs(step).max())
            share /= 2
        return here, 0.0


def fit_counts(features: Any, positive: Any, negative: Any, ridge: float = 1e-9, start: Any = None) -> Floats:
    """Fit log-odds that are linear in features, (cells, k), to counts of positives and negatives in each cell.

    `ridge` pulls the weights toward `start` (zero unless given), which keeps the fit finite where the classes do not
    overlap.
    """
    x = np.asarray(features, dtype=np.float64)
    up = np.maximum(np.asarray(positive, dtype=np.float64), 0.0)
    held = up + np.maximum(np.asarray(negative, dtype=np.float64), 0.0)
    pull = np.zeros(x.shape[1]) if start is None else np.asarray(start, dtype=np.float64)
    return Logistic(x, up, held, strength=ridge * max(float(held.sum()), 1.0), pull=pull).fit(pull).weights
