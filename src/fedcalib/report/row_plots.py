"""Plots with one row or point per method, site or window of time: comparisons, bars by site and timelines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedcalib.errors import InputError
from fedcalib.metrics.intervals import Measured
from fedcalib.metrics.table import Direction
from fedcalib.report import canvas
from fedcalib.report.canvas import AFTER, ALARM, BEFORE, SOFT, WIDE, Picture, Words, draw
from fedcalib.report.tables import TOO_FEW, decimals_for, number, short, with_interval
from fedcalib.report.values import Contender, Number, SiteRow, TimePoint, known, parts
from fedcalib.types import Bools, Floats


def comparison(rows: Sequence[Contender], metrics: Mapping[str, Direction], title: str = "Methods compared") -> Picture:
    """Methods as rows of dots, with one panel per metric, such as `{"ECE": "lower", "AUC": "higher"}`."""
    if wrong := [row.name for row in rows if len(row.values) != len(metrics)]:
        raise InputError(
            f"Expected {len(metrics)} values per method, one per metric, found another number for {wrong}."
        )
    shown = rows[: canvas.MAX_ROWS]

    def paint(figure: Any) -> None:
        panels = figure.subplots(1, max(1, len(metrics)), squeeze=False)[0]
        for index, (axes, (metric, better)) in enumerate(zip(panels, metrics.items(), strict=False)):
            canvas.row_axes(axes, [row.name if index == 0 else "" for row in shown])
            axes.set_title(f"{short(metric, 24)} ({better} is better)", fontsize=9.5)
            axes.margins(x=0.12)
            axes.locator_params(axis="x", nbins=5)
            _dots(axes, shown, index, better)

    remarks = canvas.whiskers(value for row in shown for value in row.values) + canvas.rows_left_out(rows)
    reading = "Filled: the best. Dashed: the reference. Each panel has its own scale." + remarks
    return draw(Words(title, reading, _in_words(shown, metrics)), (WIDE, canvas.height(len(shown), 0.36)), paint)


def _dots(axes: Any, rows: Sequence[Contender], metric: int, better: Direction) -> None:
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


def _best(values: Sequence[float], better: Direction) -> float:
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return math.nan
    return min(known) if better == "lower" else max(known)


def _in_words(rows: Sequence[Contender], metrics: Mapping[str, Direction]) -> str:
    texts = (
        f"{short(row.name)}: "
        + ", ".join(f"{name} {with_interval(value)}" for name, value in zip(metrics, row.values, strict=True))
        for row in rows
    )
    return "; ".join(texts) + "."


def bars_by_site(rows: Sequence[SiteRow], name: str = "calibration gap", title: str = "Site by site") -> Picture:
    """Bars of each site's gap before and after; sites with too few records have a remark instead."""
    shown = [row.guarded for row in rows[: canvas.MAX_ROWS]]
    both = any(row.after is not None for row in shown) and any(row.before is not None for row in shown)

    def paint(figure: Any) -> None:
        axes = canvas.row_axes(figure.add_subplot(), [row.site for row in shown])
        axes.axvline(0, color=SOFT, linewidth=0.9)
        for place, row in enumerate(shown):
            _site(axes, place, row, both)
        axes.margins(x=0.04)
        axes.set_xlabel(short(name, 60))
        if both:
            _key(axes)

    intervals = canvas.whiskers(value for row in shown for value in (row.before, row.after))
    reading = "The shorter a bar, the better." + intervals + canvas.rows_left_out(rows)
    alt = "; ".join(_site_in_words(row) for row in shown) + "." if shown else "No site to show."
    return draw(Words(title, reading, alt), (WIDE, canvas.height(len(shown), 0.38)), paint)


def forest(sites: Mapping[str, Measured], mean: Measured, name: str, spread: str = "") -> Picture:
    """A forest plot: each site's value and interval, and below them a diamond for the mean over sites."""
    shown = dict(list(sites.items())[: canvas.MAX_ROWS])
    value, low, high = parts(mean)

    def paint(figure: Any) -> None:
        axes = canvas.row_axes(figure.add_subplot(), [*shown, "mean over sites"])
        axes.axvline(value, color=SOFT, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        for place, measured in enumerate(shown.values()):
            at, left, right = parts(measured)
            axes.hlines(place, left, right, color=AFTER, linewidth=1.6)
            axes.plot(at, place, "s", color=AFTER, markersize=5.5, markeredgecolor="white")
        place = len(shown)
        axes.fill([low, value, high, value], [place, place - 0.3, place, place + 0.3], color=AFTER, linewidth=0)
        axes.set_xlabel(short(name, 60))

    reading = f"Lines: 95% intervals. Diamond: the mean over sites. {spread}".strip() + canvas.rows_left_out([*sites])
    alt = "; ".join(f"{short(site)}: {with_interval(one)}" for site, one in shown.items())
    words = Words(f"{name} by site", reading, f"{alt}; mean over sites: {with_interval(mean)}.")
    return draw(words, (WIDE, canvas.height(len(shown) + 1, 0.34)), paint)


def _site(axes: Any, place: int, row: SiteRow, both: bool) -> None:
    if row.too_few:
        axes.text(0, place, f"  {TOO_FEW}", va="center", color=SOFT, fontsize=8.5, style="italic")
    elif both:
        _bar(axes, place - 0.18, row.before, BEFORE)
        _bar(axes, place + 0.18, row.after, AFTER)
    else:
        _bar(axes, place, row.before if row.after is None else row.after, AFTER)


def _bar(axes: Any, place: float, measured: Measured | None, colour: str) -> None:
    value, low, high = parts(measured)
    if not math.isnan(value):
        axes.barh(place, value, height=0.3, color=colour, alpha=0.3, linewidth=0)
        axes.hlines(place, low, high, color=colour, linewidth=1.4)
        axes.plot(value, place, "o", color=colour, markersize=5.5, markeredgecolor="white")


def _key(axes: Any) -> None:
    for label, colour in (("before", BEFORE), ("after", AFTER)):
        axes.plot([], [], "o", color=colour, label=label)
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, borderaxespad=0, handletextpad=0.1)


