"""The best temperature of each of many clients, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from fedcalib.types import Floats, Ints

_AT_ONCE: Final = 1 << 15  # logits: what is worked on stays in cache
_ENOUGH: Final = 1e-13
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
    step = max(_AT_ONCE // max(logits.shape[1], 1), 16)
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
        there = np.abs(aim - place) <= _ENOUGH
        good = (curvature > 0) & (lows <= aim) & (aim <= highs) & (there | (np.abs(slope) <= before / 2))
        moved = np.where(good, aim, (lows + highs) / 2)
        moved = np.where((aim < low) & fresh[0], low, np.where((aim > high) & fresh[1], high, moved))
        done = np.abs(moved - place) <= _ENOUGH
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
