"""Numbers as words, and the verdict on a change."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedcalib.errors import InputError
from fedcalib.metrics.intervals import Measured
from fedcalib.metrics.table import Direction
from fedcalib.report.tables import (
    MISSING,
    compact,
    count,
    decimals_for,
    interval,
    metric_rows,
    number,
    short,
    verdict_on,
    with_interval,
)
from fedcalib.report.values import MetricRow, Public


@given(st.floats(), st.integers(0, 6))
def test_numbers_are_never_nan_nor_a_negative_zero(value: float, decimals: int) -> None:
    text = number(value, decimals)
    assert not set("nif") & set(text)
    assert text.strip("0.") != "−"
    assert (text == MISSING) == (not abs(value) < 1e15)


@given(st.floats(-1e6, 1e6), st.integers(0, 4))
def test_numbers_read_back(value: float, decimals: int) -> None:
    text = number(value, decimals)
    if text[0] in "<>":
        assert 0 < abs(value) < 10.0**-decimals
    else:
        assert float(text.replace("−", "-").replace(",", "")) == pytest.approx(value, abs=0.5001 * 10.0**-decimals)


def test_small_values_are_bounds() -> None:
    assert number(0.00001) == "< 0.0001"
    assert number(-0.00001) == "> −0.0001"
    assert number(0.0) == "0.0000"
    assert number(None) == MISSING
    assert number(1234567.5, 1) == "1,234,567.5"


def test_intervals_read_from_low_to_high() -> None:
    assert interval(Measured(0.5, 0.6, 0.4), 2) == "0.40 to 0.60"
    assert interval(Measured(0.5, 0.4)) == interval(None) == ""
    assert with_interval(Measured(0.5, 0.4, 0.6), 1) == "0.5 (0.4 to 0.6)"


def test_counts_show_what_they_may() -> None:
    assert count(None) == "not shown (private)"
    assert count(1200) == "1,200"
    assert count(Public(16)) == "16 (public)"
    assert count(Measured(1200.4, 1100, 1300)) == "about 1,200 (1,100 to 1,300)"
    assert count(Measured(math.nan)) == MISSING


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (999, "999"), (12_345, "12.3k"), (999_999, "1M"), (3.14e6, "3.14M"), (2e9, "2G")]
)
def test_ticks_are_short(value: float, text: str) -> None:
    assert compact(value) == text


@given(st.text(), st.integers(4, 40))
def test_names_fit_their_label(name: str, longest: int) -> None:
    text = short(name, longest)
    assert len(text) <= longest
    assert text.isprintable()


def test_a_column_has_one_number_of_decimals() -> None:
    assert decimals_for([Measured(0.5, 0.4, 0.6), None]) == 2
    assert decimals_for([Measured(0.5, 0.4, 0.6), Measured(0.5, 0.49, 0.51)]) == 3
    assert decimals_for([Measured(0.5, 0.4999999, 0.5)]) == 4
    assert decimals_for([Measured(0.5)]) == 4
    rows = metric_rows([MetricRow("a", Measured(0.5, 0.4, 0.6)), MetricRow("b", Measured(1.25, 1.24, 1.26))])
    assert {len(row.before.value.partition(".")[2]) for row in rows} == {4}, "as in a terminal"


@pytest.mark.parametrize(
    ("before", "after", "better", "words", "tone"),
    [
        (Measured(0.5, 0.4, 0.6), Measured(0.1, 0.0, 0.2), "lower", "better", "good"),
        (Measured(0.5, 0.4, 0.6), Measured(0.1, 0.0, 0.2), "higher", "worse", "bad"),
        (Measured(0.5, 0.4, 0.6), Measured(0.9, 0.8, 1.0), "higher", "better", "good"),
        (Measured(0.5, 0.4, 0.6), Measured(0.4, 0.3, 0.5), "lower", "no clear change", "even"),
        (Measured(0.5), Measured(0.4), "lower", "better (no interval)", "good"),
        (Measured(0.5), Measured(0.5), "lower", "unchanged", "even"),
        (Measured(0.5), Measured(0.50001), "lower", "unchanged", "even"),
        (Measured(0.5, 0.4, 0.6), Measured(0.9, 0.8, 1.0), "neither", "changed", "even"),
        (Measured(0.5), None, "lower", "", "even"),
        (Measured(math.nan), Measured(0.4), "lower", "", "even"),
    ],
)
def test_verdicts(before: Measured, after: Measured | None, better: Direction, words: str, tone: str) -> None:
    judged = verdict_on(before, after, None, better)
    assert (judged.words, judged.tone) == (words, tone)


def test_a_paired_difference_decides_where_intervals_overlap() -> None:
    before, after = Measured(0.5, 0.4, 0.6), Measured(0.45, 0.35, 0.55)
    assert verdict_on(before, after, None, "lower").tone == "even"
    assert verdict_on(before, after, Measured(-0.05, -0.06, -0.04), "lower").words == "better"
    assert verdict_on(before, after, Measured(-0.05, -0.11, 0.01), "lower").words == "no clear change"
    [row] = metric_rows([MetricRow("ECE", before, after, change=Measured(-0.05, -0.06, -0.04))])
    assert (row.change.value, row.change.interval) == ("−0.0500", "−0.0600 to −0.0400")


finite = st.floats(-10, 10)


@example(0.0, 5e-324, 0.0, 0.0)  # an interval whose half is no number
@example(-1e308, 1e308, 0.0, 0.0)  # and one whose width is none
@given(finite, finite, finite, finite)
def test_marks_stay_on_the_small_plot_in_their_order(a: float, b: float, c: float, d: float) -> None:
    low, high = sorted((a, b))
    [row] = metric_rows([MetricRow("x", Measured((low + high) / 2, low, high), Measured(c, math.nan, d))])
    for mark in row.marks:
        places = [place for place in (mark.low, mark.at, mark.high) if place is not None]
        assert all(0 <= place <= 100 for place in places)
        assert mark.side != "before" or places == sorted(places)


def test_a_metric_gets_better_one_way() -> None:
    with pytest.raises(InputError, match="better='lower'"):
        MetricRow("x", better="up")  # type: ignore[arg-type]
