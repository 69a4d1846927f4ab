"""A value over windows of time, with the moments that raised an alarm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedcalib.report.canvas import AFTER, ALARM, SOFT, WIDE, Picture, Words, draw
from fedcalib.report.values import Number, Window, known, parts
from fedcalib.report.wording import number, short
from fedcalib.types import Bools, Floats

_ROOM = 95  # letters that fit below the axis


def timeline(windows: Sequence[Window], name: str, limit: Number = None, title: str = "Over time") -> Picture:
    """Draw a value with its interval, window by window; triangles mark alarms, the dashed line the limit."""
    values = np.array([parts(window.value) for window in windows], dtype=np.float64).reshape(-1, 3)

    def paint(figure: Any) -> None:
        axes = figure.add_subplot()
        _line(axes, values)
        _alarms(axes, windows, values)
        if not math.isnan(known(limit)):
            axes.axhline(known(limit), color=SOFT, linewidth=1, linestyle=(0, (4, 3)))
            axes.annotate("limit", (0, known(limit)), (4, 3), xycoords=axes.get_yaxis_transform(), **_REMARK)
        _ticks(axes, windows)
        axes.set_ylabel(short(name, 40))

    reading = "Line and band: value and interval. Triangles: alarms. A break in the line: nothing to show."
    return draw(Words(title, reading, _in_words(windows, name)), (WIDE, 3.9), paint)


_REMARK = {"textcoords": "offset points", "color": SOFT, "fontsize": 8.5, "style": "italic"}


def _line(axes: Any, values: Floats) -> None:
    places = np.arange(len(values))
    value, low, high = values.T
    axes.fill_between(places, low, high, color=AFTER, alpha=0.14, linewidth=0)
    alone = _between_breaks(value)
    axes.vlines(places[alone], low[alone], high[alone], color=AFTER, linewidth=5, alpha=0.2)
    axes.plot(places, value, color=AFTER, linewidth=1.8, marker="o", markersize=5, markeredgecolor="white")
    axes.margins(x=0.02)


def _between_breaks(value: Floats) -> Bools:
    """Find the windows without a neighbour, which a band cannot show."""
    held = np.isfinite(value)
    beside = np.zeros(len(value), dtype=bool)
    beside[1:] |= held[:-1]
    beside[:-1] |= held[1:]
    return held & ~beside


def _alarms(axes: Any, windows: Sequence[Window], values: Floats) -> None:
    """Mark alarms at their value, or at the foot of the axis where the value is missing."""
    look = {"color": ALARM, "markersize": 10, "markeredgecolor": "white", "zorder": 4, "clip_on": False}
    for place, window in enumerate(windows):
        if window.alarm and math.isnan(values[place, 0]):
            axes.plot(place, 0.0, "^", transform=axes.get_xaxis_transform(), **look)
        elif window.alarm:
            axes.plot(place, values[place, 0], "^", **look)


def _ticks(axes: Any, windows: Sequence[Window]) -> None:
    labels = [short(window.label, 16) for window in windows]
    widest = max(map(len, labels), default=1) + 3
    step = max(1, math.ceil(len(labels) * widest / _ROOM))
    axes.set_xticks(range(0, len(labels), step), labels[::step])
    axes.grid(visible=True, axis="y")
    axes.tick_params(axis="y", length=0)


def _in_words(windows: Sequence[Window], name: str) -> str:
    said = "; ".join(f"{short(w.label)}: {number(parts(w.value)[0])}{', alarm' if w.alarm else ''}" for w in windows)
    return f"{short(name, 50)} by window: {said or 'nothing'}."
