"""Summed label histograms: the one conversation that all binning methods of several classes share.

Weightings: how far a binning method trusts its own steps, against overfitting and noise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import inf, pi, sqrt
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.steps import Blend, Steps, step_functions
from fedcalib.errors import InputError
from fedcalib.method import Flow
from fedcalib.metrics.binning import EVEN, Axis
from fedcalib.queries.class_tables import Clips, LabelHistogram
from fedcalib.records import Schema
from fedcalib.types import Bools, Floats


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
    counts = np.zeros((step_functions(schema.classes), 2, bins))
    variance, clients = 0.0, 0
    for _ in range(rounds):
        answer = yield LabelHistogram(schema.classes, bins, clip, axis)
        counts += np.stack(list(answer.values.values())).reshape(counts.shape)
        noise = np.stack(list(answer.variances.values())).reshape(counts.shape)
        variance += float(noise[:, 0].max(initial=0.0))
        clients += answer.clients or 0
    seen = min(1.0, clients / schema.clients) if schema.clients else 1.0
    return LabelHistograms(counts[:, 0], counts[:, 1], variance, seen)


class Weighting(ABC):
    """Turns step functions into the calibrator that is handed out."""

    @abstractmethod
    def apply(self, steps: Steps, counts: LabelHistograms) -> Calibrator:
        """Mix the steps with the base model, or leave them."""


@final
@dataclass(frozen=True)
class Unweighted(Weighting):
    """Trust the steps, except those of a class that no record has, or every record: there the base model stays."""

    def apply(self, steps: Steps, counts: LabelHistograms) -> Calibrator:
        """Leave them, or put the middles of bins."""
        return _kept(steps, _one_sided(counts))


@final
@dataclass(frozen=True)
class Doubting(Weighting):
    """Trust the steps as far as counts stand out from noise.

    A cell whose count is below `deviations` standard deviations of its noise keeps the base model's probability.
    Without noise that leaves the steps as `Unweighted` does.
    """

    deviations: float = 3.0

    def __post_init__(self) -> None:
        if not 0 <= self.deviations < inf:
            raise InputError(f"Expected a finite number of deviations of at least 0, found {self.deviations}.")

    def apply(self, steps: Steps, counts: LabelHistograms) -> Calibrator:
        """Put the middles of bins where noise may have made the count."""
        drowned = counts.positives + counts.negatives < self.deviations * sqrt(2 * counts.variance)
        return _kept(steps, drowned | _one_sided(counts))


def _one_sided(counts: LabelHistograms) -> Bools:
    """Say which classes exact counts say nothing about, (classes asked, 1), if there are any records."""
    positives, negatives = counts.positives.sum(axis=1), counts.negatives.sum(axis=1)
    told = (positives + negatives > 0) & (counts.variance == 0)
    return np.asarray(told & (np.minimum(positives, negatives) <= 0))[:, None]


def _kept(steps: Steps, unknown: Bools) -> Steps:
    """Let unknown cells stand for themselves."""
    if not unknown.any():
        return steps
    table = np.array(steps.table)
    middles = steps.axis.middles(table.shape[1])
    return Steps.of_table(steps.classes, np.where(unknown, middles, table), steps.axis, steps.normaliser)


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
