"""Drift of a classifier: windows of time, their signals, alarms, and recalibration by what earlier windows taught.

Windows hold different records. Where the unit is a record, they compose in parallel, so the total is the largest of
their epsilons. Where the unit is a client, clients are in several windows and the epsilons add up.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from enum import StrEnum
from math import isfinite, sqrt
from statistics import NormalDist
from typing import Any, Final, TypeAlias, final

import numpy as np

from fedcalib.accounting.spending import Spending
from fedcalib.artifacts.calibrator import Calibrator, Identity, Mixture
from fedcalib.artifacts.evaluation import MetricsReport, Review
from fedcalib.artifacts.performance import BinaryPerformance, Performance
from fedcalib.display import brief
from fedcalib.errors import InputError
from fedcalib.estimation.score_functionals import mean, mean_score
from fedcalib.estimation.score_sheet import ScoreSheet
from fedcalib.federation import Federation
from fedcalib.loop import Result
from fedcalib.method import Method
from fedcalib.methods.compare_models import ReviewWindow
from fedcalib.methods.evaluation import FederatedMetrics
from fedcalib.metrics.intervals import Measured, normal_quantile
from fedcalib.metrics.table import ACCURACY, AUC
from fedcalib.privacy import Privacy
from fedcalib.runtimes import InProcess, run
from fedcalib.types import Array, Bools, Ints
from fedcalib.workflows.budget import added

Day: TypeAlias = date | int  # a date, or the number of a day


class Every(StrEnum):
    """The length of a window."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"


def as_day(value: date | str | int, name: str) -> Day:
    """A date such as 2024-03-31, or the number of a day."""
    if isinstance(value, date):
        return value.date() if isinstance(value, datetime) else value
    text = str(value).strip()
    try:
        return int(text) if re.fullmatch(r"[+-]?[0-9]{1,18}", text) else date.fromisoformat(text)
    except ValueError as error:
        raise InputError(
            f"Expected a date such as 2024-03-31 or a day's number with {name}, found '{text}'."
        ) from error


@dataclass(frozen=True)
class TimeWindows(ABC):
    """Windows between two days, which are public: nothing about them follows from records."""

    by: Every

    @abstractmethod
    def __len__(self) -> int:
        """The number of windows, with records or without."""

    @abstractmethod
    def name(self, index: int) -> str:
        """The name of a window."""

    @abstractmethod
    def first_day(self, index: int) -> str | int:
        """The first day of a window."""

    @abstractmethod
    def place(self, days: Array) -> Ints:
        """The window of each day; -1 for days before the first window or after the last."""


_NUMBER: Final[Mapping[Every, Callable[[Array], Ints]]] = {
    Every.DAY: lambda days: days.astype("datetime64[D]").astype(np.int64),
    Every.WEEK: lambda days: (days.astype("datetime64[D]").astype(np.int64) + 3) // 7,  # 1970 began on a Thursday
    Every.MONTH: lambda days: days.astype("datetime64[M]").astype(np.int64),
}
_START: Final[Mapping[Every, Callable[[int], Any]]] = {
    Every.DAY: lambda number: np.datetime64(number, "D"),
    Every.WEEK: lambda number: np.datetime64(7 * number - 3, "D"),
    Every.MONTH: lambda number: np.datetime64(number, "M").astype("datetime64[D]"),
}
_NAMES: Final[Mapping[Every, str]] = {Every.DAY: "%Y-%m-%d", Every.WEEK: "%G-W%V", Every.MONTH: "%Y-%m"}
_LENGTH: Final[Mapping[Every, int]] = {Every.DAY: 1, Every.WEEK: 7, Every.MONTH: 30}


@final
@dataclass(frozen=True)
class CalendarWindows(TimeWindows):
    """Days, ISO weeks or calendar months; the first and the last may be cut by the days that were stated."""

    first: date
    last: date

    def __len__(self) -> int:
        return self._number(self.last) - self._number(self.first) + 1

    def _number(self, day: date) -> int:
        return int(_NUMBER[self.by](np.array([day], dtype="datetime64[D]"))[0])

    def _start(self, index: int) -> date:
        start: date = _START[self.by](self._number(self.first) + index).item()
        return start

    def name(self, index: int) -> str:
        return self._start(index).strftime(_NAMES[self.by])

    def first_day(self, index: int) -> str:
        return max(self._start(index), self.first).isoformat()

    def place(self, days: Array) -> Ints:
        inside: Bools = (days >= np.datetime64(self.first)) & (days <= np.datetime64(self.last))
        return np.where(inside, _NUMBER[self.by](days) - self._number(self.first), -1)


