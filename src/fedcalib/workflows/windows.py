"""A timeline as plain data, as a table and as a page with charts.

What `fedcalib monitor` does: cut records into windows of time, and ask window after window within one budget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, final

import numpy as np

from fedcalib import registry, wire
from fedcalib.artifacts.calibrator import Calibrator, Identity
from fedcalib.artifacts.evaluation import Review
from fedcalib.cohort import Everyone
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.loop import Result
from fedcalib.method import Method
from fedcalib.methods.compare_models import ReviewWindow
from fedcalib.metrics.intervals import Measured
from fedcalib.metrics.table import ACCURACY, ECE, Metric, shown_in
from fedcalib.privacy import Privacy
from fedcalib.records import Schema
from fedcalib.report.canvas import Picture
from fedcalib.report.page import Page, render
from fedcalib.report.row_plots import timeline
from fedcalib.report.values import TimePoint
from fedcalib.runtimes import InProcess
from fedcalib.workflows import documents
from fedcalib.workflows.budget import for_units, scaled
from fedcalib.workflows.documents import DryRun, TextTable
from fedcalib.workflows.monitor import Monitor, Timeline, Window, together
from fedcalib.workflows.session import Conductor, Data, Phase, Session


def windows(found: Timeline, first_days: Mapping[str, int]) -> list[dict[str, Any]]:
    """Write every window out."""
    return [
        {
            "window": window.label,
            "first_day": first_days[window.label],
            "metrics": documents.metrics(window.review.metrics),
            "served": documents.metrics(window.review.served),
            "estimated_accuracy": documents.measured(window.review.estimate),
            "signals": {name: asdict(signal) for name, signal in window.signals.items()},
            "alarms": [asdict(alarm) for alarm in window.alarms],
        }
        for window in found.windows
    ]


def effect(found: Timeline) -> dict[str, Any] | None:
    """Say what recalibrating changed in the windows that something learnt before had served, and where it hurt."""
    pairs = [
        (window.label, window.review.metrics.ece.value, window.review.served.ece.value)
        for window in found.windows
        if not isinstance(window.served, Identity)
        and window.review.served is not None
        and window.review.metrics.ece is not None
        and window.review.served.ece is not None
    ]
    if not pairs:
        return None
    return {
        "windows": len(pairs),
        "mean_ece_never": sum(never for _, never, _ in pairs) / len(pairs),
        "mean_ece_served": sum(served for _, _, served in pairs) / len(pairs),
        "hurt": [label for label, never, served in pairs if served > never],
    }


def table(found: Timeline) -> TextTable:
    """Lay the windows out, one a row."""
    served = any(window.review.served is not None for window in found.windows)
    columns = ("window", *(metric.title for metric in _shown()), *((f"{ECE.title} as served",) * served))
    rows = tuple(
        (*_row(window, served), ", ".join(alarm.signal for alarm in window.alarms)) for window in found.windows
    )
    return TextTable("Window by window", (*columns, "confidence", "estimated accuracy", "alarms"), rows)


def _shown() -> list[Metric]:
    """List the metrics, those of errors first."""
    return sorted(shown_in("timeline"), key=lambda metric: metric.direction == "higher")


def _row(window: Window, served: bool) -> tuple[str, ...]:
    shown = [getattr(window.review.metrics, metric.name) for metric in _shown()]
    after = [_served(window)] if served else []
    return (window.label, *map(_said, (*shown, *after, _confidence(window), window.review.estimate)))


def _said(measured: Measured | None) -> str:
    return "-" if measured is None or measured.value != measured.value else f"{measured.value:.4f}"


def charts(found: Timeline) -> tuple[Picture, ...]:
    """Draw the figures over time, with the alarms where they were raised."""
    drawn = [_chart(found, metric) for metric in _shown() if metric is ECE or _measured(found, metric)]
    drawn.append(timeline(_drawn(found, _confidence, "confidence"), "mean confidence", title="Confidence"))
    if any(window.review.served is not None for window in found.windows):
        drawn.append(timeline(_drawn(found, _served, ""), ECE.title, title=f"{ECE.title} as served"))
    estimated = _drawn(found, lambda window: window.review.estimate, "")
    return (*drawn, timeline(estimated, ACCURACY.title, title=f"{ACCURACY.title} as estimated without labels"))


def _chart(found: Timeline, metric: Metric) -> Picture:
    signal = "gap" if metric is ECE else metric.name  # the gap has a sign, so it shows a shift where the ECE does not
    points = _drawn(found, lambda window: getattr(window.review.metrics, metric.name), signal)
    return timeline(points, metric.title, title=metric.title)


def _measured(found: Timeline, metric: Metric) -> bool:
    return any(getattr(window.review.metrics, metric.name) is not None for window in found.windows)


def _served(window: Window) -> Measured | None:
    return None if window.review.served is None else window.review.served.ece


def _drawn(found: Timeline, of: Callable[[Window], Measured | None], signal: str) -> list[TimePoint]:
    return [
        TimePoint(window.label, of(window), any(alarm.signal == signal for alarm in window.alarms))
        for window in found.windows
    ]


def _confidence(window: Window) -> Measured | None:
    known = window.signals.get("confidence")
    if known is None:
        return None
    half = 1.96 * known.variance**0.5
    return Measured(known.value, known.value - half, known.value + half)


def page(
    found: Timeline, private: bool, warnings: Sequence[str], provenance: Mapping[str, object], rate: float
) -> bytes:
    """Put the charts on a page."""
    told = Page(
        title="A classifier watched over time",
        summary=summary(found, rate),
        privacy=(found.spending.statement,),
        private=private,
        simulation=found.spending.simulation,
        figures=charts(found),
        warnings=tuple(warnings),
        provenance=provenance,
    )
    return render(told).encode()


def summary(found: Timeline, rate: float) -> tuple[str, ...]:
    """Say the main things in sentences."""
    alarms = found.alarms
    said = [
        f"{len(alarms)} of {len(found.windows)} windows raised an alarm"
        + (f": {', '.join(alarms)}." if alarms else "."),
        f"Without any shift, a window raises one with a chance of at most {rate:g}.",
    ]
    changed = effect(found)
    if changed is not None:
        said.append(
            f"Serving each window by what earlier ones taught changed the mean calibration error from "
            f"{changed['mean_ece_never']:.4f} to {changed['mean_ece_served']:.4f}; "
            + (f"it hurt in {', '.join(changed['hurt'])}." if changed["hurt"] else "it hurt nowhere.")
        )
    return tuple(said)


_MOST = 1000  # windows; each keeps a transcript of its own


class Every(StrEnum):
    """How long a window is."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"

    @property
    def days(self) -> int:
        """Count its days; a month has 30."""
        return {Every.DAY: 1, Every.WEEK: 7, Every.MONTH: 30}[self]


