"""Plots with one row or point per method, site, group or window of time: comparisons, forests, bars and timelines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Final

from fedcalib.errors import InputError
from fedcalib.metrics.intervals import Measured
from fedcalib.metrics.table import Direction
from fedcalib.report import canvas
from fedcalib.report.canvas import LEFT, NAMES, RIGHT, WIDTH, Picture, PictureTable, Plot, Scale, Tip, Words
from fedcalib.report.tables import MISSING, TOO_FEW, interval, number, short, with_interval
from fedcalib.report.values import Contender, Number, SiteRow, TimePoint, known, parts

_ROW: Final = 25.0  # height of a row
_LEVEL: Final = "95% interval"
_LETTERS: Final = 19  # of a row's name


def comparison(rows: Sequence[Contender], metrics: Mapping[str, Direction], level: str = _LEVEL) -> tuple[Picture, ...]:
    """Methods as rows of dots: one picture per metric, such as `{"ECE": "lower"}`; `level` is what the lines are."""
    if wrong := [row.name for row in rows if len(row.values) != len(metrics)]:
        raise InputError(
            f"Expected {len(metrics)} values per method, one per metric, found another number for {wrong}."
        )
    return tuple(_contest(rows, index, name, better, level) for index, (name, better) in enumerate(metrics.items()))


def _contest(rows: Sequence[Contender], index: int, metric: str, better: Direction, level: str) -> Picture:
    values = {row.name: row.values[index] for row in rows}
    best = _best([parts(value)[0] for value in values.values()], better)
    guide = next((row.values[index] for row in rows if row.reference), None)
    direction = "" if better == "neither" else f"{better.capitalize()} is better. "
    reading = f"{direction}Filled: the best. Dashed: the classifier as it is."
    rings = [name for name, value in values.items() if parts(value)[0] != best]
    return _dots(metric, metric, values, reading, parts(guide)[0], rings=rings, missing="not measured", level=level)


def _best(values: Sequence[float], better: Direction) -> float:
    found = [value for value in values if not math.isnan(value)]
    if not found:
        return math.nan
    return min(found) if better == "lower" else max(found)


def forest(
    rows: Mapping[str, Measured | None],
    name: str,
    *,
    title: str = "",
    guide: Number = None,
    overall: Measured | None = None,
    remark: str = "",
) -> Picture:
    """A forest plot: the value and interval of each site or group, and a diamond for all of them together.

    Parameters
    ----------
    rows
        Values by name; None where there are too few records.
    name
        What is measured.
    title
        Title of the picture; the name if left out.
    guide
        Where to draw a dashed line, such as the value of a calibrated model; the overall value if left out.
    overall
        The value of all together.
    remark
        A sentence to add below.
    """
    at = known(guide) if guide is not None else parts(overall)[0]
    meaning = "" if overall is None else " Diamond and dashed line: all together."
    if guide is not None:
        meaning = f" Dashed: {number(guide, 0)}, the value of a calibrated classifier."
    reading = f"Squares and lines: values and 95% intervals.{meaning} {remark}".strip()
    return _dots(title or name, name, rows, reading, at, overall=overall, missing=TOO_FEW)


def _dots(
    title: str,
    name: str,
    rows: Mapping[str, Measured | None],
    reading: str,
    guide: float,
    *,
    rings: Sequence[str] = (),
    overall: Measured | None = None,
    missing: str,
    level: str = _LEVEL,
) -> Picture:
    shown = dict(list(rows.items())[: canvas.MAX_ROWS])
    every = [*shown.values(), *([] if overall is None else [overall])]
    ends = [end for value in every for end in parts(value)]
    plot = _rows_plot(len(every), canvas.around([*ends, guide]), name)
    parts_ = [_row_axes(plot, [*shown, *([] if overall is None else ["all together"])])]
    if math.isfinite(guide):
        parts_.append(canvas.line(plot.x(guide), plot.top, plot.x(guide), plot.y.end, "guide"))
    tips: list[Tip] = []
    for place, (key, value) in enumerate(shown.items()):
        parts_.append(canvas.group("c1", _mark(plot, place, value, ring=key in rings, missing=missing)))
        if value is not None and not math.isnan(parts(value)[0]):
            tips.append(plot.at(parts(value)[0], place + 0.5, f"{short(key, 40)}: {with_interval(value)}"))
    if overall is not None and math.isfinite(parts(overall)[0]):
        parts_.append(canvas.group("c1", _diamond(plot, len(shown), overall)))
        tips.append(plot.at(parts(overall)[0], len(shown) + 0.5, f"all together: {with_interval(overall)}"))
    alt = "; ".join(f"{short(key)}: {_stated(value, missing)}" for key, value in shown.items()) or "Nothing to show"
    listed = [*rows.items(), *([] if overall is None else [("all together", overall)])]
    table = PictureTable(
        ("name", name, level), tuple((short(key, 80), *_pair(value, missing)) for key, value in listed)
    )
    said = Words(title, reading + canvas.rows_left_out([*rows]), f"{alt}.")
    return canvas.picture(said, plot.height, "".join(parts_), tips, table)


def _stated(value: Measured | None, missing: str) -> str:
    return missing if value is None or math.isnan(parts(value)[0]) else with_interval(value)


def _pair(value: Measured | None, missing: str) -> tuple[str, str]:
    if value is None or math.isnan(parts(value)[0]):
        return missing, MISSING
    return number(value.value), interval(value) or MISSING


def _rows_plot(rows: int, ends: tuple[float, float], name: str, top: float = 8.0) -> Plot:
    bottom = top + max(rows, 1) * _ROW
    y = Scale(0, max(rows, 1), top, bottom)
    return Plot(Scale(*ends, NAMES, WIDTH - RIGHT - 6), y, name, "", top, bottom + canvas.BELOW)


def _row_axes(plot: Plot, names: Sequence[str]) -> str:
    """Axes with one row per name, the first on top."""
    bottom = plot.y.end
    drawn = [canvas.line(plot.x(at), plot.top, plot.x(at), bottom, "grid") for at in plot.x.ticks(5)]
    drawn += [canvas.label(plot.x(at), bottom + 17, canvas.tick_text(at), "tick", "middle") for at in plot.x.ticks(5)]
    middle = (plot.x.start + plot.x.end) / 2
    drawn.append(canvas.label(middle, plot.height - 8, short(plot.x_name, 46), "name", "middle"))
    drawn += [
        canvas.label(NAMES - 10, plot.y(place + 0.5) + 4.5, short(name, _LETTERS), "row", "end")
        for place, name in enumerate(names)
    ]
    return "".join(drawn)


def _mark(plot: Plot, place: float, value: Measured | None, *, ring: bool, missing: str) -> str:
    at, low, high = parts(value)
    y = plot.y(place + 0.5)
    if math.isnan(at):
        return canvas.label(plot.x.start + 6, y + 4, missing, "remark")
    drawn = "" if math.isnan(low + high) else canvas.line(plot.x(low), y, plot.x(high), y, "whisker")
    return drawn + canvas.tag("rect", x=plot.x(at) - 4.5, y=y - 4.5, width=9, height=9, kind="ring" if ring else "dot")


def _diamond(plot: Plot, place: int, value: Measured) -> str:
    at, low, high = (plot.x(end) if math.isfinite(end) else math.nan for end in parts(value))
    if math.isnan(at):
        return ""
    low, high = (low, high) if math.isfinite(low + high) else (at - 6, at + 6)
    low, high = min(low, at - 6), max(high, at + 6)
    y = plot.y(place + 0.5)
    return canvas.path([(low, y), (at, y - 7), (high, y), (at, y + 7)], "dot", closed=True)


def bars_by_site(rows: Sequence[SiteRow], name: str = "calibration gap", title: str = "Site by site") -> Picture:
    """Bars of each site's gap before and after; sites with too few records have a remark instead."""
    given = [row.guarded for row in rows]
    shown = given[: canvas.MAX_ROWS]
    both = any(row.after is not None for row in shown) and any(row.before is not None for row in shown)
    sides = ("before", "after") if both else ("value",)
    ends = [end for row in shown for value in (row.before, row.after) for end in parts(value)]
    top = 8.0 + (canvas.LINE * 2 if both else 0)
    plot = _rows_plot(len(shown), canvas.around([*ends, 0.0]), name, top)
    drawn = [canvas.legend(sides) if both else "", _row_axes(plot, [row.site for row in shown])]
    drawn.append(canvas.line(plot.x(0), plot.top, plot.x(0), plot.y.end, "zero"))
    tips: list[Tip] = []
    for place, row in enumerate(shown):
        drawn.append(_site(plot, place, row, both))
        tips += [
            plot.at(
                parts(value)[0],
                place + (0.3, 0.7)[side] if both else place + 0.5,
                f"{short(row.site)}: {_in_words(row)}",
            )
            for side, value in enumerate((row.before, row.after))
            if not math.isnan(parts(value)[0])
        ]
    intervals = canvas.whiskers(value for row in shown for value in (row.before, row.after))
    reading = "The shorter a bar, the better." + intervals + canvas.rows_left_out(rows)
    alt = "; ".join(f"{short(row.site)}: {_in_words(row)}" for row in shown) + "." if shown else "No site to show."
    table = PictureTable(
        ("site", *(f"{side}{end}" for side in sides for end in ("", ", 95% interval"))),
        tuple(_listed(row, both) for row in given),
    )
    return canvas.picture(Words(title, reading, alt), plot.height, "".join(drawn), tips, table)


