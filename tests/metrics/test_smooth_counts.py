from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.examples import examples

from fedcalib.estimation.score_rates import area, one_step_area, precision
from fedcalib.estimation.score_table import ScoreTable
from fedcalib.estimation.smooth_density import Groups
from fedcalib.metrics.binning import bin_edges
from fedcalib.planning.simulation import ScoreModel

CELLS = 128
TRUTH = 50_000 * ScoreModel(0.3, 0.75, 1.5).chances(CELLS)


def noisy(seed: int, deviation: float = 300.0) -> np.ndarray:
    return TRUTH + np.random.default_rng(seed).normal(scale=deviation, size=TRUTH.shape)


def table(counts: np.ndarray, deviation: float) -> ScoreTable:
    return ScoreTable(bin_edges(CELLS), counts, CELLS, (np.full((2, 1), deviation**2),))


def smooth_counts(counts: np.ndarray, variance: float) -> np.ndarray:
    """Of several runs, (runs, 2, cells), with the same noise everywhere."""
    cells = counts.shape[2]
    groups = Groups.of([np.full(1, variance)], cells, cells)
    return np.stack([groups.smoothed(np.full(cells, 1 / cells), counts[:, label]) for label in (0, 1)], axis=1)


def plain_area(counts: np.ndarray) -> float:
    return float((counts[1] * (np.cumsum(counts[0]) - counts[0] / 2)).sum() / counts.sum(axis=1).prod())


def test_smooth_densities_are_found_behind_noise() -> None:
    runs = np.stack([noisy(seed) for seed in range(8)])
    found = smooth_counts(runs, 300.0**2)
    assert (found >= 0).all()
    far = slice(96, None)  # where hardly any record is
    sums, plain, exact = found[:, :, far].sum(axis=2), runs[:, :, far].sum(axis=2), TRUTH[:, far].sum(axis=1)
    assert np.abs(sums - exact).mean() < 0.5 * np.abs(plain - exact).mean()


def test_clear_counts_win_over_smoothness() -> None:
    spiky = TRUTH.copy()
    spiky[:, 40] += 20_000
    found = smooth_counts(spiky[None], 1.0)[0]
    np.testing.assert_allclose(found.sum(axis=1), spiky.sum(axis=1), rtol=1e-3)
    assert found[:, 40] == pytest.approx(spiky[:, 40], rel=0.02)


def test_only_large_noise_is_smoothed_away() -> None:
    loud, faint, none = (table(noisy(1, deviation), deviation) for deviation in (300.0, 1.0, 0.0))
    assert (loud.noise_dominates, faint.noise_dominates, none.noise_dominates) == (True, False, False)
    assert faint.smooth is faint.nonnegative
    np.testing.assert_array_equal(none.smooth, TRUTH)


def test_precision_above_a_high_threshold_gains() -> None:
    exact = precision(table(TRUTH, 0.0), np.array([0.75])).value[0]
    off, plain = [], []
    for seed in range(60):
        found = table(noisy(seed, 40.0), 40.0)
        off.append(precision(found, np.array([0.75])).value[0] - exact)
        up = found.nonnegative[:, 96:].sum(axis=1)
        plain.append(np.nan if np.isnan(off[-1]) else up[1] / up.sum() - exact)
    assert np.isfinite(off).sum() > 50
    assert np.nanmean(np.square(off)) < 0.9 * np.nanmean(np.square(plain))


@settings(max_examples=examples(30), deadline=None)
@given(
    st.sampled_from([3, 8, 61, 64, 97]).flatmap(
        lambda cells: hnp.arrays(np.float64, (1, 2, cells), elements=st.floats(-1e5, 1e5))
    ),
    st.sampled_from([1e-2, 1.0, 1e8]),
)
def test_any_counts_give_counts(counts: np.ndarray, variance: float) -> None:
    found = smooth_counts(counts, variance)
    assert np.isfinite(found).all()
    assert (found >= 0).all()


def test_the_area_by_one_step_is_plain_without_noise_and_sharper_with_it() -> None:
    exact = plain_area(TRUTH)
    assert one_step_area(TRUTH[None], TRUTH[None])[0] == pytest.approx(exact, abs=1e-12)
    assert area(table(TRUTH, 0.0)).value[0] == pytest.approx(exact, abs=1e-12)
    steps, plain = [], []
    for seed in range(60):
        found = table(noisy(seed, 350.0), 350.0)
        if not found.below_noise:
            steps.append(one_step_area(found.counts[None], found.nonnegative[None])[0] - exact)
            plain.append(plain_area(found.counts) - exact)
    assert len(steps) > 30
    assert np.std(steps) < np.std(plain)
    assert abs(np.mean(steps)) < 4 * np.std(steps) / len(steps) ** 0.5
