"""What an audit found.

From two piles of scores to a lower bound on epsilon.

Differential privacy says of every event E that P(E with the unit) <= e^epsilon P(E without it) + delta, and the same
with the sides swapped. Here an event is "the score is at least t", or its opposite. The threshold, the side and the
direction are chosen on one half of the scores; the other half, which had no say, gives exact binomial bounds
(Clopper and Pearson 1934) on both probabilities. So the result holds whatever the noise is. A threshold that was known
before anything was drawn leaves all the scores to the bounds.

Evidence about Gaussian releases to secret Poisson samples: how little noise would explain what was told apart.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.numeric import bisected
from fedcalib.types import Array, Floats, Ints


@final
@dataclass(frozen=True)
class Audit:
    """A lower bound on epsilon that holds with the stated confidence, beside the epsilon that is claimed."""

    subject: str
    lower_epsilon: float
    claimed: float
    delta: float
    confidence: float
    draws: int  # with the unit, and as many without it
    evidence: str  # how error rates became an epsilon

    @property
    def passes(self) -> bool:
        """Say whether the claim stands."""
        return self.lower_epsilon <= self.claimed

    @property
    def power(self) -> float:
        """Say which share of the claim the audit could show to be needed."""
        return self.lower_epsilon / self.claimed if self.claimed else float(self.lower_epsilon > 0)


class Evidence(ABC):
    """How a likely event on one side and an unlikely one on the other become an epsilon."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Say in a word or two what is looked at."""

    @abstractmethod
    def strength(self, low: Floats, high: Floats) -> Floats:
        """Weigh events by the least probability on one side and the greatest on the other; more is stronger."""

    @abstractmethod
    def epsilon(self, strength: float) -> float:
        """Turn a strength into epsilon."""


@final
@dataclass(frozen=True)
class Threshold(Evidence):
    """Take the definition of differential privacy at its word, for one event."""

    delta: float = 0.0

    @property
    def name(self) -> str:
        """Say what is looked at."""
        return "threshold event"

    def strength(self, low: Floats, high: Floats) -> Floats:
        """Take the logarithm of the ratio."""
        return np.asarray(np.log(np.maximum(low - self.delta, 1e-300)) - np.log(high))

    def epsilon(self, strength: float) -> float:
        """Cut at 0."""
        return max(strength, 0.0)


@final
@dataclass(frozen=True)
class Gaussian(Evidence):
    """Read both error rates as those of Gaussian noise whose mean moves by mu standard deviations.

    That is how a Gaussian release looks, so the bound is far tighter at a small delta than any single event. It shows
    that mu is at least so much; the epsilon that follows rests on the noise being Gaussian.
    """

    delta: float

    def __post_init__(self) -> None:
        if not 0 < self.delta < 1:
            raise InputError(f"Expected a delta above 0 and below 1 to audit Gaussian noise, found {self.delta}.")

    @property
    def name(self) -> str:
        """Say what is looked at."""
        return "Gaussian shift"

    def strength(self, low: Floats, high: Floats) -> Floats:
        """Give mu."""
        from scipy.special import ndtri

        return np.asarray(ndtri(low) - ndtri(high))

    def epsilon(self, strength: float) -> float:
        """Find where the curve of the Gaussian mechanism meets delta (Balle and Wang 2018)."""
        low, high = 0.0, 1.0
        if strength <= 0 or self._delta(strength, 0.0) <= self.delta:
            return 0.0
        while self._delta(strength, high) > self.delta:
            low, high = high, 2 * high
        return bisected(lambda epsilon: self._delta(strength, epsilon) <= self.delta, low, high, 60)[0]

    @staticmethod
    def _delta(mu: float, epsilon: float) -> float:
        from scipy.special import log_ndtr

        return float(np.exp(log_ndtr(mu / 2 - epsilon / mu)) - np.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu)))


def lower_epsilon(
    present: Floats, absent: Floats, evidence: Evidence, confidence: float, threshold: float | None = None
) -> float:
    """Bound epsilon from below by scores of releases with and without the unit, each in the order drawn.

    A `threshold` fixed in advance says of a score at or above it that the unit is there.
    """
    if len(present) != len(absent) or len(present) < 4:
        raise InputError(f"Expected as many scores on both sides, at least 4, found {len(present)} and {len(absent)}.")
    if not 0 < confidence < 1:
        raise InputError(f"Expected a confidence between 0 and 1, found {confidence}.")
    doubt, half, side = 1 - confidence, 0, 0
    if threshold is None:
        half = len(present) // 2
        threshold, side = _chosen(present[:half], absent[:half], evidence, doubt)
    counts = _counts(present[half:], absent[half:], np.array([threshold]))[side]
    strength = _strengths(counts, len(present) - half, evidence, doubt)
    return evidence.epsilon(float(strength[0]))


