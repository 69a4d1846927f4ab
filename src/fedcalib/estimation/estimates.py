"""Estimates of a figure from counts with noise: their variances, and intervals that suit what is possible.

`Estimate` is a value with the variances of sampling and of noise; `Ratios` are ratios of weighted sums, such as rates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from fedcalib.metrics.intervals import Measured, critical, normal_quantile
from fedcalib.numeric import bisected, log_odds, sigmoid
from fedcalib.types import Floats

LEVEL: Final = 0.95
Z: Final = normal_quantile(LEVEL)
TINY: Final = 1e-300
_HALVINGS: Final = 40
_FEW: Final = 30  # hits or misses below which a normal approximation does not do
_LEAST_SKEWNESS: Final = 1e-3  # below which it makes no difference


@final
@dataclass(frozen=True)
class Estimate:
    """A figure with the variances of sampling and of noise, and a bound on the error of reading cells."""

    value: float
    sampling: float
    noise: float
    reading: float = 0.0
    skewness: float = 0.0  # of the estimate, from sampling

    @property
    def deviation(self) -> float:
        return float(np.sqrt(max(self.sampling + self.noise, 0.0)))

    def normal(self, low: float = -np.inf, high: float = np.inf) -> Measured:
        """The value with a normal interval, both within the possible range."""
        half = self._half(self.deviation)
        return within(self.value, self.value - half, self.value + half, low, high)

    def skewed(self, low: float = -np.inf, high: float = np.inf) -> Measured:
        """The value with the wider of two intervals at each end: the normal one, and Hall's, which knows the skewness.

        Hall (1992) turns the ratio T of error and estimated deviation, which is skewed twice, by the estimate and by
        its deviation, into g(T) = T + s T^2 / 3 + s^2 T^3 / 27 + s / 6, which is nearly normal.
        """
        found, s = self.normal(low, high), self.skewness
        if abs(s) < _LEAST_SKEWNESS:
            return found
        ends = [3 / s * (np.cbrt(1 + s * (z - s / 6)) - 1) * self.deviation for z in (Z, -Z)]
        least, most = (self.value - float(end) for end in ends)
        return within(self.value, min(found.low, least), max(found.high, most), low, high)

    def positive(self, high: float = np.inf) -> Measured:
        """The value with an interval for a mean whose sampling variance grows with it, such as a loss of rare events.

        The ends are the means m with (m - value)^2 = z^2 (sampling m / value + noise).
        """
        if self.value <= self.deviation:
            return self.normal(0.0, high)
        slope = Z * Z * self.sampling / self.value / 2
        half = self._half(float(np.sqrt(self.sampling + self.noise + (slope / Z) ** 2)))
        return within(self.value, self.value + slope - half, self.value + slope + half, 0.0, high)

    def share(self) -> Measured:
        """The value of a figure between 0 and 1 whose sampling variance vanishes towards both, as a proportion's does.

        The ends are the values m with (m - value)^2 = z^2 (sampling m (1 - m) / (value (1 - value)) + noise).
        """
        spread = self.value * (1 - self.value)
        if spread <= self.sampling or self.sampling <= 0:
            return self.normal(0.0, 1.0)
        low, high = wilson(self.value, spread / self.sampling, self.noise)
        bound = self._half(self.deviation) - Z * self.deviation
        return within(self.value, low - bound, high + bound, 0.0, 1.0)

    def skewed_share(self) -> Measured:
        """As `share`, also where noise moves small values less than large ones: the wider of both at each end.

        The other interval is the normal one of the log-odds of the value.
        """
        found, spread = self.share(), self.value * (1 - self.value)
        if not spread > self.deviation**2:
            return found
        half, odds = Z * self.deviation / spread, float(log_odds(np.array(self.value)))
        low, high = (float(sigmoid(np.array(odds + end))) for end in (-half, half))
        return Measured(found.value, min(found.low, low), max(found.high, high))

    def _half(self, deviation: float) -> float:
        return critical(2 * self.reading / max(deviation, TINY), LEVEL) * deviation + self.reading


def within(value: float, low: float, high: float, least: float, most: float) -> Measured:
    """A figure and its interval within the possible range; an interval that the range cuts keeps a width.

    Where the lower end is cut, the upper one is at least the upper quantile of a normal distribution that is known to
    lie in the range, and the other way round: an estimate far outside still has an interval inside.
    """
    from scipy.special import ndtr, ndtri

    deviation = max((high - low) / (2 * Z), TINY)
    centre, tail = (low + high) / 2, (1 - LEVEL) / 2
    if low < least:
        beyond = float(ndtr((least - centre) / deviation))
        high = max(high, centre + deviation * float(ndtri(min(beyond + (1 - beyond) * (1 - tail), 1 - 1e-12))))
    if high > most:
        inside = float(ndtr((most - centre) / deviation))
        low = min(low, centre + deviation * float(ndtri(max(inside * tail, 1e-12))))
    middle = float(np.clip(value, least, most))
    low, high = float(np.clip(low, least, most)), float(np.clip(high, least, most))
    return Measured(middle, min(low, middle), max(high, middle))


@final
@dataclass(frozen=True, eq=False)
class Ratios:
    """Ratios of weighted sums of the counts, such as rates at several thresholds, shape (k,)."""

    value: Floats  # NaN where the divisor does not stand out from its noise
    records: Floats  # the divisor: for a proportion, its records; otherwise as many as have the same variance
    noise: Floats  # variance
    reading: Floats

    def rate(self, index: int = 0) -> Measured:
        """A proportion with its interval: Wilson's, which noise widens; of exact counts near 0 or 1, the mid-P one."""
        value, records = float(self.value[index]), float(self.records[index])
        if np.isnan(value):
            return Measured(value, 0.0, 1.0)
        noise, bound = float(self.noise[index]), float(self.reading[index])
        few = noise <= 0 and records * min(value, 1 - value) < _FEW
        low, high = mid_p(value, records) if few else wilson(value, records, noise)
        return within(value, low - bound, high + bound, 0.0, 1.0)


