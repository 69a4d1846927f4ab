"""Metrics of a classifier with several classes, from sums that may carry privacy noise of a known variance.

`ClassSums` is what one message says, whether exact or noisy. Every figure is a `ClassEstimate`: a value with its
interval, and the standard deviations that sampling and noise contribute, from which follows what would make it
measurable.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt
from typing import Final, final

import numpy as np

from fedcalib.estimation.covariances import Covariance
from fedcalib.estimation.noise_aware import (
    ShapedSum,
    absolute_sum_interval,
    absolute_sum_range,
    sign_weights,
    simulated_interval,
)
from fedcalib.estimation.score_rates import unevenness
from fedcalib.metrics.intervals import Measured, critical, normal_quantile, ratio
from fedcalib.types import Floats

LEVEL: Final = 0.95
Z: Final = normal_quantile(LEVEL)
_NOISE_Z: Final = 2.12  # discrete Laplace noise on one sum has 95% within ln(20)/sqrt(2) standard deviations
# a record that is wrong moves two residuals at once, at most in the same direction: twice the variance of the squares
SHARED_RECORDS: Final = 2.0
_FEW, _MANY = 20, 400  # gaps between which their covariance is known and their interval is simulated
_HIDDEN_Z: Final = 1.5  # a class whose size is less than so many deviations of its noise may have any F1
_SHAPE_Z: Final = (2.5, 2.2)  # at the lower and upper end; more than 1.96, since the shape of the gaps is a guess
_RULE_OF_THREE: Final = 3.0  # n records that are all alike leave a share of 3/n for others, at 95%


@final
@dataclass(frozen=True)
class ClassEstimate:
    """A value with its interval, and the standard deviations of sampling and of privacy noise."""

    value: float
    low: float
    high: float
    sampling: float
    noise: float

    @classmethod
    def normal(cls, value: float, sampling: float, noise: float) -> ClassEstimate:
        """An estimate with a normal distribution."""
        half = sqrt((Z * sampling) ** 2 + (_NOISE_Z * noise) ** 2)
        return cls(value, value - half, value + half, sampling, noise)

    @property
    def deviation(self) -> float:
        return sqrt(self.sampling**2 + self.noise**2)

    def measured(self, lowest: float, largest: float, records: float) -> Measured:
        """The estimate inside its range; the interval never shrinks to a point.

        Where noise puts most of the interval outside the range, half of its width stays inside. Where records are all
        alike, the interval leaves room for a share of three over their number that is not.
        """
        value = min(max(self.value, lowest), largest)
        low, high = (min(max(end, lowest), largest) for end in (self.low, self.high))
        room = max((self.high - self.low) / 4, 0.0)
        if high - low < room:
            low, high = max(low - room, lowest), min(high + room, largest)
        if high - low <= 0:
            room = _RULE_OF_THREE * (largest - lowest) / max(records, _RULE_OF_THREE)
            low, high = max(low - room, lowest), min(high + room, largest)
        return Measured(value, min(low, value), max(high, value))


@final
@dataclass(frozen=True, eq=False)
class LossTotal:
    """A sum over records, the sum of its squares or an estimate of it, and the variance of the sum's noise."""

    sum: float
    squares: float
    noise: float

    def mean(self, records: float, records_noise: float) -> ClassEstimate:
        """The mean over records; the number of records has noise of its own."""
        mean = self.sum / records
        sampling = max(self.squares / records - mean**2, 0.0) / records
        return ClassEstimate.normal(mean, sqrt(sampling), sqrt(self.noise + mean**2 * records_noise) / records)


