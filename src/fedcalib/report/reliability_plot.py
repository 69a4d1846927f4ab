"""Reliability diagrams before and after, with how much data each point rests on."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcalib.report.canvas import AFTER, BEFORE, FAINT, INK, SOFT, Picture, draw
from fedcalib.report.values import Diagram, numbers
from fedcalib.report.wording import short
from fedcalib.types import Floats

_READING = "On the diagonal, what is said is what happens. Shading: the gap. Whiskers: the interval of a bin."


def reliability(before: Diagram, after: Diagram | None = None, title: str = "Reliability") -> Picture:
    """Draw reliability diagrams side by side, over histograms of the counts."""
    shown = [(before, BEFORE if after else AFTER)] + ([(after, AFTER)] if after else [])
    alt = " ".join(_in_words(diagram) for diagram, _ in shown)

    def paint(figure: Any) -> None:
        grid = figure.add_gridspec(2, len(shown) if after else 2, height_ratios=[4.2, 1], hspace=0.04)
        for column, (diagram, colour) in enumerate(shown):
            upper = figure.add_subplot(grid[0, column])
            _points(upper, diagram, colour, first=column == 0)
            _histogram(figure.add_subplot(grid[1, column], sharex=upper), diagram, colour, first=column == 0)

    return draw(title, _READING, alt, 6.3, paint)


def _points(axes: Any, diagram: Diagram, colour: str, first: bool) -> None:
    edges, confidence, observed, low, high, _ = _columns(diagram)
    held = np.isfinite(confidence) & np.isfinite(observed)
    axes.plot([0, 1], [0, 1], color=SOFT, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    axes.bar(
        ((edges[:-1] + edges[1:]) / 2)[held],
        (observed - confidence)[held],
        width=np.diff(edges)[held] * 0.92,
        bottom=confidence[held],
        color=colour,
        alpha=0.16,
        linewidth=0,
        zorder=1,
    )
    ranged = held & np.isfinite(low) & np.isfinite(high)
    axes.vlines(confidence[ranged], low[ranged], high[ranged], color=colour, linewidth=1.3, alpha=0.75, zorder=2)
    axes.plot(confidence[held], observed[held], color=colour, linewidth=1, alpha=0.5, zorder=2)
    axes.plot(confidence[held], observed[held], "o", color=colour, markersize=5.5, markeredgecolor="white", zorder=3)
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.grid(visible=True)
    axes.tick_params(labelbottom=False, length=0)
    axes.set_title(_heading(diagram))
    axes.set_ylabel("observed frequency" if first else "")
    side = {"transform": axes.transAxes, "color": SOFT, "fontsize": 8.5, "style": "italic"}
    axes.text(0.97, 0.05, "too confident", ha="right", **side)
    axes.text(0.03, 0.93, "too cautious", ha="left", **side)


def _histogram(axes: Any, diagram: Diagram, colour: str, first: bool) -> None:
    edges, *_, count = _columns(diagram)
    axes.set(xlim=(0, 1), xlabel="predicted probability")
    axes.tick_params(length=0)
    axes.set_yticks([])
    if diagram.count is None:
        axes.text(
            0.5, 0.5, "counts not shown (private)", transform=axes.transAxes, ha="center", va="center", color=SOFT
        )
        axes.set_facecolor("#f5f7f9")
        return
    heights = np.maximum(np.nan_to_num(count), 0.0)
    axes.bar((edges[:-1] + edges[1:]) / 2, heights, width=np.diff(edges) * 0.92, color=colour, alpha=0.55, linewidth=0)
    axes.set_ylim(0, heights.max() * 1.08 if heights.max() > 0 else 1)
    axes.grid(visible=True, axis="x", color=FAINT)
    axes.set_ylabel(("noisy records" if diagram.noisy else "records") if first else "", color=INK)


def _columns(diagram: Diagram) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats]:
    bins = len(diagram.edges) - 1
    confidence, observed, low, high = (
        np.clip(numbers(part, bins), 0.0, 1.0)
        for part in (diagram.confidence, diagram.observed, diagram.low, diagram.high)
    )
    edges = numbers(diagram.edges, bins + 1)
    return edges, confidence, observed, np.fmin(low, high), np.fmax(low, high), numbers(diagram.count, bins)


def _heading(diagram: Diagram) -> str:
    return f"{short(diagram.label, 30)}: {diagram.ece_text}" if diagram.ece_text else short(diagram.label, 44)


def _in_words(diagram: Diagram) -> str:
    _, confidence, observed, *_ = _columns(diagram)
    gap = confidence - observed
    if not np.isfinite(gap).any():
        return f"{_heading(diagram)}; no bin to show."
    worst = int(np.nanargmax(np.abs(gap)))
    return (
        f"{_heading(diagram)}; the largest gap is at a predicted probability of {confidence[worst]:.2f}, "
        f"where {observed[worst]:.2f} was observed."
    )
