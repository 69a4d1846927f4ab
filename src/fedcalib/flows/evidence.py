"""Offsets from noisy residuals, as fine and as large as the evidence allows."""

from __future__ import annotations

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
