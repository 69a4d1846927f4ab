"""All metrics in one table: name, title, which direction is better, definition, and the reports that show it.

A new metric is one row here and its estimator: for an evaluation a field of `MetricsReport` that `FederatedMetrics`
fills, for score curves an entry of `estimation.score_rates.HEADLINE`, for planning an entry of `planning.FIGURES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, final

from fedcalib.metrics.losses import accuracy, brier, nll
from fedcalib.metrics.ranking import confusion, roc_auc
from fedcalib.metrics.reliability import binary_ece, classwise_ece, ece

Direction: TypeAlias = Literal["lower", "higher"]
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
        Which direction is better: "lower" or "higher".
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
    "nll", "Log loss", "lower", "cut at a public bound", frozenset({"evaluation", "curves", "comparison"}), nll,
)
BRIER: Final = Metric(
    "brier", "Brier score", "lower", "mean squared error of the probabilities",
    frozenset({"evaluation", "curves"}), brier,
)
# fmt: on
METRICS: Final = (AUC, ACCURACY, PRECISION, RECALL, CWECE, ECE, NLL, BRIER)


def shown_in(report: Report) -> tuple[Metric, ...]:
    """The metrics that a report shows, in the order of the table."""
    return tuple(metric for metric in METRICS if report in metric.reports)
