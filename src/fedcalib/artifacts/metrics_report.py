"""What an evaluation found: every metric with an interval, and the tables behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from fedcalib.artifacts.saving import Artifact
from fedcalib.metrics.reliability import Reliability


@final
@dataclass(frozen=True)
class Measured:
    """A figure with the interval that chance and privacy noise leave it (95%)."""

    value: float
    low: float
    high: float

    def to_json(self) -> dict[str, float]:
        """Give the three numbers by name."""
        return {"value": self.value, "low": self.low, "high": self.high}


@final
@dataclass(frozen=True, eq=False)
class MetricsReport(Artifact):
    """Accuracy, calibration and ranking of a classifier over all clients.

    A metric is None where the data or the noise do not allow it; `warnings` says why. `reliability` is the top-label
    table, noisy under differential privacy, with the variance of the noise on a count and on a gap.
    """

    accuracy: Measured | None
    ece: Measured | None
    cwece: Measured | None
    nll: Measured | None
    brier: Measured | None
    auc: Measured | None
    debiased_squared_ece: float | None
    slope: float | None
    intercept: float | None
    observed_expected: float | None
    smooth_ece: float | None
    reliability: Reliability
    count_variance: float
    gap_variance: float
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Give the headline metrics by name, with null for what is missing."""
        headline = {name: getattr(self, name) for name in ("accuracy", "ece", "cwece", "nll", "brier", "auc")}
        return {name: None if value is None else value.to_json() for name, value in headline.items()}
