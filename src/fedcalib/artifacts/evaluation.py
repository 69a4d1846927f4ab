"""Results of evaluations: metrics with their intervals, and the tables that they were computed from.

`MetricsReport` is for any classifier; `Curves` holds the score table of a binary one, from which every metric at every
threshold can be computed later. `ClientErrors`, `Comparison`, `Confusion`, `Review` and `Fitted` are the results of the
methods that measure single clients, compare two models, count classes, monitor a model, and calibrate and measure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import isfinite
from typing import Any, final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.saving import Artifact
from fedcalib.cohort import MIN_RECORDS as PUBLIC_RECORDS
from fedcalib.errors import InputError, RefusedError
from fedcalib.estimation import score_rates
from fedcalib.estimation.score_rates import HEADLINE, Bins, Estimates, checked_thresholds
from fedcalib.estimation.score_table import DETECTION_Z, MIN_RECORDS, NEGATIVE, POSITIVE, ScoreTable
from fedcalib.metrics.binning import bin_edges
from fedcalib.metrics.intervals import Measured
from fedcalib.metrics.reliability import Reliability
from fedcalib.metrics.table import Metric, shown_in
from fedcalib.types import Floats
from fedcalib.wire import ADDED


@final
@dataclass(frozen=True, eq=False)
class MetricsReport(Artifact):
    """Accuracy, calibration and ranking of a classifier over all clients.

    A metric is None where the data or the noise do not allow it; `warnings` says why.

    Parameters
    ----------
    reliability
        Table of the top label (with two classes, of the score); noisy under differential privacy.
    count_variance, gap_variance
        Variance of the noise on a count and on a gap of that table.
    accuracy, ece, cwece, nll, brier, auc
        Metrics with their intervals: accuracy, expected and class-wise calibration error, log loss, Brier score, AUC.
    debiased_squared_ece, slope, intercept, observed_expected, smooth_ece
        Further metrics, without intervals; the slope and the intercept are those of the calibration line.
    warnings
        What is missing and why.
    min_count
        Bins of `reliability` were merged until no count was from 1 to `min_count` - 1; 0 where none were.

    Examples
    --------
    >>> import fedcalib as fc
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> score = rng.random(1000)
    >>> records = fc.Records.of_scores(score, rng.random(1000) < score)
    >>> report = fc.run(fc.FederatedMetrics(), fc.InProcess(fc.Federation.of([records])), fc.Open()).artifact
    >>> report.auc.low < report.auc.value < report.auc.high
    True
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
    min_count: int = field(default=0, metadata=ADDED)

    @classmethod
    def nothing(cls, reliability: Reliability, count_variance: float, gap_variance: float) -> MetricsReport:
        """A report without any metric, for lack of records."""
        why = "No metric can be computed: there are no records, or no more than the noise alone could produce."
        return cls(reliability, count_variance, gap_variance, warnings=(why,))

    def published(self, min_count: int = PUBLIC_RECORDS) -> MetricsReport:
        """The same metrics; an exact table has bins merged, or is NaN where no count of it may be shown."""
        if self.count_variance > 0 or min_count <= 1 or not np.isfinite(self.reliability.count).all():
            return self
        table = self.reliability.merged(min_count)
        if table is not None:
            return replace(self, reliability=table, min_count=min_count)
        unknown = np.full((self.reliability.groups, 1), np.nan)
        warnings = tuple(dict.fromkeys((*self.warnings, withheld(min_count))))
        return replace(self, reliability=Reliability(unknown, unknown, unknown), min_count=min_count, warnings=warnings)

    def to_json(self) -> dict[str, Any]:
        """The metrics with intervals by name; None for those that are missing."""
        values = {metric.name: getattr(self, metric.name) for metric in headline()}
        return {name: None if value is None else value.to_json() for name, value in values.items()}


def withheld(min_count: int) -> str:
    """Why a table is not published."""
    return (
        f"Tables and figures of counts are left out: there are from 1 to {min_count - 1} records of a label, or of "
        "right or wrong answers, so that any table would show them."
    )


def headline() -> tuple[Metric, ...]:
    """The metrics of an evaluation, in the order of its report's fields."""
    known = {metric.name: metric for metric in shown_in("evaluation")}
    return tuple(known[field.name] for field in fields(MetricsReport) if field.name in known)


_CURVE_POINTS = 101  # more would take time and look the same


@final
@dataclass(frozen=True, eq=False)
class Curve:
    """A ROC or precision-recall curve: one point per threshold, from 1 down to 0, with the interval of each rate."""

    threshold: Floats  # (points,)
    x: Estimates  # (points,): false positive rate, or recall
    y: Estimates  # (points,): true positive rate, or precision


