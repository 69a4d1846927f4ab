"""The calibration line, the ratio of observed to expected positives, and the logistic regression behind them.

The line is logit P(y = 1) = intercept + slope * logit(score). Slope 1 and intercept 0 are calibrated; a slope below 1
means that scores are too extreme. For several classes, use the top label (`top_label`): one record is then one
observation, so the standard errors are right, which they would not be if all classes of a record were pooled as if
independent.

`Logistic` fits log-odds that are linear in features to counts in cells; a record is a cell with one count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from fedcalib.metrics.intervals import BLOCK, Interval, clopper_pearson, normal_quantile, some_scores
from fedcalib.metrics.losses import FLOOR
from fedcalib.numeric import sigmoid
from fedcalib.types import Floats, Ints

_MAX_STEPS = 100
_TOLERANCE = 1e-10  # of a Newton step
_JITTER = 1e-12  # keeps the Hessian invertible
_MAX_SHIFT = 100.0  # logits of scores are within 28 of zero, so no larger shift is ever needed
_TINY = 1e-300


@final
@dataclass(frozen=True)
class Evaluated:
    """The penalised negative log-likelihood at some weights, its gradient (k,) and its Hessian (k, k)."""

    weights: Floats
    loss: float
    gradient: Floats
    hessian: Floats


@final
@dataclass(frozen=True)
class Logistic:
    """Logistic regression on counts in cells, with a ridge penalty around `centre`."""

    features: Floats  # (cells, k)
    positive: Floats  # (cells,)
    records: Floats  # (cells,): positives and negatives
    offset: Floats | float = 0.0  # (cells,): fixed part of the log-odds
    ridge: float = 0.0
    centre: Floats | float = 0.0

    def at(self, weights: Floats) -> Evaluated:
        """Loss, gradient and Hessian at these weights, in one pass over the cells."""
        k = self.features.shape[1]
        difference, loss, gradient, hessian = weights - self.centre, 0.0, np.zeros(k), np.zeros((k, k))
        offset = np.broadcast_to(self.offset, self.records.shape)
        for start in range(0, len(self.records), BLOCK):
            rows = slice(start, start + BLOCK)
            x, positive, records = self.features[rows], self.positive[rows], self.records[rows]
            odds = x @ weights + offset[rows]
            decay = np.exp(-np.abs(odds))  # at most 1: nothing overflows
            mean = np.where(odds >= 0, 1.0, decay) / (1 + decay)
            loss += float(records @ (np.maximum(odds, 0) + np.log1p(decay)) - positive @ odds)
            gradient += (records * mean - positive) @ x
            hessian += (x.T * (records * decay / np.square(1 + decay))) @ x
        return Evaluated(
            weights,
            loss + self.ridge / 2 * float(difference @ difference),
            gradient + self.ridge * difference,
            hessian + self.ridge * np.eye(k),
        )

    def fit(self, start: Floats) -> Evaluated:
        """Minimise the loss by Newton's method with step halving; the loss is convex, so the minimum is global."""
        here, moved = self.at(start), np.inf
        for _ in range(_MAX_STEPS):
            if moved <= _TOLERANCE:
                break
            here, moved = self._step(here)
        return here

    def _step(self, here: Evaluated) -> tuple[Evaluated, float]:
        step = np.linalg.solve(here.hessian + _JITTER * np.eye(len(here.weights)), here.gradient)
        length = 1.0
        while length > _TOLERANCE:
            there = self.at(here.weights - length * step)
            if there.loss <= here.loss:
                return there, length * float(np.abs(step).max())
            length /= 2
        return here, 0.0


def fit_counts(features: Any, positive: Any, negative: Any, ridge: float = 1e-9, start: Any = None) -> Floats:
    """Weights of log-odds that are linear in features, (cells, k), fitted to counts of positives and negatives.

    `ridge` is the strength per record of a penalty around `start` (zero unless given); it keeps the fit finite where
    the classes do not overlap.
    """
    x = np.asarray(features, dtype=np.float64)
    ups = np.maximum(np.asarray(positive, dtype=np.float64), 0.0)
    records = ups + np.maximum(np.asarray(negative, dtype=np.float64), 0.0)
    centre = np.zeros(x.shape[1]) if start is None else np.asarray(start, dtype=np.float64)
    return Logistic(x, ups, records, ridge=ridge * max(float(records.sum()), 1.0), centre=centre).fit(centre).weights


