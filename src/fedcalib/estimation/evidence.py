"""Posterior means of logit offsets from noisy residuals, averaged over hypotheses about their size and grouping.

`offsets` treats every class alone: a residual has mean variance * offset, and neighbouring cells may share an offset.
`shifts` treats all classes together, through a noisy Hessian of the log-likelihood. In both, the privacy noise is part
of the likelihood, so that noisy residuals give few and small offsets, and residuals that are all noise give none.
"""

from __future__ import annotations

from itertools import product
from math import erfc, sqrt
from typing import Final

import numpy as np

from fedcalib.types import Floats

OFFSET_DEVIATIONS: Final = (0.03, 0.1, 0.3, 1.0)  # prior standard deviations of an offset, one hypothesis each
SHIFT_DEVIATIONS: Final = (0.0, *OFFSET_DEVIATIONS)
FALSE_MOVES: Final = 0.01  # the most often that a stage may change a calibrated classifier
_PRIOR_ROWS: Final = 2.0  # how many rows the prior on hypotheses counts for
_EM_ITERATIONS: Final = 30
_MAX_Z: Final = 1e6
_MAX_RESIDUAL: Final = 1e12  # beyond any sum of residuals; keeps products finite whatever the noise
_TRACE_Z: Final = 5.0  # a Hessian is used only if its trace exceeds this many standard deviations of its noise


def share_of_identity(p_value: Floats | float, false_moves: float = FALSE_MOVES) -> Floats:
    """The share of the identity in an average, given how often a calibrated classifier would look as bad by chance.

    It is 1 down to a p-value of `false_moves` and falls in proportion to it below. The p-value of a calibrated
    classifier is below `false_moves` with at most that probability, so it is changed at most that often.

    >>> share_of_identity(np.array([0.5, 0.01, 0.002, 1e-6])).round(2)
    array([1. , 1. , 0.2, 0. ])
    """
    return np.minimum(np.asarray(p_value, dtype=np.float64) / false_moves, 1.0)


def normal_p_value(value: float, error: float) -> float:
    """How often a normal variable of mean zero with this standard deviation, above 0, is as far from zero.

    >>> round(normal_p_value(1.96, 1.0), 3)
    0.05
    """
    return erfc(min(abs(value) / error, _MAX_Z) / sqrt(2.0))


def unmoved_share(log_ratio: float) -> float:
    """The share of the identity, given how much more likely labels are under some change, in logarithms.

    It is that of `share_of_identity` with the inverse of the ratio for a p-value, which is too large by Markov's
    inequality: under a calibrated classifier the mean of the ratio is at most 1, whatever the changes and their prior.
    It is meant for ratios whose law under a calibrated classifier is not known.

    >>> [round(unmoved_share(float(np.log(ratio))), 2) for ratio in (1, 100, 200, 10_000)]
    [1.0, 1.0, 0.5, 0.01]
    """
    return float(np.exp(min(0.0, -np.log(FALSE_MOVES) - log_ratio)))


def offsets(
    residual: Floats, variance: Floats, noise: float, deviations: tuple[float, ...] = OFFSET_DEVIATIONS
) -> Floats:
    """Posterior mean of each cell's logit offset, shape (rows, cells), averaged over how cells may be grouped.

    A cell's residual has mean variance * offset and variance `variance` + `noise`. A hypothesis says that 1, 2, 4, ...
    groups of neighbouring cells share an offset of a given prior standard deviation. The hypothesis that all offsets
    are zero has prior probability one half; with several rows, the prior is learnt from them (empirical Bayes).
    """
    information, score = _information(residual, np.maximum(variance, 0.0), noise)
    rows, cells = residual.shape
    evidence, means = [np.full(rows, np.log(0.5))], [np.zeros((rows, cells))]
    levels = range(cells.bit_length()) if cells & (cells - 1) == 0 else range(1)
    prior = np.log(0.5 / (len(levels) * len(deviations)))
    for level in levels:
        width = cells >> level
        grouped = [part.reshape(rows, 1 << level, width).sum(axis=2) for part in (information, score)]
        for deviation in deviations:
            shrinkage = 1 + deviation**2 * grouped[0]
            gain = 0.5 * deviation**2 * grouped[1] ** 2 / shrinkage - 0.5 * np.log(shrinkage)
            evidence.append(prior + gain.sum(axis=1))
            means.append(np.repeat(deviation**2 * grouped[1] / shrinkage, width, axis=1))
    averaged: Floats = np.einsum("hr,hrc->rc", _posterior(np.array(evidence)), np.array(means))
    return averaged


