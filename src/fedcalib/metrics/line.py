"""The calibration line: how far logistic recalibration would move a binary score, and observed against expected.

The line is logit P(y = 1) = intercept + slope * logit(score). Slope 1 and intercept 0 are calibrated; a slope below 1
means scores too extreme. For several classes, give the top label (`top_label`): one record stays one observation, so
the standard errors hold, which they would not if all classes of a record were pooled as if independent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from fedcalib.metrics.inputs import scores_and_labels, some_records
from fedcalib.metrics.intervals import Interval, clopper_pearson, normal_quantile
from fedcalib.metrics.logistic import Logistic
from fedcalib.metrics.losses import FLOOR
from fedcalib.types import Floats, Ints

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
