"""Plots of curves with bands (ROC, precision and recall, trade-offs), and reliability diagrams before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from fedcalib.report.canvas import FAINT, INK, MARKERS, SOFT, WIDE, Picture, Words, colours, draw
from fedcalib.report.tables import MISSING, PRIVATE, compact, short
from fedcalib.report.values import Diagram, Number, PlotLine, known, numbers
from fedcalib.types import Floats

_SQUARE = (7.3, 5.2)  # inches: a square for the curves and room for their names beside it
_MIN_LOG_VALUE = 1e-12  # with smaller values, a logarithmic axis would show nothing else
_DASHED = {"color": SOFT, "linewidth": 1, "linestyle": (0, (4, 3))}
_REMARK = {"color": SOFT, "fontsize": 8.5, "style": "italic"}


def roc(curves: Sequence[PlotLine], title: str = "ROC curve") -> Picture:
    """ROC curves: true against false positive rate."""

    def paint(figure: Any) -> None:
        axes = _unit_square(figure, "false positive rate", "true positive rate")
        axes.plot([0, 1], [0, 1], **_DASHED)
        axes.text(0.52, 0.475, "guessing", rotation=45, ha="left", va="center", rotation_mode="anchor", **_REMARK)
        _lines(axes, curves)

    reading = "The closer to the upper left corner, the better." + _bands(curves)
    return draw(Words(title, reading, _in_words(curves)), _SQUARE, paint)


def pr(curves: Sequence[PlotLine], prevalence: Number = None, title: str = "Precision and recall") -> Picture:
    """Precision-recall curves; a dashed line marks the prevalence, which is the precision of guessing."""

    def paint(figure: Any) -> None:
        axes = _unit_square(figure, "recall: positives found", "precision: findings that are positive")
        if np.isfinite(known(prevalence)):
            axes.axhline(known(prevalence), **_DASHED)
            axes.text(0.02, known(prevalence) + 0.012, "guessing", **_REMARK)
        _lines(axes, curves)

    reading = "The closer to the upper right corner, the better." + _bands(curves)
    return draw(Words(title, reading, _in_words(curves)), _SQUARE, paint)


def smooth_reliability(curves: Sequence[PlotLine], title: str = "Smooth reliability") -> Picture:
    """Observed rates as smooth functions of the predicted probability."""

    def paint(figure: Any) -> None:
        axes = _unit_square(figure, "predicted probability", "how often it came true")
        axes.plot([0, 1], [0, 1], **_DASHED)
        _lines(axes, curves)

    reading = "On the dashed line, what is predicted is what happens." + _bands(curves)
    return draw(Words(title, reading, _in_words(curves)), _SQUARE, paint)


def decision(curves: Sequence[PlotLine], title: str = "Decision curve") -> Picture:
    """Net benefit by threshold; a dashed line at zero is that of calling nobody positive."""

    def paint(figure: Any) -> None:
        axes = figure.add_subplot()
        axes.set(xlim=(0, 1), xlabel="threshold", ylabel="net benefit per record")
        axes.grid(visible=True)
        axes.axhline(0.0, **_DASHED)
        axes.text(0.99, 0.0, "nobody positive", ha="right", va="bottom", **_REMARK)
        top = max([float(np.nanmax(_columns(curve)[1], initial=0.0)) for curve in curves], default=0.0)
        axes.set_ylim(-0.3 * max(top, 0.01), 1.3 * max(top, 0.01))
        for curve, colour in zip(curves, colours(len(curves)), strict=True):
            x, y, low, high = _columns(curve)
            axes.fill_between(x, low, high, color=colour, alpha=0.16, linewidth=0)
            axes.plot(x, y, color=colour, linewidth=1.9, label=_label(curve))
        _legend(axes)

    reading = "At the threshold that fits the harm of a false alarm, the highest line is the best choice." + _bands(
        curves
    )
    return draw(Words(title, reading, _in_words(curves)), (WIDE, 4.8), paint)


def trade_off(curves: Sequence[PlotLine], x_name: str, y_name: str, title: str = "Trade-off") -> Picture:
    """An error against the number of clients, epsilon or another cost, both on logarithmic axes."""
    drawn = [curve for curve in curves if _positive(curve)[0].size]

    def paint(figure: Any) -> None:
        axes = figure.add_subplot()
        axes.set(xscale="log", yscale="log", xlabel=short(x_name, 60), ylabel=short(y_name, 50))
        axes.grid(visible=True)
        floor = _floor(drawn)
        for place, (curve, colour) in enumerate(zip(drawn, colours(len(drawn)), strict=True)):
            x, y, low, high = _positive(curve)
            look = {"color": colour, "marker": MARKERS[place % len(MARKERS)], "markeredgecolor": "white"}
            axes.fill_between(x, np.maximum(low, floor), high, color=colour, alpha=0.15, linewidth=0)
            axes.plot(x, y, **look, linewidth=1.8, markersize=7, label=_label(curve))
            axes.set_ylim(bottom=floor)
        _plain_ticks(axes)
        _legend(axes)

    reading = "Lower is better. Both axes are logarithmic: a straight line is a power law." + _bands(curves)
    return draw(Words(title, reading, _in_words(curves)), (WIDE, 4.8), paint)


def _unit_square(figure: Any, x_name: str, y_name: str) -> Any:
    axes = figure.add_subplot()
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel=x_name, ylabel=y_name, aspect="equal", anchor="W")
    axes.grid(visible=True)
    axes.tick_params(length=0)
    return axes


def _lines(axes: Any, curves: Sequence[PlotLine]) -> None:
    for curve, colour in zip(curves, colours(len(curves)), strict=True):
        x, y, low, high = (np.clip(part, 0.0, 1.0) for part in _columns(curve))
        axes.fill_between(x, low, high, color=colour, alpha=0.16, linewidth=0)
        axes.plot(x, y, color=colour, linewidth=1.9, label=_label(curve), clip_on=False)
    _legend(axes)


def _legend(axes: Any) -> None:
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="upper left", bbox_to_anchor=(1.03, 1.0), borderaxespad=0, handlelength=1.6, labelspacing=0.9)
    else:
        axes.text(0.5, 0.5, "no values to show", transform=axes.transAxes, ha="center", color=SOFT)


def _label(curve: PlotLine) -> str:
    return "\n".join(short(line, 30) for line in (curve.label or MISSING, curve.text) if line)


def _columns(curve: PlotLine) -> tuple[Floats, Floats, Floats, Floats]:
    x, y, low, high = (numbers(part, len(curve.x)) for part in (curve.x, curve.y, curve.low, curve.high))
    return x, y, low, high


def _positive(curve: PlotLine) -> tuple[Floats, Floats, Floats, Floats]:
    """The points that a logarithmic axis can show."""
    x, y, low, high = _columns(curve)
    shown = (x > _MIN_LOG_VALUE) & (y > _MIN_LOG_VALUE)
    return x[shown], y[shown], low[shown], high[shown]


def _floor(curves: Sequence[PlotLine]) -> float:
    """Where the axis ends; a band that reaches zero or below ends there too."""
    lowest = [float(y.min()) for _, y, _, _ in map(_positive, curves)]
    bands = [
        float(low[low > _MIN_LOG_VALUE].min())
        for _, _, low, _ in map(_positive, curves)
        if (low > _MIN_LOG_VALUE).any()
    ]
    return max(min([*lowest, *bands]) * 0.7, min(lowest) / 10) if lowest else 1.0


def _plain_ticks(axes: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        narrow = low > 0 and high / low < 1e4
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if narrow else (1.0,), numticks=13))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axis.set_minor_formatter(NullFormatter())


def _bands(curves: Sequence[PlotLine]) -> str:
    return " Bands: intervals." if any(curve.low is not None and curve.high is not None for curve in curves) else ""


def _in_words(curves: Sequence[PlotLine]) -> str:
    return "; ".join(_label(curve).replace("\n", ": ") for curve in curves) + "." if curves else "No values to show."


_RELIABILITY_WIDTH = 5.6  # inches, of a single diagram
_RELIABILITY_HEIGHT = 6.3


def reliability(before: Diagram, after: Diagram | None = None, title: str = "Reliability") -> Picture:
    """One reliability diagram, or two side by side, over histograms of the counts."""
    shown = [_DrawnBins.of(diagram) for diagram in (before, after) if diagram is not None]
    alt = " ".join(bins.in_words() for bins in shown)

    def paint(figure: Any) -> None:
        grid = figure.add_gridspec(2, len(shown), height_ratios=[4.4, 1], hspace=0.04)
        for column, (bins, colour) in enumerate(zip(shown, colours(len(shown)), strict=True)):
            upper = figure.add_subplot(grid[0, column])
            lower = figure.add_subplot(grid[1, column], sharex=upper)
            _points(upper, bins, colour)
            _counts(lower, bins, colour)
            if column == 0:
                upper.set_ylabel("how often it came true")
                lower.set_ylabel("records", color=INK)

    return draw(Words(title, _reading(shown), alt), (WIDE if after else _RELIABILITY_WIDTH, _RELIABILITY_HEIGHT), paint)


@final
@dataclass(frozen=True, eq=False)
class _DrawnBins:
    """A diagram as arrays of floats; NaN where there is nothing to draw."""

    label: str
    ece_text: str
    noisy: bool
    edges: Floats
    confidence: Floats
    observed: Floats
    low: Floats
    high: Floats
    count: Floats | None

    @classmethod
    def of(cls, diagram: Diagram) -> _DrawnBins:
        size = len(diagram.edges) - 1
        confidence, observed, one, other = (
            np.clip(numbers(part, size), 0.0, 1.0)  # noise may take a rate beyond 0 or 1
            for part in (diagram.confidence, diagram.observed, diagram.low, diagram.high)
        )
        count = None if diagram.count is None else np.maximum(np.nan_to_num(numbers(diagram.count, size)), 0.0)
        edges = numbers(diagram.edges, size + 1)
        low, high = np.minimum(one, other), np.maximum(one, other)
        label = short(diagram.label, 40)
        return cls(label, short(diagram.ece_text, 48), diagram.noisy, edges, confidence, observed, low, high, count)

    @property
    def middles(self) -> Floats:
        return (self.edges[:-1] + self.edges[1:]) / 2

    @property
    def widths(self) -> Floats:
        return np.diff(self.edges) * 0.92

    def in_words(self) -> str:
        gap = np.abs(self.confidence - self.observed)
        name = f"{self.label}: {self.ece_text}" if self.ece_text else self.label
        if not np.isfinite(gap).any():
            return f"{name}; no bin to show."
        worst = int(np.nanargmax(gap))
        return (
            f"{name}; the largest gap is at a predicted probability of {self.confidence[worst]:.2f}, "
            f"where the share observed is {self.observed[worst]:.2f}."
        )


def _points(axes: Any, bins: _DrawnBins, colour: str) -> None:
    shown = np.isfinite(bins.confidence) & np.isfinite(bins.observed)
    x, y = bins.confidence[shown], bins.observed[shown]
    axes.plot([0, 1], [0, 1], color=SOFT, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    axes.bar(bins.middles[shown], y - x, width=bins.widths[shown], bottom=x, color=colour, alpha=0.17, linewidth=0)
    axes.vlines(x, bins.low[shown], bins.high[shown], color=colour, linewidth=1.4, alpha=0.75, zorder=2)
    axes.plot(x, y, color=colour, linewidth=1, alpha=0.45, zorder=2)
    axes.plot(x, y, "o", color=colour, markersize=5.8, markeredgecolor="white", zorder=4, clip_on=False)
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.grid(visible=True)
    axes.tick_params(labelbottom=False, length=0)
    _headings(axes, bins)


def _headings(axes: Any, bins: _DrawnBins) -> None:
    axes.set_title(bins.label, pad=23 if bins.ece_text else 8)
    axes.annotate(
        bins.ece_text, (0, 1), (0, 8), xycoords="axes fraction", textcoords="offset points", annotation_clip=False
    )
    side = {"transform": axes.transAxes, "color": SOFT, "fontsize": 8.5, "style": "italic"}
    axes.text(0.97, 0.04, "predicted too high", ha="right", **side)
    axes.text(0.03, 0.94, "predicted too low", ha="left", **side)


def _counts(axes: Any, bins: _DrawnBins, colour: str) -> None:
    axes.set(xlim=(0, 1), xlabel="predicted probability")
    axes.tick_params(length=0)
    axes.set_yticks([])
    if bins.count is None:
        axes.text(0.5, 0.5, f"counts {PRIVATE}", transform=axes.transAxes, ha="center", va="center", color=SOFT)
        axes.set_facecolor("#f5f7f9")
        return
    largest = float(bins.count.max())
    axes.bar(bins.middles, bins.count, width=bins.widths, color=colour, alpha=0.55, linewidth=0)
    axes.set_ylim(0, largest * 1.08 if largest > 0 else 1)
    axes.grid(visible=True, axis="x", color=FAINT)
    if largest > 0:
        axes.set_yticks([0, largest], ["0", f"~{compact(largest)}" if bins.noisy else compact(largest)])


def _reading(shown: list[_DrawnBins]) -> str:
    sentences = ["On the dashed line, what is predicted is what happens; the shading is the gap."]
    if any(np.isfinite(bins.low).any() for bins in shown):
        sentences.append("Whiskers: intervals.")
    if any(bins.noisy for bins in shown):
        sentences.append("Counts carry privacy noise.")
    return " ".join(sentences)