def _listed(row: SiteRow, both: bool) -> tuple[str, ...]:
    missing = TOO_FEW if row.too_few else MISSING
    values = (row.before, row.after) if both else (row.before if row.after is None else row.after,)
    return (short(row.site, 80), *(text for value in values for text in _pair(value, missing)))


def _site(plot: Plot, place: int, row: SiteRow, both: bool) -> str:
    if row.too_few:
        return canvas.label(plot.x(0) + 6, plot.y(place + 0.5) + 4, TOO_FEW, "remark")
    if both:
        return canvas.group("c0", _bar(plot, place + 0.3, row.before), series="before") + canvas.group(
            "c1", _bar(plot, place + 0.7, row.after), series="after"
        )
    return canvas.group("c1", _bar(plot, place + 0.5, row.before if row.after is None else row.after))


def _bar(plot: Plot, place: float, measured: Measured | None) -> str:
    value, low, high = parts(measured)
    if math.isnan(value):
        return ""
    (start, end), y = sorted((plot.x(0), plot.x(value))), plot.y(place)
    drawn = canvas.tag("rect", x=start, y=y - 4, width=end - start, height=8, kind="bar")
    if not math.isnan(low + high):
        drawn += canvas.line(plot.x(low), y, plot.x(high), y, "whisker")
    return drawn + canvas.tag("circle", cx=plot.x(value), cy=y, r=3.2, kind="dot")


