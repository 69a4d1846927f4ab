"""Values to draw and pages to render."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from fedcalib.metrics.intervals import Measured
from fedcalib.report.canvas import Picture
from fedcalib.report.page import Page
from fedcalib.report.row_plots import timeline
from fedcalib.report.values import ConfusionGrid, Contender, Diagram, MetricRow, PlotLine, SiteRow, TimePoint

NASTY = '<script>alert(\'1\')</script>" onload="x" & $x_1$ 医院\n'


def confusion(classes: int, *, withheld: bool = False, name: str = "class") -> ConfusionGrid:
    counts = np.arange(classes**2, dtype=np.float64).reshape(classes, classes) * 100
    if withheld:
        counts[0, 1] = counts[1, 0] = counts[0, 0] = counts[1, 1] = np.nan
    return ConfusionGrid(tuple(f"{name} {label}" for label in range(classes)), counts, min_count=11)


def diagram(label: str = "before", shift: float = 0.1, **changes: Any) -> Diagram:
    middles = np.linspace(0.05, 0.95, 10)
    given: dict[str, Any] = {
        "label": label,
        "edges": np.linspace(0, 1, 11),
        "confidence": middles,
        "observed": middles - shift,
        "low": middles - shift - 0.05,
        "high": middles - shift + 0.05,
        "count": np.arange(10) * 4321,
        "ece_text": f"ECE {abs(shift):.3f}",
    }
    return Diagram(**(given | changes))


def metrics() -> tuple[MetricRow, ...]:
    return (
        MetricRow("ECE", Measured(0.0812, 0.077, 0.0851), Measured(0.0121, 0.009, 0.0158), note="the mean gap"),
        MetricRow("AUC", Measured(0.8231, 0.819, 0.8272), Measured(0.823, 0.8189, 0.8271), "higher"),
        MetricRow("Log loss", Measured(0.53), Measured(0.49)),
        MetricRow("Brier", None, Measured(float("nan"), float("nan"), float("inf"))),
    )


def sites() -> tuple[SiteRow, ...]:
    return (
        SiteRow("north", Measured(0.08, 0.06, 0.1), Measured(0.02, 0.01, 0.03), records=5120),
        SiteRow(NASTY, Measured(-0.03), None),
        SiteRow("tiny", Measured(0.77123), Measured(0.66123), records=3, too_few=True),
    )


def curve(label: str = "model", **changes: Any) -> PlotLine:
    x = np.linspace(0, 1, 20)
    return PlotLine(
        **({"label": label, "x": x, "y": x**0.3, "low": x**0.4, "high": x**0.2, "text": "AUC 0.8"} | changes)
    )


def windows() -> list[TimePoint]:
    values = [Measured(0.01 * week, 0.01 * week - 0.01, 0.01 * week + 0.01) for week in range(9)]
    return [TimePoint(f"week {week}", None if week == 4 else value, week > 6) for week, value in enumerate(values)]


def contenders() -> list[Contender]:
    return [
        Contender("uncalibrated", (Measured(0.08, 0.07, 0.09), Measured(0.8)), reference=True),
        Contender("FedBBQ", (Measured(0.01, 0.005, 0.02), None)),
    ]


def picture() -> Picture:
    return timeline(windows(), "ECE", 0.05)


def whole_page(**changes: Any) -> Page:
    """A page with every part."""
    given: dict[str, Any] = {
        "title": "Delays",
        "summary": ("It got better.", "Much better."),
        "privacy": ("Spent epsilon = 1 on one record.",),
        "records": 312044,
        "clients": 16,
        "metrics": metrics(),
        "before": diagram(),
        "after": diagram("after", 0.01),
        "sites": sites(),
        "figures": (picture(),),
        "warnings": ("Two sites were too small.",),
        "provenance": {"fedcalib": "0.1.0", "seed": None, "share": float("nan")},
    }
    return Page(**(given | changes))


OPTIONAL = [field.name for field in fields(Page) if field.name != "title"]
