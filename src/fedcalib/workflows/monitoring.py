"""Monitor a classifier: cut records into windows of time, and measure window after window within one budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from math import isfinite
from typing import Any, ClassVar, Final, Unpack, final

import numpy as np

from fedcalib import wire
from fedcalib.artifacts.calibrator import Calibrator, Identity
from fedcalib.artifacts.evaluation import MetricsReport, Review
from fedcalib.cohort import MIN_RECORDS, Everyone
from fedcalib.display import check_made
from fedcalib.errors import BudgetError, InputError
from fedcalib.federation import Federation
from fedcalib.loop import Result
from fedcalib.method import Method
from fedcalib.methods.compare_models import ReviewWindow
from fedcalib.methods.domain_shift import AccT
from fedcalib.methods.platt import PlattScaling
from fedcalib.metrics.intervals import UNKNOWN, Measured
from fedcalib.metrics.reliability import Reliability
from fedcalib.metrics.table import ACCURACY, AUC, ECE, Metric, shown_in
from fedcalib.privacy import Privacy
from fedcalib.privacy.secagg import SecAgg
from fedcalib.records import Schema
from fedcalib.report.canvas import Figures, Picture
from fedcalib.report.page import Page, Section, render
from fedcalib.report.row_plots import timeline
from fedcalib.report.values import MetricRow, PageTable, Said, TimePoint
from fedcalib.runtimes import InProcess
from fedcalib.transcript import Transcript
from fedcalib.types import Array, Ints
from fedcalib.workflows import documents
from fedcalib.workflows.budget import for_units, scaled
from fedcalib.workflows.drift import (
    MIN_EFFECT,
    Ask,
    Day,
    Every,
    Monitor,
    Timeline,
    Window,
    as_day,
    mixed,
    together,
    windows_between,
)
from fedcalib.workflows.evidence import made
from fedcalib.workflows.facts import UNKNOWN as UNNAMED
from fedcalib.workflows.facts import About, Trail, call, meaning, stated
from fedcalib.workflows.result import WorkflowResult
from fedcalib.workflows.session import Conductor, Data, Options, Phase, WorkflowSession, opening

NAMES: Final = ("calibrator.json", "result.json", "report.html")
_MOST_WINDOWS: Final = 1000  # each keeps a transcript of its own
_FALSE_ALARMS: Final = 0.01


def monitor(
    data: Any,
    privacy: Privacy | None = None,
    *,
    by: Every | str = Every.WEEK,
    start: date | str | int | None = None,
    until: date | str | int | None = None,
    recalibrate: bool = False,
    method: Method[Calibrator] | None = None,
    false_alarms: float = _FALSE_ALARMS,
    min_effect: float = MIN_EFFECT,
    calibrator: Calibrator | None = None,
    rounds: int | None = None,
    **options: Unpack[Options],
) -> MonitorResult:
    """Measure calibration, ranking and confidence by windows of time, with alarms.

    Windows are days, ISO weeks or calendar months between two days that are public, whether they hold records or not.
    They hold different records. Where a record is the unit, each window has the whole budget; where a client is the
    unit, the windows share it.

    Parameters
    ----------
    data
        A pandas or Arrow frame, or files, with a column of dates or of numbered days.
    privacy
        The privacy model with the whole budget; `SecAgg()` if left out.
    by
        The length of a window: "day", "week" or "month". Weeks and months are those of the calendar. Days that are only
        numbered make windows of 1, 7 or 30 days from `start` on.
    start, until
        The first and the last day that count: dates, or numbers where days are numbered. Records of other days are left
        out. A privacy model with an epsilon needs both, as the days of the earliest and of the latest record are facts
        about two records; without an epsilon these are the default.
    recalibrate
        Serve each window by what earlier ones taught.
    method
        How to recalibrate; by default `PlattScaling` for two classes and `AccT` for more.
    false_alarms
        Probability of an alarm in a window without any shift.
    min_effect
        The least change that raises an alarm: see `Monitor`.
    calibrator
        Applied before anything is measured.
    rounds
        Only the latest windows, so many of them; all if left out.
    **options
        Columns (`time` is "day" if left out), seeds, state, ledger and notices: see
        `fedcalib.workflows.session.Options`.

    Returns
    -------
    MonitorResult
        Every window with its metrics and alarms, and the calibrator to serve next.

    Examples
    --------
    >>> import numpy as np
    >>> import pyarrow as pa
    >>> from fedcalib.workflows import monitor
    >>> rng = np.random.default_rng(0)
    >>> day, score = np.arange(6000) // 200, rng.random(6000)
    >>> late = score - 0.4 * (day >= 21)
    >>> label = (rng.random(6000) < late).astype(int)
    >>> frame = pa.table({"day": day, "site": np.arange(6000) % 4, "score": score, "label": label})
    >>> monitor(frame, by="week", site="site").alarms
    ('week 4',)
    """
    options.setdefault("time", "day")
    source, session = opening(data, **options)
    return Monitoring(
        data=source,
        privacy=privacy or SecAgg(),
        by=Every(by),
        start=None if start is None else as_day(start, "start"),
        until=None if until is None else as_day(until, "until"),
        recalibrate=recalibrate,
        method=method,
        false_alarms=false_alarms,
        min_effect=min_effect,
        calibrator=calibrator,
        rounds=rounds,
        session=session,
    ).run()


@final
@dataclass(frozen=True, eq=False, repr=False)
class MonitorResult(WorkflowResult):
    """Every window with its metrics and alarms, what they cost, and the calibrator to serve next."""

    command: ClassVar[str] = "monitor"
    timeline: Timeline
    by: Every
    false_alarms: float
    first_days: Mapping[str, str | int]  # of the windows, by their names
    recalibrate: bool
    private: bool
    warnings: tuple[str, ...]  # what is said about records that were left out
    replayed: bool
    provenance: Mapping[str, object] = field(default_factory=dict)
    min_effect: float = MIN_EFFECT
    evidence: Trail = field(default_factory=Trail)
    call: str = ""  # the command or call that made it

    @property
    def windows(self) -> tuple[Window, ...]:
        """All windows in order of time."""
        return self.timeline.windows

    @property
    def alarms(self) -> tuple[str, ...]:
        """The names of the windows that raised an alarm."""
        return self.timeline.alarms

    @property
    def overall(self) -> dict[str, Measured]:
        """The metrics over all windows that state them, weighted by records, with their intervals."""
        found = {metric.name: _weighted(self.windows, _value(metric)) for metric in _shown()}
        return {name: one for name, one in found.items() if one is not None}

    @property
    def detectable(self) -> dict[str, Measured]:
        """The change of each signal that a window finds with a probability of 80%: median, least and greatest."""
        names = dict.fromkeys(name for window in self.windows for name in window.detectable)
        sizes = {name: [one.detectable[name] for one in self.windows if name in one.detectable] for name in names}
        return {name: Measured(float(np.median(each)), min(each), max(each)) for name, each in sizes.items()}

    @property
    def effect(self) -> dict[str, Any] | None:
        """What serving earlier calibrators changed, weighted by records, and where it did harm; None without any."""
        pairs = [
            window
            for window in self.windows
            if not isinstance(window.served, Identity)
            and _served(window) is not None
            and window.review.metrics.ece is not None
        ]
        never, served = _weighted(pairs, _value(ECE)), _weighted(pairs, _served)
        if never is None or served is None:
            return None
        hurt = [one.label for one in pairs if _served(one).value > _value(ECE)(one).value]  # type: ignore[union-attr]
        return {"windows": len(pairs), "mean_ece_never": never.value, "mean_ece_served": served.value, "hurt": hurt}

    @property
    def headline(self) -> str:
        """How many windows raised an alarm, and which."""
        return self.findings[0]

    @property
    def sentences(self) -> tuple[str, ...]:
        """What windows can detect, the privacy statement, and the warnings."""
        return (*self.findings[1:], self.timeline.spending.statement, *self.warnings)

    @property
    def findings(self) -> tuple[str, ...]:
        """The main findings in sentences."""
        alarms = f": {', '.join(self.alarms)}" if self.alarms else ""
        said = [
            f"{len(self.alarms)} of {len(self.windows)} windows raised an alarm{alarms}.",
            f"If nothing changes, a window raises a false alarm with a probability of at most {self.false_alarms:g}. "
            f"Changes below {self.min_effect:g} never raise one.",
            *self._detects,
        ]
        if (changed := self.effect) is not None:
            said.append(
                f"Each window was served by a calibrator that earlier windows had fitted. The mean calibration error "
                f"changed from {changed['mean_ece_never']:.4f} to {changed['mean_ece_served']:.4f}. "
                + (f"It rose in {', '.join(changed['hurt'])}." if changed["hurt"] else "It rose in no window.")
            )
        return tuple(said)

    @property
    def _detects(self) -> tuple[str, ...]:
        sizes = ", ".join(f"{found.value:.3f} in {_signal(name)}" for name, found in self.detectable.items())
        return (f"A typical window finds these changes with a probability of 80%: {sizes}.",) if sizes else ()

    @property
    def _events(self) -> tuple[str, ...]:
        """What happened in each window that raised an alarm."""
        return tuple(
            f"{window.label}: "
            + ", ".join(f"{_signal(one.signal)} went from {one.before:.3f} to {one.now:.3f}" for one in window.alarms)
            + (" (above 0, predictions are too high)." if any(one.signal == "gap" for one in window.alarms) else ".")
            for window in self.windows
            if window.alarms
        )

    @property
    def _next_steps(self) -> tuple[str, ...]:
        if not self.alarms:
            return ("Keep watching: no window needs action.",)
        steps = [f"Find out what changed around {self.alarms[0]}: patients, coding, treatment or software."]
        if self.recalibrate:
            steps.append("Serve the new calibrator.json, and keep watching.")
        else:
            steps.append(
                "Recalibrate on the records since then: run `fedcalib calibrate`, or monitor with --recalibrate."
            )
        return tuple(steps)

    def to_json(self) -> dict[str, Any]:
        """The result as plain data, as `fedcalib monitor --format json` prints it."""
        return {
            "command": self.command,
            "by": str(self.by),
            "false_alarms": self.false_alarms,
            "min_effect": self.min_effect,
            "overall": {name: documents.measured(found) for name, found in self.overall.items()},
            "windows": [self._window(window) for window in self.windows],
            "alarms": list(self.alarms),
            "recalibration": self.effect,
            "privacy": asdict(self.timeline.spending),
            "warnings": list(self.warnings),
            "replayed": self.replayed,
        }

    def _window(self, window: Window) -> dict[str, Any]:
        return {
            "window": window.label,
            "first_day": self.first_days[window.label],
            "metrics": documents.metrics(window.review.metrics),
            "served": documents.metrics(window.review.served),
            "estimated_accuracy": documents.measured(window.review.estimate),
            "signals": {name: asdict(signal) for name, signal in window.signals.items()},
            "detectable": dict(window.detectable),
            "alarms": [asdict(alarm) for alarm in window.alarms],
        }

    def to_frame(self) -> Any:
        """A pandas frame with one row per window."""
        rows = []
        for window in self.windows:
            row = self._window(window)
            shown = {name: row[name] for name in ("window", "first_day", "estimated_accuracy")}
            found = {f"detectable_{name}": size for name, size in window.detectable.items()}
            rows.append({**shown, **row["metrics"], **found, "alarms": _alarms(window)})
        return documents.frame(rows)

    def tables(self) -> list[documents.TextTable]:
        """The result for people."""
        served = self._any(_served) * (f"{ECE.title} as served",)
        columns = ("window", *(metric.title for metric in _shown()), *served, "mean prediction", "estimated accuracy")
        rows = tuple(_row(window, bool(served)) for window in self.windows)
        facts = {
            "alarms": ", ".join(self.alarms) or "none",
            "false alarms per window": f"{self.false_alarms:g}",
            "least change that raises one": f"{self.min_effect:g}",
        }
        return [
            documents.TextTable("Window by window", (*columns, "detectable change", "alarms"), rows),
            self._overall_table(),
            documents.facts_table("", facts),
            documents.facts_table("Privacy", asdict(self.timeline.spending)),
        ]

    def _overall_table(self) -> documents.TextTable:
        titles = {metric.name: metric.title for metric in _shown()}
        rows = tuple(
            (titles[name], f"{found.value:.4f} ({found.low:.4f} to {found.high:.4f})")
            for name, found in self.overall.items()
        )
        return documents.TextTable("All windows, weighted by records", ("metric", "value"), rows)

    def _metric_rows(self) -> tuple[MetricRow, ...]:
        """Rows of the report: metrics over all windows, and what windows can detect."""
        shown = {metric.name: metric for metric in _shown()}
        rows = [
            MetricRow(
                f"{shown[name].title}, all windows",
                after=found,
                better="higher" if shown[name].direction == "higher" else "lower",
                note=f"{shown[name].definition}; weighted by records",
            )
            for name, found in self.overall.items()
        ]
        note = "a window finds it with a probability of 80%"
        rows += [
            MetricRow(f"Detectable change of {_signal(name)}, median and range of windows", after=found, note=note)
            for name, found in self.detectable.items()
        ]
        return tuple(rows)

    def charts(self) -> tuple[Picture, ...]:
        """The figures over time, with the alarms where they were raised; the first is that of the ECE."""
        measured = [metric for metric in _shown() if metric is ECE or self._any(_value(metric))]
        # alarms look at the gap, which has a sign, instead of the ECE
        drawn = [
            self._chart(_value(metric), metric.title, signal="gap" if metric is ECE else metric.name)
            for metric in measured
        ]
        drawn.append(self._chart(_confidence, "mean prediction", "Mean prediction", "confidence"))
        if self._any(_served):
            drawn.append(self._chart(_served, ECE.title, f"{ECE.title} as served"))
        without = f"{ACCURACY.title} as estimated without labels"
        return (*drawn, self._chart(lambda window: window.review.estimate, ACCURACY.title, without))

    def _any(self, of: Callable[[Window], Measured | None]) -> bool:
        return any(of(window) is not None for window in self.windows)

    def _chart(self, of: Callable[[Window], Measured | None], name: str, title: str = "", signal: str = "") -> Picture:
        points = [
            TimePoint(
                window.label,
                of(window),
                any(alarm.signal == signal for alarm in window.alarms),
                self.first_days.get(window.label),
            )
            for window in self.windows
        ]
        alarms = f"alarms of {_signal(signal)}" if signal else "alarms"
        return timeline(points, name, title=title or name, alarms=alarms)

    def plot(self, name: str | None = None) -> Any:
        """The charts over time, which show themselves in a notebook, or the one of a title such as "ECE"."""
        drawn = Figures({one.title: one for one in self.charts()})
        return drawn if name is None else drawn[name]

    def contents(self, about: About = UNNAMED) -> Page:
        """The contents of the report."""
        spent, charts = self.timeline.spending, self.charts()
        return Page(
            title=f"{about.classifier or 'A classifier'} watched over time",
            asked=f"Did {about.named} change between {self.windows[0].label} and {self.windows[-1].label}?",
            summary=self.findings,
            gains=self._events,
            next_steps=self._next_steps,
            facts=stated(about, self.call) | {"Windows": f"{len(self.windows)}, by {self.by}"},
            privacy=(spent.statement,),
            meaning=(*meaning(spent), *self.evidence.remainder),
            private=self.private,
            simulation=spent.simulation,
            metrics=self._metric_rows(),
            sections=(Section("Over time", charts, (self._page_table(),)),),
            warnings=(*self.warnings, *_LIMITS),
            provenance=made(self.provenance, self.evidence),
            data=documents.text(self.to_json()),
        )

    def _page_table(self) -> PageTable:
        """All windows with all metrics."""
        shown = [metric for metric in _shown() if self._any(_value(metric))]
        rows = tuple(
            (
                window.label,
                (
                    *(_value(metric)(window) for metric in shown),
                    Said(", ".join(map(_signal, dict.fromkeys(one.signal for one in window.alarms))) or "none"),
                ),
            )
            for window in self.windows
        )
        return PageTable("All windows", ("window", *(metric.title for metric in shown), "alarms"), rows)

    def files(self, about: About = UNNAMED, chart: str = "timeline.svg") -> dict[str, bytes]:
        """The result, the report, the first chart, and the next calibrator where there is one."""
        contents = {
            "result.json": documents.text(self.to_json()).encode(),
            "report.html": render(self.contents(about)).encode(),
            chart: self.charts()[0].standalone().encode(),
        }
        if self.recalibrate:
            contents["calibrator.json"] = self.timeline.next.dumps(self.timeline.spending).encode()
        return contents

    def save(self, folder: documents.Folder, about: About = UNNAMED, chart: str = "timeline.svg") -> dict[str, str]:
        """Write the result, the report, the first chart and the next calibrator; return where each file is."""
        return documents.write_all(folder, self.files(about, chart))


def _watched(monitor: Monitor, labels: list[str], ask: Ask) -> tuple[Timeline, tuple[str, ...]]:
    """Measure window after window; where one cannot be paid again, the windows before it are given."""
    reached: list[str] = []

    def noted(label: str, method: ReviewWindow) -> Result[Review]:
        reached.append(label)
        return ask(label, method)

    try:
        return monitor.watch(labels, noted), ()
    except BudgetError as error:
        if len(reached) < 2:
            raise
        before = monitor.watch(reached[:-1], ask)  # from the transcripts
        return before, (f"From {reached[-1]} on, nothing was measured: {error}",)


def _withheld(phase: Phase[Review]) -> Result[Review]:
    """A window of which nothing is shown, and nobody is asked about."""
    agreed, unknown = phase.agreed, np.full((1, 1), UNKNOWN)
    nothing = MetricsReport.nothing(Reliability(unknown, unknown, unknown), 0.0, 0.0)
    review = Review(nothing, Measured(UNKNOWN))
    return Result(review, agreed.spending, agreed.plan, agreed.cohort, Transcript(), agreed.bytes_per_client)


def _shown() -> list[Metric]:
    """The metrics over time, errors first."""
    return sorted(shown_in("timeline"), key=lambda metric: metric.direction == "higher")


def _value(metric: Metric) -> Callable[[Window], Measured | None]:
    return lambda window: getattr(window.review.metrics, metric.name)


def _served(window: Window) -> Measured | None:
    return None if window.review.served is None else window.review.served.ece


def _confidence(window: Window) -> Measured | None:
    known = window.signals.get("confidence")
    if known is None:
        return None
    half = 1.96 * known.variance**0.5
    return Measured(known.value, max(known.value - half, 0.0), min(known.value + half, 1.0))


def _weighted(windows: Sequence[Window], of: Callable[[Window], Measured | None]) -> Measured | None:
    """A figure over windows, weighted by records, with its interval; windows hold different records."""
    known = [(_records(window), one) for window in windows if (one := of(window)) is not None and isfinite(one.value)]
    total = sum(records for records, _ in known)
    if not total > 0:
        return None
    weights = np.array([records for records, _ in known]) / total
    value, low, high = np.array([(one.value, one.low, one.high) for _, one in known]).T
    below, above = (float(np.sqrt(np.square(weights * side).sum())) for side in (value - low, high - value))
    middle = float(weights @ value)
    return Measured(middle, middle - below, middle + above)


def _records(window: Window) -> float:
    """Number of records of a window, noisy under differential privacy and not below zero."""
    report = window.review.metrics
    found = float(report.reliability.records if isinstance(report, MetricsReport) else report.records)
    return max(found, 0.0) if isfinite(found) else 0.0


def _row(window: Window, served: bool) -> tuple[str, ...]:
    metrics = [_value(metric)(window) for metric in _shown()]
    figures = (*metrics, *([_served(window)] * served), _confidence(window), window.review.estimate)
    said = ("-" if one is None or one.value != one.value else f"{one.value:.4f}" for one in figures)
    detects = ", ".join(f"{name} {size:.3f}" for name, size in window.detectable.items())
    return (window.label, *said, detects or "-", _alarms(window))


_LIMITS: Final = (
    "Alarms compare each window with earlier ones. A change that comes slowly may raise none.",
    "The records are taken as independent of each other. If many belong to one patient, intervals are too narrow.",
)


def _signal(name: str) -> str:
    """A signal in plain words."""
    words = {"gap": "the mean gap of prediction and outcome", "confidence": "the mean prediction", AUC.name: AUC.title}
    return words.get(name, name)


def _alarms(window: Window) -> str:
    return ", ".join(alarm.signal for alarm in window.alarms)


@final
@dataclass(frozen=True, eq=False)
class Windows:
    """The records cut by time: each window by its name, with its first day."""

    records: Mapping[str, Federation]
    first_days: Mapping[str, str | int]
    warnings: tuple[str, ...]

    @property
    def few(self) -> tuple[str, ...]:
        """The windows with fewer records than exact figures may be of."""
        return tuple(name for name, window in self.records.items() if len(window.records) < MIN_RECORDS)

    @property
    def schema(self) -> Schema:
        """The public facts; every window has the same clients."""
        return next(iter(self.records.values())).schema


@final
@dataclass(frozen=True, eq=False)
class Monitoring:
    """Everything that a monitoring is told."""

    data: Data
    privacy: Privacy
    by: Every = Every.WEEK
    recalibrate: bool = False
    method: Method[Calibrator] | None = None  # of recalibration; None for the usual one
    false_alarms: float = _FALSE_ALARMS
    min_effect: float = MIN_EFFECT  # the least change that raises an alarm
    calibrator: Calibrator | None = None  # applied before anything is measured
    rounds: int | None = None  # number of the latest windows to measure; None for all
    session: WorkflowSession = field(default_factory=WorkflowSession)
    start: Day | None = None  # the first day that counts; None for that of the earliest record
    until: Day | None = None  # the last day that counts; None for that of the latest record

    def __post_init__(self) -> None:
        check_made(self.privacy, Privacy, "a privacy model")
        if self.method is not None:
            check_made(self.method, Method, "a method")
        if self.privacy.budget is not None and (self.start is None or self.until is None):
            raise InputError(
                "Expected --from and --until (start and until in Python) with a privacy model that has an epsilon, "
                "found at most one of them: windows that follow from the records would give away single dates. State "
                "the first and the last day that count."
            )
        if self.rounds is not None and self.rounds < 1:
            raise InputError(f"Expected at least one round of evaluation, found {self.rounds}.")

    def dry_run(self) -> documents.DryRun:
        """What all windows would cost; nothing is asked."""
        windows = self._windows(Conductor(self.session, self.session.forgotten()))
        phase = self._first(windows)
        total = together([phase.spending] * len(windows.records))
        each = replace(phase, name="each window", agreed=replace(phase.agreed, spending=total))
        facts = {"windows": list(windows.records)}
        return documents.DryRun(facts, (each,), self.session.marked(total), windows.warnings)

    def run(self) -> MonitorResult:
        """Measure window after window."""
        with self.session.opened("monitor", self._settings, self.data) as conductor:
            windows = self._windows(conductor)
            first = self._first(windows)
            total = together([first.spending] * len(windows.records))
            conductor.pay(total, (first, next(iter(windows.records.values()))))
            few = () if self.privacy.private else windows.few

            def ask(label: str, method: ReviewWindow) -> Result[Review]:
                # a window that serves what the first one does is planned as the first one
                known = first if method == self._reviewed(windows.schema) else self._phase(method, windows)
                phase = replace(known, name=label.replace(" ", "-"))
                return _withheld(phase) if label in few else conductor.run(phase, InProcess(windows.records[label]))

            found, missed = _watched(self._monitor(windows.schema), list(windows.records), ask)
            conductor.tell()
            evidence = conductor.evidence()
        spent = for_units(conductor.stated(total), self.data.columns.unit)
        return MonitorResult(
            timeline=replace(found, spending=spent),
            by=self.by,
            false_alarms=self.false_alarms,
            min_effect=self.min_effect,
            first_days=windows.first_days,
            recalibrate=self.recalibrate,
            private=self.privacy.private,
            warnings=(
                *windows.warnings,
                *missed,
                *(f"{one} is withheld: fewer than {MIN_RECORDS} records." for one in few),
            ),
            replayed=conductor.replayed,
            provenance=self._provenance,
            evidence=evidence,
            call=call("monitor(...) in Python"),
        )

    @property
    def _settings(self) -> dict[str, Any]:
        names = ("by", "start", "until", "recalibrate", "false_alarms", "min_effect", "rounds")
        plain = {name: getattr(self, name) for name in names}
        parts = {name: wire.encode(getattr(self, name)) for name in ("privacy", "calibrator", "method")}
        return {**plain, **parts}

    @property
    def _provenance(self) -> dict[str, object]:
        told = {name: str(value) for name, value in vars(self).items() if name not in ("data", "session") and value}
        named = {("privacy model" if name == "privacy" else name): value for name, value in told.items()}
        return {**named, "files": ", ".join(path.name for path in self.data.files)}

    def _windows(self, conductor: Conductor) -> Windows:
        """Read the records and cut them by time; records outside of all windows are left out."""
        federation, warnings = conductor.read(self.data.named_by(self.calibrator), self.privacy.private)
        if self.calibrator is not None:
            federation = replace(federation, records=self.calibrator.over(federation.records))
        days = _days(federation)
        cut = windows_between(self.by, days, self.start, self.until)
        if len(cut) > _MOST_WINDOWS:
            raise InputError(f"Expected at most {_MOST_WINDOWS} windows, found {len(cut)}; use longer ones with --by.")
        place = cut.place(days)
        wanted = range(max(len(cut) - (self.rounds or len(cut)), 0), len(cut))
        records = {cut.name(index): federation.where(place == index) for index in wanted}
        first_days = {cut.name(index): cut.first_day(index) for index in wanted}
        return Windows(records, first_days, (*warnings, *self._outside(place, conductor)))

    def _outside(self, place: Ints, conductor: Conductor) -> tuple[str, ...]:
        """The number of records outside of all windows, as a notice, and for the result where it may show counts."""
        outside = int((place < 0).sum())
        if not outside:
            return ()
        dropped = "records are of days before --from or after --until, and left out."
        conductor.session.notices.warn(f"{outside} of {len(place)} {dropped}")
        few = f"Fewer than {MIN_RECORDS} of the" if outside < MIN_RECORDS else f"{outside} of {len(place)}"
        return () if self.privacy.private else (f"{few} {dropped}",)

    def _monitor(self, schema: Schema) -> Monitor:
        usual = PlattScaling() if schema.classes == 2 else AccT()
        recalibration = (self.method or usual) if self.recalibrate else None
        return Monitor(self.false_alarms, recalibration, min_effect=self.min_effect)

    def _reviewed(self, schema: Schema) -> ReviewWindow:
        """What the first window is asked: nothing was learnt before it."""
        return ReviewWindow(mixed(()), self._monitor(schema).recalibration)

    def _first(self, windows: Windows) -> Phase[Review]:
        return self._phase(self._reviewed(windows.schema), windows)

    def _phase(self, method: ReviewWindow, windows: Windows) -> Phase[Review]:
        """Plan one window: with the whole budget where windows hold different units, otherwise with its share."""
        budget = self.privacy.budget
        apart = budget is None or budget.unit == "record"
        privacy = scaled(self.privacy, 1.0 if apart else 1.0 / len(windows.records))
        return Phase.of("window", method, privacy, Everyone(), windows.schema)


def _days(federation: Federation) -> Array:
    """Each record's day: dates, or numbers."""
    if "time" not in federation.records.extra:
        raise InputError("Expected records with a column 'time' of dates or numbered days, found none; add one.")
    days = np.asarray(federation.records.extra["time"])
    return days.astype("datetime64[D]") if days.dtype.kind == "M" else days.astype(np.int64)