def _in_words(row: SiteRow) -> str:
    if row.too_few:
        return TOO_FEW
    texts = [
        f"{with_interval(value)} {when}" for value, when in ((row.before, "before"), (row.after, "after")) if value
    ]
    return ", ".join(texts) or "nothing"


def timeline(
    windows: Sequence[TimePoint], name: str, limit: Number = None, title: str = "Over time", alarms: str = "alarms"
) -> Picture:
    """A value with its interval, window by window; triangles mark alarms (in words), a dashed line the limit.

    Where every window has a first day, the axis is the calendar.
    """
    values = [parts(window.value) for window in windows]
    places = _places(windows)
    top, height = 14.0, 190.0
    ends = canvas.around([*(end for triple in values for end in triple), known(limit)])
    first, last = (min(places), max(places)) if places else (0.0, 0.0)
    room = max((last - first) * 0.07, 0.5)
    x = Scale(first - room, last + room, LEFT, WIDTH - RIGHT)
    dated = bool(windows) and all(_day(window) is not None for window in windows)
    plot = Plot(
        x,
        Scale(*ends, top + height, top),
        "first day of the window" if dated else "window",
        name,
        top,
        top + height + canvas.BELOW,
    )
    drawn = [plot.axes(_ticks(windows, places))]
    if not math.isnan(known(limit)):
        drawn.append(canvas.line(x.start, plot.y(known(limit)), x.end, plot.y(known(limit)), "guide"))
        drawn.append(canvas.label(x.start + 5, plot.y(known(limit)) - 5, "limit", "remark"))
    drawn.append(canvas.group("c1", *_stretches(plot, places, values)))
    drawn += [
        _alarm(plot, at, value[0]) for window, at, value in zip(windows, places, values, strict=True) if window.alarm
    ]
    tips = [
        plot.at(
            at, value[0], f"{short(window.label, 30)}: {with_interval(window.value)}{', alarm' if window.alarm else ''}"
        )
        for window, at, value in zip(windows, places, values, strict=True)
        if not math.isnan(value[0])
    ]
    rows = tuple((short(w.label, 60), *_pair(w.value, MISSING), "alarm" if w.alarm else "") for w in windows)
    said = Words(title, _timeline_reading(windows, values, alarms), _timeline_in_words(windows, name))
    return canvas.picture(
        said, plot.height, "".join(drawn), tips, PictureTable(("window", name, _LEVEL, "alarm"), rows)
    )


