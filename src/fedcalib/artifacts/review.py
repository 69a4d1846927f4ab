"""What one window of time tells about a classifier that is being watched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.metrics_report import MetricsReport
from fedcalib.artifacts.saving import Artifact
from fedcalib.measured import Measured


@final
@dataclass(frozen=True, eq=False)
class Review(Artifact):
    """A window's metrics as the model says and as was served, and a calibrator for windows to come.

    `estimate` is what accuracy was expected to be, judged without labels by the served confidence.
    """

    metrics: MetricsReport
    estimate: Measured
    served: MetricsReport | None = None
    calibrator: Calibrator | None = None
