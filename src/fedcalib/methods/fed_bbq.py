"""FedBBQ: binning at 1, 2, 4, ... bins at once, averaged by how well each explains the labels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.steps import SCALED, Normaliser, Steps
from fedcalib.errors import InputError
from fedcalib.flows.tables import AS_PRINTED, LabelHistograms, Unweighted, Weighting, label_histograms
from fedcalib.method import Flow, Method
from fedcalib.metrics.binning import EVEN, Axis
from fedcalib.queries.class_tables import Clips
from fedcalib.records import Schema
from fedcalib.types import Floats
from fedcalib.wire import ADDED

_MIN_PRIOR_MEAN = 0.005  # and as far from 1


@final
@dataclass(frozen=True)
class FedBBQ(Method[Calibrator]):
    """Average coarse and fine binnings by how well each explains the labels, one class against the rest.

    The message is FedBin's at the finest resolution; coarser bins are sums of finer ones, so they cost nothing more.

    Parameters
    ----------
    finest, coarsest
        Logarithms to base 2 of the largest and smallest number of bins; published with a coarsest of 1.
    rounds
        Number of rounds over which histograms add up.
    strength
        The prior of a bin, as a number of records at the bin's midpoint.
    weighting
        How far the bins are trusted against the classifier.
    clip
        L2 norm to which whole clients clip each class, as for `FedBin`.
    axis
        Where bins lie: in equal steps of the probability, as published, or of the log-odds, which does better.
    normaliser
        How the classes' values come to sum to one: by division, as published, or `ByOdds`, which does better.
    divided
        Divide `strength` among the bins of a resolution, as printed in the paper, with bins at their exact midpoints;
        otherwise every bin has all of it, as in the code of Naeini et al. (2015).

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.metrics import classwise_ece
    >>> records = (federation := fc.Federation.simulated()).records
    >>> calibrator = fc.run(fc.FedBBQ(), fc.InProcess(federation), fc.SecAgg()).artifact
    >>> [round(classwise_ece(probs, records.labels), 2) for probs in (records.probs, calibrator(records.probs))]
    [0.08, 0.02]
    """

    finest: int = 7
    coarsest: int = 0
    rounds: int = 1
    strength: float = 2.0
    weighting: Weighting = Unweighted()
    clip: Clips = None
    axis: Axis = EVEN
    normaliser: Normaliser = SCALED
    divided: bool = field(default=False, metadata=ADDED)

    def __post_init__(self) -> None:
        if not 0 <= self.coarsest <= self.finest <= 16 or self.rounds < 1 or not self.strength > 0:
            raise InputError(f"Expected 0 <= coarsest <= finest <= 16, rounds and strength above 0, found {self}.")

    @classmethod
    def as_published(cls, weighting: Weighting = AS_PRINTED, rounds: int = 12, *, corrected: bool = False) -> FedBBQ:
        """FedBBQ as in "Private Federated Multiclass Post-hoc Calibration": M = 7, so 2, 4, ..., 128 bins.

        Run it with `Poisson(0.1)` and, for differential privacy, with `UserGaussian(epsilon, 1e-5, separate=True)`.

        Parameters
        ----------
        weighting
            `Weighted.as_published()` for the weights of appendix B.5; none if left out.
        rounds
            Number of rounds.
        corrected
            Appendix B.4 prints a prior of N' = 2 records for all bins of a resolution together. The method that it
            cites has N' = 2B, two records per bin; this takes that reading.
        """
        return cls(7, 1, rounds, 2.0, weighting, (10.0, 50.0), divided=not corrected)

    def protocol(self, schema: Schema) -> Flow[Calibrator]:
        counts = yield from label_histograms(schema, 1 << self.finest, self.rounds, self.clip, self.axis)
        table = averaged_binnings(counts, self.coarsest, self.strength, self.axis, divided=self.divided)
        steps = Steps.of_table(schema.classes, table, self.axis, self.normaliser, small_bins=counts.small)
        return self.weighting.apply(steps, counts)


def averaged_binnings(
    counts: LabelHistograms, coarsest: int, strength: float, axis: Axis = EVEN, *, divided: bool = False
) -> Floats:
    """Steps of all dyadic resolutions, averaged by their score, shape (step functions, finest bins)."""
    scores, steps = [], []
    for level in range(coarsest, counts.bins.bit_length()):
        bins = 1 << level
        middles = axis.middles(bins) if divided else np.clip(axis.middles(bins), _MIN_PRIOR_MEAN, 1 - _MIN_PRIOR_MEAN)
        score, step = _binning(counts.merged(bins), strength / bins if divided else strength, middles)
        scores.append(score)
        steps.append(np.repeat(step, counts.bins // bins, axis=1))
    weights = np.exp(np.array(scores) - np.max(scores, axis=0))  # (levels, step functions)
    weights /= weights.sum(axis=0)
    averaged: Floats = np.einsum("lc,lcb->cb", weights, np.array(steps))
    return averaged


def _binning(counts: LabelHistograms, strength: float, middle: Floats) -> tuple[Floats, Floats]:
    """The marginal likelihood of one resolution, shape (step functions,), and its posterior means."""
    from scipy.special import gammaln

    hits, misses = np.maximum(counts.positives, 0.0), np.maximum(counts.negatives, 0.0)  # after merging, never before
    up, down = strength * middle, strength * (1 - middle)
    counts_per_bin = hits + misses
    evidence = gammaln(strength) - gammaln(counts_per_bin + strength) + gammaln(hits + up) - gammaln(up)
    evidence = evidence + gammaln(misses + down) - gammaln(down)
    return evidence.sum(axis=1), (hits + up) / (counts_per_bin + strength)