@final
@dataclass(frozen=True, eq=False)
class Curves(Artifact):
    """The evaluation of a binary classifier: every metric at every threshold, computed from one table of scores.

    Everything is computed from the table, so no metric that is computed later costs further privacy. Metrics have 95%
    intervals that cover sampling, privacy noise and the width of the table's cells. A metric whose denominator is not
    above its noise is NaN with the interval [0, 1], and `warnings` says so.

    Parameters
    ----------
    table
        Negatives and positives by cell of the score.
    min_count
        Cells were merged until no count was from 1 to `min_count` - 1; 0 where none were.

    Examples
    --------
    >>> import fedcalib as fc
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> score = rng.random(1000)
    >>> records = fc.Records.of_scores(score, rng.random(1000) < score)
    >>> curves = fc.run(fc.ScoreCurves(), fc.InProcess(fc.Federation.of([records])), fc.Open()).artifact
    >>> round(curves.auc.value, 2), round(curves.recall(0.5).value, 2)
    (0.83, 0.76)
    >>> len(curves.roc().threshold)
    101
    """

    table: ScoreTable
    min_count: int = field(default=0, metadata=ADDED)

    def published(self, min_count: int = PUBLIC_RECORDS) -> Curves:
        """The curves of an exact table with merged cells; refused where no count of it may be shown."""
        if not self.table.exact or min_count <= 1:
            return self
        table = self.table.merged(min_count)
        if table is None:
            raise RefusedError(withheld(min_count))
        return Curves(table, min_count)

    def precision(self, threshold: float) -> Measured:
        """Fraction of positives among records whose score is at least the threshold."""
        return _one(score_rates.precision(self.table, checked_thresholds(threshold)))

    def recall(self, threshold: float) -> Measured:
        """Fraction of positives whose score is at least the threshold."""
        return _one(score_rates.recall(self.table, checked_thresholds(threshold)))

    def accuracy(self, threshold: float) -> Measured:
        """Fraction of records on the right side of the threshold."""
        return _one(score_rates.accuracy(self.table, checked_thresholds(threshold)))

    @cached_property
    def auc(self) -> Measured:
        """Area under the ROC curve: the probability that a positive outscores a negative."""
        return _one(score_rates.area(self.table))

    def ece(self, bins: int = 15) -> Measured:
        """Expected calibration error of the score, in bins of equal width."""
        return _one(score_rates.expected_calibration_error(self.table, bins))

    def reliability(self, bins: int = 15) -> Bins:
        """Reliability diagram of the score, in bins of equal width."""
        return score_rates.reliability(self.table, bin_edges(bins))

    def roc(self, thresholds: Any = None) -> Curve:
        """ROC curve: true against false positive rate, at the given thresholds or at about a hundred of the table's."""
        chosen = self._thresholds(thresholds)
        across = score_rates.false_positive_rate(self.table, chosen)
        return Curve(chosen, across, score_rates.recall(self.table, chosen))

    def pr(self, thresholds: Any = None) -> Curve:
        """Precision-recall curve, at the given thresholds or at about a hundred of the table's."""
        chosen = self._thresholds(thresholds)
        return Curve(chosen, score_rates.recall(self.table, chosen), score_rates.precision(self.table, chosen))

    def _thresholds(self, thresholds: Any) -> Floats:
        """The given thresholds, or edges of cells with about equally many records between them, from 1 down to 0."""
        if thresholds is not None:
            return checked_thresholds(thresholds)
        sums = np.concatenate([[0.0], np.cumsum(self.table.nonnegative.sum(axis=0))])
        cells = np.searchsorted(sums, np.linspace(0, 1, _CURVE_POINTS) * sums[-1])
        return np.unique(self.table.edges[np.concatenate([[0], cells, [self.table.cells]])])[::-1]

    @property
    def records(self) -> float:
        """Number of records; noisy under differential privacy."""
        return float(self.table.totals.sum())

    @property
    def positive_rate(self) -> Measured:
        """Fraction of positives among all records."""
        found = score_rates.precision(self.table, np.zeros(1))
        return _one(found) if self.records > 0 else Measured(float("nan"), 0.0, 1.0)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What cannot be computed from the table, and why."""
        found = [
            f"There are too few {name} for the noise (about {total:.0f}, with a standard deviation of {noise:.0f}): "
            "AUC and every metric that divides by their number is left out."
            for name, label in (("negatives", NEGATIVE), ("positives", POSITIVE))
            if (total := float(self.table.totals[label]))
            <= max(DETECTION_Z * (noise := float(self.table.total_deviations[label])), MIN_RECORDS)
        ]
        if np.count_nonzero(self.table.nonnegative.sum(axis=0)) == 1 and self.table.exact:
            found.append("All scores lie in one cell: the model does not rank, or the cells are too wide for it.")
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """The main metrics by name; None for those that are missing."""
        known = [metric.name for metric in shown_in("curves") if metric.name in HEADLINE]
        figures = {name: _one(HEADLINE[name](self.table)) for name in known} | {"positive_rate": self.positive_rate}
        return {name: None if np.isnan(found.value) else found.to_json() for name, found in figures.items()}


def _one(found: Estimates) -> Measured:
    return Measured(float(found.value[0]), float(found.low[0]), float(found.high[0]))


@final
@dataclass(frozen=True)
class ClientErrors(Artifact):
    """The mean and the standard deviation over clients of each client's own calibration error.

    Both are None where there are no clients, or no more than the noise alone could produce; `warnings` says so.

    Parameters
    ----------
    mean
        Mean over clients, with its interval.
    spread
        Standard deviation over clients.
    warnings
        What is missing and why.

    Examples
    --------
    >>> from fedcalib.artifacts.evaluation import ClientErrors
    >>> from fedcalib.metrics.intervals import Measured
    >>> ClientErrors(Measured(0.08, 0.05, 0.11), 0.03).to_json()["spread"]
    0.03
    """

    mean: Measured | None
    spread: float | None
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Both by name; None for what is missing."""
        return {"mean": None if self.mean is None else self.mean.to_json(), "spread": self.spread}