@final
@dataclass(frozen=True)
class CalibrationLine:
    """A fitted calibration line with its standard errors.

    A value is NaN where the data do not determine it: one class only, one score only, or classes that do not overlap.

    Parameters
    ----------
    slope, intercept
        1 and 0 if calibrated.
    in_the_large
        The intercept when the slope is fixed at 1: calibration-in-the-large in the clinical literature.
    slope_error, intercept_error
        Standard errors.

    Examples
    --------
    >>> import fedcalib as fc
    >>> line = fc.metrics.CalibrationLine(0.8, 0.1, 0.05, slope_error=0.1, intercept_error=0.2)
    >>> round(line.slope_interval().high, 3)
    0.996
    """

    slope: float
    intercept: float
    in_the_large: float
    slope_error: float
    intercept_error: float

    def slope_interval(self, level: float = 0.95) -> Interval:
        """Confidence interval for the slope, by its standard error."""
        half = normal_quantile(level) * self.slope_error
        return Interval(self.slope - half, self.slope + half, level)

    def intercept_interval(self, level: float = 0.95) -> Interval:
        """Confidence interval for the intercept, by its standard error."""
        half = normal_quantile(level) * self.intercept_error
        return Interval(self.intercept - half, self.intercept + half, level)


def calibration_line(scores: Any, labels: Any) -> CalibrationLine:
    """Calibration line of a binary score, by maximum likelihood; scores are first moved inside (0, 1) by 1e-12.

    Parameters
    ----------
    scores
        Probabilities of class 1, shape (n,).
    labels
        0 or 1, shape (n,).

    Examples
    --------
    >>> import fedcalib as fc
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> chance = rng.random(5000)
    >>> too_extreme = chance**2 / (chance**2 + (1 - chance) ** 2)
    >>> round(fc.metrics.calibration_line(too_extreme, rng.random(5000) < chance).slope, 1)
    0.5
    """
    column, truth = some_scores(scores, labels)
    x = _logit(column)
    large = _in_the_large(x, truth) if 0 < truth.sum() < len(truth) else np.nan
    if _separable(x, truth):
        return CalibrationLine(np.nan, np.nan, large, np.nan, np.nan)
    slope, intercept, slope_error, intercept_error = _fit(x, truth)
    return CalibrationLine(slope, intercept, large, slope_error, intercept_error)


def spline_knots(odds: Any, weights: Any, knots: int = 4) -> Floats:
    """Knots at weighted quantiles of the log-odds, by Harrell's rule: the 5th to 95th percentile, shape (knots,)."""
    places = {3: (0.1, 0.5, 0.9), 4: (0.05, 0.35, 0.65, 0.95)}[knots]
    order = np.argsort(odds, kind="stable")
    reached = np.cumsum(np.asarray(weights, dtype=np.float64)[order])
    found = np.searchsorted(reached, np.array(places) * reached[-1])
    return np.unique(np.asarray(odds, dtype=np.float64)[order][np.minimum(found, len(order) - 1)])


def spline_basis(odds: Any, knots: Floats) -> Floats:
    """Restricted cubic spline: one, the log-odds, and a column per knot but two; linear beyond the outer knots."""
    x = np.asarray(odds, dtype=np.float64)
    columns = [np.ones_like(x), x]
    if len(knots) > 2:
        last, before = knots[-1], knots[-2]
        for knot in knots[:-2]:
            cubes = [np.maximum(x - place, 0.0) ** 3 for place in (knot, before, last)]
            bend = cubes[0] - (cubes[1] * (last - knot) - cubes[2] * (before - knot)) / (last - before)
            columns.append(bend / (last - knots[0]) ** 2)
    return np.stack(columns, axis=1)


def smooth_distances(scores: Any, labels: Any) -> Floats:
    """Distance of each score from the smooth observed rate at that score, shape (n,).

    The rate is a logistic regression of the labels on a restricted cubic spline of the log-odds with four knots.

    Parameters
    ----------
    scores
        Probabilities of class 1, shape (n,).
    labels
        0 or 1, shape (n,).

    Examples
    --------
    >>> import fedcalib as fc
    >>> import numpy as np
    >>> score = np.linspace(0.05, 0.95, 400)
    >>> labels = np.random.default_rng(0).random(400) < score
    >>> bool(fc.metrics.smooth_distances(score, labels).mean() < 0.1)
    True
    """
    column, truth = some_scores(scores, labels)
    x = _logit(column)
    features = spline_basis(x, spline_knots(x, np.ones(len(x))))
    weights = fit_counts(features, truth, 1 - truth, start=np.eye(features.shape[1])[1])
    return np.abs(sigmoid(features @ weights) - column)


