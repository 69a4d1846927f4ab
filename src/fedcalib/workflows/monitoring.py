"""Monitor a classifier: cut records into windows of time, and measure window after window within one budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Final, Unpack, final

import numpy as np

from fedcalib import wire
from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.evaluation import MetricsReport, Review
from fedcalib.cohort import MIN_RECORDS, Everyone
from fedcalib.display import check_made
from fedcalib.errors import BudgetError, InputError
from fedcalib.federation import Federation
from fedcalib.loop import Result
from fedcalib.method import Method
from fedcalib.methods.compare_models import ReviewWindow
from fedcalib.methods.domain_shift import AccT
from fedcalib.methods.evaluation import FederatedMetrics
from fedcalib.methods.platt import PlattScaling
from fedcalib.metrics.intervals import UNKNOWN, Measured
from fedcalib.metrics.reliability import Reliability
from fedcalib.privacy import Privacy
from fedcalib.privacy.secagg import SecAgg
from fedcalib.records import Schema
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
    as_day,
    mixed,
    together,
    windows_between,
)
from fedcalib.workflows.facts import call
from fedcalib.workflows.monitoring_result import MonitorResult
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
    records_about: int | None = None,
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
    records_about
        A public guess of the number of records of a window, which sets the resolution under noise.
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
        records=records_about,
    ).run()


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
    records: int | None = None  # a public guess of the records of a window, which sets the resolution under noise

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
        plain = {name: getattr(self, name) for name in (*names, *(("records",) if self.records else ()))}
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
        measure = FederatedMetrics(records=self.records)
        return Monitor(self.false_alarms, recalibration, min_effect=self.min_effect, measure=measure)

    def _reviewed(self, schema: Schema) -> ReviewWindow:
        """What the first window is asked: nothing was learnt before it."""
        planned = self._monitor(schema)
        return ReviewWindow(mixed(()), planned.recalibration, planned.measure)

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
