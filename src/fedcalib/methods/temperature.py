"""OneShotTemperature: the pooled optimum of temperature scaling from a single message.

BoundedTemperature: the temperature at which clients' verdicts cancel, each of them bounded by construction.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, log, sqrt
from typing import Final, final

import numpy as np

from fedcalib.artifacts.scaling import Temperature
from fedcalib.errors import InputError
from fedcalib.estimation.roots import (
    PRIOR_DEVIATION,
    PRIOR_LOG_TEMPERATURE,
    ClientScoreSums,
    noisy_root,
    significant_at_one,
)
from fedcalib.method import Flow, Method
from fedcalib.queries.temperature import TemperatureCurve, TemperatureScores, TemperatureSlope
from fedcalib.query import Answer
from fedcalib.records import Schema
from fedcalib.types import Floats

_GUESS = 0.05  # how far off a root read off a curve may be, in ln b, for want of points
DROWNED: Final = "nothing was changed: at T = 1 the slope does not stand out from the noise"
_TYPICAL_RECORDS = 50.0  # a public guess at a client's size, for clipping whole clients


@final
@dataclass(frozen=True)
class OneShotTemperature(Method[Temperature]):
    """Find the temperature at which the summed slope of the log-likelihood is zero.

    Clients send the slope at `points` inverse temperatures; the server fits a curve in their logarithm, as simple as
    the noise suggests, and takes its root. `refinements` more questions ask for the slope and its growth there and take
    Newton's steps, within the two points of the curve between which it crosses zero: without noise that is the pooled
    optimum, with noise each step is taken as far as it is known better than what it starts from.

    Where the slope at T = 1 is within `doubt` standard deviations of the noise, the model is left as it is, with a
    warning. `breadth` is how many times the square root of `typical_records`, a public guess at a client's size, a
    client may add; `weight` is this method's share of a pipeline's budget.
    """

    points: int = 8
    lowest: float = 0.25
    highest: float = 4.0
    reach: float = 10.0
    refinements: int = 0
    typical_records: float = _TYPICAL_RECORDS
    breadth: float = 2.0
    doubt: float = 0.0
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.points < 4 or not 0 < self.lowest < self.highest or self.refinements < 0 or not self.breadth > 0:
            raise InputError("Expected at least 4 points on a range of temperatures above 0, found others.")

    def protocol(self, schema: Schema) -> Flow[Temperature]:
        """Ask for the curve, find its root, perhaps look closer."""
        grid = np.linspace(log(1 / self.highest), log(1 / self.lowest), self.points)
        clip = self.breadth * sqrt(self.points * self.typical_records) / self.reach
        answer = yield TemperatureCurve(tuple(np.exp(grid).tolist()), self.reach, clip, self.weight)
        slopes, noise = answer["slope"], float(answer.variance("slope")[0])
        middle = 0.0 if grid[0] <= 0 <= grid[-1] else float(grid.mean())
        root = noisy_root(grid, slopes, noise, middle)
        found = _Known(root, _bracket(grid, slopes, noise, root), noise / 2)
        for _ in range(self.refinements):
            query = TemperatureSlope(exp(found.place), self.reach, schema.classes, self.typical_records, self.weight)
            found = found.after(query, (yield query))
        drowned = grid[0] <= 0 <= grid[-1] and not significant_at_one(grid, slopes, noise, self.doubt)
        return Temperature(1.0, DROWNED) if drowned else Temperature(exp(-found.place))


@final
@dataclass(frozen=True)
class _Known:
    """Where the root of the slope is thought to be, in ln b, between what, and how noisy the slope was that says so."""

    place: float
    between: tuple[float, float]
    noise: float  # variance, in the slope's units

    def after(self, query: TemperatureSlope, answer: Answer) -> _Known:
        """Take Newton's step as far as the slope heard now is better known than the one before."""
        slope, noise = float(answer["slope"][0]), float(answer.variance("slope")[0])
        growth = float(answer["bend"][0]) / (query.inverse * query.reach)  # of the slope with ln b
        if growth <= 3 * sqrt(float(answer.variance("bend")[0])) / (query.inverse * query.reach):
            return self
        before = self.noise + _GUESS * growth * _GUESS * growth
        if not 0 < before < inf:  # a bend whose square floats cannot hold says nothing about a step
            return self
        gain = before / (before + noise)
        low, high = (self.place, self.between[1]) if slope < 0 else (self.between[0], self.place)
        aim = self.place - gain * slope / growth
        place = aim if low <= aim <= high else (low + high) / 2
        return _Known(place, (low, high) if noise == 0 else self.between, gain * noise)


def _bracket(grid: Floats, slopes: Floats, noise: float, root: float) -> tuple[float, float]:
    """Say between what the root lies: where exact slopes change sign, or an eighth of a noisy grid to either side.

    Beyond an end of the grid there is half of the grid more.
    """
    length = float(grid[-1] - grid[0])
    if noise > 0:
        return root - length / 8, root + length / 8
    falling, rising = grid[slopes < 0], grid[slopes >= 0]
    low = float(falling[-1]) if falling.size else float(grid[0]) - length / 2
    return low, float(rising[0]) if rising.size else float(grid[-1]) + length / 2


_LEAN: Final = 4 / 3  # times the doubt that a call for a sharper model has to stand out by


@final
@dataclass(frozen=True)
class BoundedTemperature(Method[Temperature]):
    """Find the temperature for whole clients' privacy: as many clients find the model too sharp there as too soft.

    `OneShotTemperature` sums slopes, so whoever hides whole clients has to guess how large a client's sum may be, and a
    few loud clients set the noise for all. Here a client says at each of `points` temperatures by how many standard
    deviations its labels speak against the model, between -1 and 1, and one release of bounded numbers is enough. With
    exact sums it is near the pooled optimum, not at it: the price is a small bias where clients are few and tiny.

    Where the vote may as well turn at T = 1, within `doubt` standard deviations of the noise, the model is left as it
    is, with a warning. Votes of small clients lean toward sharper models, so that has to stand out more. `cut` and
    `quiet` are those of `TemperatureScores`; `weight` is this method's share of a pipeline's budget.
    """

    points: int = 8
    lowest: float = 0.7
    highest: float = 4.0
    cut: float = 2.0
    quiet: float = 2.0
    doubt: float = 3.0
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.points < 4 or not 0 < self.lowest < 1 < self.highest or not self.doubt >= 0:
            raise InputError("Expected at least 4 points on a range of temperatures around 1, and no negative doubt.")

    def protocol(self, schema: Schema) -> Flow[Temperature]:
        """Ask once, and find where the sum of verdicts crosses zero."""
        grid = np.linspace(log(1 / self.highest), log(1 / self.lowest), self.points)
        query = TemperatureScores(tuple(np.exp(grid).tolist()), self.cut, self.quiet, self.weight)
        answer = yield query
        scores, noise = answer["score"], float(answer.variance("score")[0])
        sums = ClientScoreSums(grid, scores, noise, schema.clients)
        # the parametric shape where the sums are compatible with it, a polynomial where they are not
        if sums.plausible:
            root = sums.posterior_root(-PRIOR_LOG_TEMPERATURE, PRIOR_DEVIATION)
        else:
            root = noisy_root(grid, scores, noise, 0.0)
        z = self.doubt * (_LEAN if root > 0 else 1.0)
        clear = sums.root_differs_from(0.0, z) if sums.plausible else significant_at_one(grid, scores, noise, z)
        return Temperature(exp(-root)) if clear else Temperature(1.0, DROWNED)
