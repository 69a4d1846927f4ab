"""The logistic function, its inverse, and roots by bisection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedcalib.types import Bools, Floats

_FLOOR = 1e-12


def sigmoid(odds: Any) -> Floats:
    """Probabilities of log-odds; tanh does not overflow where an exponential would.

    >>> sigmoid(np.array([-1000.0, 0.0, 1000.0]))
    array([0. , 0.5, 1. ])
    """
    probs: Floats = 0.5 * (1 + np.tanh(odds / 2))
    return probs


def log_odds(probs: Any, floor: float = _FLOOR) -> Floats:
    """Log-odds of probabilities, which are clipped to [floor, 1 - floor]; at 1e-12 they end at 27.6 on either side.

    >>> log_odds([0.0, 0.5, 1.0]).round(1)
    array([-27.6,   0. ,  27.6])
    """
    inside = np.clip(np.asarray(probs, dtype=np.float64), floor, 1 - floor)
    odds: Floats = np.log(inside) - np.log1p(-inside)
    return odds


def bisected(holds: Callable[[float], bool], low: float, high: float, halvings: int) -> tuple[float, float]:
    """The bracket that is left around the point from which on a condition holds, after so many halvings.

    Parameters
    ----------
    holds
        A condition that is false below some point of the bracket and true above it.
    low, high
        The bracket. Neither end is tried: where the condition holds everywhere or nowhere, that end is approached.
    halvings
        How often the bracket is halved.

    Examples
    --------
    >>> low, high = bisected(lambda x: x * x >= 2, 0.0, 2.0, halvings=40)
    >>> round(low, 6), round(high, 6)
    (1.414214, 1.414214)
    """
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return low, high


def bisected_each(holds: Callable[[Floats], Bools], low: Floats, high: Floats, halvings: int) -> tuple[Floats, Floats]:
    """As `bisected`, for many brackets at once."""
    for _ in range(halvings):
        middle = (low + high) / 2
        true = holds(middle)
        low, high = np.where(true, low, middle), np.where(true, middle, high)
    return low, high
