"""QuantileBinning: the share of positives in each of a number of equi-depth buckets of the score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.edges import EdgeSteps
from fedcalib.errors import InputError
from fedcalib.flows.recounted import recounted
from fedcalib.flows.score_table import score_table, two_classes
from fedcalib.method import Flow
from fedcalib.methods.score_calibration import ScoreCalibration, check_buckets, chosen_buckets, steadied
from fedcalib.metrics.score_buckets import Buckets
from fedcalib.metrics.score_table import ScoreTable
from fedcalib.queries.score_tree import TREE, ScoreTree
from fedcalib.records import Schema
from fedcalib.types import Floats


@final
@dataclass(frozen=True)
class QuantileBinning(ScoreCalibration):
    """Replace each score by the share of positives in its bucket, `smoothing` pseudo-records keeping it near the score.

    Bucket counts are differences of the tree, or, with `recount` above 0 (which needs `buckets`), a second query with
    that share of the budget.
    """

    buckets: int | None = None
    tree: ScoreTree = TREE
    recount: float = 0.0
    smoothing: float = 2.0

    def __post_init__(self) -> None:
        check_buckets(self.buckets)
        if not 0 <= self.recount < 1 or (self.recount > 0 and self.buckets is None):
            raise InputError("Expected a share from 0 to below 1 for recounting, and the number of buckets with it.")
        if not self.smoothing >= 0:
            raise InputError(f"Expected smoothing of at least 0, found {self.smoothing}.")

    @property
    def asked(self) -> ScoreTree:
        """Ask for the tree as given."""
        return self.tree

    def protocol(self, schema: Schema) -> Flow[Calibrator]:
        """Ask once, or once for edges and once for counts."""
        two_classes(schema)
        if self.recount == 0 or self.buckets is None:
            return self.fit((yield from score_table(self.tree)))
        table = yield from recounted(self.tree, self.buckets, self.recount)
        return self._read(Buckets.of(table, tuple(table.edges[1:-1].tolist())))

    def fit(self, table: ScoreTable) -> EdgeSteps:
        """Part the records evenly and take the shares."""
        return self._read(Buckets.even(steadied(table), chosen_buckets(self.buckets, table)))

    def _read(self, buckets: Buckets) -> EdgeSteps:
        return EdgeSteps.of_arrays(buckets.edges[1:-1], shares(buckets, self.smoothing))


def shares(buckets: Buckets, smoothing: float) -> Floats:
    """Give each bucket's share of positives, drawn toward its mean score by pseudo-records and by noise."""
    positive = np.maximum(buckets.positive, 0.0)
    held = buckets.held
    worth = buckets.worth(np.clip(buckets.score, 0.02, 0.98))
    whole = worth * held + smoothing
    return np.divide(worth * positive + smoothing * buckets.score, whole, out=buckets.score.copy(), where=whole > 0)