@final
@dataclass(frozen=True, eq=False)
class Slices:
    """The records cut by time: each window by its name, with its first day."""

    windows: Mapping[str, Federation]
    first_days: Mapping[str, int]
    warnings: tuple[str, ...]

    @property
    def schema(self) -> Schema:
        """Say what is public; every window has the same clients."""
        return next(iter(self.windows.values())).schema


@final
@dataclass(frozen=True)
class Watching:
    """Everything that watching was told."""

    by: Every
    method: str | None
    recalibrate: bool
    false_alarms: float
    privacy: Privacy
    data: Data
    session: Session
    calibrator: Calibrator | None = None  # applied before anything is measured
    rounds: int | None = None  # the latest so many windows; None for all

    def __post_init__(self) -> None:
        if self.rounds is not None and self.rounds < 1:
            raise InputError(f"Expected at least one round of evaluation, found {self.rounds}.")

    def slices(self, conductor: Conductor) -> Slices:
        """Read the records and cut them by time; windows start at the first day there is."""
        federation, warnings = self._read(conductor)
        days = np.asarray(federation.records.extra["time"])
        first = int(days.min())
        place = (days - first) // self.by.days
        count = int(place.max()) + 1
        if count > _MOST:
            raise InputError(f"Expected at most {_MOST} windows, found {count}; use longer ones with --by.")
        wanted = range(max(count - (self.rounds or count), 0), count)
        names = {index: f"{self.by} {index + 1}" for index in wanted}
        windows = {name: federation.where(place == index) for index, name in names.items()}
        return Slices(windows, {name: first + self.by.days * index for index, name in names.items()}, warnings)

    def _read(self, conductor: Conductor) -> tuple[Federation, tuple[str, ...]]:
        """Read the records, and calibrate the scores if a calibrator was given."""
        federation, warnings = conductor.read(self.data, self.privacy.private)
        if self.calibrator is None:
            return federation, warnings
        return replace(federation, records=self.calibrator.over(federation.records)), warnings

    def monitor(self, classes: int) -> Monitor:
        """Choose how to recalibrate: by the method that was named, or the usual one for so many classes."""
        if not self.recalibrate:
            return Monitor(self.false_alarms)
        usual = "platt-scaling" if classes == 2 else "acc-t"
        method: Method[Calibrator] = registry.method(self.method or usual, {})
        return Monitor(self.false_alarms, method)

    def dry_run(self) -> DryRun:
        """What all windows would cost; nothing is asked."""
        slices = self.slices(Conductor(self.session, self.session.forgotten()))
        phase = self._each(slices)
        return DryRun.of({"windows": list(slices.windows)}, [phase], phase.spending, slices.warnings, self.session)

    def _each(self, slices: Slices) -> Phase[Review]:
        """What one window would ask, and what all of them would cost."""
        method = ReviewWindow(recalibration=self.monitor(slices.schema.classes).recalibration)
        one = self._phase("each window", method, 1.0, slices.schema)
        if one.spending.unit != "record":
            one = self._phase("each window", method, 1.0 / len(slices.windows), slices.schema)
        total = together([one.spending] * len(slices.windows))
        return replace(one, agreed=replace(one.agreed, spending=total))

    def run(self) -> Watched:
        """Ask window after window."""
        plain = {name: getattr(self, name) for name in ("by", "method", "recalibrate", "false_alarms", "rounds")}
        told = {**plain, "privacy": wire.encode(self.privacy), "calibrator": wire.encode(self.calibrator)}
        with self.session.opened("monitor", told, self.data) as conductor:
            slices = self.slices(conductor)
            total = self._each(slices).spending
            conductor.pay(total)
            share = 1.0 if total.unit == "record" else 1.0 / len(slices.windows)

            def ask(label: str, method: ReviewWindow) -> Result[Review]:
                phase = self._phase(label.replace(" ", "-"), method, share, slices.schema)
                return conductor.run(phase, InProcess(slices.windows[label]))

            timeline = self.monitor(slices.schema.classes).watch(list(slices.windows), ask)
            conductor.tell()
        spent = for_units(timeline.spending, self.data.columns.unit)
        return Watched(slices, Timeline(timeline.windows, spent, timeline.next), conductor.replayed)

    def _phase(self, name: str, method: Method[Review], share: float, schema: Schema) -> Phase[Review]:
        return Phase.of(name, method, scaled(self.privacy, share), Everyone(), schema)


@final
@dataclass(frozen=True, eq=False)
class Watched:
    """What came of it."""

    slices: Slices
    timeline: Timeline
    replayed: bool
