"""Evaluation of a classifier with several classes, from one message; before and after a calibrator too.

What is sent depends on the budget alone. With exact sums, every figure is that of the pooled records, and products of
residuals make the interval of the class-wise calibration error honest. Under noise there are four blocks and no more:
outcomes by confidence, residuals by class and bin, two losses, and outcomes by class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite, sqrt
from typing import Final, final

import numpy as np

from fedcalib.artifacts.calibrator import UNCHANGED, Calibrator
from fedcalib.artifacts.class_performance import ClassPerformance, ClassRow
from fedcalib.artifacts.performance_parts import PairedPerformance
from fedcalib.errors import InputError
from fedcalib.estimation.class_sums import (
    ClassEstimate,
    ClassSums,
    LossTotal,
    Z,
    change_of_error,
    combined,
    one_against_rest,
    proportion,
)
from fedcalib.flows.class_sums import ClassMessage, ExactMessage, NoisyMessage
from fedcalib.method import Budget, Flow, Method
from fedcalib.metrics.classes import log_loss_cut
from fedcalib.metrics.intervals import Measured
from fedcalib.metrics.reliability import Reliability
from fedcalib.metrics.table import ACCURACY, BRIER, CUT_NLL, CWECE, ECE, MACRO_AUC, MACRO_F1, NLL, WEIGHTED_F1
from fedcalib.queries.class_outcomes import MAX_LOG_LOSS, GapProducts, LossChanges
from fedcalib.queries.wrapped import Calibrated
from fedcalib.query import Answer, Join, Query, Unit
from fedcalib.records import Schema
from fedcalib.types import Floats
from fedcalib.wire import ADDED

_CHANGES: Final = 0.4  # weight of the changes of losses beside two messages of weight one
_UNCUT: Final = "not stated under noise, since single records could change it too much: the cut log loss is"
_NOT_COUNTED: Final = "not counted after a calibrator under noise: evaluate the calibrated probabilities by themselves"
_NOTHING: Final = "No metric can be computed: there are no records, or no more than the noise alone could produce."
_NO_CLASS: Final = "not defined: no class has records of its own and others"


@final
@dataclass(frozen=True)
class ClassMetrics(Method[ClassPerformance]):
    """Measure a classifier with several classes across clients: every metric with its interval, from one message.

    Parameters
    ----------
    bins
        Number of bins of equal width of both calibration errors.
    margin
        Under noise the log loss of a record is cut at ln(classes) + `margin`, a public bound, and reported as such.
    class_auc
        Whether to count scores by class for the AUC of each class against the rest. None: where sums are exact. Under
        noise it takes half of the budget.
    confusion
        Whether to count records by actual and predicted class, for the confusion table. None: where sums are exact up
        to 64 classes, under noise up to five. Under noise it costs no more, but with many classes precision, recall and
        F1 are then sums of many noisy counts.
    epsilon, unit, alone
        What the run may spend, on whom, and who adds noise; filled in by the run. None for exact sums.

    Examples
    --------
    >>> import fedcalib as fc
    >>> federation = fc.Federation.simulated(classes=4)
    >>> found = fc.run(fc.methods.ClassMetrics(), fc.InProcess(federation), fc.SecAgg()).artifact
    >>> records = federation.records
    >>> round(found.measure("macro_f1").value, 6) == round(fc.metrics.macro_f1(records.probs, records.labels), 6)
    True
    """

    bins: int = 15
    margin: float = 5.0
    class_auc: bool | None = None
    confusion: bool | None = field(default=None, metadata=ADDED)
    epsilon: float | None = None
    unit: Unit | None = None
    alone: Unit | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.bins <= 1 << 12 or not 0 < self.margin < 100:
            raise InputError(f"Expected 1 to 4096 bins and a margin above 0, found {self.bins} and {self.margin}.")

    def with_budget(self, budget: Budget) -> ClassMetrics:
        """Send what noise allows."""
        epsilon, unit, alone = self.epsilon or budget.epsilon, self.unit or budget.unit, self.alone or budget.alone
        return replace(self, epsilon=epsilon, unit=unit, alone=alone)

    def protocol(self, schema: Schema) -> Flow[ClassPerformance]:
        message = self.message(schema)
        join = Join(message.queries)
        answer = yield join
        parts = [answer.part(join, index) for index in range(len(join.parts))]
        return self.reading(message, message.sums(parts)).performance(parts)

    def message(self, schema: Schema) -> ClassMessage:
        """What is sent: as much as exact sums can carry, or as little as noise needs."""
        if schema.classes < 3:
            raise InputError(f"Expected at least 3 classes, found {schema.classes}; use FederatedMetrics for two.")
        scores = self.epsilon is None if self.class_auc is None else self.class_auc
        if self.epsilon is None:
            return ExactMessage(schema.classes, self.bins, scores, self.confusion)
        cut = log_loss_cut(schema.classes, self.margin)
        laplace = self.unit != "client"
        return NoisyMessage(schema.classes, self.bins, scores, cut, laplace=laplace, confusion=self.confusion)

    def reading(self, message: ClassMessage, sums: ClassSums) -> ClassReading:
        """The figures that follow from sums."""
        return ClassReading(message, sums, self.epsilon, self.alone == "record")


@final
@dataclass(frozen=True)
class PairedClassMetrics(Method[PairedPerformance]):
    """Measure a classifier with several classes before and after a calibrator on the same records, from one message.

    The changes of accuracy, log loss and Brier score are summed record by record, so that what both sides share cancels
    in their intervals. With exact sums the change of ECE is paired too. Under noise, and for the class-wise error, the
    interval of the change is conservative: both errors are taken to vary together in the worst way.

    Parameters
    ----------
    calibrator
        What is applied.
    metrics
        The measurement, with its options.

    Examples
    --------
    >>> import fedcalib as fc
    >>> federation = fc.Federation.simulated()  # over-confident
    >>> method = fc.methods.PairedClassMetrics(fc.artifacts.Temperature(2.0))
    >>> found = fc.run(method, fc.InProcess(federation), fc.SecAgg()).artifact
    >>> found.change["nll"].high < 0
    True
    """

    calibrator: Calibrator = UNCHANGED
    metrics: ClassMetrics = ClassMetrics()

    def with_budget(self, budget: Budget) -> PairedClassMetrics:
        return replace(self, metrics=self.metrics.with_budget(budget))

    def protocol(self, schema: Schema) -> Flow[PairedPerformance]:
        message, exact = self.metrics.message(schema), self.metrics.epsilon is None
        cut, one = message.cut or MAX_LOG_LOSS, Join(message.queries)
        products: tuple[Query, ...] = (GapProducts(self.calibrator, self.metrics.bins),) if exact else ()
        changes = LossChanges(self.calibrator, cut, exact, _CHANGES)
        join = Join((one, Calibrated(one, self.calibrator), changes, *products))
        answer = yield join
        sides = [_parts(answer.part(join, index), one) for index in range(2)]
        sums = [message.sums(parts) for parts in sides]
        before, after, changed = reconciled(sums[0], sums[1], answer.part(join, 2), cut)
        shared = answer.part(join, 3)["products"] if exact else None
        first, second = (self.metrics.reading(message, found) for found in (before, after))
        earlier, later = first.performance(sides[0]), second.performance(sides[1])
        return PairedPerformance(earlier, later, first.changes(second, changed, shared))


def _parts(answer: Answer, join: Join) -> list[Answer]:
    return [answer.part(join, index) for index in range(len(join.parts))]


def reconciled(
    before: ClassSums, after: ClassSums, answer: Answer, cut: float
) -> tuple[ClassSums, ClassSums, tuple[LossTotal, LossTotal, LossTotal]]:
    """Both sides and the summed changes of log loss, Brier score and correctness, so that after less before is change.

    Each of three noisy sums moves by its part of the variance: the least-squares fit.
    """
    scale = np.array([cut, 2.0, 1.0])
    sums, noise = answer["changes"][:3] * scale, answer.variance("changes")[:3] * scale**2
    squares = answer["changes"][3:] * scale**2 if len(answer["changes"]) > 3 else _bounds(before, after)
    changes = [LossTotal(*numbers) for numbers in zip(sums.tolist(), squares.tolist(), noise.tolist(), strict=True)]
    log_loss, log_after, log_change = _fit(before.log_loss, after.log_loss, changes[0])
    brier, brier_after, brier_change = _fit(before.brier, after.brier, changes[1])
    right, right_after, right_change = _fit(
        LossTotal(before.right, before.right, before.right_noise),
        LossTotal(after.right, after.right, after.right_noise),
        changes[2],
    )
    records, records_noise = combined([before.records, after.records], [before.records_noise, after.records_noise])

    def side(sums: ClassSums, log_loss: LossTotal, brier: LossTotal, right: LossTotal) -> ClassSums:
        return replace(
            sums, log_loss=log_loss, brier=brier, records=records, records_noise=records_noise,
            right=right.sum, right_noise=right.noise, wrong=records - right.sum,
            wrong_noise=sums.wrong_noise if records_noise else 0.0,
        )  # fmt: skip

    both = side(before, log_loss, brier, right), side(after, log_after, brier_after, right_after)
    return *both, (log_change, brier_change, right_change)


def _fit(before: LossTotal, after: LossTotal, change: LossTotal) -> tuple[LossTotal, LossTotal, LossTotal]:
    noises = np.array([before.noise, after.noise, change.noise])
    if not noises.sum() > 0:
        return before, after, change
    error = after.sum - before.sum - change.sum
    moved, left = error * noises / noises.sum(), noises * (1 - noises / noises.sum())
    return (
        LossTotal(before.sum + float(moved[0]), before.squares, float(left[0])),
        LossTotal(after.sum - float(moved[1]), after.squares, float(left[1])),
        LossTotal(change.sum + float(moved[2]), change.squares, float(left[2])),
    )


def _bounds(before: ClassSums, after: ClassSums) -> Floats:
    """Bounds on the summed squared changes, from the squares on both sides."""
    right = [max(side.wrong, 1.0) for side in (before, after)]  # a record that is right on both sides does not change
    pairs = [(before.log_loss.squares, after.log_loss.squares), (before.brier.squares, after.brier.squares)]
    bounds = [max(sqrt(max(a, 0.0)), sqrt(max(b, 0.0))) ** 2 for a, b in pairs]
    return np.array([*bounds, sum(right)])


@final
@dataclass(frozen=True, eq=False)
class ClassReading:
    """The figures of a message, and which of them can be stated."""

    message: ClassMessage
    sums: ClassSums
    epsilon: float | None
    local: bool  # every record adds noise of its own

    def performance(self, parts: list[Answer]) -> ClassPerformance:
        """The evaluation with all that can be stated."""
        reasons = {name: reason for name in self._ranges if (reason := self._reason(name))}
        figures = {name: self._measured(name, name in reasons) for name in self._ranges}
        tables, class_noise = self.message.class_tables(parts)
        rows, told = (self._rows(tables), ()) if self.sums.known else ((), (_NOTHING,))
        confusion, confusion_noise = self._confusion if self.sums.known else (None, 0.0)
        return ClassPerformance(
            figures, reasons, self.sums.records, *self.message.table(parts), rows, self.message.cut, told,
            confusion=confusion, confusion_noise=confusion_noise, class_noise=class_noise,
        )  # fmt: skip

    @property
    def _confusion(self) -> tuple[Floats | None, float]:
        """Records by actual and predicted class, none negative, and the variance of the noise on each."""
        counts, noise = self.sums.outcomes.confusion, float(self.sums.outcomes.right_noise.max())
        if counts is None:
            return None, 0.0
        return np.ascontiguousarray(np.maximum(counts, 0.0).T), noise

    def changes(
        self, after: ClassReading, changed: tuple[LossTotal, LossTotal, LossTotal], shared: Floats | None
    ) -> Mapping[str, Measured]:
        """Every change that can be stated, after minus before, with its paired interval."""
        if not (self.sums.known and after.sums.known):
            return {}
        sums, names = self.sums, (CUT_NLL.name if self.message.cut else NLL.name, BRIER.name, ACCURACY.name)
        found = {name: total.mean(sums.records, sums.records_noise) for name, total in zip(names, changed, strict=True)}
        top, later = self.sums.top, after.sums.top
        covariance = None if shared is None else shared - np.outer(top.gap, later.gap) / top.entries
        found[ECE.name] = change_of_error(top, later, covariance)
        found[CWECE.name] = change_of_error(self.sums.classwise, after.sums.classwise, None)
        return {name: self._change(name, estimate) for name, estimate in found.items()}

    def _change(self, name: str, estimate: ClassEstimate) -> Measured:
        low, high = self._ranges[name]
        return estimate.measured(low - high, high - low, self.sums.records)

    @cached_property
    def _ranges(self) -> dict[str, tuple[float, float]]:
        """The least and the largest possible value of each figure."""
        noisy = {CUT_NLL.name: (0.0, self.message.cut)} if self.message.cut else {}
        scores = {MACRO_AUC.name: (0.0, 1.0)} if self.sums.scores is not None else {}
        unit = dict.fromkeys((ACCURACY.name, ECE.name, MACRO_F1.name, WEIGHTED_F1.name), (0.0, 1.0))
        return {
            **unit, CWECE.name: (0.0, 2 / self.message.classes), NLL.name: (0.0, MAX_LOG_LOSS), BRIER.name: (0.0, 2.0),
            **noisy, **scores,
        }  # fmt: skip

    @cached_property
    def _estimates(self) -> dict[str, ClassEstimate]:
        sums = self.sums
        if not sums.known:
            return {}
        outcomes, weights = sums.outcomes, sums.outcomes.counted
        shares = outcomes.actual / max(float(outcomes.actual.sum()), 1.0)
        f1 = outcomes.f1()
        credit = (f1 - float(shares @ f1)) / max(float(outcomes.actual.sum()), 1.0)
        loss = sums.log_loss.mean(sums.records, sums.records_noise)
        found = {
            ACCURACY.name: proportion(sums.right, sums.wrong, sums.right_noise, sums.wrong_noise),
            ECE.name: sums.top.error(),
            CWECE.name: sums.classwise.error(),
            CUT_NLL.name if self.message.cut else NLL.name: loss,
            BRIER.name: sums.brier.mean(sums.records, sums.records_noise),
            MACRO_F1.name: outcomes.average_f1(weights / max(weights.sum(), 1.0), np.zeros_like(weights)),
            WEIGHTED_F1.name: outcomes.average_f1(shares, credit),
        }
        return found if self._areas is None else found | {MACRO_AUC.name: self._areas[1]}

    @cached_property
    def _areas(self) -> tuple[list[ClassEstimate], ClassEstimate] | None:
        if self.sums.scores is None or self.sums.scores_noise is None:
            return None
        return one_against_rest(self.sums.scores, self.sums.scores_noise)

    def _measured(self, name: str, missing: bool) -> Measured:
        low, high = self._ranges[name]
        if missing:
            return Measured(float("nan"), low, high)
        return self._estimates[name].measured(low, high, self.sums.records)

    def _reason(self, name: str) -> str:
        """Why a figure is not stated; empty where it is: its spread is at most half of its range."""
        if name == NLL.name and self.message.cut:
            return f"{_UNCUT} ({CUT_NLL.name})"
        if not self.sums.known:
            return self._needs(7.84 * sqrt(self.sums.records_noise) / max(self.sums.records, 1.0), None)
        low, high = self._ranges[name]
        estimate, target = self._estimates[name], (high - low) / 2 / (2 * Z)
        if not isfinite(estimate.value):
            return _NO_CLASS if not self.sums.noisy else self._needs(4.0, 4.0)
        if not self.sums.noisy or estimate.deviation <= target:
            return ""
        return self._needs(*self._factors(estimate, target))

    def _factors(self, estimate: ClassEstimate, target: float) -> tuple[float, float | None]:
        """How many times more records, or a larger epsilon, bring the deviation down to the target.

        Sampling falls with the root of the records; noise on a sum falls with the records themselves, and where every
        record adds noise of its own with their root.
        """
        sampling, noise = (estimate.sampling / target) ** 2, (estimate.noise / target) ** 2
        records = sampling + noise if self.local else (sampling + sqrt(sampling**2 + 4 * noise)) / 2
        return records, sqrt(noise / (1 - sampling)) if sampling < 1 else None

    def _needs(self, records: float, epsilon: float | None) -> str:
        if self.epsilon is None:
            return "not defined: there are no records"
        wanted = f"about {_rounded(max(self.sums.records, 1.0) * records)} records"
        other = "" if epsilon is None else f" or epsilon {_rounded(self.epsilon * epsilon)}"
        return f"not measurable at this epsilon: needs {wanted}{other}"

    def _rows(self, tables: Sequence[Reliability]) -> tuple[ClassRow, ...]:
        """One row per class; `tables` are their reliability tables, or none."""
        found, classes = self.sums.outcomes, self.message.classes
        precision = found.rates(found.predicted, found.predicted_noise)
        recall = found.rates(found.missed, found.missed_noise)
        f1 = [self._class_f1(label) for label in range(classes)]
        areas: Sequence[ClassEstimate | None] = [None] * classes if self._areas is None else self._areas[0]
        counts = np.maximum(found.right + found.missed, 0.0).tolist()
        own: Sequence[Reliability | None] = tables or [None] * classes
        columns = zip(counts, precision, recall, f1, areas, own, strict=True)
        return tuple(
            ClassRow(label, count, _row(p), _row(r), _row(f), None if area is None else _row(area), table)
            for label, (count, p, r, f, area, table) in enumerate(columns)
        )

    def _class_f1(self, label: int) -> ClassEstimate:
        found = self.sums.outcomes
        if found.hidden[label] or not found.size[label] > 0.5:
            return ClassEstimate(float("nan"), 0.0, 1.0, 0.0, 1.0)
        alone = np.zeros(self.message.classes)
        alone[label] = 1.0
        return found.average_f1(alone, np.zeros_like(alone))


def _row(estimate: ClassEstimate) -> Measured:
    """A figure of one class; NaN where noise hides it."""
    if not isfinite(estimate.value) or (estimate.deviation > 0.5 / (2 * Z) and estimate.noise > 0):
        return Measured(float("nan"), 0.0, 1.0)
    return estimate.measured(0.0, 1.0, 1.0)


def _rounded(number: float) -> str:
    return f"{float(f'{number:.2g}'):,g}" if number < 1e6 else f"{number:.1e}"
