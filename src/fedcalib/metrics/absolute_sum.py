"""A sum of absolute values, known only through noisy estimates of its parts: how large can it be?

A calibration error is such a sum. The plug-in sum is too large where parts are small, since noise has no sign after
taking absolute values; a percentile bootstrap inherits that bias twice. Here the parts are first boxed in; within the
box, the sums that could have produced what was seen are kept. From below, signs that neighbours agree on help: with a
sign that does not come from the part itself, signed parts have no bias, and their sum is never above the absolute one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from fedcalib.metrics.intervals import Interval, check_level, critical
from fedcalib.types import Floats

_BOX: Final = 2.5  # standard deviations; what is wrong with single parts averages out over all of them
_HALVINGS: Final = 26
_NOTHING: Final = 2.2  # standard deviations within which all parts may well be zero
_CLEAR: Final = 3.0  # standard deviations from which on a part's own sign is taken for granted
_NEAR: Final = 2  # parts on either side that tell a sign
_SIGNED: Final = 2.6  # standard deviations of the signed sum; far out, for it is a second chance to be wrong
_FAR: Final = 40.0  # standard deviations, beyond which a sign is certain
_EVEN: Final = 8.0  # standard deviations, beyond which an absolute value is as even as the part itself
_ROOT: Final = 2**0.5
_BIAS: Final = (2 / np.pi) ** 0.5


def absolute_sum_interval(parts: Floats, covariance: Floats, level: float = 0.95) -> Interval:
    """Bound the sum of the absolute true parts, from nearly normal estimates, (k,), and their covariance, (k, k).

    Parts in an order in which neighbours are alike, such as the gaps of rising bins, get the shorter intervals.
    """
    check_level(level)
    law = _Folded.of(covariance)
    seen = np.abs(parts)
    if not law.spread.any():
        return Interval(float(seen.sum()), float(seen.sum()), level)
    reach = _BOX * law.spread
    low, high = np.maximum(seen - reach, 0.0), seen + reach
    total = float(seen.sum())
    undecided = _highest(total, low, high, law, 0.0) - _lowest(total, low, high, law, 0.0)
    z = critical(undecided / max(law.moments(seen)[1], 1e-300), level)
    nothing = law.moments(np.zeros_like(seen))
    least = 0.0 if nothing[0] + _NOTHING * nothing[1] >= total else _lowest(total, low, high, law, z)
    largest = _highest(total, low, high, law, z)
    return Interval(min(max(least, _signed(parts, law)), largest), largest, level)


def unfolded(parts: Floats, noise: Floats) -> Floats:
    """Estimate absolute parts, (..., k), from estimates with noise of these variances, (k,): what noise adds goes out.

    Each is the part whose absolute estimate would be this large on average, or zero; without noise nothing changes.
    """
    law = _Folded.of(np.diag(noise))
    seen = np.abs(parts)
    low, high = np.zeros_like(seen), seen.copy()
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = law.means(middle)[0] > seen
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.where((law.spread > 0) & (seen < _FAR * law.spread), low, seen)


@final
@dataclass(frozen=True, eq=False)
class _Folded:
    """The law of absolute values of normal estimates around their true parts."""

    covariance: Floats  # (k, k)
    spread: Floats  # (k,)
    safe: Floats  # (k,): the spread, or one where there is none

    @classmethod
    def of(cls, covariance: Floats) -> _Folded:
        """Take the spreads off the diagonal."""
        spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        return cls(covariance, spread, np.where(spread > 0, spread, 1.0))

    def means(self, parts: Floats) -> tuple[Floats, Floats]:
        """Give the mean of each absolute value, and its slope in the true part."""
        from scipy.special import erf

        ratio = np.minimum(parts / self.safe, _FAR)
        slope = np.where(self.spread > 0, erf(ratio / _ROOT), 1.0)
        return _BIAS * self.spread * np.exp(-0.5 * ratio**2) + parts * slope, slope

    def lean(self, parts: Floats) -> float:
        """Give the third central moment of the sum, as if parts were independent."""
        means, slope = self.means(parts)
        variance = self.spread**2
        near = _BIAS * np.exp(-0.5 * np.minimum(parts / self.safe, _FAR) ** 2)
        cubes = (parts**3 + 3 * parts * variance) * slope + self.spread * (2 * variance + parts**2) * near
        third = cubes - 3 * means * (parts**2 + variance) + 2 * means**3
        return float(np.where(parts < _EVEN * self.spread, third, 0.0).sum())

    def moments(self, parts: Floats) -> tuple[float, float]:
        """Give mean and standard deviation of the sum; the slopes carry the correlation."""
        means, slope = self.means(parts)
        own = (1 - slope**2) * self.spread**2 + parts**2 - means**2
        variance = slope @ self.covariance @ slope + np.maximum(own, 0.0).sum()
        return float(means.sum()), float(max(variance, 0.0)) ** 0.5


def _signed(parts: Floats, law: _Folded) -> float:
    """Bound the sum from below by signed parts: a part's sign is its neighbours' as far as they are sure of it."""
    from scipy.special import erf

    place = np.arange(len(parts))
    apart = np.abs(place[:, None] - place)
    weights = ((apart > 0) & (apart <= _NEAR)) * np.where(law.spread > 0, law.safe**-2, 0.0)
    doubt = np.sqrt(np.maximum(((weights @ law.covariance) * weights).sum(axis=1), 1e-300))
    signs = erf(weights @ parts / doubt / _ROOT)
    signs = np.where(np.abs(parts) > _CLEAR * law.spread, np.sign(parts), signs)
    return float(signs @ parts - _SIGNED * max(float(signs @ law.covariance @ signs), 0.0) ** 0.5)


def _tails(law: _Folded, parts: Floats, z: float) -> tuple[float, float]:
    """Give the lower and the upper end of what the plug-in sum of these parts may well be.

    Absolute values lean to the right, so the lower end is nearer than a normal law has it, and the upper end farther
    (the first term of Cornish and Fisher).
    """
    mean, deviation = law.moments(parts)
    lean = law.lean(parts) / max(deviation, 1e-300) ** 3 * (z * z - 1) / 6
    return mean - max(z - lean, 0.0) * deviation, mean + (z + lean) * deviation


def _lowest(total: float, low: Floats, high: Floats, law: _Folded, z: float) -> float:
    """Find the least sum of true parts whose plug-in sum may well reach the one seen.

    The plug-in bias is largest for a given sum when it sits in few parts, so parts are raised from the bottom of the
    box to its top one after the other, the most telling first.
    """
    rise = law.means(high)[0] - law.means(low)[0]
    order = np.argsort(-np.divide(rise, high - low, out=np.ones_like(low), where=high > low), kind="stable")
    room = (high - low)[order]
    before = np.cumsum(room) - room
    raised = np.empty_like(low)

    def reaches(extra: float) -> bool:
        raised[order] = low[order] + np.clip(extra - before, 0.0, room)
        return _tails(law, raised, z)[1] >= total

    return float(low.sum()) + _least(reaches, float(room.sum()))


def _highest(total: float, low: Floats, high: Floats, law: _Folded, z: float) -> float:
    """Find the largest sum of true parts whose plug-in sum may well be as small as the one seen.

    The plug-in bias is least for a given sum when all parts are equally many standard deviations large.
    """

    def exceeds(multiple: float) -> bool:
        return _tails(law, np.clip(multiple * law.spread, low, high), z)[0] > total

    steepest = float((high / law.safe)[law.spread > 0].max())
    return float(np.clip(_least(exceeds, steepest) * law.spread, low, high).sum())


def _least(holds: Callable[[float], bool], largest: float) -> float:
    """Bisect for the least number up to `largest` from which on a rising condition holds."""
    low, high = 0.0, largest
    if holds(low):
        return low
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
