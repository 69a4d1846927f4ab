"""FedBin: histogram binning of each class's probability, one class against the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.steps import Steps
from fedcalib.errors import InputError
from fedcalib.flows.label_histogram import Unweighted, Weighting, label_histograms
from fedcalib.method import Flow, Method
from fedcalib.queries.class_tables import Clips
from fedcalib.records import Schema


@final
@dataclass(frozen=True)
class FedBin(Method[Calibrator]):
    """Replace each probability by the share of positives in its bin, summed over clients.

    `smoothing` pseudo-records with the bin's own midpoint keep empty bins at the identity; 0 gives the published
    ratio. Several rounds accumulate, so let each client count once (participation `Disjoint(rounds)`). `clip` is the
    L2 norm to which whole clients cut each class; two of them cut positives and negatives apart, as published.
    """

    bins: int = 15
    rounds: int = 1
    smoothing: float = 2.0
    weighting: Weighting = Unweighted()
    clip: Clips = None

    def __post_init__(self) -> None:
        if self.bins < 1 or self.rounds < 1 or not self.smoothing >= 0:
            raise InputError(
                f"Expected bins and rounds of at least 1 and smoothing of at least 0, "
                f"found {self.bins}, {self.rounds} and {self.smoothing}."
            )

    def protocol(self, schema: Schema) -> Flow[Calibrator]:
        """Sum the histograms, then take one ratio a cell."""
        counts = yield from label_histograms(schema, self.bins, self.rounds, self.clip)
        hits, misses = np.maximum(counts.positives, 0), np.maximum(counts.negatives, 0)
        middle = (np.arange(self.bins) + 0.5) / self.bins
        held = hits + misses + self.smoothing
        ratio = np.divide(hits + self.smoothing * middle, held, out=np.zeros_like(held), where=held > 0)
        return self.weighting.apply(Steps.of_table(schema.classes, ratio), counts)
