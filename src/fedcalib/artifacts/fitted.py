"""A calibrator together with what was measured without it and with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.metrics_report import MetricsReport
from fedcalib.artifacts.saving import Artifact


@final
@dataclass(frozen=True, eq=False)
class Fitted(Artifact):
    """A calibrator, and the metrics of the same records before and after it."""

    calibrator: Calibrator
    before: MetricsReport
    after: MetricsReport
