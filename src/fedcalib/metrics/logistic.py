"""Logistic regression on counts: the one small fit that buckets of labels need."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcalib.types import Floats

_STEPS = 60


def fit_counts(features: Any, positive: Any, negative: Any, ridge: float = 1e-9, start: Any = None) -> Floats:
    """Fit log-odds that are linear in features, (cells, k), to counts of positives and negatives in each cell.

    `ridge` pulls the weights toward `start` (zero unless given), which keeps the fit finite where the classes do not
    overlap. Newton steps are halved until they do not cost likelihood.
    """
    x = np.asarray(features, dtype=np.float64)
    up = np.maximum(np.asarray(positive, dtype=np.float64), 0.0)
    held = up + np.maximum(np.asarray(negative, dtype=np.float64), 0.0)
    pull = np.zeros(x.shape[1]) if start is None else np.asarray(start, dtype=np.float64)
    weights = pull.copy()
    strength = ridge * max(float(held.sum()), 1.0)

    def cost(candidate: Floats) -> float:
        height = x @ candidate
        return float(
            (held * np.logaddexp(0.0, height) - up * height).sum() + strength / 2 * np.square(candidate - pull).sum()
        )

    for _ in range(_STEPS):
        mean = 0.5 * (1 + np.tanh((x @ weights) / 2))
        slope = x.T @ (held * mean - up) + strength * (weights - pull)
        curve = (x.T * (held * mean * (1 - mean))) @ x + (strength + 1e-12) * np.eye(x.shape[1])
        step = np.linalg.solve(curve, slope)
        share, before = 1.0, cost(weights)
        while share > 1e-8 and cost(weights - share * step) > before:
            share /= 2
        weights = weights - share * step
        if np.abs(share * step).max() < 1e-10:
            break
    return weights
