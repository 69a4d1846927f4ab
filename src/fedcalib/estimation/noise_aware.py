"""A sum of absolute values, known only through noisy estimates of its parts: how large can it be?

A calibration error is such a sum. The plug-in sum is too large where parts are small, since noise has no sign after
taking absolute values; a percentile bootstrap inherits that bias twice. Here the parts are first boxed in; within the
box, the sums that could have produced what was seen are kept. From below, signs that neighbours agree on help: with a
sign that does not come from the part itself, signed parts have no bias, and their sum is never above the absolute one.

Metrics from tables that carry privacy noise: what the noise adds is taken out, and the intervals know of it.

Logistic regression on noisy counts: the fit stays unbiased, and what noise leaves unknown stays at the start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any, Final, final

import numpy as np

from fedcalib.metrics.calibration_line import fit_counts
from fedcalib.metrics.intervals import Interval, check_level, critical, normal_quantile
from fedcalib.metrics.ranking import auc_bucket_bound, auc_of_counts, auc_variance
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


def noisy_gap_error(
    gap: Floats, noise: Any, sampling: Any, records: float, level: float = 0.95
) -> tuple[float, Interval]:
    """Estimate the mean absolute gap and bound it, from gaps with known noise and sampling variance.

    The estimate takes what privacy noise adds (not sampling: it stays the plug-in error) out of each absolute gap;
    without noise it is the plug-in value exactly. The interval holds the true error, which near zero is smaller than
    the plug-in value.
    """
    flat = gap.reshape(-1).astype(np.float64)
    noise = np.broadcast_to(noise, gap.shape).reshape(-1)
    cleared = unfolded(flat, noise)
    within = np.maximum(np.broadcast_to(sampling, gap.shape).reshape(-1), 0.0)
    bounds = absolute_sum_interval(flat, np.diag(noise + within), level)
    value = float(cleared.sum()) / records
    return value, Interval(min(bounds.low / records, value), max(bounds.high / records, value), level)


def noisy_proportion(hits: float, misses: float, noise: float, level: float = 0.95) -> tuple[float, Interval]:
    """Estimate a share and bound it, from two counts with noise of the same variance on each."""
    z = normal_quantile(level)
    total = hits + misses
    share = min(max(hits / total, 0.0), 1.0)
    spread = share * (1 - share) / total + noise * (share**2 + (1 - share) ** 2) / total**2
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z * sqrt(spread + z * z / (4 * total**2)) / (1 + z * z / total)
    return share, Interval(max(min(centre - half, share), 0.0), min(max(centre + half, share), 1.0), level)


def noisy_mean(  # noqa: PLR0917
    total: float, squares: float, records: float, noise: float, records_noise: float, level: float = 0.95
) -> tuple[float, Interval]:
    """Estimate a mean and bound it, from a sum and a sum of squares with noise, and a noisy count of records."""
    mean = float(total / records)
    sampling = max(squares / records - mean**2, 0.0) / records
    spread = sampling + (noise + mean**2 * records_noise) / records**2
    half = normal_quantile(level) * sqrt(spread)
    return mean, Interval(mean - half, mean + half, level)


def noisy_auc(positive: Floats, negative: Floats, noise: float, level: float = 0.95) -> tuple[float, Interval]:
    """Estimate the AUC of noisy counts at rising scores, and bound it by sampling, noise and bucketing together."""
    area = auc_of_counts(positive, negative)
    P, N = float(positive.sum()), float(negative.sum())
    below = (np.cumsum(negative) - negative / 2) / N
    above = 1 - (np.cumsum(positive) - positive / 2) / P
    private = noise * float(np.square(below - area).sum() / P**2 + np.square(above - area).sum() / N**2)
    half = normal_quantile(level) * sqrt(auc_variance(positive, negative) + private)
    half += auc_bucket_bound(np.maximum(positive, 0), np.maximum(negative, 0))
    return area, Interval(max(area - half, 0.0), min(area + half, 1.0), level)


_STEPS = 100


def fit_noisy_counts(
    features: Any, positive: Any, negative: Any, *, noise: Any, start: Any, doubt: float = 1.0
) -> Floats:
    """Fit log-odds that are linear in features, (cells, k), to counts that carry noise of a known variance.

    Counts below zero stay signed, since cutting them would add records that are not there. The fit is drawn toward
    `start`, about which one is unsure by `doubt` (a standard deviation), as far as labels and noise leave the weights
    open; with many records and little noise that is hardly at all.
    """
    x = np.asarray(features, dtype=np.float64)
    p, n = np.asarray(positive, dtype=np.float64), np.asarray(negative, dtype=np.float64)
    pull = np.asarray(start, dtype=np.float64)
    prior = np.eye(len(pull)) / doubt**2
    weights = _noisy_logistic_signed(x, p, n, pull, prior)
    variance = np.broadcast_to(noise, p.shape)
    if not variance.any():
        return weights
    mean = 0.5 * (1 + np.tanh((x @ weights) / 2))
    curve = _certain_curve(x, (p + n) * mean * (1 - mean), 2 * variance * (mean * (1 - mean)) ** 2)
    shaken = (x.T * (variance * ((1 - mean) ** 2 + mean**2))) @ x
    # the fit has weighed the labels against the start as if counts were exact; noise shakes the score itself, so that
    # the labels deserve less weight
    kept = curve @ np.linalg.pinv(curve + shaken)
    drawn: Floats = pull + np.linalg.solve(kept @ curve + prior, kept @ ((curve + prior) @ (weights - pull)))
    return drawn


def _certain_curve(x: Floats, bend: Floats, variance: Floats) -> Floats:
    """Give the part of the likelihood's curvature that noise cannot have made, direction by direction."""
    sizes, axes = np.linalg.eigh((x.T * bend) @ x)
    doubt = np.sqrt(np.square(np.square(x @ axes)).T @ variance)
    curve: Floats = (axes * np.maximum(sizes - 2 * doubt, 0.0)) @ axes.T
    return curve


def _noisy_logistic_signed(x: Floats, p: Floats, n: Floats, start: Floats, prior: Floats) -> Floats:
    """Weigh the labels against the start; where signed counts lead nowhere, cut negative ones after all."""
    held = np.maximum(p + n, 0.0)
    weights = start.copy()
    for _ in range(_STEPS):
        mean = 0.5 * (1 + np.tanh((x @ weights) / 2))
        curve = (x.T * (held * mean * (1 - mean))) @ x + prior
        step = np.linalg.solve(curve, x.T @ ((p + n) * mean - p) + prior @ (weights - start))
        step *= min(1.0, 1.0 / max(float(np.abs(step).max()), 1e-300))  # at most one unit of log-odds at a time
        weights = weights - step
        if np.abs(step).max() < 1e-10:
            return weights
    return fit_counts(x, p, n, ridge=1e-6, start=start)
