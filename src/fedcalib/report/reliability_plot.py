"""Reliability diagrams before and after, with how much data each point rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from fedcalib.report.canvas import FAINT, INK, SOFT, WIDE, Picture, Words, colours, draw
from fedcalib.report.values import Diagram, numbers
from fedcalib.report.wording import PRIVATE, compact, short
from fedcalib.types import Floats

_NARROW = 5.6
_TALL = 6.3


def reliability(before: Diagram, after: Diagram | None = None, title: str = "Reliability") -> Picture:
    """Draw one reliability diagram, or two side by side, over histograms of the counts."""
    shown = [_Bins.of(diagram) for diagram in (before, after) if diagram is not None]
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

    return draw(Words(title, _reading(shown), alt), (WIDE if after else _NARROW, _TALL), paint)


@final
@dataclass(frozen=True, eq=False)
class _Bins:
    """A diagram as columns of floats; NaN where there is nothing to draw."""

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
    def of(cls, diagram: Diagram) -> _Bins:
        size = len(diagram.edges) - 1
        confidence, observed, one, other = (
            np.clip(numbers(part, size), 0.0, 1.0)  # noise may carry a share past its ends
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
        said = f"{self.label}: {self.ece_text}" if self.ece_text else self.label
        if not np.isfinite(gap).any():
            return f"{said}; no bin to show."
        worst = int(np.nanargmax(gap))
        return (
            f"{said}; the largest gap is at a predicted probability of {self.confidence[worst]:.2f}, "
            f"where the share observed is {self.observed[worst]:.2f}."
        )


def _points(axes: Any, bins: _Bins, colour: str) -> None:
    held = np.isfinite(bins.confidence) & np.isfinite(bins.observed)
    x, y = bins.confidence[held], bins.observed[held]
    axes.plot([0, 1], [0, 1], color=SOFT, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    axes.bar(bins.middles[held], y - x, width=bins.widths[held], bottom=x, color=colour, alpha=0.17, linewidth=0)
    axes.vlines(x, bins.low[held], bins.high[held], color=colour, linewidth=1.4, alpha=0.75, zorder=2)
    axes.plot(x, y, color=colour, linewidth=1, alpha=0.45, zorder=2)
    axes.plot(x, y, "o", color=colour, markersize=5.8, markeredgecolor="white", zorder=4, clip_on=False)
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.grid(visible=True)
    axes.tick_params(labelbottom=False, length=0)
    _headings(axes, bins)


def _headings(axes: Any, bins: _Bins) -> None:
    axes.set_title(bins.label, pad=23 if bins.ece_text else 8)
    axes.annotate(
        bins.ece_text, (0, 1), (0, 8), xycoords="axes fraction", textcoords="offset points", annotation_clip=False
    )
    side = {"transform": axes.transAxes, "color": SOFT, "fontsize": 8.5, "style": "italic"}
    axes.text(0.97, 0.04, "predicted too high", ha="right", **side)
    axes.text(0.03, 0.94, "predicted too low", ha="left", **side)


def _counts(axes: Any, bins: _Bins, colour: str) -> None:
    axes.set(xlim=(0, 1), xlabel="predicted probability")
    axes.tick_params(length=0)
    axes.set_yticks([])
    if bins.count is None:
        axes.text(0.5, 0.5, f"counts {PRIVATE}", transform=axes.transAxes, ha="center", va="center", color=SOFT)
        axes.set_facecolor("#f5f7f9")
        return
    most = float(bins.count.max())
    axes.bar(bins.middles, bins.count, width=bins.widths, color=colour, alpha=0.55, linewidth=0)
    axes.set_ylim(0, most * 1.08 if most > 0 else 1)
    axes.grid(visible=True, axis="x", color=FAINT)
    if most > 0:
        axes.set_yticks([0, most], ["0", f"~{compact(most)}" if bins.noisy else compact(most)])


def _reading(shown: list[_Bins]) -> str:
    said = ["On the dashed line, what is predicted is what happens; the shading is the gap."]
    if any(np.isfinite(bins.low).any() for bins in shown):
        said.append("Whiskers: intervals.")
    if any(bins.noisy for bins in shown):
        said.append("Counts carry privacy noise.")
    return " ".join(said)
