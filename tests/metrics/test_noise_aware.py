from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedcalib.estimation.covariances import FullCovariance, SharedCovariance
from fedcalib.estimation.noise_aware import absolute_sum_interval, debiased_absolute, normal_draws

FAR = np.linspace(4, 10, 15)
FLIGHTS = np.array([0, 8, 20, 30, 25, 15, 8, 4, 2, 1, 0.5, 0, 0, 0, 0])


@pytest.mark.parametrize(
    ("truth", "most"),
    [(FAR, 1.2), (FLIGHTS, 1.8), (np.zeros(15), 2.0), (np.full(15, 0.5), 2.0), (np.full(15, 2.0), 1.8)],
)
def test_covers_the_truth_wherever_it_is(truth: np.ndarray, most: float) -> None:
    rng = np.random.default_rng(0)
    sums, covered, widths = [], [], []
    for _ in range(120):
        observed = truth + rng.normal(size=15)
        found = absolute_sum_interval(observed, FullCovariance(np.eye(15)))
        sums.append(np.abs(observed).sum())
        covered.append(found.low - 1e-9 <= np.abs(truth).sum() <= found.high + 1e-9)
        widths.append(found.width)
    assert np.mean(covered) >= 0.88
    assert np.mean(widths) <= most * np.subtract(*np.quantile(sums, [0.975, 0.025]))


def test_signs_that_neighbours_agree_on_shorten_it() -> None:
    """Small terms of one sign are worth more than the same terms in turns, and both are covered."""
    rng, widths = np.random.default_rng(2), {}
    for name, truth in (("alike", np.full(15, 2.0)), ("in turns", np.where(np.arange(15) % 2, 2.0, -2.0))):
        found = [absolute_sum_interval(truth + rng.normal(size=15), FullCovariance(np.eye(15))) for _ in range(120)]
        assert np.mean([30 in one for one in found]) >= 0.88
        widths[name] = np.mean([one.width for one in found])
    assert widths["alike"] < 0.9 * widths["in turns"]


def test_a_plug_in_interval_would_not() -> None:
    """The plug-in sum of nothing but noise is far from zero: that is the bias in question."""
    observed = np.abs(np.random.default_rng(0).normal(size=(500, 15))).sum(axis=1)
    assert np.quantile(observed, 0.025) > 5


def test_correlated_terms_widen_or_narrow_it() -> None:
    terms = np.full(4, 10.0)
    together = absolute_sum_interval(terms, FullCovariance(np.ones((4, 4))))
    apart = absolute_sum_interval(terms, FullCovariance(np.eye(4)))
    assert together.width == pytest.approx(2 * apart.width, rel=0.01)
    assert apart.width == pytest.approx(2 * 1.96 * 2, rel=0.02)


def test_no_noise_no_width() -> None:
    found = absolute_sum_interval(np.array([1.0, -2.0]), FullCovariance(np.zeros((2, 2))))
    assert (found.low, found.high) == (3.0, 3.0)


@given(hnp.arrays(np.float64, 5, elements=st.floats(-1e6, 1e6)), st.sampled_from([1e-9, 1.0, 1e6]))
def test_any_terms_give_an_interval(terms: np.ndarray, deviation: float) -> None:
    found = absolute_sum_interval(terms, FullCovariance(deviation**2 * np.eye(5)))
    assert 0 <= found.low <= found.high
    assert np.isfinite(found.high)


def test_debiasing_removes_what_noise_adds() -> None:
    rng = np.random.default_rng(1)
    observed = 6.0 + rng.normal(size=(4000, 1))
    assert debiased_absolute(observed, np.ones(1)).mean() == pytest.approx(6.0, abs=0.05)
    assert debiased_absolute(rng.normal(size=(4000, 1)), np.ones(1)).mean() < 0.5
    assert debiased_absolute(np.array([3.0, -2.0]), np.zeros(2)).tolist() == [3.0, 2.0]


@pytest.mark.parametrize("cells", [3, 15])
def test_a_shared_part_is_the_same_as_its_matrix(cells: int) -> None:
    rng = np.random.default_rng(cells)
    terms, own, shared = rng.normal(size=cells) * 3, rng.random(cells) + 1, rng.normal(size=cells) / 10
    held = SharedCovariance(own, shared).plus(np.full(cells, 0.5))
    whole = FullCovariance(np.diag(own + 0.5) - np.outer(shared, shared))
    places = rng.integers(cells, size=(4, 3))
    assert held.matrix == pytest.approx(whole.matrix)
    assert held.between(terms) == pytest.approx(whole.between(terms))
    assert held.blocks(places) == pytest.approx(whole.blocks(places))
    assert held.turned(np.sign(terms)).of_sum(own) == pytest.approx(whole.turned(np.sign(terms)).of_sum(own))
    one, other = absolute_sum_interval(terms, held), absolute_sum_interval(terms, whole)
    assert (one.low, one.high) == pytest.approx((other.low, other.high))


def test_draws_are_spread_evenly() -> None:
    """In any direction the upper quantile is near that of a normal variable, from a fixed set of draws."""
    rng = np.random.default_rng(0)
    for dimensions in (1, 2, 4):
        directions = rng.normal(size=(100, dimensions))
        directions /= np.linalg.norm(directions, axis=1)[:, None]
        ends = np.quantile(normal_draws(np.eye(dimensions)) @ directions.T, 0.975, axis=0)
        assert np.abs(ends - 1.96).max() < 0.3
        assert np.abs(ends - 1.96).mean() < 0.08
