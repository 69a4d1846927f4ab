"""All metrics in one table: name, title, which direction is better, definition, and the reports that show it.

A new metric is one row here and its estimator: for two classes a method of `estimation.score_figures.BinaryFigures`
and its entry there, for score curves an entry of `estimation.score_rates.HEADLINE`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, final

import numpy as np

from fedcalib.metrics.calibration_line import calibration_line, ici, observed_expected, smooth_distances
from fedcalib.metrics.losses import accuracy, binary_brier, binary_nll, brier, nll, scaled_brier
from fedcalib.metrics.ranking import average_precision, confusion, net_benefit, roc_auc
from fedcalib.metrics.reliability import binary_ece, classwise_ece, debiased_squared_binary_ece, ece
from fedcalib.metrics.smooth_ece import binary_smooth_ece

Direction: TypeAlias = Literal["lower", "higher", "neither"]
# "change": shown in a comparison as the change in percentage points
Report: TypeAlias = Literal["evaluation", "curves", "comparison", "change", "planning", "timeline"]


@final
@dataclass(frozen=True)
class Metric:
    """One row of the table of metrics.

    Parameters
    ----------
    name
        Key in JSON documents, and name of the field or estimator.
    title
        Name for people.
    direction
        Which direction is better: "lower", "higher", or "neither" for what has a target or no judgement.
    definition
        What it measures, as half a sentence.
    reports
        The reports that show it.
    exact
        The metric of pooled records: probabilities (n, classes) and labels (n,) to a number.
    classes
        "two" if it is defined for two classes only.

    Examples
    --------
    >>> from fedcalib.metrics.table import BRIER
    >>> BRIER.title, BRIER.direction
    ('Brier score', 'lower')
    """

    name: str
    title: str
    direction: Direction
    definition: str
    reports: frozenset[Report]
    exact: Callable[[Any, Any], float]
    classes: Literal["any", "two"] = "any"


# fmt: off
AUC: Final = Metric(
    "auc", "AUC", "higher", "chance that a positive is scored above a negative",
    frozenset({"evaluation", "curves", "planning", "timeline"}),
    lambda probs, labels: roc_auc(probs[:, 1], labels), "two",
)
ACCURACY: Final = Metric(
    "accuracy", "Accuracy", "higher", "share of records whose most likely class is right",
    frozenset({"evaluation", "curves", "change", "planning", "timeline"}), accuracy,
)
PRECISION: Final = Metric(
    "precision", "Precision", "higher", "share of positives among records that score at least 0.5",
    frozenset({"curves", "planning"}),
    lambda probs, labels: float(confusion(probs[:, 1], labels, 0.5).precision), "two",
)
RECALL: Final = Metric(
    "recall", "Recall", "higher", "share of positives that score at least 0.5", frozenset({"curves", "planning"}),
    lambda probs, labels: float(confusion(probs[:, 1], labels, 0.5).recall), "two",
)
CWECE: Final = Metric(
    "cwece", "Classwise ECE", "lower", "ECE of every class against the rest, averaged over classes",
    frozenset({"evaluation", "comparison"}),
    # with two classes, the other class mirrors the score's
    lambda probs, labels: binary_ece(probs[:, 1], labels) if probs.shape[1] == 2 else classwise_ece(probs, labels),
)
ECE: Final = Metric(
    "ece", "ECE", "lower",
    "mean gap between predicted and observed frequency, in 15 bins: of the score, or of the top class",
    frozenset({"evaluation", "curves", "comparison", "planning", "timeline"}),
    lambda probs, labels: binary_ece(probs[:, 1], labels) if probs.shape[1] == 2 else ece(probs, labels),
)
NLL: Final = Metric(
    "nll", "Log loss", "lower", "mean negative log-likelihood of the true class",
    frozenset({"evaluation", "curves", "comparison", "planning"}),
    lambda probs, labels: binary_nll(probs[:, 1], labels) if probs.shape[1] == 2 else nll(probs, labels),
)
BRIER: Final = Metric(
    "brier", "Brier score", "lower",
    "mean squared error: of the score, or summed over more than two classes",
    frozenset({"evaluation", "curves", "planning"}),
    lambda probs, labels: binary_brier(probs[:, 1], labels) if probs.shape[1] == 2 else brier(probs, labels),
)


def _binary(name: str, title: str, direction: Direction, definition: str, exact: Callable[[Any, Any], float]) -> Metric:
    """A metric of a binary score, which every evaluation has and a study can be planned for."""
    reports: frozenset[Report] = frozenset({"planning"})
    return Metric(name, title, direction, definition, reports, lambda probs, y: exact(probs[:, 1], y), "two")


def _at_half(name: str) -> Callable[[Any, Any], float]:
    return lambda score, labels: float(getattr(confusion(score, labels, 0.5), name))


AVERAGE_PRECISION: Final = _binary(
    "average_precision", "Average precision", "higher", "mean precision over the positives", average_precision,
)
SENSITIVITY: Final = _binary(
    "sensitivity", "Sensitivity", "higher", "share of positives at or above the threshold", _at_half("recall"),
)
SPECIFICITY: Final = _binary(
    "specificity", "Specificity", "higher", "share of negatives below the threshold", _at_half("specificity"),
)
PPV: Final = _binary(
    "ppv", "PPV", "higher", "share of positives among records at or above the threshold",
    _at_half("precision"),
)
NPV: Final = _binary(
    "npv", "NPV", "higher", "share of negatives among records below the threshold", _at_half("npv"),
)
F1: Final = _binary(
    "f1", "F1", "higher", "harmonic mean of sensitivity and PPV", _at_half("f1"),
)
BALANCED_ACCURACY: Final = _binary(
    "balanced_accuracy", "Balanced accuracy", "higher", "mean of sensitivity and specificity",
    _at_half("balanced_accuracy"),
)
YOUDEN: Final = _binary(
    "youden", "Youden index", "higher", "sensitivity plus specificity less one",
    lambda score, y: 2 * _at_half("balanced_accuracy")(score, y) - 1,
)
NET_BENEFIT: Final = _binary(
    "net_benefit", "Net benefit", "higher",
    "true positives less false positives weighted by the odds of the threshold, per record",
    lambda score, y: net_benefit(score, y, 0.5),
)
ALERT_RATE: Final = _binary(
    "alert_rate", "Alert rate", "neither", "share of records at or above the threshold",
    lambda score, y: float((np.asarray(score) >= 0.5).mean()),
)
PREVALENCE: Final = _binary(
    "prevalence", "Prevalence", "neither", "share of positives", lambda score, y: float(np.mean(y)),
)
CALIBRATION_IN_THE_LARGE: Final = _binary(
    "calibration_in_the_large", "Calibration in the large", "neither",
    "intercept of the calibration line with slope 1; 0 if calibrated",
    lambda score, y: calibration_line(score, y).in_the_large,
)
SLOPE: Final = _binary(
    "slope", "Calibration slope", "neither", "slope of the calibration line; 1 if calibrated",
    lambda score, y: calibration_line(score, y).slope,
)
INTERCEPT: Final = _binary(
    "intercept", "Calibration intercept", "neither", "intercept of the calibration line; 0 if calibrated",
    lambda score, y: calibration_line(score, y).intercept,
)
OBSERVED_EXPECTED: Final = _binary(
    "observed_expected", "Observed to expected", "neither",
    "positives over the sum of the scores; 1 if calibrated", observed_expected,
)
ICI: Final = _binary(
    "ici", "ICI", "lower", "mean distance of scores from the smooth observed rate", ici,
)
E50: Final = _binary(
    "e50", "E50", "lower", "median distance of scores from the smooth observed rate",
    lambda score, y: float(np.median(smooth_distances(score, y))),
)
E90: Final = _binary(
    "e90", "E90", "lower", "90th percentile of the distance of scores from the smooth observed rate",
    lambda score, y: float(np.quantile(smooth_distances(score, y), 0.9)),
)
DEBIASED_ECE: Final = _binary(
    "debiased_ece", "Debiased ECE", "lower", "root mean squared gap in 15 bins, less the bias of sampling",
    lambda score, y: max(debiased_squared_binary_ece(score, y), 0.0) ** 0.5,
)
SMOOTH_ECE: Final = _binary(
    "smooth_ece", "Smooth ECE", "lower", "mean gap after smoothing, at the bandwidth that equals it",
    binary_smooth_ece,
)
SCALED_BRIER: Final = _binary(
    "scaled_brier", "Scaled Brier score", "higher",
    "one minus the Brier score over that of the prevalence", scaled_brier,
)
# fmt: on
TWO_CLASSES: Final = (
    AVERAGE_PRECISION,
    SENSITIVITY,
    SPECIFICITY,
    PPV,
    NPV,
    F1,
    BALANCED_ACCURACY,
    YOUDEN,
    NET_BENEFIT,
    ALERT_RATE,
    PREVALENCE,
    CALIBRATION_IN_THE_LARGE,
    SLOPE,
    INTERCEPT,
    OBSERVED_EXPECTED,
    ICI,
    E50,
    E90,
    DEBIASED_ECE,
    SMOOTH_ECE,
    SCALED_BRIER,
)
METRICS: Final = (AUC, ACCURACY, PRECISION, RECALL, CWECE, ECE, NLL, BRIER, *TWO_CLASSES)


def shown_in(report: Report) -> tuple[Metric, ...]:
    """The metrics that a report shows, in the order of the table."""
    return tuple(metric for metric in METRICS if report in metric.reports)