def _timeline_reading(windows: Sequence[TimePoint], values: Sequence[tuple[float, float, float]], alarms: str) -> str:
    told = ["Line and band: value and 95% interval."]
    if any(window.alarm for window in windows):
        told.append(f"Triangles: {alarms}.")
    if any(math.isnan(value) for value, _, _ in values):
        told.append("A break in the line: nothing to show.")
    return " ".join(told)


def _day(window: TimePoint) -> date | None:
    """The first day of a window, where it is a date."""
    try:
        return date.fromisoformat(str(window.day))
    except ValueError:
        return None


def _places(windows: Sequence[TimePoint]) -> list[float]:
    """Days of the calendar, or places in the order of the windows."""
    days = [_day(window) for window in windows]
    return [float(place if day is None or None in days else day.toordinal()) for place, day in enumerate(days)]


def _ticks(windows: Sequence[TimePoint], places: Sequence[float]) -> list[tuple[float, str]]:
    """Some windows to mark below the axis, so that their names do not overlap."""
    dated = bool(windows) and all(_day(window) is not None for window in windows)
    names = [str(window.day) if dated else short(window.label, 12) for window in windows]
    widest = max(map(len, names), default=1) + 2
    step = max(1, math.ceil(len(names) * widest / 58))
    return list(zip(places[::step], names[::step], strict=True))


def _stretches(plot: Plot, places: Sequence[float], values: Sequence[tuple[float, float, float]]) -> list[str]:
    """Bands and lines between breaks, and a dot for each window."""
    drawn: list[str] = []
    stretch: list[tuple[float, float, float, float]] = []
    for at, (value, low, high) in [*zip(places, values, strict=True), (0.0, (math.nan,) * 3)]:
        if math.isnan(value):
            drawn += _stretch(plot, stretch)
            stretch = []
        else:
            stretch.append((at, value, *((low, high) if not math.isnan(low + high) else (value, value))))
    dots = [
        canvas.tag("circle", cx=plot.x(at), cy=plot.y(value), r=3.6, kind="dot")
        for at, (value, _, _) in zip(places, values, strict=True)
        if not math.isnan(value)
    ]
    return [*drawn, *dots]


def _stretch(plot: Plot, points: Sequence[tuple[float, float, float, float]]) -> list[str]:
    if len(points) == 1:
        at, _, low, high = points[0]
        return [canvas.line(plot.x(at), plot.y(low), plot.x(at), plot.y(high), "whisker")]
    there = [(plot.x(at), plot.y(high)) for at, _, _, high in points]
    back = [(plot.x(at), plot.y(low)) for at, _, low, _ in reversed(points)]
    line = canvas.path([(plot.x(at), plot.y(value)) for at, value, _, _ in points], "line")
    return [canvas.path([*there, *back], "band", closed=True), line]


def _alarm(plot: Plot, at: float, value: float) -> str:
    """A triangle at the value, or at the bottom of the plot where the value is missing."""
    x, y = plot.x(at), plot.y.start if math.isnan(value) else plot.y(value)
    return canvas.path([(x - 7, y + 6), (x, y - 8), (x + 7, y + 6)], "alarm", closed=True)


def _timeline_in_words(windows: Sequence[TimePoint], name: str) -> str:
    texts = "; ".join(f"{short(w.label)}: {number(parts(w.value)[0])}{', alarm' if w.alarm else ''}" for w in windows)
    return f"{short(name, 50)} by window: {texts or 'nothing'}."
