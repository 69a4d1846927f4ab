"""A sum of absolute values, known only through noisy estimates of its parts: how large can it be?

A calibration error is such a sum. The plug-in sum is too large where parts are small, since noise has no sign after
taking absolute values; a percentile bootstrap inherits that bias twice. Here the parts are first boxed in, all at
once, at a small price in confidence; within the box, the sums that could have produced what was seen are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist
from typing import Final

import numpy as np

from fedcalib.metrics.intervals import Interval, check_level, normal_quantile
from fedcalib.types import Floats

_BOX: Final = 0.01  # the chance that the box misses a part
_HALVINGS: Final = 36


def absolute_sum_interval(parts: Floats, covariance: Floats, level: float = 0.95) -> Interval:
    """Bound the sum of the absolute true parts, from nearly normal estimates, (k,), and their covariance, (k, k)."""
    allowed = 1 - check_level(level)
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    seen = np.abs(parts)
    if not spread.any():
        return Interval(float(seen.sum()), float(seen.sum()), level)
    reach = normal_quantile(1 - _BOX / len(parts)) * spread
    box = np.maximum(seen - reach, 0.0), seen + reach
    total = float(seen.sum())
    open_ = _highest(total, box, covariance, 0.0) - _lowest(total, box, covariance, 0.0)
    z = _critical(open_ / max(_deviation(seen, covariance), 1e-300), 1 - allowed)
    return Interval(_lowest(total, box, covariance, z), _highest(total, box, covariance, z), level)


def _critical(width: float, level: float) -> float:
    """Say how far to go beyond both ends of a set of answers that no amount of data could tell apart.

    The truth sits near one end at a time, so a wide set needs a one-sided margin only (Imbens and Manski, 2004).
    """
    law = NormalDist()
    low, high = law.inv_cdf(level), law.inv_cdf((1 + level) / 2)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        covered = law.cdf(middle + width) - law.cdf(-middle)
        low, high = (low, middle) if covered >= level else (middle, high)
    return high


def _lowest(total: float, box: tuple[Floats, Floats], covariance: Floats, z: float) -> float:
    """Find the least sum of true parts whose plug-in sum may well reach the one seen.

    The plug-in bias is largest for a given sum when it sits in few parts, so parts are raised from the bottom of the
    box to its top one after the other, the most telling first.
    """
    low, high = box
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    gain = np.divide(_folded(high, spread) - _folded(low, spread), high - low, out=np.ones_like(low), where=high > low)
    order = np.argsort(-gain, kind="stable")
    before = np.concatenate([[0.0], np.cumsum((high - low)[order])])
    raised = np.empty_like(low)

    def reaches(extra: float) -> bool:
        raised[order] = low[order] + np.clip(extra - before[:-1], 0.0, np.diff(before))
        return _mean(raised, spread) + z * _deviation(raised, covariance) >= total

    return float(low.sum()) + _least(reaches, float(before[-1]))


def _highest(total: float, box: tuple[Floats, Floats], covariance: Floats, z: float) -> float:
    """Find the largest sum of true parts whose plug-in sum may well be as small as the one seen.

    The plug-in bias is least for a given sum when all parts are equally many standard deviations large.
    """
    low, high = box
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    steepest = float(np.divide(high, spread, out=np.zeros_like(high), where=spread > 0).max())

    def exceeds(multiple: float) -> bool:
        even = np.clip(multiple * spread, low, high)
        return _mean(even, spread) - z * _deviation(even, covariance) > total

    return float(np.clip(_least(exceeds, steepest) * spread, low, high).sum())


def _least(holds: Callable[[float], bool], largest: float) -> float:
    """Bisect for the least number up to `largest` from which on a rising condition holds."""
    low, high = 0.0, largest
    if holds(low):
        return low
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _mean(parts: Floats, spread: Floats) -> float:
    return float(_folded(parts, spread).sum())


def _folded(parts: Floats, spread: Floats) -> Floats:
    """Give the mean of |x| for normal x around each part."""
    ratio = _over(parts, spread)
    mean: Floats = np.where(spread > 0, spread * (np.sqrt(2 / np.pi) * np.exp(-(ratio**2) / 2)), 0.0)
    return mean + parts * _tilt(parts, spread)


def _deviation(parts: Floats, covariance: Floats) -> float:
    """Give the standard deviation of the sum of |x| for correlated normal x around the parts."""
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    tilt = _tilt(parts, spread)  # the slope of a folded mean carries the correlation
    own = spread**2 + parts**2 - _folded(parts, spread) ** 2 - (tilt * spread) ** 2
    return float(np.sqrt(max(float(tilt @ covariance @ tilt) + float(np.maximum(own, 0.0).sum()), 0.0)))


def _tilt(parts: Floats, spread: Floats) -> Floats:
    from scipy.special import erf

    tilt: Floats = np.where(spread > 0, erf(_over(parts, spread) / np.sqrt(2)), np.sign(parts))
    return tilt


def _over(parts: Floats, spread: Floats) -> Floats:
    ratio: Floats = np.divide(parts, spread, out=np.zeros_like(parts), where=spread > 0)
    return np.minimum(ratio, 40.0)
