"""From scores of releases with and without a unit to a lower bound on epsilon.

Differential privacy demands of every event E that P(E with the unit) <= e^epsilon P(E without it) + delta, and the same
with the sides swapped. Here an event is "the score is at least t", or its opposite. The threshold, the side and the
direction are chosen on one half of the scores; the other half, which is independent of the choice, gives exact binomial
bounds (Clopper and Pearson 1934) on both probabilities. So the result is valid whatever the noise is. With a threshold
that was fixed in advance, all scores are used for the bounds.

`Threshold` turns the two probabilities into an epsilon by this definition. `Gaussian` and `SampledShift` instead bound
the noise multiplier of Gaussian releases, to all clients or to secret Poisson samples, and derive epsilon from it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cache
from math import inf
from typing import Any, ClassVar, final

import numpy as np

from fedcalib.errors import InputError, needs
from fedcalib.numeric import bisected
from fedcalib.types import Array, Floats, Ints


@final
@dataclass(frozen=True)
class Audit:
    """The result of an audit: a lower bound on epsilon beside the epsilon that is claimed.

    Parameters
    ----------
    subject
        What was audited.
    lower_epsilon
        The lower bound, valid with probability `confidence`.
    claimed
        The epsilon that is claimed.
    delta
        The delta of both.
    confidence
        Confidence of the bound.
    draws
        Number of releases with the unit, and as many without it.
    evidence
        How error rates were turned into an epsilon.

    Examples
    --------
    >>> import fedcalib as fc
    >>> audit = fc.audit.Audit("count", 0.9, 1.0, 0.0, 0.999, 10_000, "threshold event")
    >>> audit.passes, audit.power
    (True, 0.9)
    """

    subject: str
    lower_epsilon: float
    claimed: float
    delta: float
    confidence: float
    draws: int
    evidence: str

    @property
    def passes(self) -> bool:
        """Whether the bound is at most the claim."""
        return self.lower_epsilon <= self.claimed

    @property
    def power(self) -> float:
        """The bound as a fraction of the claim: 1 for an audit as powerful as possible."""
        return self.lower_epsilon / self.claimed if self.claimed else float(self.lower_epsilon > 0)


class Evidence(ABC):
    """How the probabilities of an event with and without the unit are turned into an epsilon."""

    name: ClassVar[str]  # short description for reports

    @abstractmethod
    def strength(self, low: Floats, high: Floats) -> Floats:
        """Strength of events from a lower bound of their probability on one side and an upper bound on the other."""

    @abstractmethod
    def epsilon(self, strength: float) -> float:
        """The epsilon that a strength implies."""


@final
@dataclass(frozen=True)
class Threshold(Evidence):
    """The definition of differential privacy, applied to one event."""

    name = "threshold event"
    delta: float = 0.0

    def strength(self, low: Floats, high: Floats) -> Floats:
        return np.asarray(np.log(np.maximum(low - self.delta, 1e-300)) - np.log(high))

    def epsilon(self, strength: float) -> float:
        return max(strength, 0.0)


@final
@dataclass(frozen=True)
class Gaussian(Evidence):
    """Both error rates taken as those of Gaussian noise whose mean is shifted by mu standard deviations.

    That is the distribution of a Gaussian release, so at a small delta the bound is far tighter than that of any single
    event. The lower bound on mu is valid for any noise; the epsilon that follows assumes that the noise is Gaussian.
    """

    name = "Gaussian shift"
    delta: float

    def __post_init__(self) -> None:
        if not 0 < self.delta < 1:
            raise InputError(f"Expected a delta above 0 and below 1 to audit Gaussian noise, found {self.delta}.")

    def strength(self, low: Floats, high: Floats) -> Floats:
        """A lower bound on mu."""
        from scipy.special import ndtri

        return np.asarray(ndtri(low) - ndtri(high))

    def epsilon(self, strength: float) -> float:
        """Epsilon of the Gaussian mechanism at delta (Balle and Wang 2018)."""
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
    """Lower bound on epsilon from scores of releases with and without the unit.

    Scores must be in the order of the releases, because the threshold is chosen on the first half, unless a `threshold`
    was fixed in advance: then a score at or above it stands for the presence of the unit.
    """
    if len(present) != len(absent) or len(present) < 4:
        raise InputError(f"Expected as many scores on both sides, at least 4, found {len(present)} and {len(absent)}.")
    if not 0 < confidence < 1:
        raise InputError(f"Expected a confidence between 0 and 1, found {confidence}.")
    event, half = ScoreEvent(threshold or 0.0), 0
    if threshold is None:
        half = len(present) // 2
        event = ScoreEvent.strongest(present[:half], absent[:half], evidence, confidence)
    return evidence.epsilon(event.strength(present[half:], absent[half:], evidence, confidence))


@final
@dataclass(frozen=True)
class ScoreEvent:
    """A score at or above a threshold, or below it, which is taken to be likelier on one of the two sides.

    `side` is 0 or 1 for a score at or above the threshold that stands for presence or for absence, and 2 or 3 for a
    score below it that does.
    """

    threshold: float
    side: int = 0

    @classmethod
    def strongest(cls, present: Floats, absent: Floats, evidence: Evidence, confidence: float) -> ScoreEvent:
        """The event with the strongest evidence in these scores."""
        both = np.concatenate([present, absent])
        tails = np.logspace(-6, -2, 100)
        levels = np.concatenate([tails, np.linspace(0.01, 0.99, 400), 1 - tails, [0.0, 1.0]])
        thresholds = np.unique(np.quantile(both, levels, method="lower"))
        sides = _counts(present, absent, thresholds)
        strengths = np.stack([_strengths(side, len(present), evidence, 1 - confidence) for side in sides])
        side, at = np.unravel_index(int(np.argmax(strengths)), strengths.shape)
        return cls(float(thresholds[at]), int(side))

    def centred(self, scores: Floats) -> ScoreEvent:
        """The same event of these scores, with the threshold halfway to the next lower one: surer for other scores."""
        lower = scores[scores < self.threshold]
        return replace(self, threshold=float(lower.max() / 2 + self.threshold / 2)) if lower.size else self

    def strength(self, present: Floats, absent: Floats, evidence: Evidence, confidence: float) -> float:
        """The strength of the evidence in these scores, valid if the event was chosen without them."""
        counts = _counts(present, absent, np.array([self.threshold]))[self.side]
        return float(_strengths(counts, len(present), evidence, 1 - confidence)[0])


def _counts(present: Floats, absent: Floats, thresholds: Floats) -> list[tuple[Ints, Ints]]:
    """Counts of scores at or above each threshold, or below it; the side that should be likelier is first."""
    above = [len(scores) - np.searchsorted(np.sort(scores), thresholds) for scores in (present, absent)]
    below = [len(scores) - count for scores, count in zip((present, absent), above, strict=True)]
    return [(above[0], above[1]), (above[1], above[0]), (below[0], below[1]), (below[1], below[0])]


def _strengths(counts: tuple[Ints, Ints], draws: int, evidence: Evidence, error: float) -> Floats:
    low, high = at_least(counts[0], draws, error / 2), at_most(counts[1], draws, error / 2)
    strength = np.full(low.shape, -inf)
    positive = low > 0
    strength[positive] = evidence.strength(low[positive], np.minimum(high[positive], 1 - 1e-15))
    return strength


def at_least(hits: Array, draws: int, error: float) -> Floats:
    """Lower confidence bound on a probability from a number of hits, which fails with probability `error`."""
    from scipy.special import betaincinv

    return np.where(hits == 0, 0.0, betaincinv(np.maximum(hits, 1), draws - hits + 1, error))


def at_most(hits: Array, draws: int, error: float) -> Floats:
    """Upper confidence bound on a probability from a number of hits, which fails with probability `error`."""
    return 1 - at_least(draws - np.asarray(hits), draws, error)


_GRID = 1e-3  # of privacy losses; dp-accounting rounds them up, so that multipliers are never excluded wrongly
_LOSSES = np.linspace(0.0, 8.0, 400)
_MULTIPLIERS = 0.4 * 1.02 ** np.arange(240)  # from almost no privacy to more than is ever claimed


@final
@dataclass(frozen=True)
class SampledShift(Evidence):
    """Both error rates taken as those of `steps` Gaussian releases, each of a secret Poisson sample at `rate`.

    For each noise multiplier, privacy loss distributions bound how much likelier an event can be with the unit. The
    largest multiplier that is compatible with the observed error rates gives epsilon. It assumes Gaussian noise and
    Poisson samples, and is far tighter than any single event.
    """

    name = "sampled Gaussian shift"
    delta: float
    rate: float
    steps: int

    def strength(self, low: Floats, high: Floats) -> Floats:
        """The inverse of the least multiplier that is not compatible with the event; 0 where all are."""
        first, last = np.zeros(np.shape(low), dtype=np.int64), np.full(np.shape(low), len(_MULTIPLIERS))
        while (first < last).any():
            middle = (first + last) // 2
            explained = low <= self._largest_probability(np.minimum(middle, len(_MULTIPLIERS) - 1), high)
            first, last = np.where(explained, middle + 1, first), np.where(explained, last, middle)
            first = np.minimum(first, last)
        return np.append(1 / _MULTIPLIERS, 0.0)[first]

    def _largest_probability(self, which: Ints, high: Floats) -> Floats:
        """Upper bound on the probability of events with the unit, from that without it, in both directions."""
        bound = np.ones(np.shape(high))
        for index in np.unique(which):
            rows = which == index
            deltas, ratios = _deltas(self.rate, self.steps, int(index)), np.exp(_LOSSES)
            forward = (np.multiply.outer(high[rows], ratios) + deltas).min(axis=-1)
            backward = 1 - (np.subtract.outer(1 - high[rows], deltas) / ratios).max(axis=-1)
            bound[rows] = np.minimum(forward, backward)
        return bound

    def epsilon(self, strength: float) -> float:
        """Epsilon at the noise multiplier 1 / strength."""
        if not 0 < strength < inf:
            return 0.0
        return float(_composed(1 / strength, self.rate, self.steps).get_epsilon_for_delta(self.delta))


@cache
def _deltas(rate: float, steps: int, index: int) -> Floats:
    """Delta at each privacy loss of the grid."""
    return np.asarray(_composed(float(_MULTIPLIERS[index]), rate, steps).get_delta_for_epsilon(_LOSSES))


def _composed(multiplier: float, rate: float, steps: int) -> Any:
    with needs("audit rounds that sample clients"):
        from dp_accounting.pld import privacy_loss_distribution

    once = privacy_loss_distribution.from_gaussian_mechanism(
        multiplier, sampling_prob=rate, value_discretization_interval=_GRID
    )
    return once.self_compose(steps)