def _posterior(evidence: Floats) -> Floats:
    """Posterior probabilities of the hypotheses for each row, shape (hypotheses, rows).

    Rows come from hypotheses in unknown proportions, which are estimated by expectation maximisation; the prior counts
    for two rows more. A single row keeps the prior.
    """
    posterior = _normalised(evidence)
    if evidence.shape[1] == 1:
        return posterior
    prior = np.full(len(evidence), 0.5 / max(len(evidence) - 1, 1))
    prior[0] = 0.5
    for _ in range(_EM_ITERATIONS):
        proportions = (posterior.sum(axis=1) + _PRIOR_ROWS * prior) / (evidence.shape[1] + _PRIOR_ROWS)
        posterior = _normalised(evidence + np.log(proportions / prior)[:, None])
    return posterior


def _normalised(evidence: Floats) -> Floats:
    weights = np.exp(evidence - evidence.max(axis=0))
    normalised: Floats = weights / weights.sum(axis=0)
    return normalised


def _information(residual: Floats, variance: Floats, noise: float) -> tuple[Floats, Floats]:
    """Fisher information of each cell about its offset, and the score (gradient of the log-likelihood) at zero."""
    total = variance + noise
    signal = np.divide(variance, total, out=np.zeros_like(variance), where=total > 0)
    return signal * variance, signal * residual


def shifts(residual: Floats, curvature: Floats, noise: float, curvature_noise: float, classes: int) -> Floats:
    """Posterior mean of each class's logit shift by cell, shape (classes, cells), averaged over how large shifts are.

    Residuals have mean H d and covariance H + noise, where H is the Hessian (`curvature` is its upper triangle):
    raising one class lowers all others, and H holds by how much. A hypothesis gives each class one shift that is common
    to its cells and one more per cell, with given prior standard deviations, zero among them.
    """
    gradient = np.clip(np.nan_to_num(residual).reshape(-1), -_MAX_RESIDUAL, _MAX_RESIDUAL)
    hessian, hessian_variance = shrunken_hessian(curvature, curvature_noise, len(gradient))
    cells = len(gradient) // classes
    same_class = np.kron(np.eye(classes), np.ones((cells, cells)))
    ridge = noise + 1e-9 * float(np.trace(hessian)) + 1e-12
    evidence, means = [], []
    for common, separate in product(SHIFT_DEVIATIONS, SHIFT_DEVIATIONS if cells > 1 else SHIFT_DEVIATIONS[:1]):
        prior = hessian @ (common**2 * same_class + separate**2 * np.eye(len(gradient)))
        floor = ridge + hessian_variance * (common**2 + separate**2)  # errors of the Hessian explain some residuals
        values, vectors = np.linalg.eigh(prior @ hessian + hessian)
        values = np.maximum(values, 0.0) + floor
        rotated = vectors.T @ gradient
        evidence.append(-0.5 * float(rotated**2 / values @ np.ones_like(values)) - 0.5 * float(np.log(values).sum()))
        means.append(prior.T @ (vectors @ (rotated / values)))
    # the first hypothesis is that all shifts are zero
    weights = np.exp(np.array(evidence[1:]) - max(evidence[1:]))
    ratio = float(np.log(weights.mean())) + max(evidence[1:]) - evidence[0]
    mean: Floats = (1 - unmoved_share(ratio)) * (weights / weights.sum()) @ np.array(means[1:])
    return mean.reshape(classes, cells)


def shrunken_hessian(triangle: Floats, noise: float, size: int) -> tuple[Floats, float]:
    """Positive semidefinite estimate of a Hessian from its noisy upper triangle, and the noise variance left per row.

    Entries are shrunk toward zero where noise explains them. The trace of a true Hessian is positive; where it does not
    exceed the noise clearly, the estimate is zero.
    """
    upper = np.zeros((size, size))
    upper[np.triu_indices(size)] = np.clip(np.nan_to_num(triangle), -_MAX_RESIDUAL, _MAX_RESIDUAL)
    matrix = upper + upper.T - np.diag(np.diag(upper))
    squares = matrix**2
    shrinkage = np.divide(squares, squares + noise, out=np.zeros_like(matrix), where=squares + noise > 0)
    matrix *= shrinkage
    if float(np.trace(matrix)) <= _TRACE_Z * np.sqrt(noise * size):
        return np.zeros_like(matrix), 0.0
    values, vectors = np.linalg.eigh(matrix)
    positive: Floats = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return positive, noise * float(np.square(shrinkage).sum(axis=1).mean())
