"""The evaluation of a classifier: every metric with its interval, computed from one release.

`Performance` is what reports and workflows read. `BinaryPerformance` is that of a binary classifier: it keeps the table
of scores, so that curves and decisions at any threshold cost no further privacy.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, final

import numpy as np

from fedcalib.artifacts.evaluation import withheld
from fedcalib.artifacts.saving import Artifact
from fedcalib.cohort import MIN_RECORDS
from fedcalib.errors import InputError
from fedcalib.estimation import calibration_figures
from fedcalib.estimation.calibration_figures import SmoothCurve
from fedcalib.estimation.decisions import Decisions
from fedcalib.estimation.estimates import Ratios
from fedcalib.estimation.score_figures import UNKNOWN, BinaryFigures, ScoreTotals
from fedcalib.estimation.score_rates import Bins, Estimates, checked_thresholds
from fedcalib.estimation.score_sheet import ScoreSheet
from fedcalib.estimation.score_table import POSITIVE, ScoreTable
from fedcalib.metrics import table
from fedcalib.metrics.intervals import Measured
from fedcalib.metrics.reliability import Reliability
from fedcalib.metrics.table import METRICS
from fedcalib.numeric import log_odds, sigmoid
from fedcalib.types import Floats

NOTHING: Final = "No metric can be computed: there are no records, or no more than the noise alone could produce."
_SHOWN: Final = (table.AUC.name, table.ACCURACY.name, table.ECE.name)  # in one line
_CURVE_POINTS: Final = 101  # more would take time and look the same


@dataclass(frozen=True, eq=False)
class Performance(Artifact):
    """The evaluation of a classifier over all clients.

    Every metric has a 95% interval that covers sampling and privacy noise. A metric that noise drowns is not stated;
    `unmeasurable` says what it would take.

    Examples
    --------
    >>> import fedcalib as fc
    >>> federation = fc.Federation.simulated(classes=2)
    >>> found = fc.run(fc.FederatedMetrics(), fc.InProcess(federation), fc.SecAgg()).artifact
    >>> isinstance(found, fc.artifacts.Performance), round(found.measure("auc").value, 2)
    (True, 0.92)
    """

    def __repr__(self) -> str:
        """The first figures of those that can be stated."""
        stated = self.measures()
        shown = [f"{name} {stated[name]}" for name in _SHOWN if name in stated]
        return f"{type(self).__name__}({', '.join(shown) or 'nothing can be stated'})"

    @property
    @abstractmethod
    def records(self) -> float:
        """Number of records; noisy under differential privacy."""

    @property
    @abstractmethod
    def exact(self) -> bool:
        """Whether its tables hold exact counts."""

    @abstractmethod
    def estimates(self) -> Mapping[str, Measured]:
        """Every metric by name, whether it can be stated or not."""

    @abstractmethod
    def unmeasurable(self) -> Mapping[str, str]:
        """The metrics that cannot be stated, each with the reason."""

    @abstractmethod
    def reliability(self, bins: int = 15) -> Bins:
        """Reliability diagram in bins of equal width, as it may be drawn."""

    def measures(self) -> Mapping[str, Measured]:
        """Every metric that can be stated, by name, in the order of the table of metrics."""
        missing = self.unmeasurable()
        order = [metric.name for metric in METRICS if metric.name in self.estimates()]
        return {name: self.estimates()[name] for name in order if name not in missing}

    def measure(self, name: str) -> Measured:
        """One metric; NaN with the widest interval where it cannot be stated.

        Raises
        ------
        InputError
            If there is no metric of that name.
        """
        if name not in self.estimates():
            raise InputError(f"Expected a metric ({', '.join(self.estimates())}), found '{name}'.")
        return UNKNOWN if name in self.unmeasurable() else self.estimates()[name]

    def _stated(self, name: str) -> Measured | None:
        return None if name in self.unmeasurable() else self.estimates().get(name)

    @property
    def accuracy(self) -> Measured | None:
        """Share of records whose most likely class is right."""
        return self._stated(table.ACCURACY.name)

    @property
    def auc(self) -> Measured | None:
        """Chance that a positive is scored above a negative."""
        return self._stated(table.AUC.name)

    @property
    def ece(self) -> Measured | None:
        """Expected calibration error."""
        return self._stated(table.ECE.name)

    @property
    def cwece(self) -> Measured | None:
        """Class-wise calibration error; with two classes, the same as the calibration error of the score."""
        return self._stated(table.CWECE.name if table.CWECE.name in self.estimates() else table.ECE.name)

    @property
    def nll(self) -> Measured | None:
        """Log loss."""
        return self._stated(table.NLL.name)

    @property
    def brier(self) -> Measured | None:
        """Brier score."""
        return self._stated(table.BRIER.name)

    @property
    def slope(self) -> Measured | None:
        """Slope of the calibration line."""
        return self._stated(table.SLOPE.name)

    @property
    def intercept(self) -> Measured | None:
        """Intercept of the calibration line."""
        return self._stated(table.INTERCEPT.name)

    @property
    def observed_expected(self) -> Measured | None:
        """Ratio of observed positives to the sum of the scores."""
        return self._stated(table.OBSERVED_EXPECTED.name)

    @property
    def smooth_ece(self) -> Measured | None:
        """Smooth calibration error."""
        return self._stated(table.SMOOTH_ECE.name)

    def to_json(self) -> dict[str, Any]:
        """Every metric by name as plain data; None for those that cannot be stated."""
        stated = self.measures()
        order = [metric.name for metric in METRICS if metric.name in self.estimates()]
        return {name: stated[name].to_json() if name in stated else None for name in order}


@final
@dataclass(frozen=True, eq=False)
class PerformanceCurve:
    """A curve over thresholds with the interval of each point."""

    threshold: Floats  # (points,)
    x: Estimates  # (points,)
    y: Estimates  # (points,)


@final
@dataclass(frozen=True, eq=False)
class DecisionCurve:
    """Net benefit by threshold: of the model, and of calling everybody positive; calling nobody positive has none."""

    threshold: Floats  # (points,)
    net_benefit: Estimates
    treat_all: Estimates
    treat_none: Floats


@final
@dataclass(frozen=True, eq=False)
class BinaryPerformance(Performance):
    """The evaluation of a binary classifier: every metric, and the table of scores that they were computed from.

    Parameters
    ----------
    table
        Negatives and positives by cell of the score; noisy under differential privacy.
    odds
        The log-odds that each cell stands for, shape (cells,).
    tied
        Whether each cell holds one distinct score.
    threshold
        The threshold of the metrics of decisions.
    bins
        Number of bins of the calibration error.
    figures
        The metrics by name, with their intervals.
    reasons
        Why metrics are not stated, by name.
    warnings
        What a reader has to know.
    min_count
        Cells of an exact table were merged until no count was from 1 to `min_count` - 1; 0 where none were.

    Examples
    --------
    >>> import fedcalib as fc
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> score = rng.random(1000)
    >>> records = fc.Records.of_scores(score, rng.random(1000) < score)
    >>> found = fc.run(fc.FederatedMetrics(), fc.InProcess(fc.Federation.of([records])), fc.Open()).artifact
    >>> found.auc.low < found.auc.value < found.auc.high
    True
    >>> round(found.at(0.2)["sensitivity"].value, 2)
    0.96
    """

    table: ScoreTable
    odds: Floats
    tied: bool
    threshold: float
    bins: int
    figures: Mapping[str, Measured]
    reasons: Mapping[str, str]
    warnings: tuple[str, ...] = ()
    min_count: int = 0

    @classmethod
    def of(cls, found: BinaryFigures, warnings: Sequence[str] = ()) -> BinaryPerformance:
        """The evaluation with all its figures."""
        figures = found.all
        reasons = {name: reason for name in figures if (reason := found.reason(name))}
        told = (*warnings, *((NOTHING,) if not found.sheet.known[2] else ()))
        sheet = found.sheet
        return cls(sheet.table, sheet.odds, sheet.tied, found.threshold, found.bins, figures, reasons, told)

    @cached_property
    def sheet(self) -> ScoreSheet:
        """The table with the log-odds of its cells."""
        return ScoreSheet(self.table, self.odds, self.tied)

    @property
    def records(self) -> float:
        return float(self.table.totals.sum())

    @property
    def exact(self) -> bool:
        return self.table.exact

    def estimates(self) -> Mapping[str, Measured]:
        return self.figures

    def unmeasurable(self) -> Mapping[str, str]:
        return self.reasons

    def at(self, threshold: float) -> Mapping[str, Measured]:
        """Decisions if records that score at least `threshold` are called positive: rates, F1, net benefit and others.

        Parameters
        ----------
        threshold
            A number between 0 and 1.

        Returns
        -------
        mapping of str to Measured
            Sensitivity, specificity, PPV, NPV, F1, balanced accuracy, Youden's index, net benefit, alert rate and
            accuracy; NaN where the records do not determine one.
        """
        at = float(checked_thresholds(threshold)[0])
        if at == self.threshold:
            names = self._decisions(at)
            return {name: self.figures.get(name, found) for name, found in names.items()}
        return self._decisions(at)

    def _decisions(self, threshold: float) -> dict[str, Measured]:
        return BinaryFigures(self.sheet, self.threshold, self.bins).decisions(threshold)

    def reliability(self, bins: int = 15) -> Bins:
        return calibration_figures.reliability(self.sheet, bins)

    @property
    def reliability_table(self) -> Reliability:
        """The reliability diagram as a table of counts, nonnegative under noise too."""
        gaps = calibration_figures.Gaps(self.sheet, self.bins)
        confidence = (self.sheet.counts.sum(axis=0) * self.sheet.score) @ gaps.member.T
        return Reliability(gaps.counts.sum(axis=0)[None], confidence[None], gaps.counts[POSITIVE][None])

    def smooth_reliability(self, scores: Any = None) -> PerformanceCurve:
        """The observed rate as a smooth function of the score, with a pointwise 95% band.

        Parameters
        ----------
        scores
            Where to compute it; by default at a hundred places between the 1st and the 99th percentile of the scores.
        """
        curve = SmoothCurve.of(self.sheet)
        odds = self._odds() if scores is None else log_odds(checked_thresholds(scores))
        at = sigmoid(odds)
        same = Estimates(at, at, at)
        if curve is None:
            return PerformanceCurve(at, same, Estimates(np.full(len(at), np.nan), np.zeros(len(at)), np.ones(len(at))))
        return PerformanceCurve(at, same, curve.band(at, odds))

    def _odds(self) -> Floats:
        counts = self.sheet.counts.sum(axis=0)
        reached = np.cumsum(counts) / max(float(counts.sum()), 1e-300)
        ends = [float(self.odds[min(int(np.searchsorted(reached, q)), len(self.odds) - 1)]) for q in (0.01, 0.99)]
        return np.linspace(ends[0], max(ends[1], ends[0] + 1e-6), _CURVE_POINTS)

    def roc(self, thresholds: Any = None) -> PerformanceCurve:
        """ROC curve: sensitivity against one minus specificity, from threshold 1 down to 0; both never decrease."""
        at = Decisions(self.sheet, self._thresholds(thresholds))
        false = _estimates(at.specificity())
        across = Estimates(1 - false.value, 1 - false.high, 1 - false.low)
        return PerformanceCurve(at.thresholds, _monotone(across), _monotone(_estimates(at.sensitivity())))

    def pr(self, thresholds: Any = None) -> PerformanceCurve:
        """Precision-recall curve, from threshold 1 down to 0."""
        at = Decisions(self.sheet, self._thresholds(thresholds))
        return PerformanceCurve(at.thresholds, _monotone(_estimates(at.sensitivity())), _estimates(at.ppv()))

    def decision_curve(self, thresholds: Any = None) -> DecisionCurve:
        """Net benefit of the model and of calling everybody positive, at thresholds from 0.01 to 0.99 by default."""
        chosen = np.linspace(0.01, 0.99, 99) if thresholds is None else checked_thresholds(thresholds)
        at, every = Decisions(self.sheet, chosen), range(len(chosen))
        model = [at.net_benefit(index).normal(high=1.0) for index in every]
        everybody = [at.treat_all(index).normal(high=1.0) for index in every]
        return DecisionCurve(chosen, _stacked(model), _stacked(everybody), np.zeros(len(chosen)))

    def threshold_for(self, *, sensitivity: float | None = None, net_benefit: bool = False) -> float:
        """The highest threshold with at least this sensitivity, or the lowest one from which the model has net benefit.

        Parameters
        ----------
        sensitivity
            A target between 0 and 1.
        net_benefit
            Instead, the lowest threshold at which the model has more net benefit than calling everybody or nobody
            positive.
        """
        if (sensitivity is None) != net_benefit:
            raise InputError("Expected a target sensitivity or net_benefit=True, found both or neither.")
        if sensitivity is not None:
            if not 0 < sensitivity <= 1:
                raise InputError(f"Expected a sensitivity above 0 and at most 1, found {sensitivity}.")
            from_above = np.cumsum(self.table.counts[POSITIVE][::-1])
            reached = np.maximum.accumulate(np.append(0.0, from_above)) / max(float(from_above[-1]), 1e-300)
            return float(self.table.edges[::-1][int(np.argmax(reached >= sensitivity - 1e-12))])
        found = self.decision_curve()
        better = found.net_benefit.value > np.maximum(found.treat_all.value, 0.0)
        return float(found.threshold[int(np.argmax(better))]) if better.any() else float("nan")

    def _thresholds(self, thresholds: Any) -> Floats:
        """The given thresholds, or edges of cells with about equally many records between them, from 1 down to 0."""
        if thresholds is not None:
            return checked_thresholds(thresholds)
        if self.tied:
            return np.concatenate([[1.0], self.sheet.score[::-1], [0.0]])
        sums = np.concatenate([[0.0], np.cumsum(self.sheet.counts.sum(axis=0))])
        cells = np.searchsorted(sums, np.linspace(0, 1, _CURVE_POINTS) * sums[-1])
        return np.unique(self.table.edges[np.concatenate([[0], cells, [self.table.cells]])])[::-1]

    def published(self, min_count: int = MIN_RECORDS) -> BinaryPerformance:
        """The same metrics; an exact table has cells merged, or is a single empty one where none may be shown."""
        if not self.table.exact or min_count <= 1 or self.min_count >= min_count:
            return self
        table = self.table.merged(min_count)
        if table is None:
            empty = ScoreTable(np.array([0.0, 1.0]), np.zeros((2, 1)), 2, (np.zeros((2, 1)),))
            told = tuple(dict.fromkeys((*self.warnings, withheld(min_count))))
            return replace(self, table=empty, odds=np.zeros(1), min_count=min_count, warnings=told)
        return replace(self, table=table, odds=self._merged_odds(table), tied=False, min_count=min_count)

    def _merged_odds(self, table: ScoreTable) -> Floats:
        """Log-odds of the mean score of the records in each merged cell."""
        starts = np.searchsorted(self.table.edges, table.edges[:-1])
        counts = np.maximum(self.table.counts.sum(axis=0), 1e-9)
        mean = np.add.reduceat(counts * self.sheet.score, starts) / np.add.reduceat(counts, starts)
        return log_odds(np.clip(mean, table.edges[:-1], table.edges[1:]))


def _estimates(found: Ratios) -> Estimates:
    return _stacked([found.rate(index) for index in range(len(found.value))])


def _stacked(found: Sequence[Measured]) -> Estimates:
    return Estimates(*(np.array([getattr(one, name) for one in found]) for name in ("value", "low", "high")))


def _monotone(found: Estimates) -> Estimates:
    """Rates along falling thresholds, none of which may fall."""
    value = np.maximum.accumulate(np.nan_to_num(found.value)) if np.isfinite(found.value).any() else found.value
    return Estimates(value, np.minimum(found.low, value), np.maximum(found.high, value))


def binary_performance(
    sheet: ScoreSheet, threshold: float, bins: int, totals: ScoreTotals | None, epsilon: float | None
) -> BinaryPerformance:
    """The evaluation that follows from a table of scores, and from exact sums where there are any."""
    return BinaryPerformance.of(BinaryFigures(sheet, threshold, bins, totals, epsilon))
