"""Logistic regression: log-odds linear in features, fitted to counts in cells or to records, which are cells of one.

The calibration line: how far logistic recalibration would move a binary score, and observed against expected.

The line is logit P(y = 1) = intercept + slope * logit(score). Slope 1 and intercept 0 are calibrated; a slope below 1
means scores too extreme. For several classes, give the top label (`top_label`): one record stays one observation, so
the standard errors hold, which they would not if all classes of a record were pooled as if independent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from fedcalib.metrics.intervals import (
    BLOCK,
    Interval,
    clopper_pearson,
    normal_quantile,
    scores_and_labels,
    some_records,
)
from fedcalib.metrics.losses import FLOOR
from fedcalib.types import Floats, Ints

_STEPS = 100
_SMALL = 1e-10
_JITTER = 1e-12


@final
@dataclass(frozen=True)
class Point:
    """The cost of weights (what they lack of likelihood), its slope (k,) and its curvature (k, k)."""

    weights: Floats
    cost: float
    slope: Floats
    curve: Floats


@final
@dataclass(frozen=True)
class Logistic:
    """What weights are judged by: counts in cells, and a ridge that draws them toward `pull`."""

    features: Floats  # (cells, k)
    positive: Floats  # (cells,)
    held: Floats  # (cells,): positives and negatives
    offset: Floats | float = 0.0  # (cells,): log-odds that are not for the fit to change
    strength: float = 0.0
    pull: Floats | float = 0.0

    def at(self, weights: Floats) -> Point:
        """Judge weights in one pass."""
        k = self.features.shape[1]
        away, cost, slope, curve = weights - self.pull, 0.0, np.zeros(k), np.zeros((k, k))
        offset = np.broadcast_to(self.offset, self.held.shape)
        for start in range(0, len(self.held), BLOCK):
            rows = slice(start, start + BLOCK)
            x, up, held = self.features[rows], self.positive[rows], self.held[rows]
            height = x @ weights + offset[rows]
            decay = np.exp(-np.abs(height))  # at most 1: nothing overflows
            mean = np.where(height >= 0, 1.0, decay) / (1 + decay)
            cost += float(held @ (np.maximum(height, 0) + np.log1p(decay)) - up @ height)
            slope += (held * mean - up) @ x
            curve += (x.T * (held * decay / np.square(1 + decay))) @ x
        return Point(
            weights,
            cost + self.strength / 2 * float(away @ away),
            slope + self.strength * away,
            curve + self.strength * np.eye(k),
        )

    def fit(self, start: Floats) -> Point:
        """Go down by Newton steps, halving any that overshoots; the cost is convex, so its floor is the only one."""
        here, moved = self.at(start), np.inf
        for _ in range(_STEPS):
            if moved <= _SMALL:
                break
            here, moved = self._descend(here)
        return here

    def _descend(self, here: Point) -> tuple[Point, float]:
        step = np.linalg.solve(here.curve + _JITTER * np.eye(len(here.weights)), here.slope)
        share = 1.0
        while share > _SMALL:
            there = self.at(here.weights - share * step)
            if there.cost <= here.cost:
                return there, share * float(np.abs(step).max())
            share /= 2
        return here, 0.0


def fit_counts(features: Any, positive: Any, negative: Any, ridge: float = 1e-9, start: Any = None) -> Floats:
    """Fit log-odds that are linear in features, (cells, k), to counts of positives and negatives in each cell.

    `ridge` pulls the weights toward `start` (zero unless given), which keeps the fit finite where the classes do not
    overlap.
    """
    x = np.asarray(features, dtype=np.float64)
    up = np.maximum(np.asarray(positive, dtype=np.float64), 0.0)
    held = up + np.maximum(np.asarray(negative, dtype=np.float64), 0.0)
    pull = np.zeros(x.shape[1]) if start is None else np.asarray(start, dtype=np.float64)
    return Logistic(x, up, held, strength=ridge * max(float(held.sum()), 1.0), pull=pull).fit(pull).weights


STEPS = 100
SMALL = 1e-10
SPAN = 100.0  # logits of floored scores stay within 28, so no shift beyond this is ever needed
TINY = 1e-300


@final
@dataclass(frozen=True)
class CalibrationLine:
    """A fitted line with its standard errors.

    `in_the_large` is the intercept when the slope is held at 1: what clinical papers call calibration-in-the-large.
    A value is NaN where the data do not determine it: one class only, one score only, or classes that do not overlap.
    """

    slope: float
    intercept: float
    in_the_large: float
    slope_error: float
    intercept_error: float

    def slope_interval(self, level: float = 0.95) -> Interval:
        """Bound the slope by its standard error."""
        half = normal_quantile(level) * self.slope_error
        return Interval(self.slope - half, self.slope + half, level)

    def intercept_interval(self, level: float = 0.95) -> Interval:
        """Bound the intercept by its standard error."""
        half = normal_quantile(level) * self.intercept_error
        return Interval(self.intercept - half, self.intercept + half, level)


def calibration_line(scores: Any, labels: Any) -> CalibrationLine:
    """Fit slope and intercept by maximum likelihood; scores of 0 and 1 are read as 1e-12 away from the end."""
    some_records(labels)
    column, truth = scores_and_labels(scores, labels)
    x = _logit(column)
    large = _in_the_large(x, truth) if 0 < truth.sum() < len(truth) else np.nan
    if _apart(x, truth):
        return CalibrationLine(np.nan, np.nan, large, np.nan, np.nan)
    slope, intercept, slope_error, intercept_error = _fit(x, truth)
    return CalibrationLine(slope, intercept, large, slope_error, intercept_error)


def observed_expected(scores: Any, labels: Any) -> float:
    """Divide the positives observed by the positives that the scores expect; 1 is calibrated in the large."""
    some_records(labels)
    column, truth = scores_and_labels(scores, labels)
    expected, observed = float(column.sum()), float(truth.sum())
    return observed / expected if expected > 0 else (np.inf if observed else np.nan)


def observed_expected_interval(scores: Any, labels: Any, level: float = 0.95) -> Interval:
    """Bound the ratio of observed to expected, given the scores, by an exact bound on the rate of positives."""
    some_records(labels)
    column, truth = scores_and_labels(scores, labels)
    band = clopper_pearson(truth.sum(), len(truth), level)
    mean = float(column.mean())
    if mean == 0:
        return Interval(0.0, np.inf, level)
    return Interval(float(band.low) / mean, float(band.high) / mean, level)


def _logit(scores: Floats) -> Floats:
    return np.log(np.maximum(scores, FLOOR)) - np.log(np.maximum(1 - scores, FLOOR))


def _apart(x: Floats, truth: Ints) -> bool:
    """Say whether a threshold parts the classes (perhaps touching): then no finite line is the most likely."""
    up, down = x[truth == 1], x[truth == 0]
    if not (len(up) and len(down)):
        return True
    return bool(down.max() <= up.min() or up.max() <= down.min())


def _in_the_large(x: Floats, truth: Ints) -> float:
    """Find the shift at which the scores expect what was observed, by Newton steps kept inside a shrinking bracket."""
    shifted = Logistic(np.ones((len(x), 1)), truth.astype(np.float64), np.ones(len(x)), offset=x)
    low, high, shift = -SPAN, SPAN, 0.0
    for _ in range(STEPS):
        here = shifted.at(np.array([shift]))
        low, high = (shift, high) if here.slope[0] < 0 else (low, shift)
        there = shift - float(here.slope[0]) / max(float(here.curve[0, 0]), TINY)
        there = there if low < there < high else (low + high) / 2
        moved, shift = abs(there - shift), there
        if moved <= SMALL:
            break
    return shift


def _fit(x: Floats, truth: Ints) -> tuple[float, float, float, float]:
    """Give slope, intercept and their errors, fitted around the scores' own centre and width to keep digits."""
    middle, width = float(x.mean()), max(float(x.std()), TINY)
    design = np.stack([np.ones_like(x), (x - middle) / width], axis=1)
    rate = float(truth.mean())
    best = Logistic(design, truth.astype(np.float64), np.ones(len(x))).fit(np.array([np.log(rate / (1 - rate)), 0.0]))
    weight, weight_x, weight_xx = best.curve[0, 0], best.curve[0, 1], best.curve[1, 1]
    centre = weight_x / max(weight, TINY)
    slope_error = max(weight_xx - weight_x * centre, TINY) ** -0.5 / width
    slope = float(best.weights[1]) / width
    intercept_error = np.hypot(max(weight, TINY) ** -0.5, (middle + width * centre) * slope_error)
    return slope, float(best.weights[0]) - slope * middle, float(slope_error), float(intercept_error)
