"""Multiplying Gaussians: precisions and pulls add up; low-rank parts by Woodbury, never a matrix of size x size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedcalib.training.posterior import LocalGaussian
from fedcalib.types import Floats


def solved(precision: Floats, factors: Floats, pull: Floats) -> Floats:
    """Solve (diag(e) - V V^T) x = h, (size,)."""
    x: Floats = pull / precision
    if factors.shape[1]:
        x = x + (factors @ np.linalg.solve(core(precision, factors), factors.T @ x)) / precision
    return x


def core(precision: Floats, factors: Floats) -> Floats:
    """Give I - V^T diag(1/e) V, lifted to be positive whatever noise or rounding did, (rank, rank)."""
    small = np.eye(factors.shape[1]) - factors.T @ (factors / precision[:, None])
    values, vectors = np.linalg.eigh((small + small.T) / 2)
    lifted: Floats = (vectors * np.clip(values, 1e-9, 1.0)) @ vectors.T
    return lifted


def product(gaussians: Sequence[LocalGaussian]) -> LocalGaussian:
    """Multiply Gaussians about one point whose factors may be seen: their factors stand side by side."""
    precision = np.sum([each.precision for each in gaussians], axis=0)
    factors = np.concatenate([each.factors for each in gaussians], axis=1)
    pull = np.sum([each.pull for each in gaussians], axis=0)
    return LocalGaussian(precision, factors, solved(precision, factors, pull), pull)


def probes(size: int, width: int, seed: int) -> Floats:
    """Draw the public directions along which clients tell their low-rank parts, (size, width), each about length 1."""
    return np.random.default_rng(seed).normal(0, 1 / np.sqrt(size), (size, width))


def from_sketch(sketch: Floats, directions: Floats) -> Floats:
    """Find V with V V^T = A from A applied to directions (Nystroem), (size, width).

    It is exact when the directions are at least as many as A's rank, and never more than A otherwise, so a precision
    that it is taken from stays positive.
    """
    if not sketch.shape[1]:
        return sketch
    inner = directions.T @ sketch
    values, vectors = np.linalg.eigh((inner + inner.T) / 2)
    kept = values > 1e-10 * max(values[-1], 1e-300)
    factors: Floats = sketch @ (vectors[:, kept] / np.sqrt(values[kept]))
    return factors
