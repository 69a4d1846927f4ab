"""Where a rising function crosses zero, read off a few of its values.

Where a noisy, rising curve crosses zero, given where such curves usually do.

Where a crowd's noisy vote turns from no to yes, by the shape that such votes have.

Voters who each say something between -1 and 1, and change their minds around a place of their own, add up to a curve
that climbs from one plateau to another. Knowing that much, a few noisy sums tell more than a free curve through them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import log, sqrt
from typing import Final, final

import numpy as np
from numpy.polynomial import Polynomial

from fedcalib.types import Floats

_HALVINGS = 50


def crossing_of_line(places: Floats, values: Floats, low: float, high: float) -> float:
    """Cross zero on the piece of a rising polygon that does, or on the outer pieces prolonged; stay in [low, high]."""
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


def crossings_of_curves(places: Floats, values: Floats) -> Floats:
    """Cross zero on the rising cubic through the values of each row, (rows, places); give (rows,).

    A row that stays below zero crosses at the last place, one that never is below zero at the first. The cubic never
    turns back between two places (Fritsch and Carlson), so that the crossing lies between those whose signs differ.
    """
    rising = np.maximum.accumulate(values, axis=1)
    piece = np.clip((rising < 0).sum(axis=1) - 1, 0, len(places) - 2)
    runs = np.diff(places)
    rows, run = np.arange(len(values)), runs[piece]
    slopes = _slopes(runs, np.diff(rising, axis=1) / runs)
    ends = rising[rows, piece], rising[rows, piece + 1]
    share = _shares(*ends, run * slopes[rows, piece], run * slopes[rows, piece + 1])
    found: Floats = np.where(rising[:, 0] >= 0, places[0], places[piece] + run * share)
    return np.where(rising[:, -1] <= 0, places[-1], found)


def _slopes(runs: Floats, steep: Floats) -> Floats:
    """Choose the slope of the cubic at each place, (rows, places), from those of the pieces, (rows, places - 1)."""
    if len(runs) == 1:
        return np.concatenate([steep, steep], axis=1)
    left, right = 2 * runs[1:] + runs[:-1], runs[1:] + 2 * runs[:-1]
    before, after = steep[:, :-1], steep[:, 1:]
    weight = left * after + right * before
    inner = (left + right) * before / np.where(weight > 0, weight, 1.0) * after
    first = _outer(runs[0], runs[1], steep[:, 0], steep[:, 1])
    last = _outer(runs[-1], runs[-2], steep[:, -1], steep[:, -2])
    return np.concatenate([first[:, None], inner, last[:, None]], axis=1)


def _outer(run: float, next_run: float, steep: Floats, next_steep: Floats) -> Floats:
    parabola = ((2 * run + next_run) * steep - run * next_steep) / (run + next_run)
    return np.clip(parabola, 0.0, 3 * steep)


def _shares(start: Floats, end: Floats, first: Floats, last: Floats) -> Floats:
    """Say how far into its piece each cubic crosses zero, by halving; slopes are those over the whole piece."""
    low, high = np.zeros(len(start)), np.ones(len(start))
    for _ in range(_HALVINGS):
        t = (low + high) / 2
        value = (
            (1 + 2 * t) * (1 - t) ** 2 * start + t * (1 - t) ** 2 * first
            + t**2 * (3 - 2 * t) * end - t**2 * (1 - t) * last
        )  # fmt: skip
        below = value < 0
        low, high = np.where(below, t, low), np.where(below, high, t)
    return (low + high) / 2


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


_TURNS: Final = 101  # places at which the vote may turn, over the whole range
_WIDTHS: Final = np.geomspace(0.1, 1.0, 10)  # in which it does
_ABOVE: Final = np.array([0.4, 0.6, 0.8, 1.0])  # plateaus, as shares of the voters: some have nothing to say
_BELOW: Final = np.array([0.8, 1.0])
_SPARE: Final = 4  # numbers that describe a shape
_VOTE_SURPRISE: Final = (
    5.0  # standard deviations of what is left over: a shape that noise does not excuse is not believed
)


@final
@dataclass(frozen=True, eq=False)
class Vote:
    """Sums of so many voters' verdicts at a few rising places, with noise of one variance."""

    places: Floats
    sums: Floats
    noise: float
    voters: int

    @property
    def fits(self) -> bool:
        """Say whether noise explains what the best shape leaves over."""
        spare = max(len(self.places) - _SPARE, 1)
        return self.noise > 0 and -2 * self._best <= spare + _VOTE_SURPRISE * sqrt(2 * spare)

    def stands_out(self, place: float, doubt: float) -> bool:
        """Say whether the vote turns elsewhere, beyond so many standard deviations."""
        there = self._likelihoods(np.array([place])).max()
        return bool(2 * (self._best - there) >= doubt**2)

    def turn(self, usual: float, spread: float) -> float:
        """Give the mean of where the vote turns, given where votes usually do."""
        weights = np.exp(self._everywhere - self._best).sum(axis=1)
        weights *= np.exp(-0.5 * ((self._turns - usual) / spread) ** 2)
        return float(weights @ self._turns / weights.sum())

    @cached_property
    def _turns(self) -> Floats:
        return np.linspace(self.places[0], self.places[-1], _TURNS)

    @cached_property
    def _everywhere(self) -> Floats:
        return self._likelihoods(self._turns)

    @property
    def _best(self) -> float:
        return float(self._everywhere.max())

    def _likelihoods(self, turns: Floats) -> Floats:
        """Give log-likelihoods, (turns, shapes), up to a constant."""
        far = (self.places - turns[:, None])[:, None, :] / _WIDTHS[:, None]  # (turns, widths, places)
        above, below = np.maximum(far, 0.0), np.minimum(far, 0.0)
        high = _ABOVE[:, None] * np.tanh(above[:, :, None] / _ABOVE[:, None])  # (turns, widths, plateaus, places)
        low = _BELOW[:, None] * np.tanh(below[:, :, None] / _BELOW[:, None])
        expected = self.voters * (high[:, :, :, None] + low[:, :, None, :])
        with np.errstate(over="ignore"):  # sums beyond all reason fit no shape, and are told so
            left = np.square(self.sums - expected).sum(axis=-1)
            likely: Floats = -0.5 * left.reshape(len(turns), -1) / max(self.noise, 1e-300)
        return likely
