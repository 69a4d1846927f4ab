"""Where an increasing function crosses zero, from a few exact or noisy values of it.

Four estimators, from the fewest assumptions about the noise to the most:

- `linear_root` and `cubic_roots` interpolate values that are taken as exact.
- `noisy_root` fits a polynomial to values with noise of a known variance, and returns the posterior mean of the root.
- `ClientScoreSums` holds sums of per-client scores between -1 and 1. Such sums rise from one plateau to another; with
  that parametric shape, a few noisy sums determine the root better than a polynomial through them does.

Places are logarithms of inverse temperatures wherever a prior is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import log, log1p, sqrt
from typing import Final, final

import numpy as np
from numpy.polynomial import Polynomial

from fedcalib.estimation.evidence import unmoved_share
from fedcalib.numeric import bisected_each
from fedcalib.types import Bools, Floats

PRIOR_LOG_TEMPERATURE: Final = log(1.5)  # over-confident networks need about this temperature: public knowledge,
PRIOR_DEVIATION: Final = 0.5  # with a standard deviation so large that it matters only where noise is large
_MAX_Z: Final = 1e6
_HALVINGS: Final = 50
_RESIDUAL_Z: Final = 5.0  # a fit is rejected if its residuals exceed the noise by this many standard deviations
_POSTERIOR_GRID: Final = np.linspace(-1, 1, 801)
_MIN_POSTERIOR_STEPS: Final = 5  # grid steps; a posterior narrower than that is better found by solving
_MIN_GRADIENT: Final = 1e-12  # far below a step of any grid


def linear_root(places: Floats, values: Floats, low: float, high: float) -> float:
    """Root of a piecewise linear function in [low, high]; beyond its ends the outer pieces are extended."""
    rising = np.maximum.accumulate(values)
    if rising[0] >= 0:
        piece = 0
    elif rising[-1] < 0:
        piece = len(values) - 2
    else:
        piece = int(np.searchsorted(rising, 0.0)) - 1
    run, rise = places[piece + 1] - places[piece], values[piece + 1] - values[piece]
    if not rise > 0:
        return low if values[piece] + values[piece + 1] > 0 else high
    return float(np.clip(places[piece] - values[piece] * run / rise, low, high))


def cubic_roots(places: Floats, values: Floats) -> Floats:
    """Roots of the monotone cubics through the values of each row, (rows, places); shape (rows,).

    A row that stays below zero has its root at the last place, one that is never below zero at the first. The cubic is
    monotone between two places (Fritsch and Carlson), so that the root lies between those whose signs differ.
    """
    rising = np.maximum.accumulate(values, axis=1)
    piece = np.clip((rising < 0).sum(axis=1) - 1, 0, len(places) - 2)
    runs = np.diff(places)
    rows, run = np.arange(len(values)), runs[piece]
    slopes = _node_slopes(runs, np.diff(rising, axis=1) / runs)
    ends = rising[rows, piece], rising[rows, piece + 1]
    fraction = _hermite_roots(*ends, run * slopes[rows, piece], run * slopes[rows, piece + 1])
    roots: Floats = np.where(rising[:, 0] >= 0, places[0], places[piece] + run * fraction)
    return np.where(rising[:, -1] <= 0, places[-1], roots)


def _node_slopes(runs: Floats, secants: Floats) -> Floats:
    """Slopes of the cubic at each place, (rows, places), from the secants of the pieces, (rows, places - 1)."""
    if len(runs) == 1:
        return np.concatenate([secants, secants], axis=1)
    left, right = 2 * runs[1:] + runs[:-1], runs[1:] + 2 * runs[:-1]
    before, after = secants[:, :-1], secants[:, 1:]
    weight = left * after + right * before
    inner = (left + right) * before / np.where(weight > 0, weight, 1.0) * after
    first = _end_slope(runs[0], runs[1], secants[:, 0], secants[:, 1])
    last = _end_slope(runs[-1], runs[-2], secants[:, -1], secants[:, -2])
    return np.concatenate([first[:, None], inner, last[:, None]], axis=1)


def _end_slope(run: float, next_run: float, secant: Floats, next_secant: Floats) -> Floats:
    parabola = ((2 * run + next_run) * secant - run * next_secant) / (run + next_run)
    return np.clip(parabola, 0.0, 3 * secant)


def _hermite_roots(start: Floats, end: Floats, first: Floats, last: Floats) -> Floats:
    """Root of each Hermite cubic on [0, 1] by bisection, from its two end values and its two end slopes."""

    def reached(t: Floats) -> Bools:
        value = (
            (1 + 2 * t) * (1 - t) ** 2 * start + t * (1 - t) ** 2 * first
            + t**2 * (3 - 2 * t) * end - t**2 * (1 - t) * last
        )  # fmt: skip
        return ~(value < 0)

    low, high = bisected_each(reached, np.zeros(len(start)), np.ones(len(start)), _HALVINGS)
    return (low + high) / 2


def noisy_root(grid: Floats, gradients: Floats, noise: float, fallback: float) -> float:
    """Root, within the grid, of an increasing gradient that is known at the grid with noise of this variance.

    A cubic averages the noise best but is too stiff for a wide grid. So the degree grows from three until the noise
    explains the residuals: without noise the polynomial goes through every point. With noise the answer is the
    posterior mean of the root, which is robust against a single outlying root of the fitted polynomial. Where all
    gradients vanish, the answer is `fallback`.
    """
    largest = float(np.abs(gradients).max(initial=0.0))
    if largest < _MIN_GRADIENT:
        return fallback
    centre, half = (grid[0] + grid[-1]) / 2, (grid[-1] - grid[0]) / 2
    places, scaled, variance = (grid - centre) / half, gradients / largest, noise / largest**2
    polynomial = fitted_polynomial(places, scaled, variance)
    mean = posterior_root(places, polynomial, variance, _log_prior(centre, half)) if noise > 0 else None
    return float(centre + half * (_rising_root(polynomial) if mean is None else mean))


def significant_at_one(grid: Floats, gradients: Floats, noise: float, z_threshold: float) -> bool:
    """Whether a cubic through the gradients differs from zero at T = 1 by `z_threshold` standard errors."""
    value, error = at_one(grid, gradients, noise)
    return abs(value) >= z_threshold * error


def at_one(grid: Floats, gradients: Floats, noise: float) -> tuple[float, float]:
    """The value at T = 1 of a cubic through the gradients, and its standard error."""
    centre, half = (grid[0] + grid[-1]) / 2, (grid[-1] - grid[0]) / 2
    powers = np.vander(np.append((grid - centre) / half, -centre / half), 4)
    weights = powers[-1] @ np.linalg.pinv(powers[:-1])
    return float(weights @ gradients), sqrt(noise) * float(np.linalg.norm(weights))


def moved_share(value: float, error: float, root: float) -> float:
    """How much of a move from T = 1 to a root in ln T the evidence allows, from 0 to 1.

    The value at T = 1 of a curve that crosses zero at the root is known with a standard error. If T = 1 is right, the
    value is noise alone; otherwise it is the root, whose prior standard deviation is `PRIOR_DEVIATION`, times the slope
    that both imply. The rule is that of `unmoved_share`.

    >>> [round(moved_share(value, 1.0, 0.3), 2) for value in (1.0, 3.0, 4.0, 10.0)]
    [0.0, 0.0, 0.73, 1.0]
    """
    if not error > 0 or root == 0:
        return 1.0
    z = min(abs(value) / error, _MAX_Z)
    spread = (PRIOR_DEVIATION * z / root) ** 2  # variance of z under another temperature, less one
    fraction = spread / (1 + spread)
    ratio = (z * z * fraction - log1p(spread)) / 2
    return 1 - unmoved_share(ratio)


def fitted_polynomial(places: Floats, values: Floats, variance: float) -> Polynomial:
    """Polynomial on [-1, 1] of the least degree, from three on, whose residuals the noise variance explains."""
    polynomial = Polynomial([0.0])
    for degree in range(3, len(places)):
        polynomial = Polynomial.fit(places, values, degree, domain=[-1, 1])
        freedom = len(places) - degree - 1
        if np.square(polynomial(places) - values).sum() <= variance * _residual_limit(freedom):
            break
    return polynomial


def _residual_limit(freedom: int) -> float:
    """Upper limit of a chi-square statistic: its mean plus `_RESIDUAL_Z` standard deviations."""
    return freedom + _RESIDUAL_Z * sqrt(2 * freedom)


def posterior_root(places: Floats, polynomial: Polynomial, variance: float, log_prior: Floats) -> float | None:
    """Posterior mean of the root in [-1, 1], or None where the posterior is too narrow for the grid.

    The fitted values are Gaussian, so the density of an upward crossing at r is the density of the value zero there,
    times the expected positive part of the slope; `log_prior` is given on the posterior's grid.
    """
    degree = polynomial.degree()
    inverse = np.linalg.inv((powers := np.vander(places, degree + 1, increasing=True)).T @ powers)
    basis = np.vander(_POSTERIOR_GRID, degree + 1, increasing=True)
    derivative = np.zeros_like(basis)
    derivative[:, 1:] = basis[:, :-1] * np.arange(1, degree + 1)
    pairs = (basis, basis), (derivative, basis), (derivative, derivative)
    value_variance, covariance, slope_variance = (np.einsum("ij,jk,ik->i", a, inverse, b) for a, b in pairs)
    coefficients = np.asarray(polynomial.coef, dtype=np.float64)
    value, slope = basis @ coefficients, derivative @ coefficients
    slope_at_zero = slope - covariance / value_variance * value  # the slope's mean, given that the value is zero
    residual_variance = np.maximum(slope_variance - covariance**2 / value_variance, 0.0) * variance
    density = -0.5 * value**2 / (value_variance * variance) - 0.5 * np.log(value_variance) + log_prior
    log_rise = 0.5 * np.log(np.maximum(slope_at_zero, 0.0) ** 2 + residual_variance + 1e-300)
    density += log_rise + np.log(_probability_of_rising(slope_at_zero, residual_variance))
    weights = np.exp(density - density.max())
    weights /= weights.sum()
    mean = float(weights @ _POSTERIOR_GRID)
    deviation = sqrt(float(weights @ (_POSTERIOR_GRID - mean) ** 2))
    return None if deviation < _MIN_POSTERIOR_STEPS * (_POSTERIOR_GRID[1] - _POSTERIOR_GRID[0]) else mean


def _log_prior(centre: float, half: float) -> Floats:
    """Logarithm of the prior density of the root, up to a constant, on the posterior's grid."""
    log_temperature = -(centre + half * _POSTERIOR_GRID)
    return -0.5 * ((log_temperature - PRIOR_LOG_TEMPERATURE) / PRIOR_DEVIATION) ** 2


