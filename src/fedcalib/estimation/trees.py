"""Counts at several resolutions: least-squares fits to all levels, their covariance, and monotone running sums.

Level l of a tree of arity b has b^l cells (l = 1 to height), the last level holds the leaves, and every count carries
noise of a known variance. All functions work along the last axis, so that several trees are fitted side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcalib.types import Floats


def consistent(levels: Sequence[Floats], variances: Sequence[Floats], arity: int) -> Floats:
    """Leaves that fit all levels best, by least squares weighted with each count's variance.

    Bottom up, a cell's count is averaged with the sum of its children, each weighted by the inverse of its variance;
    top down, the difference between a parent's estimate and the sum of its children is divided among the children in
    proportion to their variances. Counts without noise are returned unchanged.
    """
    estimate, variance = levels[-1], variances[-1]
    if variance.shape[-1:] != estimate.shape[-1:]:
        variance = np.broadcast_to(variance, estimate.shape)
    path = []
    for level, level_variance in zip(reversed(levels[:-1]), reversed(variances[:-1]), strict=True):
        below, below_variance = _summed(estimate, arity), _summed(variance, arity)
        path.append((estimate, variance, below, below_variance))
        weight = _ratio(below_variance, below_variance + level_variance)  # of the cell's own count
        estimate = below + weight * (level - below)
        variance = weight * level_variance
    for children, children_variance, below, below_variance in reversed(path):
        correction = np.repeat(_ratio(estimate - below, below_variance), arity, axis=-1)
        estimate = children + correction * children_variance
    return estimate


def variances_at_fit(leaves: Floats, levels: Sequence[Floats], variances: Sequence[Floats], arity: int) -> list[Floats]:
    """Variances of the counts, evaluated at the fitted counts instead of the noisy ones.

    Local reports know the variance of a count only through the noisy count. A count that came out too small then has
    too small a variance and too large a weight, so a fit with such weights is biased downward; a second fit with the
    variances at the first fit is not.
    """
    fitted = [leaves]
    for _ in levels[:-1]:
        fitted.append(_summed(fitted[-1], arity))
    return [_interpolated(*parts) for parts in zip(reversed(fitted), levels, variances, strict=True)]


def _interpolated(fitted: Floats, counts: Floats, variances: Floats) -> Floats:
    known = np.broadcast_to(variances, counts.shape).reshape(-1)
    if (known == known[0]).all():
        return variances
    order = np.argsort(counts, axis=None, kind="stable")
    at_fit: Floats = np.interp(fitted.reshape(-1), counts.reshape(-1)[order], known[order])
    return at_fit.reshape(counts.shape)


def covariance(weights: Floats, variances: Sequence[Floats], arity: int) -> Floats:
    """Noise covariance of weighted sums of consistent leaves, shape (sums, sums)."""
    product: Floats = weights @ cross_covariance(weights, variances, arity).T
    return (product + product.T) / 2


def cross_covariance(weights: Floats, variances: Sequence[Floats], arity: int) -> Floats:
    """Noise covariance of weighted sums of consistent leaves with every single leaf, shape (sums, leaves).

    `weights` is (sums, leaves). The covariance of least squares is the inverse of the normal matrix, and one pass of
    `consistent` solves the normal equations: its input is chosen so that `weights` is their right-hand side.
    """
    zeros = [np.zeros((len(weights), arity ** (depth + 1))) for depth in range(len(variances) - 1)]
    return consistent([*zeros, weights * variances[-1]], variances, arity)


def nonnegative_leaves(leaves: Floats) -> Floats:
    """Leaves of at least zero whose running sums are nearest to the given ones; the total is kept if not negative."""
    if not leaves.size or leaves.min() >= 0:
        return leaves
    rows = leaves.reshape(-1, leaves.shape[-1])
    return np.stack([_nonnegative_row(row) for row in rows]).reshape(leaves.shape)


def isotonic(values: Floats, weights: Floats) -> Floats:
    """Non-decreasing sequence nearest to `values` by weighted least squares (pool adjacent violators)."""
    means: list[float] = []
    masses: list[float] = []
    widths: list[int] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        means.append(value)
        masses.append(weight)
        widths.append(1)
        while len(means) > 1 and means[-2] >= means[-1]:
            mean, mass, width = means.pop(), masses.pop(), widths.pop()
            total = masses[-1] + mass
            means[-1] += (mean - means[-1]) * (mass / total if total > 0 else 0.5)
            masses[-1], widths[-1] = total, widths[-1] + width
    return np.repeat(means, widths)


def _nonnegative_row(leaves: Floats) -> Floats:
    sums = np.cumsum(leaves)
    total = max(float(sums[-1]), 0.0)
    nearest = np.clip(isotonic(sums, np.ones_like(sums)), 0.0, total)
    nearest[-1] = total
    return np.diff(nearest, prepend=0.0)


def _summed(cells: Floats, arity: int) -> Floats:
    summed: Floats = cells.reshape(*cells.shape[:-1], -1, arity).sum(axis=-1)
    return summed


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Quotient that is zero where the denominator is not positive."""
    shape = np.broadcast(numerator, denominator).shape
    return np.divide(numerator, denominator, out=np.zeros(shape), where=denominator > 0)