def _chosen(present: Floats, absent: Floats, evidence: Evidence, doubt: float) -> tuple[float, int]:
    """Find the threshold and the side that tell most."""
    both = np.concatenate([present, absent])
    tails = np.logspace(-6, -2, 100)
    levels = np.concatenate([tails, np.linspace(0.01, 0.99, 400), 1 - tails, [0.0, 1.0]])
    thresholds = np.unique(np.quantile(both, levels, method="lower"))
    sides = _counts(present, absent, thresholds)
    strengths = np.stack([_strengths(side, len(present), evidence, doubt) for side in sides])
    side, at = np.unravel_index(int(np.argmax(strengths)), strengths.shape)
    return float(thresholds[at]), int(side)


def _counts(present: Floats, absent: Floats, thresholds: Floats) -> list[tuple[Ints, Ints]]:
    """Count scores at or above each threshold, or below it; the side that should be likelier comes first."""
    above = [len(scores) - np.searchsorted(np.sort(scores), thresholds) for scores in (present, absent)]
    below = [len(scores) - count for scores, count in zip((present, absent), above, strict=True)]
    return [(above[0], above[1]), (above[1], above[0]), (below[0], below[1]), (below[1], below[0])]


def _strengths(counts: tuple[Ints, Ints], draws: int, evidence: Evidence, doubt: float) -> Floats:
    low, high = at_least(counts[0], draws, doubt / 2), at_most(counts[1], draws, doubt / 2)
    strength = np.full(low.shape, -inf)
    told = low > 0
    strength[told] = evidence.strength(low[told], np.minimum(high[told], 1 - 1e-15))
    return strength


def at_least(hits: Array, draws: int, doubt: float) -> Floats:
    """Give the least probability that so many hits allow, but for a chance of `doubt`."""
    from scipy.special import betaincinv

    return np.where(hits == 0, 0.0, betaincinv(np.maximum(hits, 1), draws - hits + 1, doubt))


def at_most(hits: Array, draws: int, doubt: float) -> Floats:
    """Give the greatest probability that so many hits allow, but for a chance of `doubt`."""
    return 1 - at_least(draws - np.asarray(hits), draws, doubt)


_GRID = 1e-3  # of privacy losses; dp-accounting rounds them up, so that power is never understated
_LOSSES = np.linspace(0.0, 8.0, 400)
_MULTIPLIERS = 0.4 * 1.02 ** np.arange(240)  # from next to no privacy to more than anybody claims


@final
@dataclass(frozen=True)
class SampledShift(Evidence):
    """Read both error rates as those of so many Gaussian releases, each to a secret Poisson sample at `rate`.

    For each multiplier, privacy loss distributions say how much more likely than by chance an event can be with the
    unit there. The largest multiplier that allows what was seen gives epsilon. It rests on the noise being Gaussian and
    the samples Poisson, as `Gaussian` does for releases to everybody, and is far tighter than any single event.
    """

    delta: float
    rate: float
    steps: int

    @property
    def name(self) -> str:
        """Say what is looked at."""
        return "sampled Gaussian shift"

    def strength(self, low: Floats, high: Floats) -> Floats:
        """Give the inverse of the least multiplier that cannot explain the event; 0 where all can."""
        first, last = np.zeros(np.shape(low), dtype=np.int64), np.full(np.shape(low), len(_MULTIPLIERS))
        while (first < last).any():
            middle = (first + last) // 2
            explained = low <= self._most_likely(np.minimum(middle, len(_MULTIPLIERS) - 1), high)
            first, last = np.where(explained, middle + 1, first), np.where(explained, last, middle)
            first = np.minimum(first, last)
        return np.append(1 / _MULTIPLIERS, 0.0)[first]

    def _most_likely(self, which: Ints, high: Floats) -> Floats:
        """Bound the probability of events with the unit there by their probability without it, both ways round."""
        bound = np.ones(np.shape(high))
        for index in np.unique(which):
            rows = which == index
            excess, grown = _excess(self.rate, self.steps, int(index)), np.exp(_LOSSES)
            forward = (np.multiply.outer(high[rows], grown) + excess).min(axis=-1)
            backward = 1 - (np.subtract.outer(1 - high[rows], excess) / grown).max(axis=-1)
            bound[rows] = np.minimum(forward, backward)
        return bound

    def epsilon(self, strength: float) -> float:
        """Say what so much noise costs."""
        if not 0 < strength < inf:
            return 0.0
        return float(_composed(1 / strength, self.rate, self.steps).get_epsilon_for_delta(self.delta))


@cache
def _excess(rate: float, steps: int, index: int) -> Floats:
    """Give the delta at each loss."""
    return np.asarray(_composed(float(_MULTIPLIERS[index]), rate, steps).get_delta_for_epsilon(_LOSSES))


def _composed(multiplier: float, rate: float, steps: int) -> Any:
    from dp_accounting.pld import privacy_loss_distribution

    once = privacy_loss_distribution.from_gaussian_mechanism(
        multiplier, sampling_prob=rate, value_discretization_interval=_GRID
    )
    return once.self_compose(steps)
