"""BinaryBBQ: Bayesian binning into quantiles, over dyadic merges of equi-depth buckets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.edges import EdgeSteps
from fedcalib.errors import InputError
from fedcalib.methods.score_calibration import ScoreCalibration
from fedcalib.metrics.score_buckets import Buckets
from fedcalib.metrics.score_table import ScoreTable
from fedcalib.queries.score_tree import TREE, ScoreTree
from fedcalib.types import Floats

_INNER = 0.005  # prior means are kept this far from 0 and 1


@final
@dataclass(frozen=True)
class BinaryBBQ(ScoreCalibration):
    """Average histograms of 1, 2, 4, ..., 2^levels buckets, each weighted by how well it explains the labels.

    Buckets are merged from the finest by summing, so all come from one table. A noisy bucket counts as fewer records,
    so noise is not mistaken for detail.
    """

    levels: int = 6
    tree: ScoreTree = TREE

    def __post_init__(self) -> None:
        if not 1 <= self.levels <= 12:
            raise InputError(f"Expected 1 to 12 levels, found {self.levels}.")

    @property
    def asked(self) -> ScoreTree:
        """Ask for the tree as given."""
        return self.tree

    def fit(self, table: ScoreTable) -> EdgeSteps:
        """Score every resolution and average what they say."""
        finest = Buckets.even(table, 2**self.levels)
        inner = finest.edges[1:-1]
        scores, tables = [], []
        for step in 2 ** np.arange(self.levels + 1):
            merged = Buckets.of(table, tuple(inner[step - 1 :: step].tolist()))
            score, value = _evidence(merged)
            scores.append(score)
            tables.append(value[np.searchsorted(merged.edges[1:-1], finest.edges[:-1], side="right")])
        weights = np.exp(np.array(scores) - max(scores))
        return EdgeSteps.of_arrays(inner, (weights / weights.sum()) @ np.stack(tables))


def _evidence(buckets: Buckets) -> tuple[float, Floats]:
    """Give the log evidence of the labels, beta-binomial around the mean scores, and the posterior means."""
    from scipy.special import betaln

    prior = np.clip(buckets.score, _INNER, 1 - _INNER)
    worth = buckets.worth(prior)
    up, down = worth * np.maximum(buckets.positive, 0.0), worth * np.maximum(buckets.negative, 0.0)
    a, b = 2 * prior, 2 * (1 - prior)
    score = float((betaln(up + a, down + b) - betaln(a, b)).sum())
    return score, (up + a) / (up + down + 2)
