"""Temperatures from a single message.

`OneShotTemperature` sums gradients of the log-likelihood, which finds the pooled optimum. `BoundedTemperature` sums one
bounded score per client, which needs no guess of how much a client may add where whole clients are hidden.
`MonotoneTemperature` sums increments of gradients, which are less than the gradients, for noise on single records.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import exp, inf, log, sqrt
from typing import Final, final

import numpy as np

from fedcalib.artifacts.calibrator import UNCHANGED, Calibrator
from fedcalib.artifacts.scaling import Temperature
from fedcalib.errors import InputError
from fedcalib.estimation import roots
from fedcalib.estimation.evidence import unmoved_share
from fedcalib.method import Flow, Method
from fedcalib.queries.temperature import (
    GradientSteps,
    TemperatureCurve,
    TemperatureScores,
    TemperatureSlope,
    max_variance,
)
from fedcalib.query import Answer
from fedcalib.records import Schema
from fedcalib.types import Floats
from fedcalib.wire import ADDED

_CURVE_ERROR = 0.05  # standard error of a root in ln b that comes from having few points
NOT_SIGNIFICANT: Final = "nothing was changed: at T = 1 noise may explain all of the gradient"
_TYPICAL_RECORDS = 50.0  # a public guess at a client's size, for clipping whole clients


@final
@dataclass(frozen=True)
class OneShotTemperature(Method[Temperature]):
    """Temperature at which the summed gradient of the log-likelihood is zero: the pooled optimum.

    Clients send the gradient at `points` inverse temperatures; the server fits a curve in their logarithm, as simple as
    the noise suggests, and takes its root. Each refinement is one more query for the gradient and its derivative at the
    current root, and a Newton step between the two points of the curve where it crosses zero. Without noise that is the
    pooled optimum; with noise each step is weighted by how precisely it is known.

    Parameters
    ----------
    points
        Number of temperatures of the first message.
    lowest, highest
        Range of these temperatures.
    reach
        Bound to which a record's gradient is clipped.
    refinements
        Number of further messages.
    typical_records
        A public guess at a client's number of records, for clipping whole clients.
    breadth
        A client may add this many times the square root of `typical_records`.
    doubt
        z-threshold: where the gradient at T = 1 is within this many standard errors of zero, T stays 1, with a warning.
    weight
        The method's part of a pipeline's budget.

    Examples
    --------
    >>> import fedcalib as fc
    >>> federation = fc.Federation.simulated(temperature=2.0, records=20_000)
    >>> method = fc.OneShotTemperature(refinements=2)
    >>> round(fc.run(method, fc.InProcess(federation), fc.SecAgg()).artifact.temperature, 1)
    2.0
    """

    points: int = 8
    lowest: float = 0.25
    highest: float = 4.0
    reach: float = 10.0
    refinements: int = 0
    typical_records: float = _TYPICAL_RECORDS
    breadth: float = 2.0
    doubt: float = 0.0
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.points < 4 or not 0 < self.lowest < self.highest or self.refinements < 0 or not self.breadth > 0:
            raise InputError(f"Expected at least 4 points, 0 < lowest < highest and breadth above 0, found {self}.")

    def protocol(self, schema: Schema) -> Flow[Temperature]:
        grid = np.linspace(log(1 / self.highest), log(1 / self.lowest), self.points)
        clip = self.breadth * sqrt(self.points * self.typical_records) / self.reach
        answer = yield TemperatureCurve(tuple(np.exp(grid).tolist()), self.reach, clip, self.weight)
        gradients, noise = answer["slope"], float(answer.variance("slope")[0])
        middle = 0.0 if grid[0] <= 0 <= grid[-1] else float(grid.mean())
        start = roots.noisy_root(grid, gradients, noise, middle)
        root = _Root(start, _bracket(grid, gradients, noise, start), noise / 2)
        for _ in range(self.refinements):
            query = TemperatureSlope(exp(root.place), self.reach, schema.classes, self.typical_records, self.weight)
            root = root.refined(query, (yield query))
        if grid[0] <= 0 <= grid[-1] and not roots.significant_at_one(grid, gradients, noise, self.doubt):
            return Temperature(1.0, NOT_SIGNIFICANT)
        return Temperature(exp(-root.place))


@final
@dataclass(frozen=True)
class _Root:
    """An estimate of the gradient's root in ln b, its bracket, and the noise of the gradient that it rests on."""

    place: float
    bracket: tuple[float, float]
    noise: float  # variance, in the gradient's units

    def refined(self, query: TemperatureSlope, answer: Answer) -> _Root:
        """Take Newton's step, weighted by how precisely the gradient is known now and was before."""
        gradient, noise = float(answer["slope"][0]), float(answer.variance("slope")[0])
        derivative = float(answer["bend"][0]) / (query.inverse * query.reach)  # of the gradient in ln b
        if derivative <= 3 * sqrt(float(answer.variance("bend")[0])) / (query.inverse * query.reach):
            return self
        before = self.noise + _CURVE_ERROR * derivative * _CURVE_ERROR * derivative
        if not 0 < before < inf:  # the square of the derivative overflowed
            return self
        gain = before / (before + noise)
        low, high = (self.place, self.bracket[1]) if gradient < 0 else (self.bracket[0], self.place)
        aim = self.place - gain * gradient / derivative
        place = aim if low <= aim <= high else (low + high) / 2
        return _Root(place, (low, high) if noise == 0 else self.bracket, gain * noise)


