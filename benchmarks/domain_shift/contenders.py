"""Every method of the study, on many trials at once: the same rules as in the package, without its machinery."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import log, sqrt
from typing import final

import numpy as np

from benchmarks.domain_shift.pool import BINS, LADDER, STEPS, Trials
from fedcalib.estimation.evidence import normal_p_value, share_of_identity
from fedcalib.estimation.roots import cubic_roots, linear_root
from fedcalib.methods.domain_shift import CHANCE, FALSE_MOVES, NOISY_PLACES, heard, is_noisy, moves
from fedcalib.queries.shift import gaps_of
from fedcalib.search import Interpolation
from fedcalib.types import Floats, Ints

_GOLDEN = (sqrt(5) - 1) / 2

Measures = tuple[Floats, Floats]  # calibration error and Brier score of the top label, (trials,) each


class Contender(ABC):
    """A way to recalibrate."""

    @abstractmethod
    def measures(self, trials: Trials, epsilon: float) -> Measures:
        """Recalibrate in every trial and measure on the rest."""


@final
@dataclass(frozen=True)
class Nothing(Contender):
    """No recalibration."""

    def measures(self, trials: Trials, epsilon: float) -> Measures:
        """Measure the model as it is."""
        return trials.measured(np.broadcast_to(trials.pool.rows(np.ones(1)), len(trials)))


class Tempering(Contender):
    """A search for a temperature."""

    @abstractmethod
    def temperatures(self, trials: Trials, epsilon: float) -> Floats:
        """Find a temperature in every trial."""

    def measures(self, trials: Trials, epsilon: float) -> Measures:
        """Measure the temperatures that were found."""
        return trials.measured(trials.pool.near(self.temperatures(trials, epsilon)))


@final
@dataclass(frozen=True)
class AccTGolden(Tempering):
    """Acc-T as published, its search corrected."""

    low: float = 0.5
    high: float = 3.0
    steps: int = 5

    def temperatures(self, trials: Trials, epsilon: float) -> Floats:
        """Minimise the magnitude of the gap."""
        width = (self.steps + 1) / epsilon

        def look(rows: Ints) -> Floats:
            return np.abs(trials.gaps(rows) + trials.noise(width)[:, 0])

        return golden(trials, look, self.low, self.high, self.steps)


@final
@dataclass(frozen=True)
class NLLTGolden(Tempering):
    """NLL-T as published, its search corrected and each record's loss cut inside the query."""

    low: float = 0.5
    high: float = 3.0
    steps: int = 5
    worst: float = 10.0

    def temperatures(self, trials: Trials, epsilon: float) -> Floats:
        """Minimise the cut log loss."""
        width = self.worst * (self.steps + 1) / epsilon

        def look(rows: Ints) -> Floats:
            return trials.losses(rows, self.worst) + trials.noise(width)[:, 0]

        return golden(trials, look, self.low, self.high, self.steps)


@final
@dataclass(frozen=True)
class ECETGolden(Tempering):
    """ECE-T as published, its search corrected."""

    low: float = 0.5
    high: float = 3.0
    steps: int = 5

    def temperatures(self, trials: Trials, epsilon: float) -> Floats:
        """Minimise the summed gaps of all bins."""
        width = (self.steps + 1) / epsilon

        def look(rows: Ints) -> Floats:
            return np.abs(trials.binned(rows) + trials.noise(width, BINS)).sum(axis=1)

        return golden(trials, look, self.low, self.high, self.steps)


@final
@dataclass(frozen=True)
class OneSource(Tempering):
    """NLL-T on the raw records of one source: not private, and usable only by that source."""

    low: float = 0.5
    high: float = 3.0
    steps: int = 5

    def temperatures(self, trials: Trials, epsilon: float) -> Floats:
        """Minimise one source's log loss, without noise."""

        def look(rows: Ints) -> Floats:
            return trials.losses(rows, np.inf, trials.samples)

        return golden(trials, look, self.low, self.high, self.steps)


@final
@dataclass(frozen=True)
class AccTCurve(Tempering):
    """Acc-T as it is here by default: one message of sensitivity 1, and no more of a move than its evidence allows."""

    search: Interpolation = Interpolation()
    low: float = 0.5
    high: float = 16.0

    def temperatures(self, trials: Trials, epsilon: float) -> Floats:
        """Read the crossing off the usual shape of confidence or, where there is little noise, off the cubic."""
        if is_noisy(trials.sources, epsilon):
            curves, noise = noisy_curves(trials, NOISY_PLACES, epsilon)
            return np.exp(moves(heard(curves, noise, trials.pool.classes, self.low, self.high)))
        places = self.search.within(self.low, self.high)
        read, noise = noisy_gaps(trials, places, epsilon)
        found = np.clip(cubic_roots(np.log(np.array(places)), read), log(self.low), log(self.high))
        errors = np.sqrt(len(places) * noise + CHANCE * (read[:, -1] - read[:, 0]))
        z = zip(read[:, places.index(1.0)].tolist(), errors.tolist(), strict=True)
        kept = share_of_identity(np.array([normal_p_value(*one) for one in z]), FALSE_MOVES)
        return np.exp((1 - kept) * found)


def noisy_curves(trials: Trials, places: tuple[float, ...], epsilon: float) -> tuple[Floats, float]:
    """The middle and the half increments of each trial's gaps, (trials, places), and the variance of their noise."""
    gaps = np.stack([trials.gaps(trials.pool.rows(np.full(len(trials), place))) for place in places], axis=1)
    curves = np.concatenate([(gaps[:, :1] + gaps[:, -1:]) / 2, np.diff(gaps, axis=1) / 2], axis=1)
    return curves + trials.noise(1 / epsilon, len(places)), trials.sources * 2 / epsilon**2


