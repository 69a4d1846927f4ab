"""Estimates and confidence intervals from sums that carry privacy noise of a known variance.

- `absolute_sum_interval` bounds a sum of absolute values, such as a calibration error, from noisy estimates of its
  terms. The plug-in sum is biased upward where terms are small, because noise has no sign once absolute values are
  taken, and a percentile bootstrap inherits that bias twice. So each term is first confined to a confidence box; the
  interval holds the sums inside the box that are compatible with the observed plug-in sum. The lower end also uses the
  signs that neighbouring terms agree on: a signed sum whose signs are independent of the term itself has no bias and is
  never above the absolute sum.
- `simulated_interval` is that of many terms with correlated errors.
- `absolute_sum_range` and `sign_weights` are what the interval of a difference of two such sums is built on.
- `debiased_absolute` removes the bias of single absolute values, and `ShapedSum` that of many at once.
- `fit_noisy_counts` is logistic regression on noisy counts, with a normal prior.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Final, final

import numpy as np

from fedcalib.estimation.covariances import Covariance, SharedCovariance
from fedcalib.metrics.calibration_line import fit_counts
from fedcalib.metrics.intervals import Interval, check_level, critical
from fedcalib.numeric import bisected, bisected_each, sigmoid
from fedcalib.types import Floats

# All limits below are in standard deviations.
_BOX_Z: Final = 2.5  # of each term's box; the errors of single boxes average out over all terms
_ALL_ZERO_Z: Final = 2.2  # within this distance, all terms may be zero
_SIGN_Z: Final = 3.0  # beyond this distance a term's own sign is taken as certain
_SIGNED_SUM_Z: Final = 2.6  # of the signed sum; larger than 1.96, because it is a second chance to be wrong
_MAX_RATIO: Final = 40.0  # beyond this ratio the sign is certain to floating-point precision
_SYMMETRIC_RATIO: Final = 8.0  # beyond this ratio the absolute value is as symmetric as the term itself

_NEIGHBOURS: Final = np.array([-2, -1, 1, 2])  # terms on either side that determine a sign
_HALVINGS: Final = 26
_DRAWS: Final = 400
_TAIL: Final = 0.025
_MAX_NEWTON_STEPS: Final = 100
_SQRT_2: Final = 2**0.5
_HALF_NORMAL_MEAN: Final = (2 / np.pi) ** 0.5


def absolute_sum_interval(terms: Floats, covariance: Covariance, level: float = 0.95) -> Interval:
    """Confidence interval for the sum of the absolute true terms, from nearly normal estimates of them.

    `terms` is (k,), and `covariance` that of k sums. Terms in an order in which neighbours are alike, such as the gaps
    of increasing bins, have the shorter intervals.
    """
    check_level(level)
    distribution = _FoldedNormal(_of_absolute(terms, covariance))
    observed = np.abs(terms)
    if not distribution.deviation.any():
        return Interval(float(observed.sum()), float(observed.sum()), level)
    box = _BOX_Z * distribution.deviation
    low, high = np.maximum(observed - box, 0.0), observed + box
    total = float(observed.sum())
    bias_range = _largest_sum(total, low, high, distribution, 0.0) - _smallest_sum(total, low, high, distribution, 0.0)
    z = critical(bias_range / max(distribution.moments(observed)[1], 1e-300), level)
    mean, deviation = distribution.moments(np.zeros_like(observed))
    all_zero = mean + _ALL_ZERO_Z * deviation >= total
    smallest = 0.0 if all_zero else _smallest_sum(total, low, high, distribution, z)
    largest = _largest_sum(total, low, high, distribution, z)
    signed = _signed_bound(terms, _FoldedNormal(covariance))
    return Interval(min(max(smallest, signed), largest), largest, level)


def simulated_interval(terms: Floats, covariance: Floats) -> tuple[float, float]:
    """An interval of the sum of many absolute true terms, whose errors are correlated, by simulation.

    How much a plug-in sum is too large depends on the shape of the true terms: more, if few of them are large. The
    upper end is the largest sum of terms in the shape of the estimates whose plug-in sum may well be as small as the
    one that was found. The lower end takes a shape of fewer terms: estimates less half of what chance adds to their
    squares.
    """
    total, noise = float(np.abs(terms).sum()), normal_draws(covariance)
    variance = np.maximum(np.diag(covariance), 0.0)
    square = 2 * terms**2
    shrunken = terms * (1 - np.divide(variance, square, out=np.ones_like(square), where=square > variance))

    def end(shape: Floats, level: float) -> float:
        share = shape / max(float(np.abs(shape).sum()), 1e-300)
        return _least(lambda size: float(np.quantile(np.abs(size * share + noise).sum(axis=1), level)) > total, most)

    most = 2 * total + 6 * float(np.sqrt(variance).sum())
    return end(shrunken, 1 - _TAIL), end(terms, _TAIL)


def normal_draws(covariance: Floats) -> Floats:
    """Draws with this covariance, the same for every table and symmetric, shape (draws, k).

    They are spread evenly, above all along the directions of largest variance. As many random numbers would have
    upper quantiles from 1.6 to 2.3 deviations, depending on the direction, where 1.96 is right.
    """
    values, vectors = np.linalg.eigh(covariance)
    half = _even_normals(len(values))[:, ::-1]  # the largest variance is the last
    return np.asarray(np.concatenate([half, -half]) * np.sqrt(np.maximum(values, 0.0)) @ vectors.T)


@cache
def _even_normals(dimensions: int) -> Floats:
    """Normal quantiles of evenly spread points, steps of square roots of primes, shape (draws / 2, dimensions)."""
    from scipy.special import ndtri

    limit = max(16, 2 * dimensions * dimensions.bit_length())  # more than so many primes are below it
    numbers = np.arange(2, limit)
    primes = numbers[[not (number % numbers[numbers * numbers <= number] == 0).any() for number in numbers]]
    steps = np.arange(1, _DRAWS // 2 + 1)[:, None] * np.sqrt(primes[:dimensions])
    found: Floats = ndtri((0.5 + steps) % 1.0)
    return found


def _of_absolute(terms: Floats, covariance: Covariance) -> Covariance:
    """Covariance of terms turned to be positive: two of opposite sign that fall together have opposite changes."""
    return covariance.turned(np.where(terms < 0, -1.0, 1.0))


def absolute_sum_range(terms: Floats, covariance: Covariance) -> tuple[float, float, float]:
    """Least and largest sum of absolute true terms that the bias of the plug-in sum leaves open, and its deviation.

    It is the interval of `absolute_sum_interval` without its margin for chance: for differences of two such sums.
    """
    distribution = _FoldedNormal(_of_absolute(terms, covariance))
    observed = np.abs(terms)
    total = float(observed.sum())
    if not distribution.deviation.any():
        return total, total, 0.0
    box = _BOX_Z * distribution.deviation
    low, high = np.maximum(observed - box, 0.0), observed + box
    mean, deviation = distribution.moments(np.zeros_like(observed))
    all_zero = mean + _ALL_ZERO_Z * deviation >= total
    smallest = 0.0 if all_zero else _smallest_sum(total, low, high, distribution, 0.0)
    largest = _largest_sum(total, low, high, distribution, 0.0)
    return min(smallest, largest), largest, distribution.moments(observed)[1]


def sign_weights(terms: Floats, covariance: Covariance) -> Floats:
    """Derivative of the expected absolute value of each noisy term with respect to the term, from -1 to 1."""
    slope: Floats = np.sign(terms) * _FoldedNormal(covariance).means(np.abs(terms))[1]
    return slope


def debiased_absolute(terms: Floats, noise: Floats) -> Floats:
    """Absolute values of terms, (..., k), without the bias that noise of these variances, (k,), adds to them.

    Each is the absolute value whose noisy absolute value would be as large on average as the observed one, or zero;
    without noise nothing changes.
    """
    distribution = _FoldedNormal(SharedCovariance.independent(noise))
    observed = np.abs(terms)
    low, _ = bisected_each(lambda x: distribution.means(x)[0] > observed, np.zeros_like(observed), observed, _HALVINGS)
    biased = (distribution.deviation > 0) & (observed < _MAX_RATIO * distribution.deviation)
    return np.where(biased, low, observed)


@final
@dataclass(frozen=True, eq=False)
class ShapedSum:
    """The sum of absolute true terms, where these are taken as proportional to a known shape.

    Where noise drowns most terms, removing its bias term by term leaves half of it, and bounds that allow any shape say
    little. So the whole plug-in sum is compared with what terms of this shape would have. How much noise adds to an
    absolute value depends on its law: 0.71 standard deviations if it is Laplace, 0.80 if normal. `laplace` says that
    it may be either; then the lower end of the interval takes the one and the upper end the other.
    """

    terms: Floats  # (k,)
    noise: Floats  # (k,): variances
    sampling: Covariance
    shape: Floats  # (k,)
    laplace: bool = True

    def value(self) -> float:
        """The sum without the bias of noise; the one of sampling stays. Without noise it is the plug-in sum."""
        total = float(np.abs(self.terms).sum())
        if not self.noise.any():
            return total
        folded = _Folded(self.noise, np.zeros_like(self.noise), laplace=self.laplace)
        return _least(lambda size: float(folded.means(size * self._share)[0].sum()) >= total, total)

    def interval(self, below: float, above: float) -> tuple[float, float]:
        """The sums of this shape whose plug-in sum is within so many standard deviations of the observed one."""
        total = float(np.abs(self.terms).sum())
        lower, upper = self._tail(below, laplace=False), self._tail(-above, laplace=self.laplace)
        reach = 2 * total + float(np.sqrt(self.noise).sum()) + 1.0
        return _least(lambda size: lower(size) >= total, reach), _least(lambda size: upper(size) > total, reach)

    def _tail(self, z: float, *, laplace: bool) -> Callable[[float], float]:
        folded = _Folded(self.noise, self.sampling.variances, laplace=laplace)
        turned = _of_absolute(self.terms, self.sampling)

        def tail(size: float) -> float:
            means, slope = folded.means(size * self._share)
            own = np.maximum((size * self._share) ** 2 + folded.variance - means**2, 0.0).sum()
            return float(means.sum() + z * np.sqrt(max(float(own) + turned.between(slope), 0.0)))

        return tail

    @property
    def _share(self) -> Floats:
        share: Floats = self.shape / max(float(self.shape.sum()), 1e-300)
        return share


@final
class _Folded:
    """Absolute values of terms with noise, Laplace or normal, and normal sampling errors."""

    def __init__(self, noise: Floats, sampling: Floats, *, laplace: bool) -> None:
        self.variance = noise + np.maximum(sampling, 0.0)
        self.normal = _FoldedNormal(SharedCovariance.independent(self.variance))
        self.part = np.divide(noise, self.variance, out=np.zeros_like(noise), where=self.variance > 0) * laplace

    def means(self, terms: Floats) -> tuple[Floats, Floats]:
        """Mean of each absolute value and its derivative: that of both laws, weighted by their variances."""
        means, slope = self.normal.means(terms)
        width = self.normal.divisor / _SQRT_2
        fall = np.exp(-np.minimum(terms / width, _MAX_RATIO))
        heavy, steep = terms + np.where(self.variance > 0, width * fall, 0.0), 1 - fall
        return means + self.part * (heavy - means), slope + self.part * (steep - slope)


@final
@dataclass(frozen=True, eq=False)
class _FoldedNormal:
    """Distribution of the absolute values of normal estimates around their true terms."""

    covariance: Covariance

    @cached_property
    def deviation(self) -> Floats:
        return np.sqrt(np.maximum(self.covariance.variances, 0.0))

    @cached_property
    def divisor(self) -> Floats:
        """The deviation, or one where it is zero, shape (k,)."""
        return np.where(self.deviation > 0, self.deviation, 1.0)

    @cached_property
    def _everywhere(self) -> bool:
        """Whether all terms have noise."""
        return bool((self.deviation > 0).all())

    @cached_property
    def _mean_at_zero(self) -> Floats:
        return np.asarray(_HALF_NORMAL_MEAN * self.deviation)

    @cached_property
    def _square(self) -> Floats:
        return np.asarray(self.deviation**2)

    @cached_property
    def _skewed_below(self) -> Floats:
        return np.asarray(_SYMMETRIC_RATIO * self.deviation)

    def means(self, terms: Floats) -> tuple[Floats, Floats]:
        """Mean of each absolute value, and its derivative with respect to the true term."""
        return self._folded(terms)[:2]

    def _folded(self, terms: Floats) -> tuple[Floats, Floats, Floats]:
        """Mean of each absolute value, its derivative, and the density of its noise at the true term."""
        from scipy.special import erf

        ratio = np.minimum(terms / self.divisor, _MAX_RATIO)
        slope = erf(ratio / _SQRT_2) if self._everywhere else np.where(self.deviation > 0, erf(ratio / _SQRT_2), 1.0)
        bell = np.exp(-0.5 * ratio**2)
        return self._mean_at_zero * bell + terms * slope, slope, _HALF_NORMAL_MEAN * bell

    def moments(self, terms: Floats) -> tuple[float, float]:
        """Mean and standard deviation of the sum; correlations enter to first order, through the derivatives."""
        return self._two(terms, *self.means(terms))

    def _two(self, terms: Floats, means: Floats, slope: Floats) -> tuple[float, float]:
        own = (1 - slope**2) * self._square + terms**2 - means**2
        variance = self.covariance.of_sum(slope) + float(np.add.reduce(np.maximum(own, 0.0)))
        return float(np.add.reduce(means)), float(max(variance, 0.0)) ** 0.5

    def three_moments(self, terms: Floats) -> tuple[float, float, float]:
        """Mean and standard deviation of the sum, and its third central moment as if the terms were independent."""
        means, slope, density = self._folded(terms)
        variance, square = self._square, terms**2
        cubes = (terms**3 + 3 * terms * variance) * slope + self.deviation * (2 * variance + square) * density
        third = cubes - 3 * means * (square + variance) + 2 * means**3
        skewed = np.where(terms < self._skewed_below, third, 0.0)
        return *self._two(terms, means, slope), float(np.add.reduce(skewed))


def _signed_bound(terms: Floats, distribution: _FoldedNormal) -> float:
    """Lower bound of the sum from signed terms; a sign comes from the neighbours, as far as they are certain."""
    from scipy.special import erf

    near = np.arange(len(terms))[:, None] + _NEIGHBOURS  # (k, 4)
    inside = (near >= 0) & (near < len(terms))
    near = np.where(inside, near, 0)
    known = distribution.deviation > 0
    # only ratios matter: squares of the inverses themselves could overflow
    smallest = distribution.divisor[known].min(initial=np.inf)
    weights = inside * np.where(known, (smallest / distribution.divisor) ** 2, 0.0)[near]
    pairs = distribution.covariance.blocks(near)
    deviation = np.sqrt(np.maximum(np.einsum("ka,kab,kb->k", weights, pairs, weights), 1e-300))
    signs = erf((weights * terms[near]).sum(axis=1) / deviation / _SQRT_2)
    signs = np.where(np.abs(terms) > _SIGN_Z * distribution.deviation, np.sign(terms), signs)
    variance = max(distribution.covariance.of_sum(signs), 0.0)
    return float(signs @ terms - _SIGNED_SUM_Z * variance**0.5)


def _tails(distribution: _FoldedNormal, terms: Floats, z: float) -> tuple[float, float]:
    """Lower and upper quantile of the plug-in sum of these true terms.

    Absolute values are skewed to the right, so the lower quantile is nearer than a normal distribution has it, and the
    upper one farther (the first term of the Cornish-Fisher expansion).
    """
    mean, deviation, third = distribution.three_moments(terms)
    skew = third / max(deviation, 1e-100) ** 3 * (z * z - 1) / 6
    return mean - max(z - skew, 0.0) * deviation, mean + (z + skew) * deviation


def _smallest_sum(total: float, low: Floats, high: Floats, distribution: _FoldedNormal, z: float) -> float:
    """Least sum of true terms in the box whose plug-in sum is compatible with the observed total.

    The plug-in bias is largest for a given sum when few terms make it up, so terms are raised from the bottom of the
    box to its top one after the other, starting with the one whose mean rises fastest.
    """
    rise = distribution.means(high)[0] - distribution.means(low)[0]
    order = np.argsort(-np.divide(rise, high - low, out=np.ones_like(low), where=high > low), kind="stable")
    room = (high - low)[order]
    before = np.cumsum(room) - room
    raised = np.empty_like(low)

    def reaches(extra: float) -> bool:
        raised[order] = low[order] + np.clip(extra - before, 0.0, room)
        return _tails(distribution, raised, z)[1] >= total

    return float(low.sum()) + _least(reaches, float(room.sum()))


def _largest_sum(total: float, low: Floats, high: Floats, distribution: _FoldedNormal, z: float) -> float:
    """Largest sum of true terms in the box whose plug-in sum is compatible with the observed total.

    The plug-in bias is least for a given sum when all terms are the same multiple of their standard deviations.
    """

    def exceeds(multiple: float) -> bool:
        return _tails(distribution, np.clip(multiple * distribution.deviation, low, high), z)[0] > total

    steepest = float((high / distribution.divisor)[distribution.deviation > 0].max())
    return float(np.clip(_least(exceeds, steepest) * distribution.deviation, low, high).sum())


def _least(holds: Callable[[float], bool], largest: float) -> float:
    """Least number in [0, largest] from which on a monotone condition holds."""
    return 0.0 if holds(0.0) else bisected(holds, 0.0, largest, _HALVINGS)[1]


def fit_noisy_counts(
    features: Any, positive: Any, negative: Any, *, noise: Any, prior_mean: Any, prior_deviation: float = 1.0
) -> Floats:
    """Weights of log-odds that are linear in features, (cells, k), from counts with noise of a known variance.

    Counts below zero stay signed, because clipping them at zero would add records that are not there. The prior is
    normal around `prior_mean`; with many records and little noise it hardly matters.
    """
    x = np.asarray(features, dtype=np.float64)
    p, n = np.asarray(positive, dtype=np.float64), np.asarray(negative, dtype=np.float64)
    start = np.asarray(prior_mean, dtype=np.float64)
    prior = np.eye(len(start)) / prior_deviation**2
    weights = _posterior_mode(x, p, n, start, prior)
    variance = np.broadcast_to(noise, p.shape)
    if not variance.any():
        return weights
    mean = sigmoid(x @ weights)
    hessian = _hessian_beyond_noise(x, (p + n) * mean * (1 - mean), 2 * variance * (mean * (1 - mean)) ** 2)
    gradient_noise = (x.T * (variance * ((1 - mean) ** 2 + mean**2))) @ x
    # the mode has weighed the labels against the prior as if counts were exact; noise adds to the variance of the
    # gradient, so the labels deserve less weight
    weight = hessian @ np.linalg.pinv(hessian + gradient_noise)
    pull = weight @ ((hessian + prior) @ (weights - start))
    return np.asarray(start + np.linalg.solve(weight @ hessian + prior, pull))


def _hessian_beyond_noise(x: Floats, curvature: Floats, variance: Floats) -> Floats:
    """Hessian of the likelihood less two standard deviations of its noise, along each of its eigenvectors."""
    values, vectors = np.linalg.eigh((x.T * curvature) @ x)
    deviation = np.sqrt(np.square(np.square(x @ vectors)).T @ variance)
    hessian: Floats = (vectors * np.maximum(values - 2 * deviation, 0.0)) @ vectors.T
    return hessian


def _posterior_mode(x: Floats, p: Floats, n: Floats, start: Floats, prior: Floats) -> Floats:
    """Posterior mode by Newton's method on signed counts; where it does not converge, counts are clipped at zero."""
    records = np.maximum(p + n, 0.0)
    weights = start.copy()
    for _ in range(_MAX_NEWTON_STEPS):
        mean = sigmoid(x @ weights)
        hessian = (x.T * (records * mean * (1 - mean))) @ x + prior
        step = np.linalg.solve(hessian, x.T @ ((p + n) * mean - p) + prior @ (weights - start))
        step *= min(1.0, 1.0 / max(float(np.abs(step).max()), 1e-300))  # at most one unit of log-odds at a time
        weights = weights - step
        if np.abs(step).max() < 1e-10:
            return weights
    return fit_counts(x, p, n, ridge=1e-6, start=start)
