"""OneShotTemperature: the pooled optimum of temperature scaling from a single message."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, sqrt
from typing import final

import numpy as np

from fedcalib.artifacts.scaling import Temperature
from fedcalib.errors import InputError
from fedcalib.method import Flow, Method
from fedcalib.queries.temperature import TemperatureCurve
from fedcalib.records import Schema
from fedcalib.types import Floats

_TYPICAL_RECORDS = 50.0  # a public guess at a client's size, for clipping whole clients


@final
@dataclass(frozen=True)
class OneShotTemperature(Method[Temperature]):
    """Find the temperature at which the summed slope of the log-likelihood is zero.

    Clients send the slope at `points` inverse temperatures; the server fits a cubic in their logarithm, which averages
    the noise, and takes its root. `refinements` more questions around the root, each on a narrower grid, make an exact
    answer of it where there is no noise.
    """

    points: int = 8
    lowest: float = 0.25
    highest: float = 4.0
    reach: float = 10.0
    refinements: int = 0
    typical_records: float = _TYPICAL_RECORDS

    def __post_init__(self) -> None:
        if self.points < 4 or not 0 < self.lowest < self.highest or self.refinements < 0:
            raise InputError("Expected at least 4 points on a range of temperatures above 0, found others.")

    def protocol(self, schema: Schema) -> Flow[Temperature]:
        """Ask for the curve, find its root, perhaps look closer."""
        low, high = log(1 / self.highest), log(1 / self.lowest)
        clip = 2 * sqrt(self.points * self.typical_records) / self.reach
        root = 0.0
        for _ in range(1 + self.refinements):
            grid = np.linspace(low, high, self.points)
            answer = yield TemperatureCurve(tuple(np.exp(grid).tolist()), self.reach, clip)
            root = crossing(grid, answer["slope"], fallback=root if low <= root <= high else (low + high) / 2)
            width = (high - low) / 8
            low, high = root - width, root + width
        return Temperature(exp(-root))


def crossing(grid: Floats, slopes: Floats, fallback: float) -> float:
    """Find where an increasing, noisy curve crosses zero, by a cubic fit; stay within the grid."""
    if not np.any(slopes):
        return fallback
    centre, half = (grid[0] + grid[-1]) / 2, (grid[-1] - grid[0]) / 2
    scaled = slopes / np.abs(slopes).max()
    cubic = np.polynomial.polynomial.polyfit((grid - centre) / half, scaled, 3)
    fine = np.linspace(-1, 1, 2001)
    values = np.polynomial.polynomial.polyval(fine, cubic)
    if values[0] >= 0 and values[-1] >= 0:
        return float(grid[0])
    if values[0] <= 0 and values[-1] <= 0:
        return float(grid[-1])
    rising = np.flatnonzero((values[:-1] < 0) & (values[1:] >= 0))
    if not rising.size:
        return float(centre + half * fine[np.abs(values).argmin()])
    at = rising[np.abs(fine[rising]).argmin()]
    share = values[at] / (values[at] - values[at + 1])
    return float(centre + half * (fine[at] + share * (fine[at + 1] - fine[at])))
