"""What monitoring found: windows, alarms and what was served, as a document and a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any, ClassVar, Final, final

import numpy as np

from fedcalib.artifacts.calibrator import Identity
from fedcalib.artifacts.evaluation import MetricsReport
from fedcalib.metrics.intervals import Measured
from fedcalib.metrics.table import ACCURACY, AUC, ECE, Metric, shown_in
from fedcalib.report.canvas import Figures, Picture
from fedcalib.report.page import Page, Section, render
from fedcalib.report.row_plots import timeline
from fedcalib.report.values import MetricRow, PageTable, Said, TimePoint
from fedcalib.workflows import documents
from fedcalib.workflows.drift import (
    MIN_EFFECT,
    Every,
    Timeline,
    Window,
)
from fedcalib.workflows.evidence import made
from fedcalib.workflows.facts import UNKNOWN as UNNAMED
from fedcalib.workflows.facts import About, Trail, meaning, stated
from fedcalib.workflows.result import WorkflowResult


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
        return documents.TextTable(
            "All windows, weighted by records", ("metric", f"value ({documents.LEVEL} interval)"), rows
        )

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


_COLUMN: Final = {"confidence": "mean prediction", AUC.name: AUC.title}  # signals by the titles of their columns


def _row(window: Window, served: bool) -> tuple[str, ...]:
    metrics = [_value(metric)(window) for metric in _shown()]
    figures = (*metrics, *([_served(window)] * served), _confidence(window), window.review.estimate)
    said = ("-" if one is None or one.value != one.value else f"{one.value:.4f}" for one in figures)
    detects = ", ".join(f"{_COLUMN.get(name, name)} {size:.3f}" for name, size in window.detectable.items())
    alarms = ", ".join(_COLUMN.get(alarm.signal, alarm.signal) for alarm in window.alarms)
    return (window.label, *said, detects or "-", alarms)


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
