"""The plots: valid drawings from whatever comes, the same bytes every time, with their numbers beside them."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcalib.errors import InputError
from fedcalib.metrics.intervals import Measured
from fedcalib.report import curve_plots, grid_plots, row_plots
from fedcalib.report.canvas import WIDTH, Figures, Picture, colour, even_ticks
from fedcalib.report.values import ConfusionGrid, Contender, PlotLine, SiteRow, TimePoint
from tests.report.examples import NASTY, confusion, contenders, curve, diagram, sites, windows

BETTER: Any = {"ECE": "lower", "AUC": "higher"}
EVERY: dict[str, Callable[[], Picture]] = {
    "reliability": lambda: curve_plots.reliability(diagram(), diagram("after", 0.0)),
    "reliability of one": lambda: curve_plots.reliability(diagram()),
    "scores": lambda: curve_plots.scores([diagram(), diagram("after", 0.0)]),
    "roc": lambda: curve_plots.roc([curve("before"), curve("after")]),
    "pr": lambda: curve_plots.pr([curve()], 0.3),
    "smooth reliability": lambda: curve_plots.smooth_reliability([curve()]),
    "decision": lambda: curve_plots.decision([curve("model"), curve("call everybody positive")]),
    "forest": lambda: row_plots.forest(
        {"a": Measured(0.7, 0.6, 0.8), "b": None}, "AUC", overall=Measured(0.7, 0.65, 0.75), remark="I-squared: 0%."
    ),
    "trade-off": lambda: curve_plots.trade_off([curve(str(line)) for line in range(9)], "clients", "error"),
    "timeline": lambda: row_plots.timeline(windows(), "ECE", 0.05),
    "bars by site": lambda: row_plots.bars_by_site(sites()),
    "comparison": lambda: row_plots.comparison(contenders(), BETTER)[0],
    "reliability panels": lambda: curve_plots.reliability_panels([diagram(name) for name in "abcde"]),
    "confusion": lambda: grid_plots.confusion(confusion(3)),
    "confusion with withheld cells": lambda: grid_plots.confusion(confusion(4, withheld=True)),
    "confusion of many": lambda: grid_plots.confusion(confusion(40)),
}
NONE = [None] * 10
EMPTY: dict[str, Callable[[], Picture]] = {
    "reliability": lambda: curve_plots.reliability(diagram(confidence=NONE, observed=NONE, count=NONE)),
    "scores": lambda: curve_plots.scores([diagram(count=None)]),
    "roc": lambda: curve_plots.roc([]),
    "roc without points": lambda: curve_plots.roc([PlotLine("empty", [], [])]),
    "pr": lambda: curve_plots.pr([]),
    "decision": lambda: curve_plots.decision([]),
    "trade-off": lambda: curve_plots.trade_off([], "clients", "error"),
    "trade-off without a logarithm": lambda: curve_plots.trade_off([PlotLine("zero", [0, 1], [1, -1])], "x", "y"),
    "timeline": lambda: row_plots.timeline([], "ECE"),
    "timeline of breaks": lambda: row_plots.timeline([TimePoint("a", None, alarm=True), TimePoint("b")], "ECE"),
    "bars by site": lambda: row_plots.bars_by_site([]),
    "bars of nothing": lambda: row_plots.bars_by_site([SiteRow("a"), SiteRow("b", too_few=True)]),
    "forest": lambda: row_plots.forest({}, "AUC"),
    "comparison": lambda: row_plots.comparison([], BETTER)[0],
    "reliability panels": lambda: curve_plots.reliability_panels([]),
    "comparison of nothing": lambda: row_plots.comparison([Contender("a", (None, Measured(math.nan)))], BETTER)[0],
}

anything = st.one_of(st.none(), st.floats(), st.floats(-2, 2))
column = st.lists(anything, min_size=4, max_size=4)
columns = st.one_of(st.none(), column)
measured = st.one_of(st.none(), st.builds(Measured, anything, anything, anything))


@cache
def drawn(name: str) -> Picture:
    """Draw one of the examples, once."""
    return EVERY[name]()


def check(picture: Picture) -> ElementTree.Element:
    """Read a drawing as any viewer would, and look that everything lies on it."""
    root = ElementTree.fromstring(picture.standalone())
    width, height = picture.size
    assert width == WIDTH
    assert 60 <= height <= 1200
    for one in root.iter():
        for name in ("x", "x1", "x2", "cx"):
            assert -1 <= float(one.get(name, 0)) <= width + 1
        for name in ("y", "y1", "y2", "cy"):
            assert -31 <= float(one.get(name, 0)) <= height + 12
    tips = json.loads(root.get("data-tips", "[]"))
    assert all(0 <= x <= width and 0 <= y <= height and text for x, y, text in tips)
    assert not re.search(r"\b(nan|none|inf)\b", " ".join([picture.alt, *(tip[2] for tip in tips)]).lower())
    assert all(len(row) == len(picture.table.columns) for row in picture.table.rows)
    return root


def kinds(picture: Picture) -> set[str]:
    """The classes of a drawing's elements."""
    return {word for one in check(picture).iter() for word in one.get("class", "").split()}


