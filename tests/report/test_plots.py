"""The plots: valid pictures from whatever comes, the same bytes every time, and no trace left behind."""

from __future__ import annotations

import io
import math
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from matplotlib.image import imread

from fedcalib.errors import InputError
from fedcalib.metrics.intervals import Measured
from fedcalib.report import curve_plots, row_plots
from fedcalib.report.canvas import AFTER, ALARM, BEFORE, Picture, colours
from fedcalib.report.values import Contender, PlotLine, SiteRow, TimePoint
from tests.report.examples import NASTY, contenders, curve, diagram, sites, windows

BETTER: Any = {"ECE": "lower", "AUC": "higher"}
EVERY: dict[str, Callable[[], Picture]] = {
    "reliability": lambda: curve_plots.reliability(diagram(), diagram("after", 0.0)),
    "reliability of one": lambda: curve_plots.reliability(diagram()),
    "roc": lambda: curve_plots.roc([curve("before"), curve("after")]),
    "pr": lambda: curve_plots.pr([curve()], 0.3),
    "smooth reliability": lambda: curve_plots.smooth_reliability([curve()]),
    "decision": lambda: curve_plots.decision([curve("model"), curve("everybody positive")]),
    "forest": lambda: row_plots.forest(
        {"a": Measured(0.7, 0.6, 0.8)}, Measured(0.7, 0.65, 0.75), "AUC", "I-squared: 0%."
    ),
    "trade-off": lambda: curve_plots.trade_off([curve(str(line)) for line in range(9)], "clients", "error"),
    "timeline": lambda: row_plots.timeline(windows(), "ECE", 0.05),
    "bars by site": lambda: row_plots.bars_by_site(sites()),
    "comparison": lambda: row_plots.comparison(contenders(), BETTER),
}
EMPTY: dict[str, Callable[[], Picture]] = {
    "reliability": lambda: curve_plots.reliability(
        diagram(**dict.fromkeys(("confidence", "observed", "count"), [None] * 10))
    ),
    "roc": lambda: curve_plots.roc([]),
    "roc without points": lambda: curve_plots.roc([PlotLine("none", [], [])]),
    "pr": lambda: curve_plots.pr([]),
    "trade-off": lambda: curve_plots.trade_off([], "clients", "error"),
    "trade-off without a logarithm": lambda: curve_plots.trade_off([PlotLine("zero", [0, 1], [1, -1])], "x", "y"),
    "timeline": lambda: row_plots.timeline([], "ECE"),
    "timeline of breaks": lambda: row_plots.timeline([TimePoint("a", None, alarm=True), TimePoint("b")], "ECE"),
    "bars by site": lambda: row_plots.bars_by_site([]),
    "bars of nothing": lambda: row_plots.bars_by_site([SiteRow("a"), SiteRow("b", too_few=True)]),
    "comparison": lambda: row_plots.comparison([], BETTER),
    "comparison without metrics": lambda: row_plots.comparison([Contender("a", ())], {}),
    "comparison of nothing": lambda: row_plots.comparison([Contender("a", (None, Measured(math.nan)))], BETTER),
}

few = settings(max_examples=5, phases=(Phase.explicit, Phase.reuse, Phase.generate))  # a picture takes a while
anything = st.one_of(st.none(), st.floats(), st.floats(-2, 2))
column = st.lists(anything, min_size=4, max_size=4)
columns = st.one_of(st.none(), column)
measured = st.one_of(st.none(), st.builds(Measured, anything, anything, anything))


@cache
def drawn(name: str) -> Picture:
    """Draw one of the examples, once."""
    return EVERY[name]()


def check(picture: Picture) -> np.ndarray[Any, Any]:
    """Read a picture as any viewer would, and look that its size is sane and something is on it."""
    pixels = imread(io.BytesIO(picture.png))
    assert pixels.shape[:2] == picture.size[::-1]
    assert 800 <= picture.size[0] <= 1440
    assert 300 <= picture.size[1] <= 3000
    assert len(picture.png) < 400_000
    assert (pixels[..., :3].min(axis=2) < 0.5).mean() > 0.001
    assert not any(word in picture.alt.lower().split() for word in ("nan", "none", "inf"))
    return pixels


def holds(pixels: np.ndarray[Any, Any], colour: str) -> bool:
    """Tell whether a picture shows a colour."""
    wanted = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)])
    return bool((np.abs(pixels[..., :3] * 255 - wanted) < 2).all(axis=2).any())


@pytest.mark.parametrize("name", EVERY)
def test_every_plot_is_a_picture_and_always_the_same(name: str) -> None:
    check(drawn(name))
    with mpl.rc_context({"axes.labelpad": 30, "xtick.major.pad": 20, "font.size": 30, "axes.facecolor": "red"}):
        assert EVERY[name]() == drawn(name)  # the reader's own style changes nothing


