"""FedBin: histogram binning of each class's probability, one class against the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.steps import Steps
from fedcalib.errors import InputError
from fedcalib.flows.tables import AS_PRINTED, Unweighted, Weighting, label_histograms
from fedcalib.method import Flow, Method
from fedcalib.queries.class_tables import Clips
from fedcalib.records import Schema


@final
@dataclass(frozen=True)
class FedBin(Method[Calibrator]):
    """Replace each class's probability by the fraction of positives in its bin, summed over clients.

    Several rounds add up, so let each client take part once (participation `Disjoint(rounds)`).

    Parameters
    ----------
    bins
        Number of bins of equal width.
    rounds
        Number of rounds over which histograms add up.
    smoothing
        Number of pseudo-records at the bin's midpoint, which keep empty bins at the identity; 0 is the published ratio.
    weighting
        How far the bins are trusted against the classifier.
    clip
        L2 norm to which whole clients clip each class; two of them give positives and negatives a norm each. A client
        then still scales all its counts by one factor, unless the privacy model is `UserGaussian(..., separate=True)`.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.metrics import classwise_ece
    >>> records = (federation := fc.Federation.simulated()).records
    >>> calibrator = fc.run(fc.FedBin(), fc.InProcess(federation), fc.SecAgg()).artifact
    >>> [round(classwise_ece(probs, records.labels), 2) for probs in (records.probs, calibrator(records.probs))]
    [0.08, 0.02]
    """

    bins: int = 15
    rounds: int = 1
    smoothing: float = 2.0
    weighting: Weighting = Unweighted()
    clip: Clips = None

    def __post_init__(self) -> None:
        if self.bins < 1 or self.rounds < 1 or not self.smoothing >= 0:
            found = f"{self.bins}, {self.rounds} and {self.smoothing}"
            raise InputError(f"Expected bins and rounds of at least 1 and smoothing of at least 0, found {found}.")

    @classmethod
    def as_published(cls, weighting: Weighting = AS_PRINTED, rounds: int = 12) -> FedBin:
        """FedBin as in "Private Federated Multiclass Post-hoc Calibration", algorithm 1: the bare ratio, 128 bins.

        Run it with `Poisson(0.1)` and, for differential privacy, with `UserGaussian(epsilon, 1e-5, separate=True)`.

        Parameters
        ----------
        weighting
            `Weighted.as_published()` for the weights of section 4.1; none if left out.
        rounds
            Number of rounds.
        """
        return cls(bins=128, rounds=rounds, smoothing=0.0, weighting=weighting, clip=(10.0, 50.0))

    def protocol(self, schema: Schema) -> Flow[Calibrator]:
        counts = yield from label_histograms(schema, self.bins, self.rounds, self.clip)
        hits, misses = np.maximum(counts.positives, 0), np.maximum(counts.negatives, 0)
        middle = (np.arange(self.bins) + 0.5) / self.bins
        records = hits + misses + self.smoothing
        ratio = np.divide(hits + self.smoothing * middle, records, out=np.zeros_like(records), where=records > 0)
        return self.weighting.apply(Steps.of_table(schema.classes, ratio, small_bins=counts.small), counts)
