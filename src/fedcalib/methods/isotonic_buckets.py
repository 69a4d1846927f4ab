"""IsotonicBuckets: the rising step function nearest to the shares of positives in equi-depth buckets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.edges import EdgeSteps
from fedcalib.methods.score_calibration import ScoreCalibration, check_buckets, chosen_buckets, steadied
from fedcalib.metrics.score_buckets import Buckets
from fedcalib.metrics.score_table import ScoreTable
from fedcalib.queries.score_tree import TREE, ScoreTree
from fedcalib.trees import isotonic


@final
@dataclass(frozen=True)
class IsotonicBuckets(ScoreCalibration):
    """Replace each score by its bucket's share of positives, pooled with neighbours wherever it would fall.

    Pooling averages noise away, so the default takes twice as many buckets as plain binning would. It keeps the order
    of scores up to ties, so of the calibrators in buckets it is the one to take under local reports.
    """

    buckets: int | None = None
    tree: ScoreTree = TREE

    def __post_init__(self) -> None:
        check_buckets(self.buckets)

    @property
    def asked(self) -> ScoreTree:
        """Ask for the tree as given."""
        return self.tree

    def fit(self, table: ScoreTable) -> EdgeSteps:
        """Part the records evenly and pool what falls."""
        count = chosen_buckets(self.buckets, table) * (2 if self.buckets is None else 1)
        buckets = Buckets.even(steadied(table), count)
        held = buckets.positive + buckets.negative
        # shares stay signed until neighbours are pooled: cutting noise at zero first would lift every low bucket
        share = np.divide(buckets.positive, held, out=buckets.score.copy(), where=held > 0)
        weight = np.maximum(held, 0.0) * buckets.worth(np.clip(buckets.score, 0.02, 0.98))
        return EdgeSteps.of_arrays(buckets.edges[1:-1], isotonic(share, weight + 1e-9))
