"""How values that each class was given on its own are brought to a sum of one.

One class against the rest, over and over, gives values that sum to more or less than one. Dividing by the sum is what
is published; it takes the same share from every class, so one with 0.99 loses far more than was in doubt. Moving all
log-odds by the same step leaves what is nearly certain nearly so, and each class nearer to what was counted for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from fedcalib.artifacts.calibrator import normalised
from fedcalib.types import Floats

INSIDE: Final = 1e-12  # 0 and 1 are read as a hair inside
NEWTON_STEPS: Final = 8  # six bring random and extreme rows within rounding of one


class Normaliser(ABC):
    """Brings rows of values between 0 and 1 to a sum of one; a row without any keeps the base model's."""

    @abstractmethod
    def shared(self, values: Floats, fallback: Floats) -> Floats:
        """Normalise rows, (n, classes)."""


@final
@dataclass(frozen=True)
class ByScale(Normaliser):
    """Divide by the sum."""

    def shared(self, values: Floats, fallback: Floats) -> Floats:
        """Divide."""
        return normalised(values, fallback)


@final
@dataclass(frozen=True)
class ByOdds(Normaliser):
    """Multiply all odds of a row by one factor, which is to move all log-odds by one step.

    The factor makes what the smaller values sum to equal to what the largest leaves. The logarithm of their ratio grows
    between one and two times as fast as the factor's, since no other is larger than the largest; so Newton's steps need
    no bracket.
    """

    def shared(self, values: Floats, fallback: Floats) -> Floats:
        """Find each row's factor, and divide by what rounding leaves of the sum."""
        inside = np.clip(values, INSIDE, 1 - INSIDE)
        odds = inside / (1 - inside)
        moved = _factor(odds) * odds
        empty = ~(values.sum(axis=1, keepdims=True) > 0)
        return normalised(np.where(empty, 0.0, moved / (1 + moved)), fallback)


def _factor(odds: Floats) -> Floats:
    """Find what each row's odds are to be multiplied by, (n, 1)."""
    place = odds.argmax(axis=1)[:, None]
    largest, others = np.take_along_axis(odds, place, axis=1), odds.copy()
    np.put_along_axis(others, place, 0.0, axis=1)
    factor = np.ones_like(largest)
    for _ in range(NEWTON_STEPS):
        top, rest = factor * largest, factor * others
        rest /= 1 + rest
        mass = rest.sum(axis=1, keepdims=True)
        growth = (rest * (1 - rest)).sum(axis=1, keepdims=True) / mass + top / (1 + top)
        factor = factor * np.exp(-np.log(mass * (1 + top)) / growth)
    return factor


SCALED: Final = ByScale()