def _probability_of_rising(slope: Floats, variance: Floats) -> Floats:
    """Probability that a slope with this mean and variance is positive, by a logistic approximation above zero."""
    rises: Floats = 0.5 * (1 + np.tanh(0.8 * slope / np.sqrt(variance + 1e-300))) + 1e-12
    return rises


def _rising_root(polynomial: Polynomial) -> float:
    """Root in [-1, 1] with a positive slope, the nearest to the middle; without one, the end nearer to a root."""
    grid = np.linspace(-1, 1, 4001)
    values = polynomial(grid)
    if values.min() >= 0 or values.max() <= 0:
        return -1.0 if values.min() >= 0 else 1.0
    rising = np.flatnonzero((values[:-1] < 0) & (values[1:] >= 0))
    if not rising.size:
        return float(grid[np.abs(values).argmin()])
    at = rising[np.abs(grid[rising]).argmin()]
    fraction = values[at] / (values[at] - values[at + 1])
    return float(grid[at] + fraction * (grid[at + 1] - grid[at]))


_ROOT_CANDIDATES: Final = 101  # over the whole range
_WIDTHS: Final = np.geomspace(0.1, 1.0, 10)  # of the transition between the plateaus
_UPPER_PLATEAUS: Final = np.array([0.4, 0.6, 0.8, 1.0])  # per client: some clients have scores near zero everywhere
_LOWER_PLATEAUS: Final = np.array([0.8, 1.0])
_FAINT_PLATEAUS: Final = np.array([0.1, 0.3, 0.8, 1.0])  # the lower ones of clients with few records
_SHAPE_PARAMETERS: Final = 4  # root, width and two plateaus


