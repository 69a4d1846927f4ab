"""The logistic function and bisection, against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcalib.numeric import bisected, bisected_each, log_odds, sigmoid

ENDS = st.tuples(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))  # the lower end and the length


@given(st.floats(-25, 25))
def test_log_odds_undo_the_logistic_function(odds: float) -> None:
    assert float(sigmoid(odds)) == pytest.approx(1 / (1 + np.exp(-odds)), rel=1e-12, abs=1e-15)
    if abs(odds) < 10:
        assert float(log_odds(sigmoid(odds))) == pytest.approx(odds, abs=1e-9)


def test_nothing_overflows() -> None:
    assert sigmoid(np.array([-1e308, 1e308])).tolist() == [0.0, 1.0]
    assert np.abs(log_odds([0.0, 1.0])).tolist() == pytest.approx([27.631, 27.631], abs=1e-3)
    assert log_odds(np.float32(0.25), 0.4) == log_odds(0.4)


@given(ENDS, st.floats(0.01, 0.99))
def test_bisection_finds_a_step_in_any_bracket(ends: tuple[float, float], share: float) -> None:
    start, length = ends
    step = start + share * length
    low, high = bisected(lambda x: x >= step, start, start + length, 60)
    assert low <= step <= high
    assert high - low <= 1e-15 * length + 4 * np.spacing(max(abs(start), abs(start + length)))


@given(ENDS)
def test_where_there_is_no_step_an_end_is_approached(ends: tuple[float, float]) -> None:
    start, length = ends
    assert bisected(lambda _: True, start, start + length, 80)[0] == start
    assert bisected(lambda _: False, start, start + length, 80)[1] == start + length


@given(st.lists(st.tuples(ENDS, st.floats(-0.5, 1.5)), min_size=1, max_size=8), st.integers(0, 60))
def test_many_brackets_are_halved_as_one_is(cases: list[tuple[tuple[float, float], float]], halvings: int) -> None:
    low = np.array([start for (start, _), _ in cases])
    high = low + np.array([length for (_, length), _ in cases])
    step = low + (high - low) * np.array([share for _, share in cases])
    each = bisected_each(lambda x: x >= step, low, high, halvings)
    alone = [bisected(lambda x, at=at: x >= at, a, b, halvings) for a, b, at in zip(low, high, step, strict=True)]
    assert np.array_equal(np.transpose(each), np.array(alone))
