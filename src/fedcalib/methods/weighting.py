"""Weightings: how far a binning method trusts its own steps, against overfitting and noise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import pi, sqrt
from typing import final

import numpy as np

from fedcalib.artifacts.blend import Blend
from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.steps import Steps
from fedcalib.flows.label_histogram import LabelHistograms


class Weighting(ABC):
    """Turns step functions into the calibrator that is handed out."""

    @abstractmethod
    def apply(self, steps: Steps, counts: LabelHistograms) -> Calibrator:
        """Mix the steps with the base model, or leave them."""


@final
@dataclass(frozen=True)
class Unweighted(Weighting):
    """Trust the steps."""

    def apply(self, steps: Steps, counts: LabelHistograms) -> Calibrator:
        """Leave them."""
        return steps


@final
@dataclass(frozen=True)
class Weighted(Weighting):
    """Mix every record, or with `changed_only` those whose top class would change, with the base model.

    Without noise a class's weight is the share of clients that was counted. With noise it is the class's count over
    what noise alone would show in as many cells, less `floor` standard deviations of the count's own noise: published
    with a floor of 0, a weight without any data averages 1 / (2 sqrt(bins)) instead of nothing.
    """

    changed_only: bool = False
    floor: float = 2.0

    def apply(self, steps: Steps, counts: LabelHistograms) -> Calibrator:
        """Blend by class."""
        return Blend(steps, class_weights(counts, steps.classes, self.floor), self.changed_only)


def class_weights(counts: LabelHistograms, classes: int, floor: float) -> tuple[float, ...]:
    """Weigh each class's steps between 0 and 1."""
    held = counts.positives.sum(axis=1)
    if counts.variance > 0:
        noise = sqrt(counts.variance)
        drowned = sqrt(2 / pi) * noise * counts.bins
        weights = np.clip((held - floor * noise * sqrt(counts.bins)) / drowned, 0.0, 1.0)
    else:
        weights = np.where(held > 0, counts.seen, 0.0)
    return tuple(np.broadcast_to(weights, (classes,)).tolist())
