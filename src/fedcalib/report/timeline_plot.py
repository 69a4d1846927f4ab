"""A value over windows of time, with the moments that raised an alarm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedcalib.report.canvas import AFTER, ALARM, SOFT, Picture, draw
from fedcalib.report.values import Number, Window, known, parts
from fedcalib.report.wording import number, short


def timeline(windows: Sequence[Window], name: str, limit: Number = None, title: str = "Over time") -> Picture:
    """Draw a value with its interval, window by window; triangles mark alarms, the dashed line the limit."""
    values = np.array([parts(window.value) for window in windows], dtype=np.float64).reshape(-1, 3)
    alarmed = np.array([window.alarm for window in windows], dtype=bool)

    def paint(figure: Any) -> None:
        axes = figure.add_subplot()
        places = np.arange(len(windows))
        axes.fill_between(places, values[:, 1], values[:, 2], color=AFTER, alpha=0.16, linewidth=0)
        axes.plot(places, values[:, 0], color=AFTER, linewidth=1.8, marker="o", markersize=4.5, markeredgecolor="white")
        axes.plot(places[alarmed], values[alarmed, 0], "^", color=ALARM, markersize=11, markeredgecolor="white")
        if not math.isnan(known(limit)):
            axes.axhline(known(limit), color=SOFT, linewidth=1, linestyle=(0, (4, 3)))
        step = max(1, math.ceil(len(windows) / 12))
        axes.set_xticks(places[::step], [short(window.label, 12) for window in windows[::step]])
        axes.set_ylabel(short(name, 50))
        axes.grid(visible=True, axis="y")

    reading = "Band: interval. Triangles: alarms. Where the line breaks there was too little to measure."
    return draw(title, reading, _in_words(windows, name), 3.9, paint)


def _in_words(windows: Sequence[Window], name: str) -> str:
    said = "; ".join(f"{short(w.label)}: {number(parts(w.value)[0])}{', alarm' if w.alarm else ''}" for w in windows)
    return f"{short(name, 50)} by window: {said or 'nothing'}."
