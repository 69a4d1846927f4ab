"""QuantileBinning: the share of positives in each of a number of equi-depth buckets of the score.

IsotonicBuckets: the rising step function nearest to the shares of positives in equi-depth buckets.

BinaryBBQ: Bayesian binning into quantiles, over dyadic merges of equi-depth buckets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.steps import EdgeSteps
from fedcalib.errors import InputError
from fedcalib.estimation.score_table import Buckets, ScoreTable
from fedcalib.estimation.trees import isotonic
from fedcalib.flows.score_table import (
    ScoreCalibration,
    check_buckets,
    chosen_buckets,
    recounted,
    score_table,
    steadied,
    two_classes,
)
from fedcalib.method import Flow
from fedcalib.queries.scores import TREE, ScoreTree
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
    held = buckets.records
    worth = buckets.effective_fraction(np.clip(buckets.score, 0.02, 0.98))
    whole = worth * held + smoothing
    return np.divide(worth * positive + smoothing * buckets.score, whole, out=buckets.score.copy(), where=whole > 0)


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
        weight = np.maximum(held, 0.0) * buckets.effective_fraction(np.clip(buckets.score, 0.02, 0.98))
        return EdgeSteps.of_arrays(buckets.edges[1:-1], isotonic(share, weight + 1e-9))


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
    worth = buckets.effective_fraction(prior)
    up, down = worth * np.maximum(buckets.positive, 0.0), worth * np.maximum(buckets.negative, 0.0)
    a, b = 2 * prior, 2 * (1 - prior)
    score = float((betaln(up + a, down + b) - betaln(a, b)).sum())
    return score, (up + a) / (up + down + 2)