def _site_in_words(row: SiteRow) -> str:
    if row.too_few:
        return f"{short(row.site)}: {TOO_FEW}"
    texts = [
        f"{with_interval(value)} {when}" for value, when in ((row.before, "before"), (row.after, "after")) if value
    ]
    return f"{short(row.site)}: {', '.join(texts) or 'nothing'}"


_LETTERS_BELOW_AXIS = 95


def timeline(windows: Sequence[TimePoint], name: str, limit: Number = None, title: str = "Over time") -> Picture:
    """A value with its interval, window by window; triangles mark alarms, a dashed line the limit."""
    values = np.array([parts(window.value) for window in windows], dtype=np.float64).reshape(-1, 3)

    def paint(figure: Any) -> None:
        axes = figure.add_subplot()
        _line(axes, values)
        _alarms(axes, windows, values)
        if not math.isnan(known(limit)):
            axes.axhline(known(limit), color=SOFT, linewidth=1, linestyle=(0, (4, 3)))
            axes.annotate("limit", (0, known(limit)), (4, 3), xycoords=axes.get_yaxis_transform(), **_LIMIT_LABEL)
        _ticks(axes, windows)
        axes.set_ylabel(short(name, 40))

    reading = "Line and band: value and interval. Triangles: alarms. A break in the line: nothing to show."
    return draw(Words(title, reading, _timeline_in_words(windows, name)), (WIDE, 3.9), paint)


_LIMIT_LABEL = {"textcoords": "offset points", "color": SOFT, "fontsize": 8.5, "style": "italic"}


def _line(axes: Any, values: Floats) -> None:
    places = np.arange(len(values))
    value, low, high = values.T
    axes.fill_between(places, low, high, color=AFTER, alpha=0.14, linewidth=0)
    alone = _between_breaks(value)
    axes.vlines(places[alone], low[alone], high[alone], color=AFTER, linewidth=5, alpha=0.2)
    axes.plot(places, value, color=AFTER, linewidth=1.8, marker="o", markersize=5, markeredgecolor="white")
    axes.margins(x=0.02)


def _between_breaks(value: Floats) -> Bools:
    """Which windows have a value but no neighbour with one, so that a band cannot show them."""
    known = np.isfinite(value)
    neighbour = np.zeros(len(value), dtype=bool)
    neighbour[1:] |= known[:-1]
    neighbour[:-1] |= known[1:]
    return known & ~neighbour


def _alarms(axes: Any, windows: Sequence[TimePoint], values: Floats) -> None:
    """Mark alarms at their value, or at the bottom of the axis where the value is missing."""
    look = {"color": ALARM, "markersize": 10, "markeredgecolor": "white", "zorder": 4, "clip_on": False}
    for place, window in enumerate(windows):
        if window.alarm and math.isnan(values[place, 0]):
            axes.plot(place, 0.0, "^", transform=axes.get_xaxis_transform(), **look)
        elif window.alarm:
            axes.plot(place, values[place, 0], "^", **look)


def _ticks(axes: Any, windows: Sequence[TimePoint]) -> None:
    labels = [short(window.label, 16) for window in windows]
    widest = max(map(len, labels), default=1) + 3
    step = max(1, math.ceil(len(labels) * widest / _LETTERS_BELOW_AXIS))
    axes.set_xticks(range(0, len(labels), step), labels[::step])
    axes.grid(visible=True, axis="y")
    axes.tick_params(axis="y", length=0)


def _timeline_in_words(windows: Sequence[TimePoint], name: str) -> str:
    texts = "; ".join(f"{short(w.label)}: {number(parts(w.value)[0])}{', alarm' if w.alarm else ''}" for w in windows)
    return f"{short(name, 50)} by window: {texts or 'nothing'}."