def _bracket(grid: Floats, gradients: Floats, noise: float, root: float) -> tuple[float, float]:
    """An interval for the root: where exact gradients change sign, or an eighth of a noisy grid to either side.

    Beyond an end of the grid it is half of the grid wider.
    """
    length = float(grid[-1] - grid[0])
    if noise > 0:
        return root - length / 8, root + length / 8
    negative, positive = grid[gradients < 0], grid[gradients >= 0]
    low = float(negative[-1]) if negative.size else float(grid[0]) - length / 2
    return low, float(positive[0]) if positive.size else float(grid[-1]) + length / 2


@final
@dataclass(frozen=True)
class MonotoneTemperature(Method[Temperature]):
    """Temperature from the increments of the gradient, as far from 1 as the evidence allows; for noise on records.

    A record's gradient of the log loss in 1/T rises as T falls. So its middle and its increments over any number of
    temperatures add up to one gradient, and carry a fraction of the noise of as many gradients sent one by one. The
    temperature stays 1 unless the answer is a hundred times as likely under another.

    Parameters
    ----------
    temperatures
        Where the gradient is probed; falling, with 1 among them.
    reach
        Bound to which a record's gradient is clipped.
    weight
        The method's part of a pipeline's budget.

    Examples
    --------
    >>> import fedcalib as fc
    >>> federation = fc.Federation.simulated(temperature=2.0, clients=50, records=20_000)
    >>> runtime = fc.InProcess(federation)
    >>> result = fc.run(fc.methods.MonotoneTemperature(), runtime, fc.DistributedDP(1.0), randomness=fc.Simulated(0))
    >>> round(result.artifact.temperature, 1)
    2.0
    """

    temperatures: tuple[float, ...] = (4.0, 2.5, 1.6, 1.0, 0.7)
    reach: float = 10.0
    weight: float = 1.0

    def __post_init__(self) -> None:
        falling = all(a > b > 0 for a, b in pairwise(self.temperatures))
        if not falling or len(self.temperatures) < 4 or 1.0 not in self.temperatures[1:-1]:
            raise InputError(f"Expected four falling temperatures or more around 1, found {self.temperatures}.")

    def protocol(self, schema: Schema) -> Flow[Temperature]:
        answer = yield GradientSteps(tuple(1 / t for t in self.temperatures), self.reach, self.weight)
        grid, steps = -np.log(self.temperatures), answer["steps"]
        gradients = steps[0] - steps[1:].sum() + 2 * np.append(0.0, np.cumsum(steps[1:]))
        noise = float(answer.variance("steps").sum())  # of each gradient: every step counts once, with either sign
        root, one = roots.noisy_root(grid, gradients, noise, 0.0), self.temperatures.index(1.0)
        # under a calibrated classifier the variance of a gradient is its derivative in 1/T
        chance = (
            (gradients[one + 1] - gradients[one - 1]) / (np.exp(grid[one + 1]) - np.exp(grid[one - 1])) / self.reach
        )
        share = roots.moved_share(float(gradients[one]), sqrt(noise + max(float(chance), 0.0)), root)
        return Temperature(exp(-share * root)) if share > 0 else Temperature(1.0, NOT_SIGNIFICANT)


_SHARPENING_FACTOR: Final = 4 / 3  # of the z-threshold, for a temperature below 1
_ENOUGH_RECORDS: Final = 3.0  # with which a client's score may reach 1
_SIZE_MARGIN: Final = 2.0  # by which clients may hold more records than was guessed


