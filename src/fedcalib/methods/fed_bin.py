"""FedBin: histogram binning of each class's probability, one class against the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.steps import Steps, asked_classes
from fedcalib.errors import InputError
from fedcalib.method import Flow, Method
from fedcalib.queries.histogram import LabelHistogram
from fedcalib.records import Schema


@final
@dataclass(frozen=True)
class FedBin(Method[Steps]):
    """Replace each probability by the share of positives in its bin, summed over clients.

    `smoothing` pseudo-records with the bin's own midpoint keep empty bins at the identity; 0 gives the published
    ratio. Several rounds accumulate, so let each client count once (participation `Disjoint(rounds)`).
    """

    bins: int = 15
    rounds: int = 1
    smoothing: float = 2.0
    clip: float | None = None

    def __post_init__(self) -> None:
        if self.bins < 1 or self.rounds < 1 or not self.smoothing >= 0:
            raise InputError(
                f"Expected bins and rounds of at least 1 and smoothing of at least 0, "
                f"found {self.bins}, {self.rounds} and {self.smoothing}."
            )

    def protocol(self, schema: Schema) -> Flow[Steps]:
        """Sum the histograms, then take one ratio a cell."""
        counts = np.zeros((asked_classes(schema.classes), 2, self.bins))
        for _ in range(self.rounds):
            answer = yield LabelHistogram(schema.classes, self.bins, self.clip)
            counts += np.stack(list(answer.values.values()))
        positives, negatives = np.maximum(counts, 0).swapaxes(0, 1)
        middle = (np.arange(self.bins) + 0.5) / self.bins
        held = positives + negatives + self.smoothing
        ratio = np.divide(positives + self.smoothing * middle, held, out=np.zeros_like(held), where=held > 0)
        return Steps.of_table(schema.classes, ratio)
