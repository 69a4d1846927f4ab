"""Offsets from noisy residuals, as fine and as large as the evidence allows.

Shifts of all classes together, from noisy residuals and a noisy curvature, as large as the evidence allows.
"""

from __future__ import annotations

from itertools import product
from typing import Final

import numpy as np

from fedcalib.types import Floats

SIZES: Final = (0.03, 0.1, 0.3, 1.0)  # standard deviations that an offset may come from
_PRIOR_ROWS: Final = 2.0  # what the prior counts for beside the rows
_PASSES: Final = 30


def offsets(residual: Floats, spread: Floats, noise: float, sizes: tuple[float, ...] = SIZES) -> Floats:
    """Give the posterior mean of each cell's logit offset, (rows, cells), averaged over how they may be grouped.

    A cell's residual has mean spread * offset and variance spread + noise. A hypothesis says that 1, 2, 4, ... groups
    of neighbouring cells share an offset of a given size; the one that nothing is off weighs as much as all others
    together, until several rows tell which hypotheses rows like them come from. Noise is part of the likelihood, so
    noisy residuals buy few and small offsets, and hopeless ones none.
    """
    told, pull = _information(residual, np.maximum(spread, 0.0), noise)
    rows, cells = residual.shape
    evidence, means = [np.full(rows, np.log(0.5))], [np.zeros((rows, cells))]
    levels = range(cells.bit_length()) if cells & (cells - 1) == 0 else range(1)
    prior = np.log(0.5 / (len(levels) * len(sizes)))
    for level in levels:
        width = cells >> level
        grouped = [part.reshape(rows, 1 << level, width).sum(axis=2) for part in (told, pull)]
        for size in sizes:
            drawn = 1 + size**2 * grouped[0]
            gain = 0.5 * size**2 * grouped[1] ** 2 / drawn - 0.5 * np.log(drawn)
            evidence.append(prior + gain.sum(axis=1))
            means.append(np.repeat(size**2 * grouped[1] / drawn, width, axis=1))
    averaged: Floats = np.einsum("hr,hrc->rc", _weights(np.array(evidence)), np.array(means))
    return averaged


def _weights(evidence: Floats) -> Floats:
    """Weigh the hypotheses of each row, (hypotheses, rows), by what it and the other rows say.

    Rows come from hypotheses in unknown proportions: found by expectation maximisation, from the prior on, which counts
    for two rows more. A single row has nobody to learn from.
    """
    weights = _normalised(evidence)
    if evidence.shape[1] == 1:
        return weights
    prior = np.full(len(evidence), 0.5 / max(len(evidence) - 1, 1))
    prior[0] = 0.5
    for _ in range(_PASSES):
        likely = (weights.sum(axis=1) + _PRIOR_ROWS * prior) / (evidence.shape[1] + _PRIOR_ROWS)
        weights = _normalised(evidence + np.log(likely / prior)[:, None])
    return weights


def _normalised(evidence: Floats) -> Floats:
    weights = np.exp(evidence - evidence.max(axis=0))
    shared: Floats = weights / weights.sum(axis=0)
    return shared


def _information(residual: Floats, spread: Floats, noise: float) -> tuple[Floats, Floats]:
    """Say how much each cell tells about its offset, and in which direction it pulls."""
    variance = spread + noise
    share = np.divide(spread, variance, out=np.zeros_like(spread), where=variance > 0)
    return share * spread, share * residual


COUPLED_SIZES: Final = (0.0, 0.03, 0.1, 0.3, 1.0)  # standard deviations that shifts may come from
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
    for together, apart in product(COUPLED_SIZES, COUPLED_SIZES if cells > 1 else COUPLED_SIZES[:1]):
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
