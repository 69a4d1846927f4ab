"""A vote's shape tells where it turns, unless it does not have that shape."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcalib.estimation.roots import Vote

PLACES = np.linspace(-1.4, 0.4, 8)


def crowd(turn: float, width: float = 0.3, above: float = 0.7) -> np.ndarray:
    """A hundred voters who turn around a place; some never say yes."""
    far = (PLACES - turn) / width
    return 100 * np.where(far > 0, above * np.tanh(far / above), np.tanh(far))


@pytest.mark.parametrize("turn", [-1.1, -0.5, 0.0, 0.2])
def test_it_finds_the_turn_under_noise(turn: float) -> None:
    rng = np.random.default_rng(0)
    found = [Vote(PLACES, crowd(turn) + 10 * rng.normal(size=8), 100.0, 100) for _ in range(200)]
    errors = np.array([vote.turn(0.0, 10.0) for vote in found]) - turn
    assert abs(errors.mean()) < 0.03
    assert errors.std() < 0.06
    assert np.mean([vote.fits for vote in found]) > 0.97


def test_a_true_place_stands_out_about_as_seldom_as_it_is_said_to() -> None:
    rng = np.random.default_rng(1)
    found = [Vote(PLACES, crowd(0.0) + 20 * rng.normal(size=8), 400.0, 100) for _ in range(2000)]
    assert np.mean([vote.stands_out(0.0, 2.0) for vote in found]) < 0.07
    assert np.mean([vote.stands_out(-0.6, 2.0) for vote in found]) > 0.95


def test_what_is_known_before_counts_where_noise_is_large() -> None:
    loud, quiet = (Vote(PLACES, crowd(0.0), noise, 100) for noise in (1e6, 25.0))
    assert loud.turn(-0.8, 0.1) == pytest.approx(-0.8, abs=0.05)
    assert quiet.turn(-0.8, 0.5) == pytest.approx(0.0, abs=0.05)


def test_another_shape_is_not_believed() -> None:
    assert not Vote(PLACES, crowd(-0.5)[::-1], 25.0, 100).fits  # it falls
    assert not Vote(PLACES, 0.05 * crowd(-0.5), 1.0, 100).fits  # a few of the voters came
    assert not Vote(PLACES, crowd(-0.5), 0.0, 100).fits  # exact sums need no shape


@given(
    st.lists(st.floats(-1e300, 1e300), min_size=8, max_size=8),
    st.floats(0.0, 1e300),
    st.integers(0, 10**9),
)
def test_any_sums_have_an_answer(sums: list[float], noise: float, voters: int) -> None:
    vote = Vote(PLACES, np.array(sums), noise, voters)
    if vote.fits:
        assert PLACES[0] <= vote.turn(-0.4, 0.5) <= PLACES[-1]
        assert isinstance(vote.stands_out(0.0, 2.0), bool)