def ici(scores: Any, labels: Any) -> float:
    """Integrated calibration index: the mean absolute distance of scores from the smooth observed rate.

    Parameters
    ----------
    scores
        Probabilities of class 1, shape (n,).
    labels
        0 or 1, shape (n,).

    Examples
    --------
    >>> import fedcalib as fc
    >>> import numpy as np
    >>> score = np.linspace(0.05, 0.95, 400)
    >>> fc.metrics.ici(score, np.random.default_rng(0).random(400) < score) < 0.1
    True
    """
    return float(smooth_distances(scores, labels).mean())


def observed_expected(scores: Any, labels: Any) -> float:
    """Ratio of observed positives to the sum of the scores; 1 means calibrated in the large.

    Parameters
    ----------
    scores
        Probabilities of class 1, shape (n,).
    labels
        0 or 1, shape (n,).

    Examples
    --------
    >>> import fedcalib as fc
    >>> round(fc.metrics.observed_expected([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]), 3)
    1.212
    """
    column, truth = some_scores(scores, labels)
    expected, observed = float(column.sum()), float(truth.sum())
    return observed / expected if expected > 0 else (np.inf if observed else np.nan)


def observed_expected_interval(scores: Any, labels: Any, level: float = 0.95) -> Interval:
    """Confidence interval for the ratio of observed to expected, given the scores.

    It follows from Clopper and Pearson's interval for the rate of positives.

    Parameters
    ----------
    scores
        Probabilities of class 1, shape (n,).
    labels
        0 or 1, shape (n,).
    level
        Confidence level.

    Examples
    --------
    >>> import fedcalib as fc
    >>> 1.0 in fc.metrics.observed_expected_interval([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    True
    """
    column, truth = some_scores(scores, labels)
    band = clopper_pearson(truth.sum(), len(truth), level)
    mean = float(column.mean())
    if mean == 0:
        return Interval(0.0, np.inf, level)
    return Interval(float(band.low) / mean, float(band.high) / mean, level)


def _logit(scores: Floats) -> Floats:
    return np.log(np.maximum(scores, FLOOR)) - np.log(np.maximum(1 - scores, FLOOR))


def _separable(x: Floats, truth: Ints) -> bool:
    """Whether a threshold separates the classes: then the likelihood has no finite maximum."""
    positive, negative = x[truth == 1], x[truth == 0]
    if not (len(positive) and len(negative)):
        return True
    return bool(negative.max() <= positive.min() or positive.max() <= negative.min())


def _in_the_large(x: Floats, truth: Ints) -> float:
    """Shift of the logits at which expected equals observed, by Newton's method inside a shrinking bracket."""
    shifted = Logistic(np.ones((len(x), 1)), truth.astype(np.float64), np.ones(len(x)), offset=x)
    low, high, shift = -_MAX_SHIFT, _MAX_SHIFT, 0.0
    for _ in range(_MAX_STEPS):
        here = shifted.at(np.array([shift]))
        low, high = (shift, high) if here.gradient[0] < 0 else (low, shift)
        there = shift - float(here.gradient[0]) / max(float(here.hessian[0, 0]), _TINY)
        there = there if low < there < high else (low + high) / 2
        moved, shift = abs(there - shift), there
        if moved <= _TOLERANCE:
            break
    return shift


def _fit(x: Floats, truth: Ints) -> tuple[float, float, float, float]:
    """Slope, intercept and their standard errors; logits are standardised first, for accuracy."""
    middle, width = float(x.mean()), max(float(x.std()), _TINY)
    design = np.stack([np.ones_like(x), (x - middle) / width], axis=1)
    rate = float(truth.mean())
    best = Logistic(design, truth.astype(np.float64), np.ones(len(x))).fit(np.array([np.log(rate / (1 - rate)), 0.0]))
    weight, weight_x, weight_xx = best.hessian[0, 0], best.hessian[0, 1], best.hessian[1, 1]
    centre = weight_x / max(weight, _TINY)
    slope_error = max(weight_xx - weight_x * centre, _TINY) ** -0.5 / width
    slope = float(best.weights[1]) / width
    intercept_error = np.hypot(max(weight, _TINY) ** -0.5, (middle + width * centre) * slope_error)
    return slope, float(best.weights[0]) - slope * middle, float(slope_error), float(intercept_error)
