"""A noisy crossing is where it probably is: the root where noise is small, near what is usual where it is large."""

from __future__ import annotations

import numpy as np
import pytest

from fedcalib.estimation.roots import USUAL, _rising_root, crossing, fitted

GRID = np.linspace(np.log(1 / 4), np.log(1 / 0.7), 8)


def rising(root: float) -> np.ndarray:
    return 50 * np.expm1(GRID - root)


@pytest.mark.parametrize("temperature", [1.1, 1.5, 2.0, 3.0])
def test_little_noise_leaves_the_root_where_it_is(temperature: float) -> None:
    exact = crossing(GRID, rising(-np.log(temperature)), 0.0, 0.0)
    assert exact == pytest.approx(-np.log(temperature), abs=1e-4)
    heard = rising(-np.log(temperature)) + np.random.default_rng(0).normal(0, 0.1, 8)
    assert crossing(GRID, heard, 0.01, 0.0) == pytest.approx(exact, abs=0.02)


def test_much_noise_says_what_is_usual() -> None:
    rng = np.random.default_rng(0)
    found = [crossing(GRID, rng.normal(0, 1e4, 8), 1e8, 0.0) for _ in range(50)]
    assert np.mean(found) == pytest.approx(-USUAL, abs=0.15)
    assert max(found) < GRID[-1]
    assert min(found) > GRID[0]


def test_it_errs_less_than_roots_of_the_fitted_curve_do() -> None:
    rng = np.random.default_rng(1)
    centre, half = (GRID[0] + GRID[-1]) / 2, (GRID[-1] - GRID[0]) / 2
    likely, roots = [], []
    for _ in range(200):
        heard = rising(-np.log(1.7)) + rng.normal(0, 25, 8)
        likely.append(crossing(GRID, heard, 625.0, 0.0) + np.log(1.7))
        roots.append(centre + half * _rising_root(fitted((GRID - centre) / half, heard, 625.0)) + np.log(1.7))
    assert np.sqrt(np.mean(np.square(likely))) < np.sqrt(np.mean(np.square(roots)))
    assert np.abs(likely).max() < 0.7
