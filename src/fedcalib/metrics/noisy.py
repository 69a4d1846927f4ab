"""Metrics from tables that carry privacy noise: what the noise adds is taken out, and the intervals know of it."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from fedcalib.metrics.absolute_sum import absolute_sum_interval, unfolded
from fedcalib.metrics.intervals import Interval, normal_quantile
from fedcalib.metrics.ranking import auc_bucket_bound, auc_of_counts, auc_variance
from fedcalib.types import Floats


def noisy_gap_error(
    gap: Floats, noise: Any, sampling: Any, records: float, level: float = 0.95
) -> tuple[float, Interval]:
    """Estimate the mean absolute gap and bound it, from gaps with known noise and sampling variance.

    The estimate takes what privacy noise adds (not sampling: it stays the plug-in error) out of each absolute gap;
    without noise it is the plug-in value exactly. The interval holds the true error, which near zero is smaller than
    the plug-in value.
    """
    flat = gap.reshape(-1).astype(np.float64)
    noise = np.broadcast_to(noise, gap.shape).reshape(-1)
    cleared = unfolded(flat, noise)
    within = np.maximum(np.broadcast_to(sampling, gap.shape).reshape(-1), 0.0)
    bounds = absolute_sum_interval(flat, np.diag(noise + within), level)
    value = float(cleared.sum()) / records
    return value, Interval(min(bounds.low / records, value), max(bounds.high / records, value), level)


def noisy_proportion(hits: float, misses: float, noise: float, level: float = 0.95) -> tuple[float, Interval]:
    """Estimate a share and bound it, from two counts with noise of the same variance on each."""
    z = normal_quantile(level)
    total = hits + misses
    share = min(max(hits / total, 0.0), 1.0)
    spread = share * (1 - share) / total + noise * (share**2 + (1 - share) ** 2) / total**2
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z * sqrt(spread + z * z / (4 * total**2)) / (1 + z * z / total)
    return share, Interval(max(min(centre - half, share), 0.0), min(max(centre + half, share), 1.0), level)


def noisy_mean(  # noqa: PLR0917
    total: float, squares: float, records: float, noise: float, records_noise: float, level: float = 0.95
) -> tuple[float, Interval]:
    """Estimate a mean and bound it, from a sum and a sum of squares with noise, and a noisy count of records."""
    mean = float(total / records)
    sampling = max(squares / records - mean**2, 0.0) / records
    spread = sampling + (noise + mean**2 * records_noise) / records**2
    half = normal_quantile(level) * sqrt(spread)
    return mean, Interval(mean - half, mean + half, level)


def noisy_auc(positive: Floats, negative: Floats, noise: float, level: float = 0.95) -> tuple[float, Interval]:
    """Estimate the AUC of noisy counts at rising scores, and bound it by sampling, noise and bucketing together."""
    area = auc_of_counts(positive, negative)
    P, N = float(positive.sum()), float(negative.sum())
    below = (np.cumsum(negative) - negative / 2) / N
    above = 1 - (np.cumsum(positive) - positive / 2) / P
    private = noise * float(np.square(below - area).sum() / P**2 + np.square(above - area).sum() / N**2)
    half = normal_quantile(level) * sqrt(auc_variance(positive, negative) + private)
    half += auc_bucket_bound(np.maximum(positive, 0), np.maximum(negative, 0))
    return area, Interval(max(area - half, 0.0), min(area + half, 1.0), level)
