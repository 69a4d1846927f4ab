"""Plots with one row a site, a client or a method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedcalib.errors import InputError
from fedcalib.report.canvas import AFTER, BEFORE, INK, SOFT, Picture, draw
from fedcalib.report.values import Better, Contender, Measured, Numbers, SiteRow, numbers, parts
from fedcalib.report.wording import TOO_FEW, number, short, with_interval
from fedcalib.types import Floats

_MOST = 40  # rows a picture can hold and still be read


def bars_by_site(rows: Sequence[SiteRow], name: str = "calibration gap", title: str = "Site by site") -> Picture:
    """Draw each site's gap before and after; sites with too few records say so and show nothing."""
    shown = rows[:_MOST]

    def paint(figure: Any) -> None:
        axes = _row_axes(figure.add_subplot(), [row.site for row in shown])
        for place, row in enumerate(shown):
            if row.too_few:
                axes.text(0, place, f"  {TOO_FEW}", va="center", color=SOFT, fontsize=8.5, style="italic")
            else:
                _bar(axes, place - 0.19, row.before, BEFORE)
                _bar(axes, place + 0.19, row.after, AFTER)
        axes.axvline(0, color=INK, linewidth=0.8)
        axes.set_xlabel(short(name, 60))
        _key(axes, (("before", BEFORE, "s"), ("after", AFTER, "s")))

    reading = "Shorter is better. Whiskers: intervals." + _cut(rows)
    alt = "; ".join(_site_in_words(row) for row in shown) + "."
    return draw(title, reading, alt, _height(len(shown), 0.36), paint)


def who_holds_what(
    clients: Sequence[str], classes: Sequence[str], counts: Sequence[Numbers], title: str = "Who holds what"
) -> Picture:
    """Draw clients against classes, with a bubble as large as the number of records a client holds of a class."""
    table = _table(clients, classes, counts)[:_MOST, :_MOST]
    sizes = np.nan_to_num(np.maximum(table, 0.0))
    area = 230 * sizes / sizes.max() if sizes.max() > 0 else sizes

    def paint(figure: Any) -> None:
        axes = _row_axes(figure.add_subplot(), list(clients)[:_MOST])
        down, across = np.nonzero(area)
        axes.scatter(across, down, s=area[down, across], color=AFTER, alpha=0.7, linewidth=0)
        axes.set_xticks(range(table.shape[1]), [short(name, 14) for name in classes[:_MOST]])
        axes.set(xlabel="class", xlim=(-0.6, table.shape[1] - 0.4))
        axes.grid(visible=True, axis="both")

    reading = "The larger the bubble, the more records of that class a client holds." + _cut(clients)
    return draw(title, reading, "Bubbles of clients against classes.", _height(len(table), 0.32), paint)


def comparison(
    rows: Sequence[Contender], metrics: Sequence[str], better: Better = "lower", title: str = "Methods compared"
) -> Picture:
    """Draw methods as rows of dots, one panel a metric; the dashed line is the reference."""
    if wrong := [row.name for row in rows if len(row.values) != len(metrics)]:
        raise InputError(f"Expected {len(metrics)} values a method, one a metric, found another number for {wrong}.")
    shown = rows[:_MOST]

    def paint(figure: Any) -> None:
        panels = figure.subplots(1, max(1, len(metrics)), squeeze=False)[0]
        for panel, metric in enumerate(metrics):
            axes = _row_axes(panels[panel], [row.name if panel == 0 else "" for row in shown])
            axes.set_title(short(metric, 30))
            _dots(axes, [row.values[panel] for row in shown], [row.reference for row in shown], better)

    arrow = "the further left, the better" if better == "lower" else "the further right, the better"
    reading = f"{arrow.capitalize()}. Filled: the best. Dashed: the reference. Whiskers: intervals." + _cut(rows)
    return draw(title, reading, _table_in_words(shown, metrics), _height(len(shown), 0.34), paint)


def _dots(axes: Any, values: Sequence[Measured | None], references: Sequence[bool], better: Better) -> None:
    triples = [parts(value) for value in values]
    finite = [value for value, _, _ in triples if not math.isnan(value)]
    best = (min(finite) if better == "lower" else max(finite)) if finite else math.nan
    for place, ((value, low, high), reference) in enumerate(zip(triples, references, strict=True)):
        if math.isnan(value):
            axes.text(0.5, place, "–", transform=axes.get_yaxis_transform(), color=SOFT, va="center", ha="center")
            continue
        axes.hlines(place, low, high, color=AFTER, linewidth=1.6, alpha=0.6)
        axes.plot(value, place, "o", color=AFTER, markerfacecolor=AFTER if value == best else "white", markersize=7)
        axes.annotate(number(value, 3), (value, place), (0, 6), textcoords="offset points", ha="center", fontsize=8)
        if reference:
            axes.axvline(value, color=SOFT, linewidth=1, linestyle=(0, (4, 3)), zorder=0)


def _row_axes(axes: Any, names: Sequence[str]) -> Any:
    axes.set_yticks(range(len(names)), [short(name) for name in names])
    axes.set_ylim(max(len(names), 1) - 0.4, -0.6)
    axes.grid(visible=True, axis="x")
    axes.tick_params(length=0)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.spines["left"].set_visible(False)
    return axes


def _bar(axes: Any, place: float, measured: Measured | None, colour: str) -> None:
    value, low, high = parts(measured)
    if not math.isnan(value):
        axes.barh(place, value, height=0.34, color=colour, alpha=0.85, linewidth=0)
        axes.hlines(place, low, high, color=INK, linewidth=1.1)


def _key(axes: Any, entries: Sequence[tuple[str, str, str]]) -> None:
    for label, colour, marker in entries:
        axes.plot([], [], marker, color=colour, label=label)
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(entries), borderaxespad=0, handletextpad=0.3)


def _height(rows: int, each: float) -> float:
    return 1.75 + each * max(rows, 2)


def _cut(rows: Sequence[object]) -> str:
    return f" Only the first {_MOST} are drawn." if len(rows) > _MOST else ""


def _table(clients: Sequence[str], classes: Sequence[str], counts: Sequence[Numbers]) -> Floats:
    if len(counts) != len(clients) or any(len(row) != len(classes) for row in counts):
        raise InputError(f"Expected {len(clients)} rows of {len(classes)} counts, one row a client, found other sizes.")
    return np.array([numbers(row, len(classes)) for row in counts]).reshape(len(clients), len(classes))


def _site_in_words(row: SiteRow) -> str:
    if row.too_few:
        return f"{short(row.site)}: {TOO_FEW}"
    return f"{short(row.site)}: {with_interval(row.before)} before, {with_interval(row.after)} after"


def _table_in_words(rows: Sequence[Contender], metrics: Sequence[str]) -> str:
    said = (
        f"{short(row.name)}: "
        + ", ".join(f"{name} {with_interval(value)}" for name, value in zip(metrics, row.values, strict=True))
        for row in rows
    )
    return "; ".join(said) + "."
