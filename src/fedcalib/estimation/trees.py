"""Counts at several resolutions: make them agree, know how sure the result is, keep running sums rising.

Level l of a tree of arity b has b^l cells (l = 1 to height), the last level holds the leaves, and every count carries
noise of a known variance of its own. All functions work along the last axis, so several trees go side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcalib.types import Floats


def consistent(levels: Sequence[Floats], variances: Sequence[Floats], arity: int) -> Floats:
    """Give the leaves that fit all levels best, by least squares weighted with each count's own variance.

    Bottom up, a cell's own count and the sum of its children are averaged; top down, what a parent knows better is
    shared out among its children. Counts without noise come back as they are.
    """
    best, doubt = levels[-1], _spread(variances[-1], levels[-1])
    path = []
    for level, variance in zip(reversed(levels[:-1]), reversed(variances[:-1]), strict=True):
        below, below_doubt = _summed(best, arity), _summed(doubt, arity)
        path.append((best, doubt, below, below_doubt))
        own = _ratio(below_doubt, below_doubt + variance)  # the weight of the cell's own count
        best, doubt = below + own * (level - below), own * _spread(variance, level)
    for leaves, leaf_doubt, below, below_doubt in reversed(path):
        missing = np.repeat(_ratio(best - below, below_doubt), arity, axis=-1)
        best = leaves + missing * leaf_doubt
    return best


def at_fit(leaves: Floats, levels: Sequence[Floats], variances: Sequence[Floats], arity: int) -> list[Floats]:
    """Read each count's variance at what was fitted to it, where noise grows with the count.

    Local reports know the variance of a count only through the noisy count. A count that came out too small then claims
    too small a variance and too large a weight, so a fit with such weights is too small on average; fitting again
    with the variances at the first fit is not.
    """
    fitted = [leaves]
    for _ in levels[:-1]:
        fitted.append(_summed(fitted[-1], arity))
    return [
        _interpolated(sums, level, variance)
        for sums, level, variance in zip(reversed(fitted), levels, variances, strict=True)
    ]


def _interpolated(places: Floats, counts: Floats, variances: Floats) -> Floats:
    known = np.broadcast_to(variances, counts.shape).reshape(-1)
    if (known == known[0]).all():
        return variances
    order = np.argsort(counts, axis=None, kind="stable")
    read: Floats = np.interp(places.reshape(-1), counts.reshape(-1)[order], known[order])
    return read.reshape(counts.shape)


def covariance(weights: Floats, variances: Sequence[Floats], arity: int) -> Floats:
    """Give the covariance that noise leaves to weighted sums of consistent leaves, (sums, sums)."""
    both: Floats = weights @ answering(weights, variances, arity).T
    return (both + both.T) / 2


def answering(weights: Floats, variances: Sequence[Floats], arity: int) -> Floats:
    """Give the covariance of weighted sums of consistent leaves with every single leaf, (sums, leaves).

    `weights` is (sums, leaves). The covariance of least squares is the inverse of the normal matrix, and one pass of
    `consistent` solves the normal equations: it is given what makes `weights` their right-hand side.
    """
    sides = [np.zeros((len(weights), arity ** (depth + 1))) for depth in range(len(variances) - 1)]
    return consistent([*sides, weights * variances[-1]], variances, arity)


def rising(leaves: Floats) -> Floats:
    """Give the leaves of at least zero whose running sums are nearest to those given, the total kept if it can be."""
    if not leaves.size or leaves.min() >= 0:
        return leaves
    rows = leaves.reshape(-1, leaves.shape[-1])
    return np.stack([_rising(row) for row in rows]).reshape(leaves.shape)


def isotonic(values: Floats, weights: Floats) -> Floats:
    """Give the rising sequence nearest to a sequence of values, by weighted least squares (pool adjacent violators)."""
    means: list[float] = []
    masses: list[float] = []
    widths: list[int] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        means.append(value)
        masses.append(weight)
        widths.append(1)
        while len(means) > 1 and means[-2] >= means[-1]:
            mean, mass, width = means.pop(), masses.pop(), widths.pop()
            whole = masses[-1] + mass
            means[-1] += (mean - means[-1]) * (mass / whole if whole > 0 else 0.5)
            masses[-1], widths[-1] = whole, widths[-1] + width
    return np.repeat(means, widths)


def _rising(leaves: Floats) -> Floats:
    sums = np.cumsum(leaves)
    total = max(float(sums[-1]), 0.0)
    nearest = np.clip(isotonic(sums, np.ones_like(sums)), 0.0, total)
    nearest[-1] = total
    return np.diff(nearest, prepend=0.0)


def _summed(cells: Floats, arity: int) -> Floats:
    summed: Floats = cells.reshape(*cells.shape[:-1], -1, arity).sum(axis=-1)
    return summed


def _spread(variance: Floats, cells: Floats) -> Floats:
    return np.broadcast_to(variance, cells.shape)


def _ratio(part: Floats, whole: Floats) -> Floats:
    shares: Floats = np.divide(part, whole, out=np.zeros(np.broadcast_shapes(part.shape, whole.shape)), where=whole > 0)
    return shares
