"""Sums of bounded client scores: the parametric shape finds their root, and rejects sums of another shape."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcalib.estimation.roots import ClientScoreSums

PLACES = np.linspace(-1.4, 0.4, 8)


def score_sums(root: float, width: float = 0.3, above: float = 0.7) -> np.ndarray:
    """Exact sums of a hundred clients' scores around a root; some scores stay near zero above it."""
    distance = (PLACES - root) / width
    return 100 * np.where(distance > 0, above * np.tanh(distance / above), np.tanh(distance))


@pytest.mark.parametrize("root", [-1.1, -0.5, 0.0, 0.2])
def test_it_finds_the_root_under_noise(root: float) -> None:
    rng = np.random.default_rng(0)
    found = [ClientScoreSums(PLACES, score_sums(root) + 10 * rng.normal(size=8), 100.0, 100) for _ in range(200)]
    errors = np.array([sums.posterior_root(0.0, 10.0) for sums in found]) - root
    assert abs(errors.mean()) < 0.03
    assert errors.std() < 0.06
    assert np.mean([sums.plausible for sums in found]) > 0.97


def test_a_true_root_is_rejected_about_as_often_as_stated() -> None:
    rng = np.random.default_rng(1)
    found = [ClientScoreSums(PLACES, score_sums(0.0) + 20 * rng.normal(size=8), 400.0, 100) for _ in range(2000)]
    assert np.mean([sums.root_differs_from(0.0, 2.0) for sums in found]) < 0.07
    assert np.mean([sums.root_differs_from(-0.6, 2.0) for sums in found]) > 0.95


def test_the_ratio_against_a_true_root_rarely_reaches_a_hundred() -> None:
    """Noise on each sum, and chance on all of them alike; without chance in the likelihood it often would."""
    rng = np.random.default_rng(2)
    sums = [score_sums(0.0) + 10 * rng.normal(size=8) + 25 * rng.normal() for _ in range(300)]
    for chance, least, most in ((625.0, 0.0, 0.01), (0.0, 0.03, 1.0)):
        found = [ClientScoreSums(PLACES, one, 100.0, 100, chance, 1.4).log_ratio(0.0, -0.4, 0.5) for one in sums]
        assert least <= np.mean(np.array(found) > np.log(100)) <= most
    clear = ClientScoreSums(PLACES, score_sums(-0.8), 100.0, 100, 400.0, 1.4)
    assert clear.log_ratio(0.0, -0.4, 0.5) > np.log(100)


def test_small_clients_of_a_calibrated_classifier_do_not_call_for_a_temperature() -> None:
    """A hundred clients of three records: their sums stay near zero at every temperature."""
    sums = 100 * np.array([-0.143, -0.147, -0.138, -0.118, -0.077, -0.01, 0.063, 0.143])
    bold, careful = (ClientScoreSums(PLACES, sums, 100.0, 100, 50.0, 1.4, faint) for faint in (False, True))
    assert careful.log_ratio(0.0, -0.4, 0.5) < 0.5 * np.log(100) < bold.log_ratio(0.0, -0.4, 0.5)


def test_a_root_before_the_first_place_is_found_there() -> None:
    sums = ClientScoreSums(PLACES, np.full(8, 95.0), 100.0, 100, 0.0, 1.4)
    assert sums.plausible
    assert sums.posterior_root(-0.4, 0.5) < PLACES[0]
    assert not ClientScoreSums(PLACES, np.full(8, 95.0), 100.0, 100).plausible


def test_the_prior_matters_where_noise_is_large() -> None:
    loud, quiet = (ClientScoreSums(PLACES, score_sums(0.0), noise, 100) for noise in (1e6, 25.0))
    assert loud.posterior_root(-0.8, 0.1) == pytest.approx(-0.8, abs=0.05)
    assert quiet.posterior_root(-0.8, 0.5) == pytest.approx(0.0, abs=0.05)


def test_another_shape_is_rejected() -> None:
    assert not ClientScoreSums(PLACES, score_sums(-0.5)[::-1], 25.0, 100).plausible  # decreasing
    assert not ClientScoreSums(PLACES, 0.05 * score_sums(-0.5), 1.0, 100).plausible  # few of the clients answered
    assert not ClientScoreSums(PLACES, score_sums(-0.5), 0.0, 100).plausible  # exact sums need no parametric shape


@given(
    st.lists(st.floats(-1e300, 1e300), min_size=8, max_size=8),
    st.floats(0.0, 1e300),
    st.integers(0, 10**9),
)
def test_any_sums_have_an_answer(values: list[float], noise: float, clients: int) -> None:
    sums = ClientScoreSums(PLACES, np.array(values), noise, clients)
    if sums.plausible:
        assert PLACES[0] <= sums.posterior_root(-0.4, 0.5) <= PLACES[-1]
        assert isinstance(sums.root_differs_from(0.0, 2.0), bool)
        assert not np.isnan(sums.log_ratio(0.0, -0.4, 0.5))
