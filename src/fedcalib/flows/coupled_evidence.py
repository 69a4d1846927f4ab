"""Shifts of all classes together, from noisy residuals and a noisy curvature, as large as the evidence allows."""

from __future__ import annotations

from itertools import product
from typing import Final

import numpy as np

from fedcalib.types import Floats

SIZES: Final = (0.0, 0.03, 0.1, 0.3, 1.0)  # standard deviations that shifts may come from
_LARGEST: Final = 1e12  # beyond any sum of residuals; keeps products finite whatever the noise
_SURPRISE: Final = 5.0  # standard deviations


def shifts(residual: Floats, curvature: Floats, noise: float, curvature_noise: float, classes: int) -> Floats:
    """Give the posterior mean of each shift, (classes, cells), averaged over how large shifts may be.

    Residuals have mean H d and variance H + noise, with H the curvature: shifting one class takes from all others, and
    H says from which. A hypothesis gives each class a shift in common to its cells and one more a cell, of given sizes,
    zero among them, so noisy residuals buy small shifts and hopeless ones none.
    """
    pull = np.clip(np.nan_to_num(residual).reshape(-1), -_LARGEST, _LARGEST)
    bend, doubt = believable(curvature, curvature_noise, len(pull))
    cells = len(pull) // classes
    common = np.kron(np.eye(classes), np.ones((cells, cells)))
    least = noise + 1e-9 * float(np.trace(bend)) + 1e-12
    evidence, means = [], []
    for together, apart in product(SIZES, SIZES if cells > 1 else SIZES[:1]):
        drawn = bend @ (together**2 * common + apart**2 * np.eye(len(pull)))
        floor = least + doubt * (together**2 + apart**2)  # a curvature that is wrong explains some of the residuals
        values, vectors = np.linalg.eigh(drawn @ bend + bend)
        values = np.maximum(values, 0.0) + floor
        turned = vectors.T @ pull
        evidence.append(-0.5 * float(turned**2 / values @ np.ones_like(values)) - 0.5 * float(np.log(values).sum()))
        means.append(drawn.T @ (vectors @ (turned / values)))
    weights = np.exp(np.array(evidence) - max(evidence))
    found: Floats = (weights / weights.sum()) @ np.array(means)
    return found.reshape(classes, cells)


def believable(triangle: Floats, noise: float, size: int) -> tuple[Floats, float]:
    """Make a noisy triangle a matrix that could be a curvature: shrunk where noise explains it, never negative.

    Where the trace, which a curvature never lacks, does not stand out from the noise, nothing is believed. Also gives
    the variance that is left in a row.
    """
    upper = np.zeros((size, size))
    upper[np.triu_indices(size)] = np.clip(np.nan_to_num(triangle), -_LARGEST, _LARGEST)
    whole = upper + upper.T - np.diag(np.diag(upper))
    squares = whole**2
    trust = np.divide(squares, squares + noise, out=np.zeros_like(whole), where=squares + noise > 0)
    whole *= trust
    if float(np.trace(whole)) <= _SURPRISE * np.sqrt(noise * size):
        return np.zeros_like(whole), 0.0
    values, vectors = np.linalg.eigh(whole)
    positive: Floats = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return positive, noise * float(np.square(trust).sum(axis=1).mean())