@final
@dataclass(frozen=True)
class BoundedTemperature(Method[Temperature]):
    """Temperature at which clients' bounded scores sum to zero; for the privacy of whole clients.

    `OneShotTemperature` sums gradients, so hiding whole clients takes a guess at how large a client's sum may be, and a
    few large clients determine the noise for all. Here each client sends, at each of `points` temperatures, a score
    between -1 and 1: by how many standard deviations its labels contradict the classifier at that temperature. One
    release of bounded numbers is enough. With exact sums the result is near the pooled optimum, not at it: there is a
    small bias where clients are few and tiny.

    Parameters
    ----------
    points
        Number of temperatures.
    lowest, highest
        Range of these temperatures, around 1.
    cut, quiet
        As for `TemperatureScores`: the bound of a record's score, and the variance added to a client's.
    doubt
        z-threshold: where the sum at T = 1 is within this many standard errors of zero, T stays 1, with a warning.
        Scores of small clients are biased toward sharper models, so a temperature below 1 needs four thirds of it.
    weight
        The method's part of a pipeline's budget.
    shrunken
        Moreover, move only as far as the evidence allows, as `MonotoneTemperature` does.
    typical_records
        A public guess at a client's number of records. With one, `shrunken` weighs all sums by how much of them chance
        may explain, which finds more in small clients of two classes; None weighs the sum at T = 1 alone.

    Examples
    --------
    >>> import fedcalib as fc
    >>> federation = fc.Federation.simulated(temperature=2.0, clients=500, records=50_000)
    >>> runtime = fc.InProcess(federation)
    >>> result = fc.run(fc.BoundedTemperature(), runtime, fc.UserGaussian(1.0, 1e-5), randomness=fc.Simulated(0))
    >>> round(result.artifact.temperature, 1)
    2.0
    """

    points: int = 8
    lowest: float = 0.7
    highest: float = 4.0
    cut: float = 2.0
    quiet: float = 2.0
    doubt: float = 3.0
    weight: float = 1.0
    shrunken: bool = field(default=False, metadata=ADDED)
    typical_records: float | None = field(default=None, metadata=ADDED)

    def __post_init__(self) -> None:
        if self.points < 4 or not 0 < self.lowest < 1 < self.highest or not self.doubt >= 0:
            raise InputError(f"Expected at least 4 points, 0 < lowest < 1 < highest and doubt >= 0, found {self}.")

    def protocol(self, schema: Schema) -> Flow[Temperature]:
        return self.after(UNCHANGED, schema)

    def after(self, before: Calibrator, schema: Schema) -> Flow[Temperature]:
        """The temperature of records that clients calibrate first."""
        grid = np.linspace(log(1 / self.highest), log(1 / self.lowest), self.points)
        query = TemperatureScores(tuple(np.exp(grid).tolist()), self.cut, self.quiet, self.weight, before)
        answer = yield query
        scores, noise = answer["score"], float(answer.variance("score")[0])
        clients, chance = self._heard(schema.clients), self._chance(schema)
        sums = roots.ClientScoreSums(grid, scores, noise, clients, chance, self._beyond, self._weighed)
        # the parametric shape where the sums are compatible with it, a polynomial where they are not
        if sums.plausible:
            root = max(sums.posterior_root(-roots.PRIOR_LOG_TEMPERATURE, roots.PRIOR_DEVIATION), float(grid[0]))
        else:
            root = roots.noisy_root(grid, scores, noise, 0.0)
        z = self.doubt * (_SHARPENING_FACTOR if root > 0 else 1.0)
        clear = sums.root_differs_from(0.0, z) if sums.plausible else roots.significant_at_one(grid, scores, noise, z)
        share = self._share(sums, root, schema.clients) if self.shrunken and noise > 0 else 1.0
        return Temperature(exp(-share * root)) if clear and share > 0 else Temperature(1.0, NOT_SIGNIFICANT)

    def _heard(self, clients: int) -> float:
        """How many clients of some records would have sums as large as so many typical ones."""
        return clients * min(1.0, (self.typical_records or inf) / _ENOUGH_RECORDS) if self._weighed else clients

    @property
    def _weighed(self) -> bool:
        return self.shrunken and self.typical_records is not None

    @property
    def _beyond(self) -> float:
        """How far the root may lie beyond the highest temperature, which is then the answer."""
        return log(self.highest) if self._weighed else 0.0

    def _chance(self, schema: Schema) -> float:
        """The variance of a calibrated classifier's sum by chance; the rule against harm needs it.

        With information I, a client's score has variance I / (I + quiet), which is concave in I: its mean over clients
        is at most its value at the mean number of records.
        """
        if not self.shrunken or self.typical_records is None:
            return 0.0
        information = _SIZE_MARGIN * self.typical_records * min(max_variance(schema.classes), self.cut**2)
        return schema.clients * information / (information + self.quiet)

    def _share(self, sums: roots.ClientScoreSums, root: float, clients: int) -> float:
        """How much of the move the evidence allows; by chance a client's score varies by one at most."""
        if self._weighed and sums.plausible:
            ratio = sums.log_ratio(0.0, -roots.PRIOR_LOG_TEMPERATURE, roots.PRIOR_DEVIATION)
            return 1 - unmoved_share(ratio)
        value, error = roots.at_one(sums.places, sums.sums, sums.noise)
        return roots.moved_share(value, sqrt(error**2 + (sums.chance if self._weighed else clients)), root)