@final
@dataclass(frozen=True)
class Comparison(Artifact):
    """Two models on the same records: AUC and accuracy of each, and the differences with paired intervals.

    Where a class has no more records than its noise alone could produce, metrics are NaN with the widest interval, and
    `warnings` says so.

    Parameters
    ----------
    auc, rival_auc, accuracy, rival_accuracy
        Metrics of the model and of its rival.
    auc_difference, accuracy_difference
        The model's minus the rival's. The models differ significantly where the interval does not contain zero.
    threshold
        Score from which on a record counts as predicted positive.
    warnings
        What is missing and why.

    Examples
    --------
    >>> import fedcalib as fc
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> score = rng.random(2000)
    >>> records = fc.Records.of_scores(score, rng.random(2000) < score, rival=rng.random(2000))
    >>> found = fc.run(fc.CompareModels(), fc.InProcess(fc.Federation.of([records])), fc.Open()).artifact
    >>> found.auc_difference.low > 0
    True
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
        """Every metric by name; None for those that are missing."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        figures = {name: value for name, value in values.items() if isinstance(value, Measured)}
        return {name: None if np.isnan(found.value) else found.to_json() for name, found in figures.items()}


@final
@dataclass(frozen=True)
class Confusion(Artifact):
    """Counts of records by predicted class (rows) and true class (columns).

    Parameters
    ----------
    counts
        One row per predicted class; noisy under differential privacy.
    noise
        Variance of the noise on a count.

    Examples
    --------
    >>> from fedcalib.artifacts.evaluation import Confusion
    >>> Confusion(((40.0, 10.0), (5.0, 45.0))).counts[1]
    (5.0, 45.0)
    """

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
    """What monitoring found in one window of time.

    Parameters
    ----------
    metrics
        The evaluation of the model's own probabilities: a `Performance`, or a `MetricsReport` in files of version 0.1.
    estimate
        Expected accuracy, estimated without labels from the confidence that was served.
    served
        The evaluation of the probabilities that were served, where a calibrator was in use.
    calibrator
        A calibrator fitted to this window, for the windows that follow.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.methods.compare_models import ReviewWindow
    >>> review = fc.run(ReviewWindow(), fc.InProcess(fc.Federation.simulated()), fc.SecAgg()).artifact
    >>> review.metrics.accuracy.value < review.estimate.value  # the simulated model is over-confident
    True
    """

    metrics: Any
    estimate: Measured
    served: Any = None
    calibrator: Calibrator | None = None

    def published(self, min_count: int = PUBLIC_RECORDS) -> Review:
        """The same review, with the tables of both measurements as they may be published."""
        served = None if self.served is None else self.served.published(min_count)
        return replace(self, metrics=self.metrics.published(min_count), served=served)

    @property
    def disclosure(self) -> str:
        return "" if self.calibrator is None else self.calibrator.disclosure


@final
@dataclass(frozen=True, eq=False)
class Fitted(Artifact):
    """A calibrator, and the metrics of the same records before and after it.

    Parameters
    ----------
    calibrator
        The calibrator.
    before, after
        The evaluations without it and with it: a `Performance` each, or a `MetricsReport` in files of version 0.1.
    change
        After less before by metric, with a paired interval; None in files of version 0.1.

    Examples
    --------
    >>> import fedcalib as fc
    >>> method = fc.methods.FitAndMeasure(fc.OneShotTemperature())
    >>> fitted = fc.run(method, fc.InProcess(fc.Federation.simulated()), fc.SecAgg()).artifact
    >>> fitted.after.nll.value < fitted.before.nll.value
    True
    """

    calibrator: Calibrator
    before: Any
    after: Any
    change: Mapping[str, Measured] | None = field(default=None, metadata=ADDED)

    def published(self, min_count: int = PUBLIC_RECORDS) -> Fitted:
        """The same calibrator, with the tables of both measurements as they may be published."""
        return replace(self, before=self.before.published(min_count), after=self.after.published(min_count))

    @property
    def disclosure(self) -> str:
        return self.calibrator.disclosure
