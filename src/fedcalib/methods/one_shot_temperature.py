"""OneShotTemperature: the pooled optimum of temperature scaling from a single message."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, sqrt
from typing import final

import numpy as np
from numpy.polynomial import Polynomial

from fedcalib.artifacts.scaling import Temperature
from fedcalib.errors import InputError
from fedcalib.method import Flow, Method
from fedcalib.queries.temperature import TemperatureCurve
from fedcalib.records import Schema
from fedcalib.types import Floats

_NOTHING = 1e-12  # far below a step of any grid
_SURPRISE = 5.0  # standard deviations of what is left over: a bend has to show before it is believed
_DROWNED = "nothing was changed: at T = 1 the slope does not stand out from the noise"
_TYPICAL_RECORDS = 50.0  # a public guess at a client's size, for clipping whole clients


@final
@dataclass(frozen=True)
class OneShotTemperature(Method[Temperature]):
    """Find the temperature at which the summed slope of the log-likelihood is zero.

    Clients send the slope at `points` inverse temperatures; the server fits a curve in their logarithm, as simple as
    the noise suggests, and takes its root. `refinements` more questions around the root, each on a narrower grid, make
    an exact answer of it where there is no noise. Where the slope at T = 1 is within `doubt` standard deviations of the
    noise, the model is left as it is, with a warning. `breadth` is how many times the square root of `typical_records`,
    a public guess at a client's size, a client may add; `weight` is this method's share of a pipeline's budget.
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
        low, high = log(1 / self.highest), log(1 / self.lowest)
        clip = self.breadth * sqrt(self.points * self.typical_records) / self.reach
        root, drowned = 0.0, False
        for _ in range(1 + self.refinements):
            grid = np.linspace(low, high, self.points)
            answer = yield TemperatureCurve(tuple(np.exp(grid).tolist()), self.reach, clip, self.weight)
            noise = float(answer.variance("slope")[0])
            drowned = drowned or (low <= 0 <= high and not stands_out(grid, answer["slope"], noise, self.doubt))
            middle = root if low <= root <= high else (low + high) / 2
            root = crossing(grid, answer["slope"], noise, middle)
            width = (high - low) / 8
            low, high = root - width, root + width
        return Temperature(1.0, _DROWNED) if drowned else Temperature(exp(-root))


def stands_out(grid: Floats, slopes: Floats, noise: float, doubt: float) -> bool:
    """Say whether a cubic through the slopes is further from zero at T = 1 than noise would explain."""
    centre, half = (grid[0] + grid[-1]) / 2, (grid[-1] - grid[0]) / 2
    powers = np.vander(np.append((grid - centre) / half, -centre / half), 4)
    weights = powers[-1] @ np.linalg.pinv(powers[:-1])
    return abs(float(weights @ slopes)) >= doubt * sqrt(noise) * float(np.linalg.norm(weights))


def crossing(grid: Floats, slopes: Floats, noise: float, fallback: float) -> float:
    """Find where a rising, noisy curve crosses zero; stay within the grid.

    A cubic averages the noise best but bends too little for a wide grid. So the degree grows from three until what is
    left over is no more than the noise explains: without noise the curve goes through every point.
    """
    largest = float(np.abs(slopes).max(initial=0.0))
    if largest < _NOTHING:
        return fallback
    centre, half = (grid[0] + grid[-1]) / 2, (grid[-1] - grid[0]) / 2
    places, scaled, level = (grid - centre) / half, slopes / largest, noise / largest**2
    curve = Polynomial([0.0])
    for degree in range(3, len(grid)):
        curve = Polynomial.fit(places, scaled, degree, domain=[-1, 1])
        spare = len(grid) - degree - 1
        if np.square(curve(places) - scaled).sum() <= level * (spare + _SURPRISE * sqrt(2 * spare)):
            break
    return float(centre + half * _rising_root(curve))


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