@pytest.mark.parametrize("name", EVERY)
def test_every_plot_is_a_drawing_and_always_the_same(name: str) -> None:
    check(drawn(name))
    assert EVERY[name]() == drawn(name)
    assert drawn(name).table.rows, "a table beside every figure"
    assert drawn(name)._repr_svg_() == drawn(name).standalone()


@pytest.mark.parametrize("name", EMPTY)
def test_nothing_to_show_is_still_a_drawing(name: str) -> None:
    check(EMPTY[name]())


def test_drawing_needs_nothing_but_numpy() -> None:
    code = (
        "import sys\nfrom fedcalib.report import curve_plots, row_plots; row_plots.timeline([], 'x').standalone()\n"
        "assert not {'matplotlib', 'PIL', 'scipy', 'jinja2'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


@given(column, column, columns, columns, columns)
def test_any_reliability_table_can_be_drawn(confidence: Any, observed: Any, low: Any, high: Any, count: Any) -> None:
    edges = np.linspace(0, 1, 5)
    parts = {"confidence": confidence, "observed": observed, "low": low, "high": high, "count": count}
    shown = diagram(edges=edges, noisy=True, **parts)
    check(curve_plots.reliability(shown))
    check(curve_plots.scores([shown, shown]))


@given(column, column, columns, columns)
def test_any_curve_can_be_drawn(x: Any, y: Any, low: Any, high: Any) -> None:
    curves = [PlotLine("any", x, y, low, high)]
    for picture in (curve_plots.roc(curves), curve_plots.trade_off(curves, "x", "y"), curve_plots.decision(curves)):
        check(picture)


@given(st.lists(measured, min_size=3, max_size=3), anything)
def test_any_measurement_can_be_drawn(values: list[Measured | None], limit: float | None) -> None:
    check(row_plots.timeline([TimePoint(str(week), value, week == 1) for week, value in enumerate(values)], "x", limit))
    check(row_plots.bars_by_site([SiteRow("site", value, values[0]) for value in values]))
    check(row_plots.forest({str(place): value for place, value in enumerate(values)}, "x", overall=values[0]))
    for one in row_plots.comparison([Contender("method", (value,)) for value in values], {"x": "lower"}):
        check(one)


def test_names_from_outside_do_no_harm() -> None:
    for one in (
        row_plots.bars_by_site([SiteRow(NASTY, Measured(1.0))], NASTY, NASTY),
        curve_plots.roc([curve(NASTY, text=NASTY)], NASTY),
        row_plots.timeline([TimePoint(NASTY, Measured(1))], NASTY),
        curve_plots.reliability(diagram(NASTY, ece_text=NASTY)),
        row_plots.forest({NASTY: Measured(0.5)}, NASTY, title=NASTY, remark=NASTY),
        curve_plots.reliability_panels([diagram(NASTY)], NASTY),
        grid_plots.confusion(confusion(3, name=NASTY), NASTY),
    ):
        root = check(one)
        assert not [part for part in root.iter() if part.tag.endswith("script")]
        assert not [name for part in root.iter() for name in part.attrib if name.startswith("on")]


def test_a_withheld_cell_of_confusion_shows_no_share_of_its_row() -> None:
    """A share would tell the total of the row, and with it what the withheld cells hold together."""
    drawn = grid_plots.confusion(confusion(4, withheld=True))
    tips = [text for _, _, text in json.loads(ElementTree.fromstring(drawn.svg).attrib["data-tips"])]
    assert tips[:3] == [
        "actual class 0, predicted class 0: withheld",
        "actual class 0, predicted class 1: withheld",
        "actual class 0, predicted class 2: 200 records",
    ]
    assert tips[-1] == "actual class 3, predicted class 3: 1,500 records, 27.8% of the row"
    assert drawn.table.rows[0] == ("class 0", "withheld", "withheld", "200", "300")
    assert "cells of 1 to 10 records" in drawn.reading
    with pytest.raises(InputError, match="2 x 2 counts"):
        ConfusionGrid(("a", "b"), np.zeros((3, 3)))


def test_a_withheld_site_leaks_nothing() -> None:
    """The picture of a site with too few records does not depend on its values."""
    one = row_plots.bars_by_site([SiteRow("tiny", Measured(0.1), Measured(0.2), 4, too_few=True)])
    other = row_plots.bars_by_site([SiteRow("tiny", Measured(0.9), None, 9, too_few=True)])
    assert one == other
    assert "too few to show" in one.alt


def test_before_and_after_keep_their_colours() -> None:
    for name in ("reliability", "bars by site", "roc"):
        assert {"c0", "c1"} <= kinds(drawn(name))
    assert "c0" not in kinds(drawn("reliability of one"))
    assert len({colour(index, 7) for index in range(7)}) == 7


def test_alarms_are_marked_even_where_the_value_is_missing() -> None:
    assert "alarm" in kinds(row_plots.timeline(windows(), "ECE"))
    assert "alarm" in kinds(row_plots.timeline([TimePoint("a", None, alarm=True)], "ECE"))
    assert "alarm" not in kinds(row_plots.timeline([TimePoint("a", Measured(0.1))], "ECE"))


def test_windows_stand_at_their_days() -> None:
    days = ("2024-01-01", "2024-02-01", "2024-12-01")
    points = [TimePoint(day[:7], Measured(0.1, 0.0, 0.2), day=day) for day in days]
    dots = [float(one.get("cx", 0)) for one in check(row_plots.timeline(points, "ECE")).iter() if one.get("cx")]
    assert (dots[2] - dots[1]) / (dots[1] - dots[0]) == pytest.approx(304 / 31, rel=0.05)
    assert "2024-01-01" in row_plots.timeline(points, "ECE").svg


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_are_few_and_inside(low: float, span: float) -> None:
    found = even_ticks(low, low + span)
    assert len(found) <= 7
    assert all(low - 1e-3 * span <= tick <= low + span * 1.001 for tick in found) or span < 1e-9 * abs(low)


def test_pictures_are_written_as_svg(tmp_path: Path) -> None:
    shown = Figures({"roc": drawn("roc"), "pr": drawn("pr")})
    assert shown.save(tmp_path)["roc"].read_text().startswith("<svg xmlns=")
    assert shown._repr_html_().count("<svg") == len(shown) == 2
    with pytest.raises(InputError, match=r"ends in \.svg"):
        drawn("roc").save(tmp_path / "roc.png")
    with pytest.raises(InputError, match="roc, pr"):
        shown["nothing"]


def test_words_say_where_the_gap_is() -> None:
    observed = np.linspace(0.05, 0.95, 10)
    observed[7] -= 0.4
    alt = curve_plots.reliability(diagram("before", ece_text="ECE 0.04", observed=observed)).alt
    assert "before: ECE 0.04; the largest gap is at a predicted probability of 0.75" in alt
    assert "0.35" in alt


def test_whiskers_are_spoken_of_where_there_are_any() -> None:
    assert "95% intervals" in drawn("bars by site").alt
    assert "95% intervals" not in row_plots.bars_by_site([SiteRow("a", Measured(0.1))]).alt
    assert "95% intervals" not in curve_plots.reliability(diagram(low=None, high=None)).alt


def test_many_rows_are_cut_and_it_is_said() -> None:
    picture = row_plots.bars_by_site([SiteRow(f"site {place}", Measured(0.1)) for place in range(500)])
    check(picture)
    assert "Only the first 40 are drawn" in picture.alt
    assert "site 39:" in picture.alt
    assert "site 40:" not in picture.alt
    assert len(picture.table.rows) == 500


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="10 values of count"):
        diagram(count=[1.0])
    for edges in ([0.0], [], [*np.linspace(1, 0, 11)], [*np.linspace(0, 1, 10), math.nan]):
        with pytest.raises(InputError, match="two or more edges in rising order"):
            diagram(edges=edges)
    with pytest.raises(InputError, match="20 values of low"):
        curve(low=[0.1])
    with pytest.raises(InputError, match="2 values per method"):
        row_plots.comparison([Contender("a", (None,))], BETTER)
