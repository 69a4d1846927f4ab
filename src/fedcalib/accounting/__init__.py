"""Privacy accounting: from events to epsilon, and from a budget to noise.

Events are added in the strongest notion of privacy that they share and converted to epsilon once, at the end: twelve
Gaussian releases that have epsilon 1 together would seem to have 3 if each were converted alone.

The module also holds the guarantees of particular noise distributions, where those take more than a line: sums of
Polya shares of which some are missing, and sums of discrete Gaussian shares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from math import exp, expm1, inf, isfinite, log, log1p, pi, sqrt
from typing import Final

import numpy as np

from fedcalib.accounting.events import Composed, Concentrated, Event, Parallel, Pure, Repeated, SampledGaussian, require
from fedcalib.errors import InputError
from fedcalib.numeric import bisected
from fedcalib.types import Ints

_QUADRATURE_STEP: Final = 0.125  # of the trapezoidal rule; its error falls like e^(-pi^2/step)
_MAX_TERMS: Final = 1 << 20  # of a sum over shares that are added one by one
_MAX_FACTOR: Final = 2.0**120  # of noise; a budget that it does not meet is met by none
_QUADRATURE_LIMIT: Final = 40.0  # where e^-limit is below the last bit of a float


def discrete_laplace_variance(scale: float) -> float:
    """The variance of integers k with probability proportional to e^(-|k|/scale)."""
    return 2 * exp(-1 / scale) / expm1(-1 / scale) ** 2


def polya_epsilon(survivors: float, a: float, sensitivity: int = 1, cells: int = 1) -> float:
    """Epsilon of shares of discrete Laplace noise P(k) ~ e^(-a|k|) of which a fraction arrives.

    `survivors` is the fraction that arrives, or more than 1. A unit moves the total by `sensitivity` grid steps in L1,
    spread over at most `cells` cells. From 1 up, a * sensitivity holds: the rest is more noise. Below 1 the log-density
    is convex on each side of 0, so a step away from 0 has the largest ratio, and an even spread is the worst case.
    """
    require(survivors > 0, "a fraction of survivors above 0", survivors)
    require(0 < a < inf, "a finite decay above 0", a)
    require(sensitivity >= 1, "a sensitivity of at least one grid step", sensitivity)
    require(cells >= 1, "at least one cell", cells)
    if survivors >= 1:
        return a * sensitivity
    each, more = divmod(sensitivity, cells)
    return more * _peak_ratio(survivors, a, each + 1) + (cells - more) * _peak_ratio(survivors, a, each)


def _peak_ratio(b: float, a: float, distance: int) -> float:
    """ln P(0)/P(distance) of the sum of a fraction b of the shares: P(d) ~ e^(-ad) I(d), I as below."""
    return a * distance + _log_integral(b, a, 0) - _log_integral(b, a, distance)


@lru_cache(maxsize=4096)
def _log_integral(b: float, a: float, d: int) -> float:
    """The logarithm of the integral of t^(b+d-1) (1-t)^(-b) (1 - e^(-2a) t)^(-b) from 0 to 1, for b below 1.

    In the logit of t the integrand is smooth and falls exponentially on both sides, so that the trapezoidal rule is
    exact to the last bits, and beyond its limits the sum goes on as a geometric series.
    """
    step = _QUADRATURE_STEP
    logit = np.arange(-_QUADRATURE_LIMIT, 2 * _QUADRATURE_LIMIT + log(d + 1) - log(-expm1(-2 * a)), step)
    up, down = -np.logaddexp(0, -logit), -np.logaddexp(0, logit)  # ln t, ln(1 - t)
    values = (b + d) * up + (1 - b) * down - b * np.logaddexp(down, up + log(-expm1(-2 * a)))
    left, right = values[0] - _log_expm1((b + d) * step), values[-1] - _log_expm1((1 - b) * step)
    return float(np.logaddexp.reduce([*values, left, right]))


def _log_expm1(x: float) -> float:
    """ln(e^x - 1); 1/(e^x - 1) is the sum of e^-x, e^-2x and so on."""
    return x + log(-expm1(-x))


def distributed_gaussian_rho(l1: float, l2: float, sigma_share: float, shares: int, dimension: int) -> float:
    """The rho of zero-concentrated differential privacy of a sum of discrete Gaussian shares.

    All in grid steps. A sum of discrete Gaussians is not a discrete Gaussian; tau bounds the difference (Kairouz, Liu
    and Steinke 2021, for shares of at least half a step). Two of their bounds are linear in the order; the third is
    linear with a constant, and orders are at least 1, so that its constant can be added to its slope. More shares than
    these only add noise.
    """
    require(l1 >= 0 and l2 >= 0, "sensitivities of at least 0", (l1, l2))
    require(0.5 <= sigma_share < inf, "a finite share width of at least half a grid step", sigma_share)
    require(shares >= 1 and dimension >= 1, "at least one share and one cell", (shares, dimension))
    total = sigma_share * sqrt(shares)
    first, second, tau = l1 / total, l2 / total, _correction(sigma_share, shares)
    return min(
        second**2 / 2 + tau * dimension,
        (second**2 + 2 * first * tau + tau**2 * dimension) / 2,
        (second + sqrt(dimension) * tau) ** 2 / 2,
    )


def _correction(sigma: float, shares: int) -> float:
    """Add the terms up; past the first thousands, count each like the largest of the rest."""
    first = min(shares, _MAX_TERMS)
    k = np.arange(1, first + 1)
    terms = np.exp(-2 * (pi * sigma) ** 2 * k / (k + 1))
    return float(10 * (terms[: first - 1].sum() + (shares - first) * terms[-1]))


def distributed_gaussian_sigma(rho: float, l1: float, l2: float, shares: int, dimension: int) -> float:
    """The smallest sigma of a share, from half a grid step up, whose sum has at most this rho."""
    require(0 < rho < inf, "a finite rho above 0", rho)
    return least_noise(lambda sigma: distributed_gaussian_rho(l1, l2, sigma, shares, dimension), rho, floor=0.5)


def analytic_gaussian_multiplier(epsilon: float, delta: float, steps: int = 1) -> float:
    """The smallest continuous Gaussian noise multiplier for `steps` releases without sampling, for comparison.

    It is exact for real numbers (Balle and Wang 2018) and not proven for integers, so no release is sized by it.
    """
    require(0 < epsilon < inf, "a finite epsilon above 0", epsilon)
    require(0 < delta < 1, "a delta above 0 and below 1", delta)
    require(steps >= 1, "at least one step", steps)
    return least_noise(lambda multiplier: _gaussian_delta(epsilon, 1 / multiplier), delta) * sqrt(steps)


def _gaussian_delta(epsilon: float, mu: float) -> float:
    """The exact delta of Gaussian noise with multiplier 1/mu."""
    from scipy.special import log_ndtr

    return float(exp(log_ndtr(mu / 2 - epsilon / mu)) - exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu)))


def least_noise(cost: Callable[[float], float], budget: float, start: float = 1.0, floor: float = 0.0) -> float:
    """The smallest noise, from `floor` up, whose decreasing `cost` is within a budget; rounded to the side within."""
    high = max(start, floor)
    while cost(high) > budget:
        high *= 2
        if high > _MAX_FACTOR:
            raise InputError(
                f"Expected a budget that some noise can meet, found {budget:g}. Raise epsilon or delta, or let every "
                "client take part: for sampled clients the accounting has no epsilon below about ln(1/delta)/2000."
            )
    low = max(high / 2, floor)
    while low > floor and cost(low) <= budget:
        low, high = max(low / 2, floor), low
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if cost(middle) <= budget else (middle, high)
    return high


ORDERS: Final[Ints] = np.unique(np.append(np.arange(2, 64), np.rint(64 * 2 ** (np.arange(41) / 8)))).astype(np.int64)


def epsilon(events: Iterable[Event], delta: float) -> float:
    """The epsilon of events together, at a given delta.

    The epsilons of pure events add up, whatever delta is. Together with other events, the smaller of two bounds is
    taken: the pure epsilons plus the converted epsilon of the rest, or everything converted together.

    Examples
    --------
    >>> from fedcalib import accounting
    >>> accounting.epsilon([accounting.Pure(0.1)] * 10, delta=0)
    1.0
    >>> round(accounting.epsilon([accounting.Concentrated(0.01)] * 12, delta=1e-6), 2)
    2.37
    """
    require(0 <= delta < 1, "a delta from 0 to below 1", delta)
    parts = tuple(Composed(tuple(events)).parts())
    pure = Composed(tuple(part for part in parts if isfinite(part.pure()))).pure()
    rest = tuple(part for part in parts if not isfinite(part.pure()))
    if not rest:
        return pure
    require(delta > 0, "a delta above 0, since not every release is pure", delta)
    return min(pure + _converted(Composed(rest), delta), _converted(Composed(parts), delta))


@lru_cache(maxsize=256)
def rho_for(epsilon: float, delta: float) -> float:
    """The largest rho whose zero-concentrated differential privacy implies (epsilon, delta)."""
    _check_budget(epsilon, delta)
    return 1 / least_noise(lambda inverse: _epsilon_of_rho(1 / inverse, delta), epsilon, 1 / epsilon)


def multiplier_for(epsilon: float, delta: float, steps: int = 1, rate: float = 1.0) -> float:
    """The smallest noise, in units of a term's L2 bound, that keeps `steps` Gaussian releases within a budget."""
    _check_budget(epsilon, delta)
    require(steps >= 1, "at least one step", steps)
    unsampled = sqrt(steps / (2 * rho_for(epsilon, delta)))
    if rate == 1:
        return unsampled
    return least_noise(lambda z: _converted(Repeated(SampledGaussian(z, rate), steps), delta), epsilon, unsampled)


