"""An honest interval for the calibration error: bound every bin's gap at once, then see what ECE that allows.

Percentile bootstraps of ECE cover badly: the plug-in value is biased upward, so resampling centres on the wrong place.
A box that holds all true gaps at once with the stated probability needs no such luck. Its price is width.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcalib.metrics.intervals import Interval, check_level, clopper_pearson
from fedcalib.metrics.reliability import Reliability
from fedcalib.types import Floats


def ece_interval(table: Reliability, level: float = 0.95) -> Interval:
    """Bound the calibration error that the model has on scores like these, whatever labels chance had drawn.

    The bound is on the binned error given the scores; what happens inside a bin stays unseen.
    """
    low, high = project_box(*gap_box(table, level))
    shares = table.records * table.groups
    return Interval(low / shares, high / shares, level) if shares > 0 else Interval(0.0, 1.0, level)


def gap_box(table: Reliability, level: float = 0.95) -> tuple[Floats, Floats]:
    """Bound every bin's true gap, all of them at once at `level`, from exact counts.

    The chance of error is shared evenly by the bins that hold records, which is right however the cells depend on
    each other. (groups, bins) twice.
    """
    held = max(int((table.count > 0).sum()), 1)
    band = clopper_pearson(table.correct, table.count, 1 - (1 - check_level(level)) / held)
    return table.confidence - table.count * band.high, table.confidence - table.count * band.low


def project_box(low: Any, high: Any) -> tuple[float, float]:
    """Find the least and the largest sum of absolute gaps in a box; for a noisy table, bring your own box."""
    least = np.maximum(np.maximum(low, np.negative(high)), 0.0)
    largest = np.maximum(np.abs(low), np.abs(high))
    return float(least.sum()), float(largest.sum())
