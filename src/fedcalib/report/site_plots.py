"""What single sites show and hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedcalib.errors import InputError
from fedcalib.measured import Measured
from fedcalib.report.canvas import AFTER, BEFORE, SOFT, WIDE, Picture, Words, draw
from fedcalib.report.rows import MOST, cut, height, row_axes, whiskers
from fedcalib.report.values import Numbers, SiteRow, numbers, parts
from fedcalib.report.wording import TOO_FEW, short, with_interval
from fedcalib.types import Floats


def bars_by_site(rows: Sequence[SiteRow], name: str = "calibration gap", title: str = "Site by site") -> Picture:
    """Draw each site's gap before and after; sites with too few records say so and show nothing."""
    shown = [row.guarded for row in rows[:MOST]]
    both = any(row.after is not None for row in shown) and any(row.before is not None for row in shown)

    def paint(figure: Any) -> None:
        axes = row_axes(figure.add_subplot(), [row.site for row in shown])
        axes.axvline(0, color=SOFT, linewidth=0.9)
        for place, row in enumerate(shown):
            _site(axes, place, row, both)
        axes.margins(x=0.04)
        axes.set_xlabel(short(name, 60))
        if both:
            _key(axes)

    intervals = whiskers(value for row in shown for value in (row.before, row.after))
    reading = "The shorter a bar, the better." + intervals + cut(rows)
    alt = "; ".join(_in_words(row) for row in shown) + "." if shown else "No site to show."
    return draw(Words(title, reading, alt), (WIDE, height(len(shown), 0.38)), paint)


def who_holds_what(
    clients: Sequence[str], classes: Sequence[str], counts: Sequence[Numbers], title: str = "Who holds what"
) -> Picture:
    """Draw clients against classes, with a bubble as large as the number of records a client holds of a class."""
    table = _table(clients, classes, counts)[:MOST, :MOST]
    upright = sum(len(name) for name in classes[:MOST]) > 90  # side by side they would touch
    names = [short(name, 26 if upright else 14) for name in classes[:MOST]]

    def paint(figure: Any) -> None:
        axes = row_axes(figure.add_subplot(), list(clients[:MOST]))
        area = _areas(table)
        down, across = np.nonzero(area)
        axes.scatter(across, down, s=area[down, across], color=AFTER, alpha=0.75, linewidth=0, zorder=2)
        axes.set_xticks(range(len(names)), names, rotation=90 if upright else 0)
        axes.set(xlabel="class", xlim=(-0.6, max(len(names), 1) - 0.4))
        axes.grid(visible=True, axis="both")

    reading = "The larger a bubble, the more records of that class a client holds." + cut(clients)
    words = Words(title, reading, "Bubbles, one row a client and one column a class.")
    return draw(words, (WIDE, height(len(table), 0.3)), paint)


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


def _areas(table: Floats) -> Floats:
    held = np.nan_to_num(np.maximum(table, 0.0))
    most = float(held.max()) if held.size else 0.0
    return 250 * held / most if most > 0 else np.zeros_like(held)


def _table(clients: Sequence[str], classes: Sequence[str], counts: Sequence[Numbers]) -> Floats:
    if len(counts) != len(clients) or any(len(row) != len(classes) for row in counts):
        raise InputError(f"Expected {len(clients)} rows of {len(classes)} counts, one row a client, found other sizes.")
    return np.array([numbers(row, len(classes)) for row in counts]).reshape(len(clients), len(classes))


def _in_words(row: SiteRow) -> str:
    if row.too_few:
        return f"{short(row.site)}: {TOO_FEW}"
    said = [f"{with_interval(value)} {when}" for value, when in ((row.before, "before"), (row.after, "after")) if value]
    return f"{short(row.site)}: {', '.join(said) or 'nothing'}"
