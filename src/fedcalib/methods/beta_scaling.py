"""BetaScaling: three numbers that bend the two ends of a binary classifier's score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.platt import Beta
from fedcalib.methods.score_calibration import ScoreCalibration, check_buckets
from fedcalib.metrics.noisy_logistic import fit_noisy_counts
from fedcalib.metrics.score_buckets import Buckets
from fedcalib.metrics.score_table import ScoreTable
from fedcalib.queries.score_tree import TREE, ScoreTree
from fedcalib.types import Floats


@final
@dataclass(frozen=True)
class BetaScaling(ScoreCalibration):
    """Fit log-odds that are linear in ln p and -ln(1 - p) to a table's buckets; a weight below zero becomes zero."""

    buckets: int = 64
    tree: ScoreTree = TREE

    def __post_init__(self) -> None:
        check_buckets(self.buckets)

    @property
    def asked(self) -> ScoreTree:
        """Ask for the tree as given."""
        return self.tree

    def fit(self, table: ScoreTable) -> Beta:
        """Part the records evenly and fit."""
        buckets = Buckets.even(table, self.buckets)
        score = np.clip(buckets.score, 1e-6, 1 - 1e-6)
        columns = np.stack([np.ones_like(score), np.log(score), -np.log1p(-score)], axis=1)
        kept = [0, 1, 2]
        weights = _fit(buckets, columns, kept)
        while len(kept) > 2 and (lowest := min(kept[1:], key=lambda column: float(weights[column]))):
            if weights[lowest] >= 0:
                break
            kept.remove(lowest)
            weights = _fit(buckets, columns, kept)
        low, high = np.clip(weights[1:], 0.0, 1e3).tolist()
        return Beta(low, high if low + high > 0 else 1e-3, float(np.clip(weights[0], -50, 50)))


def _fit(buckets: Buckets, columns: Floats, kept: list[int]) -> Floats:
    """Fit some of the weights, starting from no change; the others are zero."""
    weights = np.zeros(columns.shape[1])
    weights[kept] = fit_noisy_counts(
        columns[:, kept],
        buckets.positive,
        buckets.negative,
        noise=buckets.noise.mean(axis=0),
        start=np.array([0.0, 1.0, 1.0])[kept],
    )
    return weights
