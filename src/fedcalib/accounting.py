"""From events to epsilon, and from a budget to noise.

Events are added in the strongest currency that they share and turned into epsilon once, at the end: twelve Gaussian
releases that together cost 1 would seem to cost 3 if each were turned into epsilon alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf, isfinite, log, log1p, sqrt
from typing import Final

import numpy as np

from fedcalib.events import (
    Composed,
    Concentrated,
    Event,
    Parallel,
    Pure,
    Repeated,
    SampledGaussian,
    require,
)
from fedcalib.noise_laws import (
    analytic_gaussian_multiplier,
    distributed_gaussian_rho,
    distributed_gaussian_sigma,
    least_noise,
    polya_epsilon,
)
from fedcalib.types import Ints

__all__ = [
    "ORDERS",
    "Composed",
    "Concentrated",
    "Event",
    "Parallel",
    "Pure",
    "Repeated",
    "SampledGaussian",
    "analytic_gaussian_multiplier",
    "compose",
    "distributed_gaussian_rho",
    "distributed_gaussian_sigma",
    "epsilon",
    "group",
    "multiplier_for",
    "polya_epsilon",
    "rho_for",
]

ORDERS: Final[Ints] = np.unique(np.append(np.arange(2, 64), np.rint(64 * 2 ** (np.arange(41) / 8)))).astype(np.int64)


def epsilon(events: Iterable[Event], delta: float) -> float:
    """Say what events cost together, at a given delta.

    Pure events alone add up, whatever delta is. Among others they are taken at the better of two prices: added to the
    converted epsilon of the rest, or converted with the rest.
    """
    require(0 <= delta < 1, "a delta from 0 to below 1", delta)
    parts = tuple(Composed(tuple(events)).parts())
    pure = Composed(tuple(part for part in parts if isfinite(part.pure()))).pure()
    rest = tuple(part for part in parts if not isfinite(part.pure()))
    if not rest:
        return pure
    require(delta > 0, "a delta above 0, since not every release is pure", delta)
    return min(pure + _converted(Composed(rest), delta), _converted(Composed(parts), delta))


def rho_for(epsilon: float, delta: float) -> float:
    """Find the largest rho whose zero-concentrated privacy is worth (epsilon, delta)."""
    _check_budget(epsilon, delta)
    return 1 / least_noise(lambda inverse: _epsilon_of_rho(1 / inverse, delta), epsilon, 1 / epsilon)


def multiplier_for(epsilon: float, delta: float, steps: int = 1, rate: float = 1.0) -> float:
    """Find the least noise, in units of a term's L2 bound, that keeps so many Gaussian releases within a budget."""
    _check_budget(epsilon, delta)
    require(steps >= 1, "at least one step", steps)
    everybody = sqrt(steps / (2 * rho_for(epsilon, delta)))
    if rate == 1:
        return everybody
    return least_noise(lambda z: _converted(Repeated(SampledGaussian(z, rate), steps), delta), epsilon, everybody)


def group(event: Event, size: int) -> Event:
    """Say what an event costs a group, such as a patient with several records."""
    require(size >= 1, "a group of at least 1", size)
    return event.grouped(size)


def compose(phases: Mapping[str, Sequence[Event]]) -> Event:
    """Put the phases of a pipeline, from training to evaluation, into one event: their units are the same."""
    return Composed(tuple(event for events in phases.values() for event in events))


def _converted(event: Event, delta: float) -> float:
    """Turn a cost into epsilon: the curve at the best integer order, or rho at the best real one."""
    curve = zip(ORDERS, event.renyi(ORDERS), strict=True)
    best = min(_epsilon_at(float(order), float(cost), delta) for order, cost in curve)
    rho = event.concentrated()
    return min(best, _epsilon_of_rho(rho, delta)) if isfinite(rho) else best


def _epsilon_at(order: float, cost: float, delta: float) -> float:
    """Turn a Renyi divergence of one order into epsilon (Canonne, Kamath and Steinke 2020)."""
    return max(cost + log1p(-1 / order) - (log(delta) + log(order)) / (order - 1), 0.0)


def _epsilon_of_rho(rho: float, delta: float) -> float:
    """Take the best order. There rho (order - 1)^2 = -ln(delta * order): the left side rises, the right one falls."""
    if rho == 0:
        return 0.0
    low, high = 0.0, min(sqrt(-log(delta) / rho), 1 / delta)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rho * middle**2 < -log(delta) - log1p(middle) else (low, middle)
    return _epsilon_at(1 + high, rho * (1 + high), delta)


def _check_budget(epsilon: float, delta: float) -> None:
    require(0 < epsilon < inf, "a finite epsilon above 0", epsilon)
    require(0 < delta < 1, "a delta above 0 and below 1", delta)
