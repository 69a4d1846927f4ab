"""A model of scores to plan with: normal log-odds of both labels, shifted apart."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

import numpy as np

from fedcalib.binning import bin_edges
from fedcalib.errors import InputError
from fedcalib.types import Floats, Ints

_FINE: Final = 1 << 16  # cells that stand for a continuous score


@final
@dataclass(frozen=True)
class ScoreModel:
    """What one expects of a classifier: its share of positives, its AUC and how over-confident it is.

    Log-odds of negatives and positives are normal with the same spread, far enough apart for the AUC. With
    `confidence` 1 the scores are calibrated; above 1 the log-odds are that many times too large.
    """

    positive_rate: float = 0.3
    auc: float = 0.75
    confidence: float = 1.5

    def __post_init__(self) -> None:
        if not 0 < self.positive_rate < 1 or not 0.5 < self.auc < 1 or not 0 < self.confidence < 100:
            raise InputError(
                "Expected a positive rate inside (0, 1), an AUC inside (0.5, 1) and a confidence above 0, found "
                f"{self.positive_rate}, {self.auc} and {self.confidence}."
            )

    @cached_property
    def _apart(self) -> float:
        from statistics import NormalDist

        return float(np.sqrt(2.0)) * NormalDist().inv_cdf(self.auc)

    def chances(self, cells: int) -> Floats:
        """Say how likely a record falls into each of so many cells of equal width, by label, (2, cells)."""
        from scipy.special import ndtr

        edges = bin_edges(cells)[1:-1]
        odds = (np.log(edges) - np.log1p(-edges)) / self.confidence
        base = np.log(self.positive_rate / (1 - self.positive_rate))
        place = (odds - base) / self._apart + self._apart / 2  # where a negative's normal variable would be
        below = np.stack([ndtr(place), ndtr(place - self._apart)])
        whole = np.concatenate([np.zeros((2, 1)), below, np.ones((2, 1))], axis=1)
        chances: Floats = np.diff(whole, axis=1) * np.array([[1 - self.positive_rate], [self.positive_rate]])
        return chances

    @cached_property
    def fine(self) -> Floats:
        """Give the chances in cells so narrow that they stand for the true law."""
        return self.chances(_FINE)

    def draw(self, records: int, rng: np.random.Generator) -> tuple[Floats, Ints]:
        """Draw scores and labels."""
        labels = (rng.random(records) < self.positive_rate).astype(np.int64)
        normal = rng.normal(self._apart * labels - self._apart / 2)
        odds = self.confidence * (self._apart * normal + np.log(self.positive_rate / (1 - self.positive_rate)))
        scores: Floats = 0.5 * (1 + np.tanh(odds / 2))
        return scores, labels
