"""Summed label histograms: the one conversation that all binning methods of several classes share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.steps import asked_classes
from fedcalib.axes import EVEN, Axis
from fedcalib.method import Flow
from fedcalib.queries.histogram import Clips, LabelHistogram
from fedcalib.records import Schema
from fedcalib.types import Floats


@final
@dataclass(frozen=True, eq=False)
class LabelHistograms:
    """Positives and negatives by class and bin, summed over rounds, signed where noise made them so."""

    positives: Floats  # (classes asked, bins)
    negatives: Floats  # (classes asked, bins)
    variance: float  # of the noise on a cell of positives, accumulated over rounds
    seen: float  # the share of all clients that was counted, 1 at most

    @property
    def bins(self) -> int:
        """Count the bins."""
        return int(self.positives.shape[1])

    def merged(self, bins: int) -> LabelHistograms:
        """Add neighbouring bins up into fewer, wider ones; noise adds up with them, and nothing is cut before."""
        wider = self.bins // bins
        return LabelHistograms(
            self.positives.reshape(len(self.positives), bins, wider).sum(axis=2),
            self.negatives.reshape(len(self.negatives), bins, wider).sum(axis=2),
            self.variance * wider,
            self.seen,
        )


def label_histograms(schema: Schema, bins: int, rounds: int, clip: Clips, axis: Axis = EVEN) -> Flow[LabelHistograms]:
    """Ask for histograms, `rounds` times, and add them up."""
    counts = np.zeros((asked_classes(schema.classes), 2, bins))
    variance, clients = 0.0, 0
    for _ in range(rounds):
        answer = yield LabelHistogram(schema.classes, bins, clip, axis)
        counts += np.stack(list(answer.values.values())).reshape(counts.shape)
        noise = np.stack(list(answer.variances.values())).reshape(counts.shape)
        variance += float(noise[:, 0].max(initial=0.0))
        clients += answer.clients or 0
    seen = min(1.0, clients / schema.clients) if schema.clients else 1.0
    return LabelHistograms(counts[:, 0], counts[:, 1], variance, seen)
