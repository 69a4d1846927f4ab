"""A timeline as plain data, as a table and as a page with charts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fedcalib.artifacts.calibrator import Identity
from fedcalib.cli import documents
from fedcalib.cli.voice import Table
from fedcalib.measured import Measured
from fedcalib.monitoring import Timeline, Window
from fedcalib.report.page import Page, render
from fedcalib.report.plots import Picture, timeline
from fedcalib.report.values import Window as Drawn


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


def table(found: Timeline) -> Table:
    """Lay the windows out, one a row."""
    served = any(window.review.served is not None for window in found.windows)
    columns = ("window", "ECE", *(("served ECE",) if served else ()), "confidence", "AUC", "accuracy", "estimated")
    rows = tuple(
        (*_row(window, served), ", ".join(alarm.signal for alarm in window.alarms)) for window in found.windows
    )
    return Table("Window by window", (*columns, "alarms"), rows)


def _row(window: Window, served: bool) -> tuple[str, ...]:
    metrics = window.review.metrics
    after = None if window.review.served is None else window.review.served.ece
    confidence = window.signals.get("confidence")
    shown = [metrics.ece, *([after] if served else [])]
    rest = [metrics.auc, metrics.accuracy, window.review.estimate]
    middle = "-" if confidence is None else f"{confidence.value:.4f}"
    return (window.label, *map(_said, shown), middle, *map(_said, rest))


def _said(measured: Measured | None) -> str:
    return "-" if measured is None or measured.value != measured.value else f"{measured.value:.4f}"


def charts(found: Timeline) -> tuple[Picture, ...]:
    """Draw the figures over time, with the alarms where they were raised."""
    errors = _drawn(found, lambda window: window.review.metrics.ece, "gap")
    drawn = [
        timeline(errors, "calibration error (ECE)", title="Calibration"),
        timeline(_drawn(found, _confidence, "confidence"), "mean confidence", title="Confidence"),
    ]
    if any(window.review.metrics.auc is not None for window in found.windows):
        drawn.append(timeline(_drawn(found, lambda window: window.review.metrics.auc, "auc"), "AUC", title="Ranking"))
    else:
        accuracy = _drawn(found, lambda window: window.review.metrics.accuracy, "accuracy")
        drawn.append(timeline(accuracy, "accuracy", title="Accuracy"))
    if any(window.review.served is not None for window in found.windows):
        served = _drawn(found, lambda window: None if window.review.served is None else window.review.served.ece, "")
        drawn.append(timeline(served, "calibration error (ECE)", title="Calibration as served"))
    estimated = _drawn(found, lambda window: window.review.estimate, "")
    return (*drawn, timeline(estimated, "accuracy", title="Accuracy as estimated without labels"))


def _drawn(found: Timeline, of: Callable[[Window], Measured | None], signal: str) -> list[Drawn]:
    return [
        Drawn(window.label, of(window), any(alarm.signal == signal for alarm in window.alarms))
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
