"""Curves with bands: ROC, precision and recall, and what accuracy costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fedcalib.report.canvas import MARKERS, SERIES, SOFT, Picture, draw
from fedcalib.report.values import Curve, Number, known, numbers
from fedcalib.report.wording import short
from fedcalib.types import Floats


def roc(curves: Sequence[Curve], title: str = "ROC curve") -> Picture:
    """Draw ROC curves: the share of positives found against the share of false alarms."""

    def paint(figure: Any) -> None:
        axes = _unit_square(figure, "false positive rate", "true positive rate")
        axes.plot([0, 1], [0, 1], color=SOFT, linewidth=1, linestyle=(0, (4, 3)))
        axes.text(0.97, 0.9, "guessing", color=SOFT, fontsize=8.5, style="italic", ha="right", va="top")
        _lines(axes, curves)

    reading = "The closer to the upper left corner, the better. Bands: intervals, privacy noise included."
    return draw(title, reading, _in_words(curves), 5.4, paint)


def pr(curves: Sequence[Curve], prevalence: Number = None, title: str = "Precision and recall") -> Picture:
    """Draw precision against recall; the dashed line is what guessing reaches."""

    def paint(figure: Any) -> None:
        axes = _unit_square(figure, "recall", "precision")
        if np.isfinite(known(prevalence)):
            axes.axhline(known(prevalence), color=SOFT, linewidth=1, linestyle=(0, (4, 3)))
            axes.text(0.02, known(prevalence) + 0.01, "guessing", color=SOFT, fontsize=8.5, style="italic")
        _lines(axes, curves)

    reading = "The closer to the upper right corner, the better. Bands: intervals, privacy noise included."
    return draw(title, reading, _in_words(curves), 5.4, paint)


def trade_off(curves: Sequence[Curve], x_name: str, y_name: str, title: str = "Trade-off") -> Picture:
    """Draw an error against the number of clients, epsilon or another cost, both on logarithmic axes."""

    def paint(figure: Any) -> None:
        axes = figure.add_subplot()
        axes.set(xscale="log", yscale="log", xlabel=short(x_name, 60), ylabel=short(y_name, 60))
        axes.grid(visible=True)
        for index, (curve, x, y, low, high) in enumerate(_positive(curves)):
            look = {"color": SERIES[index % len(SERIES)], "marker": MARKERS[index % len(MARKERS)]}
            axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
            axes.plot(x, y, **look, linewidth=1.8, markersize=6, markeredgecolor="white", label=_label(curve))
        _plain_ticks(axes)
        _legend(axes)

    reading = "Lower is better. Both axes are logarithmic: a straight line is a power law. Bands: intervals."
    return draw(title, reading, _in_words(curves), 4.8, paint)


def _unit_square(figure: Any, x_name: str, y_name: str) -> Any:
    axes = figure.add_subplot()
    axes.set(xlim=(0, 1), ylim=(0, 1.01), xlabel=x_name, ylabel=y_name, aspect="equal", anchor="W")
    axes.grid(visible=True)
    axes.tick_params(length=0)
    return axes


def _lines(axes: Any, curves: Sequence[Curve]) -> None:
    for index, curve in enumerate(curves):
        size, colour = len(curve.x), SERIES[index % len(SERIES)]
        x, y, low, high = (numbers(part, size) for part in (curve.x, curve.y, curve.low, curve.high))
        axes.fill_between(x, np.clip(low, 0, 1), np.clip(high, 0, 1), color=colour, alpha=0.16, linewidth=0)
        axes.plot(x, np.clip(y, 0, 1), color=colour, linewidth=1.9, label=_label(curve))
    _legend(axes)


def _legend(axes: Any) -> None:
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0), borderaxespad=0, handlelength=1.6, labelspacing=0.9)
    else:
        axes.text(0.5, 0.5, "no values to show", transform=axes.transAxes, ha="center", color=SOFT)


def _label(curve: Curve) -> str:
    return f"{short(curve.label)}\n{curve.text}" if curve.text else short(curve.label)


def _positive(curves: Sequence[Curve]) -> Iterator[tuple[Curve, Floats, Floats, Floats, Floats]]:
    """Keep what a logarithmic axis can show."""
    for curve in curves:
        x, y, low, high = (numbers(part, len(curve.x)) for part in (curve.x, curve.y, curve.low, curve.high))
        held = (x > 0) & (y > 0)
        if held.any():
            yield curve, x[held], y[held], np.where(low > 0, low, y)[held], np.where(high > 0, high, y)[held]


def _plain_ticks(axes: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axis.set_minor_formatter(NullFormatter())


def _in_words(curves: Sequence[Curve]) -> str:
    return "; ".join(_label(curve).replace("\n", ": ") for curve in curves) + "." if curves else "No values to show."
