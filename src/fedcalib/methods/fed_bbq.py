"""FedBBQ: binning at 1, 2, 4, ... bins at once, averaged by how well each explains the labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.steps import SCALED, Normaliser, Steps
from fedcalib.errors import InputError
from fedcalib.flows.label_histogram import LabelHistograms, Unweighted, Weighting, label_histograms
from fedcalib.method import Flow, Method
from fedcalib.metrics.binning import EVEN, Axis
from fedcalib.queries.class_tables import Clips
from fedcalib.records import Schema
from fedcalib.types import Floats

_EDGE = 0.005  # the prior mean stays off 0 and 1


@final
@dataclass(frozen=True)
class FedBBQ(Method[Calibrator]):
    """Average binnings of 2^`coarsest` to 2^`finest` bins by their Bayesian score, one class against the rest.

    The message is FedBin's at the finest resolution; coarser bins are sums of finer ones, so they cost nothing more.
    A bin's prior is worth `strength` records with the bin's midpoint; published with 2^1 as the coarsest. `axis` says
    where bins lie: published as equal steps of the probability, better with equal steps of the log-odds. `normaliser`
    says how the classes' values come to sum to one: published as a division, better `ByOdds`.
    """

    finest: int = 7
    coarsest: int = 0
    rounds: int = 1
    strength: float = 2.0
    weighting: Weighting = Unweighted()
    clip: Clips = None
    axis: Axis = EVEN
    normaliser: Normaliser = SCALED

    def __post_init__(self) -> None:
        if not 0 <= self.coarsest <= self.finest <= 16 or self.rounds < 1 or not self.strength > 0:
            raise InputError("Expected 0 <= coarsest <= finest <= 16, a round at least and strength above 0.")

    def protocol(self, schema: Schema) -> Flow[Calibrator]:
        """Ask for the finest histogram, average all resolutions of it."""
        counts = yield from label_histograms(schema, 1 << self.finest, self.rounds, self.clip, self.axis)
        table = averaged_binnings(counts, self.coarsest, self.strength, self.axis)
        steps = Steps.of_table(schema.classes, table, self.axis, self.normaliser)
        return self.weighting.apply(steps, counts)


def averaged_binnings(counts: LabelHistograms, coarsest: int, strength: float, axis: Axis = EVEN) -> Floats:
    """Average the steps of all dyadic resolutions by their score, (classes asked, finest bins)."""
    scores, steps = [], []
    for level in range(coarsest, counts.bins.bit_length()):
        bins = 1 << level
        score, step = _binning(counts.merged(bins), strength, axis)
        scores.append(score)
        steps.append(np.repeat(step, counts.bins // bins, axis=1))
    weights = np.exp(np.array(scores) - np.max(scores, axis=0))  # (levels, classes asked)
    weights /= weights.sum(axis=0)
    averaged: Floats = np.einsum("lc,lcb->cb", weights, np.array(steps))
    return averaged


def _binning(counts: LabelHistograms, strength: float, axis: Axis) -> tuple[Floats, Floats]:
    """Score one resolution by its marginal likelihood, (classes asked,), and give its posterior means."""
    from scipy.special import gammaln

    hits, misses = np.maximum(counts.positives, 0.0), np.maximum(counts.negatives, 0.0)  # after merging, never before
    middle = np.clip(axis.middles(counts.bins), _EDGE, 1 - _EDGE)
    up, down = strength * middle, strength * (1 - middle)
    held = hits + misses
    evidence = (
        gammaln(strength)
        - gammaln(held + strength)
        + gammaln(hits + up)
        - gammaln(up)
        + gammaln(misses + down)
        - gammaln(down)
    )
    return evidence.sum(axis=1), (hits + up) / (held + strength)