def noisy_gaps(trials: Trials, places: tuple[float, ...], epsilon: float) -> tuple[Floats, float]:
    """The gaps of each trial's curve, (trials, places), and the variance of the noise of a cell."""
    curves, noise = noisy_curves(trials, places, epsilon)
    return np.stack([gaps_of(curve) for curve in curves]), noise


@final
@dataclass(frozen=True)
class AccTLooks(Tempering):
    """Acc-T from two looks that share the budget: each with half of it."""

    places: tuple[float, ...] = (1.5, 6.0)
    low: float = 0.5
    high: float = 16.0

    def temperatures(self, trials: Trials, epsilon: float) -> Floats:
        """Read the crossing off the line."""
        gaps = np.stack([trials.gaps(trials.pool.rows(np.full(len(trials), place))) for place in self.places], axis=1)
        noisy = gaps + trials.noise(len(self.places) / epsilon, len(self.places))
        places, low, high = np.log(np.array(self.places)), log(self.low), log(self.high)
        return np.exp([linear_root(places, values, low, high) for values in noisy])


@final
@dataclass(frozen=True)
class Pooled(Tempering):
    """Acc-T on all sources' raw records: not private, and as good as this search can get."""

    low: float = 0.5
    high: float = 16.0

    def temperatures(self, trials: Trials, epsilon: float) -> Floats:
        """Halve the bracket, in the logarithm and on the rungs of the ladder, until neighbours are left."""
        low, high = np.zeros(len(trials), dtype=int), np.full(len(trials), STEPS - 1)
        while (high - low).max() > 1:
            middle = (low + high) // 2
            below = trials.gaps(trials.pool.rows(LADDER[middle])) < 0
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.clip(LADDER[high], self.low, self.high)


@final
@dataclass(frozen=True)
class AccTBisection(Tempering):
    """Acc-T by the sign of the gap in the middle of the bracket."""

    low: float = 0.5
    high: float = 16.0
    looks: int = 4

    def temperatures(self, trials: Trials, epsilon: float) -> Floats:
        """Halve the bracket."""
        low, high = np.full(len(trials), self.low), np.full(len(trials), self.high)
        for look in range(self.looks):
            last = look == self.looks - 1  # spent on an end of the bracket, if what is left touches one
            at_low, at_high = last & (low == self.low), last & (high == self.high)
            place = np.where(at_low, low, np.where(at_high, high, (low + high) / 2))
            below = trials.gaps(trials.pool.rows(place)) + trials.noise(self.looks / epsilon)[:, 0] < 0
            beyond = (at_low & ~below) | (at_high & below)
            halved = ~(at_low | at_high)
            low, high = (
                np.where(beyond | (halved & below), place, low),
                np.where(beyond | (halved & ~below), place, high),
            )
        return (low + high) / 2


@final
@dataclass(frozen=True)
class PublishedBinning(Contender):
    """Histogram binning from (right, all) counts, whose sensitivity is 2, as published."""

    def measures(self, trials: Trials, epsilon: float) -> Measures:
        """Divide noisy counts; a bin without records keeps its midpoint."""
        right, wrong = trials.counts
        every = right + wrong + trials.whole_noise(2 / epsilon, BINS)
        right = right + trials.whole_noise(2 / epsilon, BINS)
        share = np.where(every > 0, right / np.where(every > 0, every, 1.0), middles(trials.pool.classes))
        return trials.measured_steps(np.clip(share, 1 / trials.pool.classes, 1.0))


@final
@dataclass(frozen=True)
class RightWrongBinning(Contender):
    """Histogram binning from (right, wrong) counts, whose sensitivity is 1, smoothed."""

    smoothing: float = 2.0

    def measures(self, trials: Trials, epsilon: float) -> Measures:
        """Divide noisy counts, with some pseudo-records at the midpoint."""
        right, wrong = (
            np.maximum(count + trials.whole_noise(1 / epsilon, BINS), 0.0) for count in trials.counts
        )  # fmt: skip
        share = (right + self.smoothing * middles(trials.pool.classes)) / (right + wrong + self.smoothing)
        return trials.measured_steps(np.clip(share, 1 / trials.pool.classes, 1.0))


def middles(classes: int) -> Floats:
    """Give the middle of every bin, but no confidence below that of a guess."""
    return np.maximum((np.arange(BINS) + 0.5) / BINS, 1 / classes)


def golden(trials: Trials, look: Callable[[Ints], Floats], low: float, high: float, steps: int) -> Floats:
    """Search every trial's bracket at once; steps + 1 looks.

    Gives the middle of what is left, as published; the package gives the end of a bracket that was never left.
    """
    lows, highs = np.full(len(trials), low), np.full(len(trials), high)
    left, right = highs - _GOLDEN * (highs - lows), lows + _GOLDEN * (highs - lows)
    at_left, at_right = look(trials.pool.rows(left)), look(trials.pool.rows(right))
    for step in range(steps):
        rising = at_left < at_right
        lows, highs = np.where(rising, lows, left), np.where(rising, right, highs)
        left, right = (
            np.where(rising, highs - _GOLDEN * (highs - lows), right),
            np.where(rising, left, lows + _GOLDEN * (highs - lows)),
        )
        if step < steps - 1:
            fresh = look(trials.pool.rows(np.where(rising, left, right)))
            at_left, at_right = np.where(rising, fresh, at_right), np.where(rising, at_left, fresh)
    return (lows + highs) / 2