def group(event: Event, size: int) -> Event:
    """The event as seen by a group of `size` units, such as a patient with several records."""
    require(size >= 1, "a group of at least 1", size)
    return event.grouped(size)


def compose(phases: Mapping[str, Sequence[Event]]) -> Event:
    """The phases of a pipeline, from training to evaluation, as one event: they concern the same units."""
    return Composed(tuple(event for events in phases.values() for event in events))


def _converted(event: Event, delta: float) -> float:
    """Epsilon from the Renyi curve at the best integer order, or from rho at the best real order."""
    curve = zip(ORDERS, event.renyi(ORDERS), strict=True)
    best = min(_epsilon_at(float(order), float(divergence), delta) for order, divergence in curve)
    rho = event.concentrated()
    return min(best, _epsilon_of_rho(rho, delta)) if isfinite(rho) else best


def _epsilon_at(order: float, divergence: float, delta: float) -> float:
    """Epsilon from a Renyi divergence of one order (Canonne, Kamath and Steinke 2020)."""
    return max(divergence + log1p(-1 / order) - (log(delta) + log(order)) / (order - 1), 0.0)


def _epsilon_of_rho(rho: float, delta: float) -> float:
    """Epsilon at the best order, where rho (order - 1)^2 = -ln(delta * order): the left side rises, the right falls."""
    if rho == 0:
        return 0.0
    most = min(sqrt(-log(delta) / rho), 1 / delta)
    _, high = bisected(lambda above: rho * above**2 >= -log(delta) - log1p(above), 0.0, most, 60)
    return _epsilon_at(1 + high, rho * (1 + high), delta)


def _check_budget(epsilon: float, delta: float) -> None:
    require(0 < epsilon < inf, "a finite epsilon above 0", epsilon)
    require(0 < delta < 1, "a delta above 0 and below 1", delta)


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