@final
@dataclass(frozen=True, eq=False)
class ClassGaps:
    """Signed gaps of bins or (class, bin) cells, the variance of their noise, and their sampling covariance."""

    gap: Floats  # (cells,)
    noise: Floats  # (cells,)
    sampling: Covariance
    entries: float  # that the sum of absolute gaps is divided by
    bucketing: float = 0.0  # how far cells of some width can move the error
    laplace: bool = False  # whether the noise may be Laplace
    most: float = inf  # an upper bound of the sum of absolute gaps that records can have

    @property
    def covariance(self) -> Covariance:
        return self.sampling.plus(self.noise)

    @property
    def value(self) -> float:
        """The mean absolute gap; the bias that noise adds is removed, the one that sampling adds is not."""
        return min(self._shaped.value(), self.most) / self.entries

    @property
    def _shaped(self) -> ShapedSum:
        """Gaps are larger where there are more records: in the shape of their sampling variances."""
        shape = np.maximum(self.sampling.variances, 0.0) + 1e-9
        return ShapedSum(self.gap, self.noise, self.sampling, shape, self.laplace)

    def error(self) -> ClassEstimate:
        """The mean absolute gap with its interval: of few gaps, bounds for any shape and for the likely one, averaged.

        The interval of many gaps is simulated. Where there is noise the likely shape decides alone: bounds for any
        shape would say nothing.
        """
        covariance, value = self.covariance, self.value
        ends = self._shaped.interval(*_SHAPE_Z)
        if not self.noise.any() and _FEW < len(self.gap) <= _MANY:
            ends = simulated_interval(self.gap, covariance.matrix)
        elif not self.noise.any():
            bounds = absolute_sum_interval(self.gap, covariance, LEVEL)
            ends = (ends[0] + bounds.low) / 2, (ends[1] + bounds.high) / 2
        low, high = (min(end, self.most) / self.entries for end in ends)
        deviation = absolute_sum_range(self.gap, covariance)[2] / self.entries
        slope = sign_weights(self.gap, covariance)
        noise = min(sqrt(float((slope**2 * self.noise).sum())) / self.entries, deviation)
        sampling = sqrt(max(deviation**2 - noise**2, 0.0))
        return ClassEstimate(
            value, min(low - self.bucketing, value), max(high + self.bucketing, value), sampling, noise
        )


def change_of_error(before: ClassGaps, after: ClassGaps, products: Floats | None) -> ClassEstimate:
    """How much the mean absolute gap changes on the same records.

    `products` holds the sampling covariance of the gaps before (rows) and after (columns). Without it the two errors
    are taken to vary together in the worst way: the interval is then too wide rather than too short.
    """
    ranges = [absolute_sum_range(side.gap, side.covariance) for side in (before, after)]
    (low, high, spread), (low_after, high_after, spread_after) = [
        tuple(number / side.entries for number in found) for side, found in zip((before, after), ranges, strict=True)
    ]
    if products is None:
        variance = (spread + spread_after) ** 2
    else:
        weights = [sign_weights(side.gap, side.covariance) / side.entries for side in (before, after)]
        variance = spread**2 + spread_after**2 - 2 * float(weights[0] @ products @ weights[1])
    room = before.bucketing + after.bucketing
    return _widened(
        after.value - before.value, low_after - high - room, high_after - low + room, sqrt(max(variance, 0.0))
    )


def _widened(value: float, low: float, high: float, deviation: float) -> ClassEstimate:
    """An identified set with the margin that chance needs at both ends."""
    margin = critical((high - low) / max(deviation, 1e-300), LEVEL) * deviation
    return ClassEstimate(value, min(low - margin, value), max(high + margin, value), deviation, 0.0)


