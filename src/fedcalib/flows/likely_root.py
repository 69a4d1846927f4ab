"""Where a noisy, rising curve crosses zero, given where such curves usually do."""

from __future__ import annotations

from math import log, sqrt
from typing import Final

import numpy as np
from numpy.polynomial import Polynomial

from fedcalib.types import Floats

USUAL: Final = log(1.5)  # logarithm of the temperature that over-confident networks need, with a generous
SPREAD: Final = 0.5  # standard deviation: public knowledge, and no more than a nudge unless noise is large
_SURPRISE: Final = 5.0  # standard deviations of what is left over: a bend has to show before it is believed
_FINE: Final = np.linspace(-1, 1, 801)
_NOTHING: Final = 1e-12  # far below a step of any grid
_STEPS: Final = 5  # of the fine grid; an answer surer than that is better found by solving


def crossing(grid: Floats, slopes: Floats, noise: float, fallback: float) -> float:
    """Find where a rising, noisy curve crosses zero; stay within the grid.

    A cubic averages the noise best but bends too little for a wide grid. So the degree grows from three until what is
    left over is no more than the noise explains: without noise the curve goes through every point. With noise the
    answer is the mean of the crossing's posterior, which a single outlying root of the fitted curve cannot carry away.
    """
    largest = float(np.abs(slopes).max(initial=0.0))
    if largest < _NOTHING:
        return fallback
    centre, half = (grid[0] + grid[-1]) / 2, (grid[-1] - grid[0]) / 2
    places, scaled, level = (grid - centre) / half, slopes / largest, noise / largest**2
    curve = fitted(places, scaled, level)
    likely = likely_root(places, curve, level, usual(centre, half)) if noise > 0 else None
    return float(centre + half * (_rising_root(curve) if likely is None else likely))


def stands_out(grid: Floats, slopes: Floats, noise: float, doubt: float) -> bool:
    """Say whether a cubic through the slopes is further from zero at T = 1 than noise would explain."""
    centre, half = (grid[0] + grid[-1]) / 2, (grid[-1] - grid[0]) / 2
    powers = np.vander(np.append((grid - centre) / half, -centre / half), 4)
    weights = powers[-1] @ np.linalg.pinv(powers[:-1])
    return abs(float(weights @ slopes)) >= doubt * sqrt(noise) * float(np.linalg.norm(weights))


def fitted(places: Floats, values: Floats, level: float) -> Polynomial:
    """Fit a polynomial on [-1, 1], of the least degree from three on whose rest the noise variance explains."""
    curve = Polynomial([0.0])
    for degree in range(3, len(places)):
        curve = Polynomial.fit(places, values, degree, domain=[-1, 1])
        spare = len(places) - degree - 1
        if np.square(curve(places) - values).sum() <= level * (spare + _SURPRISE * sqrt(2 * spare)):
            break
    return curve


def likely_root(places: Floats, curve: Polynomial, level: float, prior: Floats) -> float | None:
    """Give the mean of the crossing's posterior in [-1, 1], or None where it is too sharp to need one.

    The fitted values are Gaussian, so the density of an upward crossing at r is that of the value zero there, times
    the expected rise; `prior` is the logarithm of what was known before, on the fine grid.
    """
    degree = curve.degree()
    inverse = np.linalg.inv((powers := np.vander(places, degree + 1, increasing=True)).T @ powers)
    here = np.vander(_FINE, degree + 1, increasing=True)
    rise = np.zeros_like(here)
    rise[:, 1:] = here[:, :-1] * np.arange(1, degree + 1)
    spread, cross, bend = (
        np.einsum("ij,jk,ik->i", a, inverse, b) for a, b in ((here, here), (rise, here), (rise, rise))
    )
    weight = np.asarray(curve.coef, dtype=np.float64)
    value, slope = here @ weight, rise @ weight
    given = slope - cross / spread * value  # the slope, were the curve zero here
    doubt = np.maximum(bend - cross**2 / spread, 0.0) * level
    density = -0.5 * value**2 / (spread * level) - 0.5 * np.log(spread) + prior
    density += 0.5 * np.log(np.maximum(given, 0.0) ** 2 + doubt + 1e-300) + np.log(_upward(given, doubt))
    weights = np.exp(density - density.max())
    weights /= weights.sum()
    mean = float(weights @ _FINE)
    sharp = sqrt(float(weights @ (_FINE - mean) ** 2)) < _STEPS * (_FINE[1] - _FINE[0])
    return None if sharp else mean


def usual(centre: float, half: float) -> Floats:
    """Give the logarithm of the prior on the fine grid of logarithms of inverse temperatures."""
    logarithms = -(centre + half * _FINE)
    density: Floats = -0.5 * ((logarithms - USUAL) / SPREAD) ** 2
    return density


def _upward(slope: Floats, variance: Floats) -> Floats:
    """Say how probable it is that the curve rises; never quite zero."""
    rises: Floats = 0.5 * (1 + np.tanh(0.8 * slope / np.sqrt(variance + 1e-300))) + 1e-12
    return rises


def _rising_root(curve: Polynomial) -> float:
    """Find a root in [-1, 1] where the curve rises, the one nearest to the middle; without one, the better end."""
    fine = np.linspace(-1, 1, 4001)
    values = curve(fine)
    if values.min() >= 0 or values.max() <= 0:
        return -1.0 if values.min() >= 0 else 1.0
    rising = np.flatnonzero((values[:-1] < 0) & (values[1:] >= 0))
    if not rising.size:
        return float(fine[np.abs(values).argmin()])
    at = rising[np.abs(fine[rising]).argmin()]
    share = values[at] / (values[at] - values[at + 1])
    return float(fine[at] + share * (fine[at + 1] - fine[at]))
