from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcalib.estimation.trees import consistent, covariance, isotonic, nonnegative_leaves, variances_at_fit


def design(arity: int, height: int) -> np.ndarray:
    """Every cell of every level as a sum of leaves."""
    levels = [np.repeat(np.eye(arity**depth), arity ** (height - depth), axis=1) for depth in range(1, height + 1)]
    return np.concatenate(levels)


def tree(arity: int, height: int, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    levels = [rng.normal(5, 3, arity**depth) for depth in range(1, height + 1)]
    variances = [rng.uniform(0.2, 4, arity**depth) for depth in range(1, height + 1)]
    return levels, variances


@given(st.integers(2, 5), st.integers(1, 3), st.integers(0, 10_000))
def test_consistency_is_weighted_least_squares(arity: int, height: int, seed: int) -> None:
    levels, variances = tree(arity, height, seed)
    H, v = design(arity, height), np.concatenate(variances)
    normal = (H.T / v) @ H
    expected = np.linalg.solve(normal, (H.T / v) @ np.concatenate(levels))
    np.testing.assert_allclose(consistent(levels, variances, arity), expected, atol=1e-9)
    weights = np.random.default_rng(seed).normal(size=(3, arity**height))
    np.testing.assert_allclose(
        covariance(weights, variances, arity), weights @ np.linalg.inv(normal) @ weights.T, atol=1e-8
    )


@given(st.integers(2, 4), st.integers(1, 4), st.integers(0, 10_000))
def test_exact_counts_come_back_as_they_are(arity: int, height: int, seed: int) -> None:
    leaves = np.random.default_rng(seed).integers(0, 50, (2, arity**height)).astype(float)
    levels = [leaves.reshape(2, arity**depth, -1).sum(axis=2) for depth in range(1, height + 1)]
    assert consistent(levels, [np.zeros((2, 1))] * height, arity).tolist() == leaves.tolist()


def test_one_exact_level_is_kept_and_the_rest_adapts() -> None:
    levels = [np.array([10.0, 20.0]), np.array([3.0, 5.0, 10.0, 14.0])]
    leaves = consistent(levels, [np.zeros(1), np.ones(1)], 2)
    np.testing.assert_allclose(leaves, [4.0, 6.0, 8.0, 12.0])


def test_variances_that_grow_with_counts_are_read_at_the_fit() -> None:
    """Two levels of the same counts whose noise grows with them: a second fit is free of the first one's bias."""
    rng = np.random.default_rng(0)
    truth, once, twice = np.linspace(50.0, 400.0, 16), [], []
    sums = [truth.reshape(2**depth, -1).sum(axis=1) for depth in range(1, 5)]
    for _ in range(1500):
        levels = [rng.normal(level, np.sqrt(4 * level)) for level in sums]
        variances = [4 * np.maximum(level, 1.0) for level in levels]
        first = consistent(levels, variances, 2)
        once.append(first.sum())
        twice.append(consistent(levels, variances_at_fit(first, levels, variances, 2), 2).sum())
    error = np.std(twice) / len(twice) ** 0.5
    assert truth.sum() - np.mean(once) > 5 * error
    assert abs(np.mean(twice) - truth.sum()) < 0.5 * (truth.sum() - np.mean(once))


def test_alike_variances_stay_as_they_are() -> None:
    levels, alike = [np.array([3.0, 4.0]), np.arange(4.0)], [np.ones(1), np.full(4, 2.0)]
    for kept, given_ in zip(variances_at_fit(np.arange(4.0), levels, alike, 2), alike, strict=True):
        assert kept is given_


def test_prefixes_of_a_thousand_leaves_are_as_sharp_as_theory_says() -> None:
    # standard deviation of a prefix at epsilon 1: raw binary tree about 30, flat leaves about 31

    def deviation(arity: int, height: int) -> float:
        variance = [np.full(1, 2.0 * height**2)] * height
        prefixes = np.tri(arity**height)[4::7]
        return float(np.sqrt(np.diag(covariance(prefixes, variance, arity)).mean()))

    assert deviation(2, 10) == pytest.approx(16.4, rel=0.05)
    assert deviation(4, 5) == pytest.approx(13.0, rel=0.05)
    assert deviation(1024, 1) == pytest.approx(31.5, rel=0.05)


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=40), st.integers(0, 10_000))
def test_isotonic_is_the_nearest_rising_sequence(values: list[float], seed: int) -> None:
    given_, weights = np.array(values), np.random.default_rng(seed).uniform(0.1, 3, len(values))
    fitted = isotonic(given_, weights)
    assert (np.diff(fitted) >= -1e-9).all()
    from scipy.optimize import isotonic_regression

    np.testing.assert_allclose(fitted, isotonic_regression(given_, weights=weights).x, atol=1e-8)


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=40))
def test_nonnegative_leaves_are_counts(values: list[float]) -> None:
    leaves = np.array(values)
    counted = nonnegative_leaves(leaves)
    assert (counted >= 0).all()
    assert counted.sum() == pytest.approx(max(leaves.sum(), 0), abs=1e-9)
    if (leaves >= 0).all():
        assert counted.tolist() == leaves.tolist()
