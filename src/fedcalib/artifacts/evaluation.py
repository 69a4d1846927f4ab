"""What an evaluation found: every metric with an interval, and the tables behind it.

What one private count of scores tells about a binary classifier: every metric, every threshold, any time later.

How calibration errors lie over clients.

What a paired comparison of two models found.

How often each class is predicted for each true class.

What one window of time tells about a classifier that is being watched.

A calibrator together with what was measured without it and with it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from math import isfinite
from typing import Any, final

import numpy as np

from fedcalib.artifacts import Artifact
from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import InputError
from fedcalib.estimation import score_rates as table_bins
from fedcalib.estimation import score_rates as table_rates
from fedcalib.estimation.score_rates import HEADLINE, Bins, Estimates, checked_thresholds
from fedcalib.estimation.score_table import DETECTION_Z, MIN_RECORDS, NEGATIVE, POSITIVE, ScoreTable
from fedcalib.metrics.intervals import Measured
from fedcalib.metrics.reliability import Reliability
from fedcalib.metrics.table import Metric, shown_in
from fedcalib.types import Floats


@final
@dataclass(frozen=True, eq=False)
class MetricsReport(Artifact):
    """Accuracy, calibration and ranking of a classifier over all clients.

    A metric is None where the data or the noise do not allow it; `warnings` says why. `reliability` is the table of the
    top label (with two classes, of the score), noisy under differential privacy, with the variance of the noise on a
    count and on a gap.
    """

    reliability: Reliability
    count_variance: float
    gap_variance: float
    accuracy: Measured | None = None
    ece: Measured | None = None
    cwece: Measured | None = None
    nll: Measured | None = None
    brier: Measured | None = None
    auc: Measured | None = None
    debiased_squared_ece: float | None = None
    slope: float | None = None
    intercept: float | None = None
    observed_expected: float | None = None
    smooth_ece: float | None = None
    warnings: tuple[str, ...] = ()

    @classmethod
    def nothing(cls, reliability: Reliability, count_variance: float, gap_variance: float) -> MetricsReport:
        """Say that there is nothing to say."""
        why = "Nothing can be said: the number of records drowns in noise, or there are none."
        return cls(reliability, count_variance, gap_variance, warnings=(why,))

    def to_json(self) -> dict[str, Any]:
        """Give the headline metrics by name, with null for what is missing."""
        values = {metric.name: getattr(self, metric.name) for metric in headline()}
        return {name: None if value is None else value.to_json() for name, value in values.items()}


def headline() -> tuple[Metric, ...]:
    """List the metrics of an evaluation in the order of its report's fields."""
    known = {metric.name: metric for metric in shown_in("evaluation")}
    return tuple(known[field.name] for field in fields(MetricsReport) if field.name in known)


_POINTS = 101  # of a curve with a band; more would cost time and show nothing


@final
@dataclass(frozen=True, eq=False)
class Curve:
    """A ROC or precision-recall curve: one point a threshold, from 1 down to 0, with the band of each rate."""

    threshold: Floats  # (points,)
    x: Estimates  # (points,): false positive rate, or recall
    y: Estimates  # (points,): true positive rate, or precision


