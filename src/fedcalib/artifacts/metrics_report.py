"""What an evaluation found: every metric with an interval, and the tables behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from fedcalib.artifacts.saving import Artifact
from fedcalib.measured import Measured
from fedcalib.metrics.reliability import Reliability


@final
@dataclass(frozen=True, eq=False)
class MetricsReport(Artifact):
    """Accuracy, calibration and ranking of a classifier over all clients.

    A metric is None where the data or the noise do not allow it; `warnings` says why. `reliability` is the table of the
    top label (with two classes, of the score), noisy under differential privacy, with the variance of the noise on a
    count and on a gap.
    """

    reliability: Reliability
    count_variance: float
    gap_variance: float
    accuracy: Measured | None = None
    ece: Measured | None = None
    cwece: Measured | None = None
    nll: Measured | None = None
    brier: Measured | None = None
    auc: Measured | None = None
    debiased_squared_ece: float | None = None
    slope: float | None = None
    intercept: float | None = None
    observed_expected: float | None = None
    smooth_ece: float | None = None
    warnings: tuple[str, ...] = ()

    @classmethod
    def nothing(cls, reliability: Reliability, count_variance: float, gap_variance: float) -> MetricsReport:
        """Say that there is nothing to say."""
        why = "Nothing can be said: the number of records drowns in noise, or there are none."
        return cls(reliability, count_variance, gap_variance, warnings=(why,))

    def to_json(self) -> dict[str, Any]:
        """Give the headline metrics by name, with null for what is missing."""
        headline = {name: getattr(self, name) for name in ("accuracy", "ece", "cwece", "nll", "brier", "auc")}
        return {name: None if value is None else value.to_json() for name, value in headline.items()}