@final
@dataclass(frozen=True, eq=False)
class ClientScoreSums:
    """Sums over clients of scores between -1 and 1, at increasing places, with noise of one variance.

    The model: the sum is zero at the root and follows a hyperbolic tangent to a plateau on either side. Posteriors
    average over the width and the two plateaus, on a grid.
    """

    places: Floats
    sums: Floats
    noise: float  # variance of each sum
    clients: float
    chance: float = 0.0  # variance that which records there are adds to all sums alike
    beyond: float = 0.0  # how far before the first place a root may lie
    faint: bool = False  # whether lower plateaus may be near zero, as those of clients with few records are

    @property
    def plausible(self) -> bool:
        """Whether noise explains the residuals of the best shape."""
        freedom = max(len(self.places) - _SHAPE_PARAMETERS, 1)
        return self.noise > 0 and -2 * self._best <= _residual_limit(freedom)

    def root_differs_from(self, place: float, z_threshold: float) -> bool:
        """Whether a likelihood-ratio test rejects a root at this place, at `z_threshold` standard deviations."""
        there = self._log_likelihoods(np.array([place])).max()
        return bool(2 * (self._best - there) >= z_threshold**2)

    def posterior_root(self, prior_mean: float, prior_deviation: float) -> float:
        """Posterior mean of the root, under a normal prior."""
        weights = np.exp(self._on_grid - self._best).sum(axis=1) * self._prior(prior_mean, prior_deviation)
        return float(weights @ self._roots / weights.sum())

    def log_ratio(self, place: float, prior_mean: float, prior_deviation: float) -> float:
        """Logarithm of how many times as likely the sums are under some root, with that prior, as under this one."""
        prior = self._prior(prior_mean, prior_deviation)
        there = self._log_likelihoods(np.array([place]))[0]
        best = float(there.max())
        others = np.exp(self._on_grid - self._best).sum(axis=1) @ prior / prior.sum()
        return float(np.log(others + 1e-300) + self._best - np.log(np.exp(there - best).sum()) - best)

    def _prior(self, mean: float, deviation: float) -> Floats:
        prior: Floats = np.exp(-0.5 * ((self._roots - mean) / deviation) ** 2)
        return prior

    @cached_property
    def _roots(self) -> Floats:
        return np.linspace(self.places[0] - self.beyond, self.places[-1], _ROOT_CANDIDATES)

    @cached_property
    def _on_grid(self) -> Floats:
        return self._log_likelihoods(self._roots)

    @property
    def _best(self) -> float:
        return float(self._on_grid.max())

    def _log_likelihoods(self, roots: Floats) -> Floats:
        """Log-likelihoods up to a constant, shape (roots, shapes)."""
        distance = (self.places - roots[:, None])[:, None, :] / _WIDTHS[:, None]  # (roots, widths, places)
        above, below = np.maximum(distance, 0.0), np.minimum(distance, 0.0)
        upper, lower = _UPPER_PLATEAUS, _FAINT_PLATEAUS if self.faint else _LOWER_PLATEAUS
        high = _plateaued(above, upper)  # (roots, widths, plateaus, places)
        low = _plateaued(below, lower)
        expected = self.clients * (high[:, :, :, None] + low[:, :, None, :])
        with np.errstate(over="ignore"):  # sums that overflow fit no shape: their likelihood is zero
            rest, noise = self.sums - expected, max(self.noise, 1e-300)
            mean = rest.mean(axis=-1, keepdims=True)
            # the covariance is noise on the diagonal plus chance everywhere, so the mean varies by more than the rest
            squares = np.square(rest - mean).sum(axis=-1)
            squares += mean[..., 0] ** 2 * (len(self.places) * noise / (noise + len(self.places) * self.chance))
            likelihoods: Floats = -0.5 * squares.reshape(len(roots), -1) / noise
        return likelihoods


def _plateaued(distance: Floats, plateaus: Floats) -> Floats:
    return plateaus[:, None] * np.tanh(distance[:, :, None] / plateaus[:, None])
