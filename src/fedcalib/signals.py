"""The few numbers of a window that alarms look at, each with a variance that holds chance and privacy noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.metrics_report import MetricsReport
from fedcalib.measured import Measured
from fedcalib.metrics.intervals import normal_quantile


@final
@dataclass(frozen=True)
class Signal:
    """A figure and how unsure it is."""

    value: float
    variance: float


def signals(report: MetricsReport) -> Mapping[str, Signal]:
    """Read the signals off a window's metrics; none where the window drowns in noise."""
    if report.accuracy is None or report.reliability.records <= 0:
        return {}
    table, cells = report.reliability, report.reliability.bins
    records = table.records
    held = np.maximum(table.count[0], 0.0)
    share = np.clip(np.divide(table.correct[0], held, out=np.zeros(cells), where=held > 0), 0.0, 1.0)
    mean = np.clip(np.divide(table.confidence[0], held, out=np.zeros(cells), where=held > 0), 0.0, 1.0)
    inside = 0.25 / cells**2  # the most that confidences inside a bin can vary
    gap, confidence = float(table.gap.sum()) / records, float(table.confidence.sum()) / records
    squares = held @ (share * (1 - mean) ** 2 + (1 - share) * mean**2 + inside) / max(held.sum(), 1.0) - gap**2
    spread = held @ (mean**2 + inside) / max(held.sum(), 1.0) - confidence**2
    count_noise = 2 * cells * report.count_variance
    found = {
        "gap": Signal(gap, _variance(squares, cells * report.gap_variance + gap**2 * count_noise, records)),
        "confidence": Signal(
            confidence,
            _variance(
                spread, cells * (report.count_variance + report.gap_variance) + confidence**2 * count_noise, records
            ),
        ),
    }
    ranking = ("auc", report.auc) if report.auc is not None else ("accuracy", report.accuracy)
    return {**found, ranking[0]: _of_interval(ranking[1])}


def pooled(known: Sequence[Signal]) -> Signal:
    """Average signals by how sure they are."""
    sure = np.array([1 / max(one.variance, 1e-300) for one in known])
    values = np.array([one.value for one in known])
    return Signal(float(sure @ values / sure.sum()), float(1 / sure.sum()))


def _variance(spread: float, noise: float, records: float) -> float:
    return float((max(spread, 0.0) * records + noise) / records**2)


def _of_interval(measured: Measured) -> Signal:
    """Read the variance off a 95% interval, by its longer side."""
    half = max(measured.high - measured.value, measured.value - measured.low)
    return Signal(measured.value, (half / normal_quantile(0.95)) ** 2)