@final
@dataclass(frozen=True, eq=False)
class Curves(Artifact):
    """A binary classifier's evaluation. Everything is read off one table, so nothing asked later costs privacy.

    Figures come with an interval (95%) that covers sampling, privacy noise and the width of the table's cells. A
    figure whose denominator drowns in noise is NaN with an interval of everything, and `warnings` says so.
    """

    table: ScoreTable

    def precision(self, threshold: float) -> Measured:
        """Give the share of positives among records that score at least the threshold."""
        return _one(table_rates.precision(self.table, checked_thresholds(threshold)))

    def recall(self, threshold: float) -> Measured:
        """Give the share of positives that score at least the threshold."""
        return _one(table_rates.recall(self.table, checked_thresholds(threshold)))

    def accuracy(self, threshold: float) -> Measured:
        """Give the share of records on the right side of the threshold."""
        return _one(table_rates.accuracy(self.table, checked_thresholds(threshold)))

    @cached_property
    def auc(self) -> Measured:
        """Give the chance that a positive outscores a negative."""
        return _one(table_rates.area(self.table))

    def ece(self, bins: int = 15) -> Measured:
        """Give the expected calibration error of the score, in bins of equal width."""
        return _one(table_bins.expected_calibration_error(self.table, bins))

    def reliability(self, bins: int = 15) -> Bins:
        """Give the reliability diagram of the score."""
        return table_bins.reliability(self.table, bins)

    def roc(self, thresholds: Any = None) -> Curve:
        """Trace the true against the false positive rate."""
        chosen = self._thresholds(thresholds)
        across = table_rates.false_positive_rate(self.table, chosen)
        return Curve(chosen, across, table_rates.recall(self.table, chosen))

    def pr(self, thresholds: Any = None) -> Curve:
        """Trace precision against recall."""
        chosen = self._thresholds(thresholds)
        return Curve(chosen, table_rates.recall(self.table, chosen), table_rates.precision(self.table, chosen))

    def _thresholds(self, thresholds: Any) -> Floats:
        """Take the given thresholds, or edges of cells that part the records about evenly, from 1 down to 0."""
        if thresholds is not None:
            return checked_thresholds(thresholds)
        sums = np.concatenate([[0.0], np.cumsum(self.table.nonnegative.sum(axis=0))])
        places = np.searchsorted(sums, np.linspace(0, 1, _POINTS) * sums[-1])
        return np.unique(self.table.edges[np.concatenate([[0], places, [self.table.cells]])])[::-1]

    @property
    def records(self) -> float:
        """Count the records, as well as noise allows."""
        return float(self.table.totals.sum())

    @property
    def positive_rate(self) -> Measured:
        """Give the share of positives."""
        found = table_rates.precision(self.table, np.zeros(1))
        return _one(found) if self.records > 0 else Measured(float("nan"), 0.0, 1.0)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Say what the table cannot tell."""
        said = [
            f"There are too few {name}, or they drown in noise ({total:.0f}, give or take {doubt:.0f}): "
            "AUC and all that divides by their number is left out."
            for name, label in (("negatives", NEGATIVE), ("positives", POSITIVE))
            if (total := float(self.table.totals[label]))
            <= max(DETECTION_Z * (doubt := float(self.table.total_deviations[label])), MIN_RECORDS)
        ]
        if np.count_nonzero(self.table.nonnegative.sum(axis=0)) == 1 and self.table.exact:
            said.append("All scores lie in one cell: the model does not rank, or the cells are too wide for it.")
        return tuple(said)

    def to_json(self) -> dict[str, Any]:
        """Give the headline figures by name, with null for what is missing."""
        known = [metric.name for metric in shown_in("curves") if metric.name in HEADLINE]
        figures = {name: _one(HEADLINE[name](self.table)) for name in known} | {"positive_rate": self.positive_rate}
        return {name: None if np.isnan(found.value) else found.to_json() for name, found in figures.items()}


def _one(found: Estimates) -> Measured:
    return Measured(float(found.value[0]), float(found.low[0]), float(found.high[0]))


@final
@dataclass(frozen=True)
class ClientErrors(Artifact):
    """The mean over clients of each one's own calibration error, and how far single clients are from it.

    Both are None where noise drowns the clients, or there are none; `warnings` says so.
    """

    mean: Measured | None
    spread: float | None  # standard deviation over clients
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Give both by name, with null for what is missing."""
        return {"mean": None if self.mean is None else self.mean.to_json(), "spread": self.spread}


@final
@dataclass(frozen=True)
class Comparison(Artifact):
    """Two models on the same records: each one's AUC and accuracy, and the differences with paired intervals.

    Differences are the model's minus the rival's; an interval that leaves out zero tells them apart. Where noise drowns
    a class, figures are NaN with intervals of everything, and `warnings` says so.
    """

    auc: Measured
    rival_auc: Measured
    auc_difference: Measured
    accuracy: Measured
    rival_accuracy: Measured
    accuracy_difference: Measured
    threshold: float
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Give every figure by name, with null for what is missing."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        figures = {name: value for name, value in values.items() if isinstance(value, Measured)}
        return {name: None if np.isnan(found.value) else found.to_json() for name, found in figures.items()}


@final
@dataclass(frozen=True)
class Confusion(Artifact):
    """Counts of predicted (rows) by true (columns) classes, perhaps noisy, with the variance of their noise."""

    counts: tuple[tuple[float, ...], ...]
    noise: float = 0.0

    def __post_init__(self) -> None:
        square = len(self.counts) >= 2 and {len(row) for row in self.counts} == {len(self.counts)}
        if not square or not all(isfinite(count) for row in self.counts for count in row):
            raise InputError("Expected a square table of finite counts, found another.")
        if not (isfinite(self.noise) and self.noise >= 0):
            raise InputError(f"Expected a noise variance of at least 0, found {self.noise}.")


@final
@dataclass(frozen=True, eq=False)
class Review(Artifact):
    """A window's metrics as the model says and as was served, and a calibrator for windows to come.

    `estimate` is what accuracy was expected to be, judged without labels by the served confidence.
    """

    metrics: MetricsReport
    estimate: Measured
    served: MetricsReport | None = None
    calibrator: Calibrator | None = None


@final
@dataclass(frozen=True, eq=False)
class Fitted(Artifact):
    """A calibrator, and the metrics of the same records before and after it."""

    calibrator: Calibrator
    before: MetricsReport
    after: MetricsReport
