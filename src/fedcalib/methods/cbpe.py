"""CBPE: how accurate a calibrated classifier is, told without labels by how confident it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.measured import Measured
from fedcalib.method import Flow, Method
from fedcalib.metrics.intervals import normal_quantile
from fedcalib.queries.confidence import Confidence
from fedcalib.records import Schema


@final
@dataclass(frozen=True)
class CBPE(Method[Measured]):
    """Estimate accuracy without labels: where confidence is calibrated, its mean is the expected accuracy.

    Labels that the records may carry are not looked at. The interval (95%) covers privacy noise and the chance in the
    records; that the confidence is calibrated on *these* records it takes on trust, which no data without labels
    can check.
    """

    def protocol(self, schema: Schema) -> Flow[Measured]:
        """Ask once and divide."""
        answer = yield Confidence()
        right, wrong = answer["confidence"].tolist()
        noise = float(answer.variance("confidence").max(initial=0.0))
        records = right + wrong
        if records <= max(3 * (2 * noise) ** 0.5, 0.5):
            return Measured(float("nan"), 0.0, 1.0)
        share = float(np.clip(right / records, 0.0, 1.0))
        spread = (noise * (share**2 + (1 - share) ** 2) + records * share * (1 - share)) / records**2
        half = normal_quantile(0.95) * spread**0.5
        return Measured(share, max(share - half, 0.0), min(share + half, 1.0))
