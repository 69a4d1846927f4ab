"""Logistic regression on noisy counts: the fit stays unbiased, and what noise leaves unknown stays at the start."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcalib.metrics.logistic import fit_counts
from fedcalib.types import Floats

_STEPS = 100


def fit_noisy_counts(
    features: Any, positive: Any, negative: Any, *, noise: Any, start: Any, doubt: float = 1.0
) -> Floats:
    """Fit log-odds that are linear in features, (cells, k), to counts that carry noise of a known variance.

    Counts below zero stay signed, since cutting them would add records that are not there. The fit is drawn toward
    `start`, about which one is unsure by `doubt` (a standard deviation), as far as labels and noise leave the weights
    open; with many records and little noise that is hardly at all.
    """
    x = np.asarray(features, dtype=np.float64)
    p, n = np.asarray(positive, dtype=np.float64), np.asarray(negative, dtype=np.float64)
    pull = np.asarray(start, dtype=np.float64)
    prior = np.eye(len(pull)) / doubt**2
    weights = _signed(x, p, n, pull, prior)
    variance = np.broadcast_to(noise, p.shape)
    if not variance.any():
        return weights
    mean = 0.5 * (1 + np.tanh((x @ weights) / 2))
    curve = _certain_curve(x, (p + n) * mean * (1 - mean), 2 * variance * (mean * (1 - mean)) ** 2)
    shaken = (x.T * (variance * ((1 - mean) ** 2 + mean**2))) @ x
    # the fit has weighed the labels against the start as if counts were exact; noise shakes the score itself, so that
    # the labels deserve less weight
    kept = curve @ np.linalg.pinv(curve + shaken)
    drawn: Floats = pull + np.linalg.solve(kept @ curve + prior, kept @ ((curve + prior) @ (weights - pull)))
    return drawn


def _certain_curve(x: Floats, bend: Floats, variance: Floats) -> Floats:
    """Give the part of the likelihood's curvature that noise cannot have made, direction by direction."""
    sizes, axes = np.linalg.eigh((x.T * bend) @ x)
    doubt = np.sqrt(np.square(np.square(x @ axes)).T @ variance)
    curve: Floats = (axes * np.maximum(sizes - 2 * doubt, 0.0)) @ axes.T
    return curve


def _signed(x: Floats, p: Floats, n: Floats, start: Floats, prior: Floats) -> Floats:
    """Weigh the labels against the start; where signed counts lead nowhere, cut negative ones after all."""
    held = np.maximum(p + n, 0.0)
    weights = start.copy()
    for _ in range(_STEPS):
        mean = 0.5 * (1 + np.tanh((x @ weights) / 2))
        curve = (x.T * (held * mean * (1 - mean))) @ x + prior
        step = np.linalg.solve(curve, x.T @ ((p + n) * mean - p) + prior @ (weights - start))
        step *= min(1.0, 1.0 / max(float(np.abs(step).max()), 1e-300))  # at most one unit of log-odds at a time
        weights = weights - step
        if np.abs(step).max() < 1e-10:
            return weights
    return fit_counts(x, p, n, ridge=1e-6, start=start)