@pytest.mark.parametrize("name", EMPTY)
def test_nothing_to_show_is_still_a_picture(name: str) -> None:
    check(EMPTY[name]())


def test_drawing_leaves_no_trace() -> None:
    code = (
        "import matplotlib, sys; before = matplotlib.rcParams.copy()\n"
        "from fedcalib.report import row_plots; row_plots.timeline([], 'x')\n"
        "assert 'matplotlib.pyplot' not in sys.modules, 'pyplot'\n"
        "assert all(matplotlib.rcParams[key] == before[key] for key in before if key != 'backend'), 'style'"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


@few
@given(column, column, columns, columns, columns)
def test_any_reliability_table_can_be_drawn(confidence: Any, observed: Any, low: Any, high: Any, count: Any) -> None:
    edges = np.linspace(0, 1, 5)
    parts = {"confidence": confidence, "observed": observed, "low": low, "high": high, "count": count}
    check(curve_plots.reliability(diagram(edges=edges, noisy=True, **parts)))


@few
@given(column, column, columns, columns)
def test_any_curve_can_be_drawn(x: Any, y: Any, low: Any, high: Any) -> None:
    curves = [PlotLine("any", x, y, low, high)]
    check(curve_plots.roc(curves))
    check(curve_plots.trade_off(curves, "x", "y"))


@few
@given(st.lists(measured, min_size=3, max_size=3), anything)
def test_any_measurement_can_be_drawn(values: list[Measured | None], limit: float | None) -> None:
    check(row_plots.timeline([TimePoint(str(week), value, week == 1) for week, value in enumerate(values)], "x", limit))
    check(row_plots.bars_by_site([SiteRow("site", value, values[0]) for value in values]))
    check(row_plots.comparison([Contender("method", (value,)) for value in values], {"x": "lower"}))


def test_names_from_outside_do_no_harm() -> None:
    check(row_plots.bars_by_site([SiteRow(NASTY, Measured(1.0))], NASTY, NASTY))
    check(curve_plots.roc([curve(NASTY, text=NASTY)], NASTY))
    check(row_plots.timeline([TimePoint(NASTY, Measured(1))], NASTY))
    check(curve_plots.reliability(diagram(NASTY, ece_text=NASTY)))
    check(row_plots.bars_by_site([SiteRow(r"$\frac$", Measured(1.0))]))  # would be a formula, and a wrong one


def test_a_withheld_site_leaks_nothing() -> None:
    """The picture of a site with too few records does not depend on its values."""
    one = row_plots.bars_by_site([SiteRow("tiny", Measured(0.1), Measured(0.2), 4, too_few=True)])
    other = row_plots.bars_by_site([SiteRow("tiny", Measured(0.9), None, 9, too_few=True)])
    assert one == other
    assert "too few to show" in one.alt


def test_before_and_after_keep_their_colours() -> None:
    for picture in (drawn("reliability"), drawn("bars by site"), drawn("roc")):
        pixels = check(picture)
        assert holds(pixels, BEFORE)
        assert holds(pixels, AFTER)
    alone = check(drawn("reliability of one"))
    assert not holds(alone, BEFORE)
    assert len(set(colours(7))) == 7


def test_alarms_are_marked_even_where_the_value_is_missing() -> None:
    assert holds(check(row_plots.timeline(windows(), "ECE")), ALARM)
    assert holds(check(row_plots.timeline([TimePoint("a", None, alarm=True)], "ECE")), ALARM)
    assert not holds(check(row_plots.timeline([TimePoint("a", Measured(0.1))], "ECE")), ALARM)


def test_words_say_where_the_gap_is() -> None:
    observed = np.linspace(0.05, 0.95, 10)
    observed[7] -= 0.4
    alt = curve_plots.reliability(diagram("before", ece_text="ECE 0.04", observed=observed)).alt
    assert "before: ECE 0.04; the largest gap is at a predicted probability of 0.75" in alt
    assert "0.35" in alt


def test_whiskers_are_spoken_of_where_there_are_any() -> None:
    assert "Whiskers" in drawn("bars by site").alt
    assert "Whiskers" not in row_plots.bars_by_site([SiteRow("a", Measured(0.1))]).alt
    assert "Whiskers" not in curve_plots.reliability(diagram(low=None, high=None)).alt


def test_many_rows_are_cut_and_it_is_said() -> None:
    picture = row_plots.bars_by_site([SiteRow(f"site {place}", Measured(0.1)) for place in range(500)])
    check(picture)
    assert "Only the first 40 are drawn" in picture.alt
    assert "site 39:" in picture.alt
    assert "site 40:" not in picture.alt


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