def wilson(value: float, records: float, noise: float) -> tuple[float, float]:
    """Wilson's interval of a proportion, which noise widens.

    The ends are the rates m with (m - value)^2 = z^2 (m (1 - m) / records + noise): the variance of sampling vanishes
    towards 0 and 1, that of noise does not.
    """
    z2 = Z * Z / records
    middle, width = value + z2 / 2, z2 * value - z2 * value**2 + Z * Z * noise * (1 + z2) + z2**2 / 4
    half = np.sqrt(max(width, Z * Z * noise, 1e-18))
    return float(middle - half) / (1 + z2), float(middle + half) / (1 + z2)


def mid_p(value: float, records: float) -> tuple[float, float]:
    """The mid-P interval of a proportion: rates at which as few or as many hits are not too rare.

    The chance of the very number that was found counts one half. Unlike Wilson's interval it covers rates near 0 and 1,
    of which a few records have one hit or none. Numbers need not be whole.
    """
    from scipy.special import betainc

    hits = min(max(value, 0.0), 1.0) * records

    def at_most(rate: float) -> float:
        fewer = betainc(records - hits + 1, hits, 1 - rate) if hits > 0 else 0.0
        here = betainc(records - hits, hits + 1, 1 - rate) if hits < records else 1.0
        return float(fewer + here) / 2

    tail = (1 - LEVEL) / 2
    low = 0.0 if hits <= 0 else bisected(lambda rate: at_most(rate) < 1 - tail, 0.0, 1.0, _HALVINGS)[0]
    high = 1.0 if hits >= records else bisected(lambda rate: at_most(rate) < tail, 0.0, 1.0, _HALVINGS)[1]
    return low, high


def doubt_of(ratio: float) -> float:
    """How much wider an interval would be if its divisor, of which noise is this part, were two deviations smaller."""
    return 1 / max(1 - 2 * ratio, 1e-3)
