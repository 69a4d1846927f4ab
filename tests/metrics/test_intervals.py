"""Intervals against scipy, by exact enumeration of what they cover, and against the bootstrap."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tests.metrics.cases import binary_records, random_records, scored_records

from fedcalib import metrics
from fedcalib.errors import InputError
from fedcalib.metrics import Reliability

levels = st.sampled_from([0.5, 0.9, 0.95, 0.999])


@given(st.integers(0, 60), st.integers(1, 60), levels)
def test_proportions_agree_with_scipy(successes: int, trials: int, level: float) -> None:
    successes = min(successes, trials)
    test = stats.binomtest(successes, trials)
    for bound, method in ((metrics.wilson, "wilson"), (metrics.clopper_pearson, "exact")):
        found = metrics.proportion_interval(successes, trials, level, bound)
        expected = test.proportion_ci(level, method)
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


@pytest.mark.parametrize("trials", [1, 7, 40])
def test_clopper_pearson_covers_at_every_proportion(trials: int) -> None:
    outcomes = np.arange(trials + 1)
    band = metrics.clopper_pearson(outcomes, trials, 0.9)
    for truth in np.linspace(0, 1, 201):
        inside = (band.low <= truth) & (truth <= band.high)
        assert stats.binom.pmf(outcomes, trials, truth)[inside].sum() >= 0.9 - 1e-9


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=30), levels)
def test_means_agree_with_scipy(values: list[float], level: float) -> None:
    found = metrics.mean_interval(sum(values), sum(value * value for value in values), len(values), level)
    error = stats.sem(values)
    half = stats.t.ppf((1 + level) / 2, len(values) - 1) * error
    assert (found.low, found.high) == pytest.approx((np.mean(values) - half, np.mean(values) + half), abs=1e-5)


def test_one_record_says_nothing_about_the_spread() -> None:
    assert metrics.mean_interval(3.0, 9.0, 1).width == np.inf


@pytest.mark.parametrize("level", [0.0, 1.0, 95, -0.1, np.nan])
def test_levels_lie_between_zero_and_one(level: float) -> None:
    for bound in (metrics.wilson, metrics.clopper_pearson):
        with pytest.raises(InputError, match="confidence level"):
            bound(1, 2, level)


def test_noisy_counts_are_refused() -> None:
    for successes, trials in ((-1.0, 5), (6, 5), (np.nan, 5)):
        with pytest.raises(InputError, match="noisy"):
            metrics.wilson(successes, trials)


@given(scored_records(), levels)
def test_the_error_lies_in_its_own_interval(records: tuple[np.ndarray, np.ndarray], level: float) -> None:
    probs, labels = records
    for table in (Reliability.top_label(probs, labels), Reliability.classwise(probs, labels)):
        found = metrics.ece_interval(table, level)
        assert 0 <= found.low <= table.ece() + 1e-12
        assert table.ece() - 1e-12 <= found.high <= 1 + 1e-12
        assert found.width <= metrics.ece_interval(table, 0.9999).width + 1e-12


@given(binary_records(), st.lists(st.floats(0, 1), min_size=15, max_size=15))
def test_any_gaps_in_the_box_give_an_error_in_the_interval(
    records: tuple[np.ndarray, np.ndarray], shares: list[float]
) -> None:
    table = Reliability.binary(*records)
    low, high = metrics.gap_box(table)
    inside = low + np.array(shares) * (high - low)
    found = metrics.ece_interval(table)
    assert found.low - 1e-9 <= np.abs(inside).sum() / table.records <= found.high + 1e-9


def test_a_box_by_hand() -> None:
    assert metrics.project_box([-1.0, 2.0, -5.0], [3.0, 4.0, -1.0]) == (3.0, 12.0)


def bootstrap(scores: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    """The 95% percentile interval that is usually reported."""
    picks = rng.integers(0, len(scores), (200, len(scores)))
    errors = [metrics.binary_ece(scores[pick], labels[pick]) for pick in picks]
    return float(np.quantile(errors, 0.025)), float(np.quantile(errors, 0.975))


def error_of_chances(scores: np.ndarray, chance: np.ndarray) -> float:
    """The calibration error that remains when labels are replaced by their chances."""
    return float(np.abs(np.bincount((scores * 15).astype(int), scores - chance)).sum() / len(scores))


@pytest.mark.parametrize("slope", [1.0, 0.9])
def test_the_box_covers_where_the_percentile_bootstrap_does_not(slope: float) -> None:
    rng = np.random.default_rng(0)
    trials, ours, theirs = 120, 0, 0
    for _ in range(trials):
        scores = rng.random(500)
        chance = slope * scores
        labels = (rng.random(500) < chance).astype(int)
        truth = error_of_chances(scores, chance)
        ours += truth in metrics.ece_interval(Reliability.binary(scores, labels))
        low, high = bootstrap(scores, labels, rng)
        theirs += low <= truth <= high
    assert ours / trials >= 0.95
    assert theirs / trials < 0.5


def test_an_empty_table_allows_everything() -> None:
    probs, labels = random_records(0, n=10)
    found = metrics.ece_interval(Reliability.top_label(probs[:0], labels[:0]))
    assert (found.low, found.high) == (0.0, 1.0)