@final
@dataclass(frozen=True, eq=False)
class Outcomes:
    """Right, wrongly predicted and missed records per class, each with the variance of its noise, shape (classes,).

    `confusion` holds records by predicted and true class where it was counted.
    """

    right: Floats
    predicted: Floats  # wrong, by predicted class
    missed: Floats  # wrong, by true class
    right_noise: Floats
    predicted_noise: Floats
    missed_noise: Floats
    confusion: Floats | None = None

    @property
    def size(self) -> Floats:
        """True positives twice, and false positives and negatives: the denominator of F1."""
        found: Floats = 2 * self.right + self.predicted + self.missed
        return found

    @property
    def counted(self) -> Floats:
        """Whether a class occurs among labels or predictions; all do where noise hides it."""
        noisy = self.right_noise.any()
        return np.ones(len(self.right)) if noisy else (self.size > 0.5).astype(np.float64)

    @property
    def actual(self) -> Floats:
        found: Floats = np.maximum(self.right, 0.0) + np.maximum(self.missed, 0.0)
        return found

    def f1(self) -> Floats:
        """F1 of each class, 0 where it does not occur."""
        value: Floats = np.clip(ratio(2 * np.maximum(self.right, 0.0), np.maximum(self.size, 0.0), 0.0), 0.0, 1.0)
        return value

    def average_f1(self, weights: Floats, credit: Floats) -> ClassEstimate:
        """The weighted mean of F1 over classes; `credit` is how much a record of each class moves the weights' part.

        A class that noise hides may have any F1, so the interval leaves room for all of them.
        """
        value, size = self.f1(), np.maximum(self.size, 1.0)
        own = weights * 2 * np.maximum(size - 2 * self.right, 0.0) / size**2 + credit  # of a right record
        predicted = -weights * 2 * np.maximum(self.right, 0.0) / size**2  # of a wrong one, for its predicted class
        missed = predicted + credit  # and for its true class
        noise = own**2 @ self.right_noise + predicted**2 @ self.predicted_noise + missed**2 @ self.missed_noise
        sampling = own**2 @ np.maximum(self.right, 0.0) + self._wrong(predicted, missed)
        found = ClassEstimate.normal(float(weights @ value), sqrt(float(sampling)), sqrt(float(noise)))
        room = weights * self.hidden
        low, high = found.low - float(room @ value), found.high + float(room @ (1 - value))
        return ClassEstimate(found.value, low, high, found.sampling, found.noise)

    @property
    def hidden(self) -> Floats:
        """Whether a class has no more records and predictions than noise alone could produce."""
        noise = 4 * self.right_noise + self.predicted_noise + self.missed_noise
        found: Floats = (self.size <= _HIDDEN_Z * np.sqrt(noise)).astype(np.float64)
        return found if noise.any() else np.zeros(len(found))

    def _wrong(self, predicted: Floats, missed: Floats) -> float:
        """Summed squared influence of wrong records, each of which has a predicted and a missed class."""
        if self.confusion is not None:
            wrong = np.maximum(self.confusion - np.diag(np.diag(self.confusion)), 0.0)
            return float((np.square(predicted[:, None] + missed) * wrong).sum())
        first, second = np.maximum(self.predicted, 0.0), np.maximum(self.missed, 0.0)
        together = 2 * (predicted @ first) * (missed @ second) / max(float(second.sum()), 1.0)
        return max(float(predicted**2 @ first + missed**2 @ second + together), 0.0)

    def rates(self, others: Floats, noise: Floats) -> list[ClassEstimate]:
        """Right records of each class among them and others: precision or recall, as a proportion."""
        return [
            proportion(*numbers)
            for numbers in zip(
                self.right.tolist(), others.tolist(), self.right_noise.tolist(), noise.tolist(), strict=True
            )
        ]


def proportion(hits: float, misses: float, hits_noise: float, misses_noise: float) -> ClassEstimate:
    """A proportion of two noisy counts: Wilson's interval, with the noise added to its variance."""
    total = hits + misses
    if total <= max(_RULE_OF_THREE * sqrt(hits_noise + misses_noise), 0.5):
        return ClassEstimate(float("nan"), 0.0, 1.0, 0.0, 1.0)
    share = min(max(hits / total, 0.0), 1.0)
    noise = ((1 - share) ** 2 * hits_noise + share**2 * misses_noise) / total**2
    sampling, extra = share * (1 - share) / total, Z * Z / total
    centre = (share + extra / 2) / (1 + extra)
    half = Z * sqrt(sampling + noise + extra / (4 * total)) / (1 + extra)
    low, high = min(centre - half, share), max(centre + half, share)
    return ClassEstimate(share, low, high, sqrt(sampling), sqrt(noise))


