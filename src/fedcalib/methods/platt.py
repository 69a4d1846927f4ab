"""PlattScaling: slope and intercept on the log-odds of a binary classifier, from one histogram of scores.

BetaScaling: three numbers that bend the two ends of a binary classifier's score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.scaling import Beta, Platt
from fedcalib.errors import InputError
from fedcalib.estimation.noise_aware import fit_noisy_counts
from fedcalib.estimation.score_table import Buckets, ScoreTable
from fedcalib.flows.score_table import ScoreCalibration, check_buckets, two_classes
from fedcalib.method import Flow, Method
from fedcalib.numeric import log_odds
from fedcalib.queries.reliability import ScoreHistogram
from fedcalib.queries.scores import TREE, ScoreTree
from fedcalib.records import Schema
from fedcalib.types import Floats

_FLATTEST = 1e-3  # a slope that is no slope would lose the ranking
_STEEPEST = 1e3
_FARTHEST = 50.0


@final
@dataclass(frozen=True)
class PlattScaling(Method[Platt]):
    """Count labels by cell of the score, `cells` of equal width, then fit a line through the cells' log-odds.

    One record touches one count, so noise costs little, and two numbers average it over all cells.
    """

    cells: int = 32

    def __post_init__(self) -> None:
        if not 2 <= self.cells <= 1 << 20:
            raise InputError(f"Expected 2 to 2^20 cells, found {self.cells}.")

    def protocol(self, schema: Schema) -> Flow[Platt]:
        """Ask once and fit."""
        two_classes(schema)
        answer = yield ScoreHistogram(self.cells)
        negative, positive = answer["scores"]
        middle = (np.arange(self.cells) + 0.5) / self.cells
        return fit_platt(middle, positive, negative, answer.variance("scores")[0])

    def fit(self, table: ScoreTable) -> Platt:
        """Read the same line off the table of an evaluation that was made already, at no further cost."""
        buckets = Buckets.even(table, 2 * self.cells)
        return fit_platt(buckets.score, buckets.positive, buckets.negative, buckets.noise.mean(axis=0))


def fit_platt(score: Floats, positive: Floats, negative: Floats, noise: Floats) -> Platt:
    """Fit a line through the log-odds of cells that stand for a score each; nothing known means no change."""
    odds = log_odds(score, 1e-6)
    intercept, slope = fit_noisy_counts(
        np.stack([np.ones_like(odds), odds], axis=1), positive, negative, noise=noise, prior_mean=(0.0, 1.0)
    )
    return Platt(float(np.clip(slope, _FLATTEST, _STEEPEST)), float(np.clip(intercept, -_FARTHEST, _FARTHEST)))


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
        prior_mean=np.array([0.0, 1.0, 1.0])[kept],
    )
    return weights