@final
@dataclass(frozen=True)
class NumberedWindows(TimeWindows):
    """Windows of 1, 7 or 30 numbered days from the first day on; the last may be cut."""

    first: int
    last: int

    def __len__(self) -> int:
        return (self.last - self.first) // _LENGTH[self.by] + 1

    def name(self, index: int) -> str:
        return f"{self.by} {index + 1}"

    def first_day(self, index: int) -> int:
        return self.first + _LENGTH[self.by] * index

    def place(self, days: Array) -> Ints:
        inside: Bools = (days >= self.first) & (days <= self.last)
        return np.where(inside, (days - self.first) // _LENGTH[self.by], -1)


def windows_between(by: Every, days: Array, start: Day | None, until: Day | None) -> TimeWindows:
    """Windows from one day until another; what is left out follows from the days themselves."""
    dated = days.dtype.kind == "M"
    for name, told in (("--from", start), ("--until", until)):
        if told is not None and isinstance(told, date) != dated:
            kind = "a date such as 2024-03-31" if dated else "the number of a day"
            raise InputError(f"Expected {name} as {kind}, as in the column of days, found {told}.")
    first: Any = days.min().item() if start is None else start
    last: Any = days.max().item() if until is None else until
    if first > last:
        raise InputError(f"Expected --from before --until, found {first} and {last}; swap them.")
    return CalendarWindows(by, first, last) if dated else NumberedWindows(by, first, last)


_GAP, _CONFIDENCE = "gap", "confidence"
_POWER: Final = NormalDist().inv_cdf(0.8)  # a change that is called detectable is found in four windows of five
MIN_EFFECT: Final = 0.05


@final
@dataclass(frozen=True)
class Signal:
    """A figure and its variance, from sampling and from privacy noise."""

    value: float
    variance: float


def signals(report: Performance | MetricsReport) -> Mapping[str, Signal]:
    """The signals of a window that alarms test; none where noise drowns the window.

    The calibration gap is the mean of score minus label, and confidence the mean score; with more than two classes
    both are of the top class.
    """
    if report.accuracy is None:
        return {}
    if isinstance(report, MetricsReport):
        found = _report_signals(report)
    else:
        found = _score_signals(report.sheet) if isinstance(report, BinaryPerformance) else _class_signals(report)
    ranking, measured = (ACCURACY, report.accuracy) if report.auc is None else (AUC, report.auc)
    ranked = _of_interval(measured)
    # a figure of very few records may lack an interval; it would spoil the mean that later windows are compared with
    return {**found, ranking.name: ranked} if isfinite(ranked.value + ranked.variance) else found


def _score_signals(sheet: ScoreSheet) -> dict[str, Signal]:
    """Gap and mean score from the table of a binary evaluation."""
    score = mean_score(sheet)
    weights = {_GAP: np.stack([score, score - 1]), _CONFIDENCE: np.stack([score, score])}
    found = {name: sheet.estimate(mean(sheet, weight)) for name, weight in weights.items()}
    ends = {_GAP: -1.0, _CONFIDENCE: 0.0}
    return {
        name: Signal(min(max(one.value, ends[name]), 1.0), max(one.sampling + one.noise, 0.0))
        for name, one in found.items()
    }


def _class_signals(report: Performance) -> dict[str, Signal]:
    """Gap and mean confidence of the top class; both vary no more than the accuracy does."""
    bins, accuracy = report.reliability(), _of_interval(report.measure(ACCURACY.name))
    count = np.where(np.isfinite(bins.score), np.maximum(bins.records, 0.0), 0.0)
    confidence = float(count @ np.nan_to_num(bins.score) / max(count.sum(), 1e-300))
    gap = confidence - accuracy.value
    return {_GAP: Signal(gap, accuracy.variance), _CONFIDENCE: Signal(confidence, accuracy.variance)}


def _report_signals(report: MetricsReport) -> dict[str, Signal]:
    """Gap and mean confidence from a reliability table with noise."""
    table, cells = report.reliability, report.reliability.bins
    records = table.records
    if not records > 0:
        return {}
    count = np.maximum(table.count[0], 0.0)
    share = np.clip(np.divide(table.correct[0], count, out=np.zeros(cells), where=count > 0), 0.0, 1.0)
    middle = np.clip(np.divide(table.confidence[0], count, out=np.zeros(cells), where=count > 0), 0.0, 1.0)
    inside = 0.25 / cells**2  # the most that confidences inside a bin can vary
    gap, confidence = float(table.gap.sum()) / records, float(table.confidence.sum()) / records
    squares = count @ (share * (1 - middle) ** 2 + (1 - share) * middle**2 + inside) / max(count.sum(), 1.0) - gap**2
    spread = count @ (middle**2 + inside) / max(count.sum(), 1.0) - confidence**2
    count_noise = 2 * cells * report.count_variance
    gap_noise = cells * report.gap_variance + gap**2 * count_noise
    confidence_noise = cells * (report.count_variance + report.gap_variance) + confidence**2 * count_noise
    return {
        _GAP: Signal(gap, _variance(squares, gap_noise, records)),
        _CONFIDENCE: Signal(min(max(confidence, 0.0), 1.0), _variance(spread, confidence_noise, records)),
    }


def pooled(known: Sequence[Signal]) -> Signal:
    """The mean of signals, weighted by their inverse variances."""
    weights = np.array([1 / max(one.variance, 1e-300) for one in known])
    values = np.array([one.value for one in known])
    return Signal(float(weights @ values / weights.sum()), float(1 / weights.sum()))


def _variance(spread: float, noise: float, records: float) -> float:
    return float((max(spread, 0.0) * records + noise) / records**2)


def _of_interval(measured: Measured) -> Signal:
    """A signal with the variance of a 95% interval, by its longer side."""
    half = max(measured.high - measured.value, measured.value - measured.low)
    return Signal(measured.value, (half / normal_quantile(0.95)) ** 2)


Ask: TypeAlias = Callable[[str, ReviewWindow], Result[Review]]  # asks one window, by its name


@final
@dataclass(frozen=True)
class Alarm:
    """A signal that changed by more than sampling and noise explain: from what to what, in standard errors."""

    signal: str
    before: float
    now: float
    deviations: float


@final
@dataclass(frozen=True, eq=False)
class Window:
    """One window: what was measured, which signals changed, and which calibrator was in use."""

    label: str
    review: Review
    signals: Mapping[str, Signal]
    alarms: tuple[Alarm, ...]
    served: Calibrator
    detectable: Mapping[str, float] = field(default_factory=dict)  # the change of each signal that four of five find


@final
@dataclass(frozen=True, eq=False)
class Timeline:
    """All windows in order, what they cost together, and the calibrator to serve next."""

    windows: tuple[Window, ...]
    spending: Spending
    next: Calibrator

    def __repr__(self) -> str:
        return brief(self)

    @property
    def alarms(self) -> tuple[str, ...]:
        """The names of the windows that raised an alarm."""
        return tuple(window.label for window in self.windows if window.alarms)


@final
@dataclass(frozen=True)
class Monitor:
    """Watches a classifier window by window.

    An alarm is raised when the calibration gap, the mean confidence, or the AUC (accuracy where there are more than two
    classes) differs from that of the windows since the last alarm. The variance of the test includes sampling and
    privacy noise. A change must also be as large as `min_effect`: with many records nearly every change is certain, and
    few of them matter.

    Parameters
    ----------
    false_alarms
        Probability of an alarm in a window without any shift, over all tests together (Bonferroni).
    min_effect
        The least change that matters: of the AUC or accuracy, and of gap and confidence. With two classes and a mean
        score below 0.25 (or above 0.75), gap and confidence need proportionally less: a fifth of the mean score. With
        0, every change that is certain raises an alarm.
    recalibration
        How to fit a calibrator to each window, which serves later ones; None for no recalibration.
    memory
        How many of the latest windows are used; each has twice the weight of the one before.
    measure
        Settings of the evaluation of a window.

    Examples
    --------
    >>> import numpy as np
    >>> import fedcalib as fc
    >>> from fedcalib.workflows.drift import in_process
    >>> rng = np.random.default_rng(0)
    >>> windows = {}
    >>> for week, shift in enumerate((0.0, 0.0, 0.3)):
    ...     score = rng.random(2000)
    ...     records = fc.Records.of_scores(score, (rng.random(2000) < score - shift).astype(int))
    ...     windows[f"week {week}"] = fc.Federation.iid(records, clients=5, seed=0)
    >>> fc.Monitor().watch(list(windows), in_process(windows, fc.Open())).alarms
    ('week 2',)
    """

    false_alarms: float = 0.01
    recalibration: Method[Calibrator] | None = None
    memory: int = 4
    min_effect: float = MIN_EFFECT
    measure: FederatedMetrics = field(default_factory=FederatedMetrics)

    def __post_init__(self) -> None:
        if not 0 <= self.min_effect < 1:
            raise InputError(f"Expected a minimum effect from 0 to below 1, found {self.min_effect}.")
        if not 0 < self.false_alarms < 1:
            raise InputError(f"Expected a false-alarm rate between 0 and 1, found {self.false_alarms}.")
        if self.memory < 1:
            raise InputError(f"Expected a memory of at least one window, found {self.memory}.")

    def watch(self, labels: Sequence[str], ask: Ask) -> Timeline:
        """Measure window after window, in order of time; a window is served before anything of it is known."""
        if not labels:
            raise InputError("Expected at least one window, found none.")
        windows: list[Window] = []
        spent: list[Spending] = []
        taught: list[Calibrator] = []
        reference: list[Mapping[str, Signal]] = []
        for label in labels:
            served = mixed(taught[-self.memory :])
            result = ask(label, ReviewWindow(served, self.recalibration, self.measure))
            found = signals(result.artifact.metrics)
            changes = self._changes(found, reference)
            alarms = tuple(change.alarm for change in changes if change.alarming)
            reference = [found] if alarms else [*reference, found]
            if found and result.artifact.calibrator is not None:  # a window that drowns in noise teaches nothing
                taught.append(result.artifact.calibrator)
            detectable = {change.name: change.detectable for change in changes}
            windows.append(Window(label, result.artifact, found, alarms, served, detectable))
            spent.append(result.privacy)
        return Timeline(tuple(windows), together(spent), mixed(taught[-self.memory :]))

    def _changes(self, found: Mapping[str, Signal], reference: Sequence[Mapping[str, Signal]]) -> list[_Change]:
        """Each signal beside the windows since the last alarm; a first window is beside nothing."""
        limit = NormalDist().inv_cdf(1 - self.false_alarms / max(len(found), 1) / 2)
        before = {
            name: pooled(known)
            for name in found
            if (known := [earlier[name] for earlier in reference if name in earlier])
        }
        least = self.least_effects(before or found)
        return [
            _Change(name, before.get(name), now, limit, least[name]) for name, now in found.items() if name in least
        ]

    def least_effects(self, known: Mapping[str, Signal]) -> dict[str, float]:
        """The least change of each signal that matters."""
        share = known[_CONFIDENCE].value if AUC.name in known and _CONFIDENCE in known else 0.5
        scale = {_GAP: min(1.0, 4 * share, 4 * (1 - share)), _CONFIDENCE: min(1.0, 4 * share, 4 * (1 - share))}
        return {name: self.min_effect * scale.get(name, 1.0) for name in known}


@final
@dataclass(frozen=True)
class _Change:
    """A signal now and before, with the limits that a change has to exceed."""

    name: str
    before: Signal | None
    now: Signal
    limit: float  # standard errors
    least: float

    @property
    def _deviation(self) -> float:
        """Standard error of the change; without earlier windows, of that between two windows like this one."""
        return sqrt(max(self.now.variance + (self.before or self.now).variance, 1e-300))

    @property
    def alarming(self) -> bool:
        size = 0.0 if self.before is None else abs(self.now.value - self.before.value)
        return size > self.limit * self._deviation and size >= self.least

    @property
    def alarm(self) -> Alarm:
        before = self.before or self.now
        return Alarm(self.name, before.value, self.now.value, abs(self.now.value - before.value) / self._deviation)

    @property
    def detectable(self) -> float:
        """The true change that raises an alarm with a probability of 80%."""
        return max(self.limit * self._deviation, self.least) + _POWER * self._deviation


def mixed(taught: Sequence[Calibrator]) -> Calibrator:
    """Average calibrators, each counting half of the one after it; nothing taught means no change."""
    if len(taught) < 2:
        return taught[0] if taught else Identity("Nothing was known yet.")
    weights = [2.0**place for place in range(len(taught))]
    return Mixture(tuple(taught), tuple(weight / sum(weights) for weight in weights))


def together(spent: Sequence[Spending]) -> Spending:
    """What all windows spend: the largest of their epsilons for records, the sum for clients."""
    largest = max(spent, key=lambda one: one.epsilon or 0.0)
    if largest.epsilon is None or len(spent) == 1:
        return largest
    if largest.unit == "record":
        told = f"{len(spent)} windows hold different records: the total is the largest epsilon, not the sum. "
        return replace(largest, statement=told + largest.statement)
    epsilon, delta = added(spent)
    told = f"Over {len(spent)} windows with the same clients: epsilon = {epsilon:.6g}, delta = {delta:.6g}. "
    return replace(largest, epsilon=epsilon, delta=delta, statement=f"{told}Of one window: {largest.statement}")


def in_process(windows: Mapping[str, Federation], privacy: Privacy, **options: Any) -> Ask:
    """Let windows that are at hand answer, each with the whole budget of the model; options are those of `run`."""

    def ask(label: str, method: ReviewWindow) -> Result[Review]:
        own = dict(options)
        if "randomness" in own:
            own["randomness"] = own["randomness"].derive(label)
        return run(method, InProcess(windows[label]), privacy, **own)

    return ask