def combined(values: list[float], noises: list[float]) -> tuple[float, float]:
    """Several noisy counts of the same records as one, weighted by their variances, and its variance."""
    if not all(noises):
        return values[noises.index(0.0)], 0.0
    weights = [1 / noise for noise in noises]
    mean = sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)
    return mean, 1 / sum(weights)


def one_against_rest(counts: Floats, noise: Floats) -> tuple[list[ClassEstimate], ClassEstimate]:
    """AUC of each class against the rest, and their mean, from counts (classes, 2, cells) of the class and the others.

    A record is positive for one class only, so the parts of the variance that positives have are independent; those of
    negatives are taken to vary together in the worst way.
    """
    parts = [
        _area(positive, negative, float(level.max())) for (positive, negative), level in zip(counts, noise, strict=True)
    ]
    known = [part for part in parts if part is not None]
    each = [ClassEstimate(float("nan"), 0.0, 1.0, 0.0, 1.0) if part is None else part.estimate() for part in parts]
    if not known:
        return each, ClassEstimate(float("nan"), 0.0, 1.0, 0.0, 1.0)
    mean = _Area(
        float(np.mean([part.value for part in known])),
        sum(part.positive for part in known) / len(known) ** 2,
        float(np.mean([sqrt(part.negative) for part in known])) ** 2,
        sum(part.noise for part in known) / len(known) ** 2,
        float(np.mean([part.ties for part in known])),
    )
    return each, mean.estimate()


@final
@dataclass(frozen=True)
class _Area:
    value: float
    positive: float  # part of the variance that positives have
    negative: float
    noise: float
    ties: float  # how far pairs inside cells can move it

    def estimate(self) -> ClassEstimate:
        found = ClassEstimate.normal(self.value, sqrt(self.positive + self.negative), sqrt(self.noise))
        return ClassEstimate(self.value, found.low - self.ties, found.high + self.ties, found.sampling, found.noise)


def _area(positive: Floats, negative: Floats, noise: float) -> _Area | None:
    """The area under one class's curve; None where a class has too few records for its noise."""
    p, n = float(positive.sum()), float(negative.sum())
    if min(p, n) <= max(_RULE_OF_THREE * sqrt(noise * len(positive)), 1.5):
        return None
    below = (np.cumsum(negative) - negative / 2) / n
    above = 1 - (np.cumsum(positive) - positive / 2) / p
    area = float(np.clip(positive @ below / p, 0.0, 1.0))
    kept = [np.maximum(side, 0.0) for side in (positive, negative)]
    parts = [
        side @ (part - area) ** 2 / total**2 for side, part, total in zip(kept, (below, above), (p, n), strict=True)
    ]
    privacy = noise * float(np.square(below - area).sum() / p**2 + np.square(above - area).sum() / n**2)
    within = np.minimum(unevenness(kept[0]) + unevenness(kept[1]), 0.5)
    return _Area(area, float(parts[0]), float(parts[1]), privacy, float((within * kept[0] * kept[1]).sum()) / (p * n))


@final
@dataclass(frozen=True, eq=False)
class ClassSums:
    """What one message says about a classifier with several classes, whether exact or noisy."""

    records: float
    records_noise: float
    right: float
    right_noise: float
    wrong: float
    wrong_noise: float
    top: ClassGaps
    classwise: ClassGaps
    log_loss: LossTotal
    brier: LossTotal
    outcomes: Outcomes
    scores: Floats | None = None  # (classes, 2, cells)
    scores_noise: Floats | None = None

    @property
    def known(self) -> bool:
        """Whether there are more records than noise alone could produce."""
        return self.records > max(_RULE_OF_THREE * sqrt(self.records_noise), 0.5)

    @property
    def noisy(self) -> bool:
        return self.records_noise > 0
