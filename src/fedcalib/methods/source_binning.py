"""SourceBinning: histogram binning of the top label's confidence, from right and wrong counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.top_label import TopLabelSteps
from fedcalib.errors import InputError
from fedcalib.method import Flow, Method
from fedcalib.queries.shift import RightWrong
from fedcalib.records import Schema


@final
@dataclass(frozen=True)
class SourceBinning(Method[TopLabelSteps]):
    """Replace the top probability by the share of right answers in its bin; the top class stays the same.

    `smoothing` pseudo-records with the bin's midpoint keep empty bins near the identity.
    """

    bins: int = 15
    smoothing: float = 2.0

    def __post_init__(self) -> None:
        if self.bins < 1 or not self.smoothing > 0:
            raise InputError(f"Expected bins and smoothing above 0, found {self.bins} and {self.smoothing}.")

    def protocol(self, schema: Schema) -> Flow[TopLabelSteps]:
        """Ask once and take one ratio a bin."""
        answer = yield RightWrong(self.bins)
        right, wrong = np.maximum(answer["counts"], 0.0)
        middle = np.maximum((np.arange(self.bins) + 0.5) / self.bins, 1 / schema.classes)
        share = (right + self.smoothing * middle) / (right + wrong + self.smoothing)
        steps = np.clip(share, 1 / schema.classes, 1.0)
        return TopLabelSteps(schema.classes, tuple(steps.tolist()))
