"""The root of a noisy gradient: the exact root where noise is small, near the prior mean where it is large."""

from __future__ import annotations

import numpy as np
import pytest

from fedcalib.estimation.roots import PRIOR_LOG_TEMPERATURE, _rising_root, fitted_polynomial, noisy_root

GRID = np.linspace(np.log(1 / 4), np.log(1 / 0.7), 8)


def gradients(root: float) -> np.ndarray:
    return 50 * np.expm1(GRID - root)


@pytest.mark.parametrize("temperature", [1.1, 1.5, 2.0, 3.0])
def test_little_noise_leaves_the_root_where_it_is(temperature: float) -> None:
    exact = noisy_root(GRID, gradients(-np.log(temperature)), 0.0, 0.0)
    assert exact == pytest.approx(-np.log(temperature), abs=1e-4)
    noisy = gradients(-np.log(temperature)) + np.random.default_rng(0).normal(0, 0.1, 8)
    assert noisy_root(GRID, noisy, 0.01, 0.0) == pytest.approx(exact, abs=0.02)


def test_much_noise_leaves_the_prior_mean() -> None:
    rng = np.random.default_rng(0)
    found = [noisy_root(GRID, rng.normal(0, 1e4, 8), 1e8, 0.0) for _ in range(50)]
    assert np.mean(found) == pytest.approx(-PRIOR_LOG_TEMPERATURE, abs=0.15)
    assert max(found) < GRID[-1]
    assert min(found) > GRID[0]


def test_it_errs_less_than_roots_of_the_fitted_polynomial_do() -> None:
    rng = np.random.default_rng(1)
    centre, half = (GRID[0] + GRID[-1]) / 2, (GRID[-1] - GRID[0]) / 2
    means, roots = [], []
    for _ in range(200):
        noisy = gradients(-np.log(1.7)) + rng.normal(0, 25, 8)
        means.append(noisy_root(GRID, noisy, 625.0, 0.0) + np.log(1.7))
        roots.append(
            centre + half * _rising_root(fitted_polynomial((GRID - centre) / half, noisy, 625.0)) + np.log(1.7)
        )
    assert np.sqrt(np.mean(np.square(means))) < np.sqrt(np.mean(np.square(roots)))
    assert np.abs(means).max() < 0.7
