"""Methods side by side as rows of dots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedcalib.errors import InputError
from fedcalib.report.canvas import AFTER, SOFT, WIDE, Picture, Words, draw
from fedcalib.report.rows import MOST, cut, height, row_axes, whiskers
from fedcalib.report.values import Better, Contender, parts
from fedcalib.report.wording import decimals_for, number, short, with_interval


def comparison(rows: Sequence[Contender], metrics: Mapping[str, Better], title: str = "Methods compared") -> Picture:
    """Draw methods as rows of dots, one panel a metric, such as `{"ECE": "lower", "AUC": "higher"}`."""
    if wrong := [row.name for row in rows if len(row.values) != len(metrics)]:
        raise InputError(f"Expected {len(metrics)} values a method, one a metric, found another number for {wrong}.")
    shown = rows[:MOST]

    def paint(figure: Any) -> None:
        panels = figure.subplots(1, max(1, len(metrics)), squeeze=False)[0]
        for place, (axes, (metric, better)) in enumerate(zip(panels, metrics.items(), strict=False)):
            row_axes(axes, [row.name if place == 0 else "" for row in shown])
            axes.set_title(f"{short(metric, 24)} ({better} is better)", fontsize=9.5)
            axes.margins(x=0.12)
            axes.locator_params(axis="x", nbins=5)
            _dots(axes, shown, place, better)

    intervals = whiskers(value for row in shown for value in row.values)
    reading = "Filled: the best. Dashed: the reference. Each panel has its own scale." + intervals + cut(rows)
    return draw(Words(title, reading, _in_words(shown, metrics)), (WIDE, height(len(shown), 0.36)), paint)


def _dots(axes: Any, rows: Sequence[Contender], metric: int, better: Better) -> None:
    values = [row.values[metric] for row in rows]
    decimals = decimals_for(values)
    best = _best([parts(value)[0] for value in values], better)
    for place, row in enumerate(rows):
        value, low, high = parts(row.values[metric])
        if math.isnan(value):
            axes.text(0.5, place, "not measured", transform=axes.get_yaxis_transform(), **_REMARK)
            continue
        if row.reference:
            axes.axvline(value, color=SOFT, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        axes.hlines(place, low, high, color=AFTER, linewidth=1.8, alpha=0.55)
        filled = AFTER if value == best else "white"
        axes.plot(value, place, "o", color=AFTER, markerfacecolor=filled, markersize=7, markeredgewidth=1.4)
        axes.annotate(number(value, decimals), (value, place), (0, 7), bbox=_PATCH, **_BESIDE)


_REMARK = {"color": SOFT, "fontsize": 8.5, "style": "italic", "va": "center", "ha": "center"}
_BESIDE = {"textcoords": "offset points", "ha": "center", "fontsize": 8}
_PATCH = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"}


def _best(values: Sequence[float], better: Better) -> float:
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return math.nan
    return min(known) if better == "lower" else max(known)


def _in_words(rows: Sequence[Contender], metrics: Mapping[str, Better]) -> str:
    said = (
        f"{short(row.name)}: "
        + ", ".join(f"{name} {with_interval(value)}" for name, value in zip(metrics, row.values, strict=True))
        for row in rows
    )
    return "; ".join(said) + "."
