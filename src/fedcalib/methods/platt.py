"""PlattScaling: slope and intercept on the log-odds of a binary classifier, from one histogram of scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.platt import Platt
from fedcalib.errors import InputError
from fedcalib.flows.score_table import two_classes
from fedcalib.method import Flow, Method
from fedcalib.metrics.noisy_logistic import fit_noisy_counts
from fedcalib.metrics.score_buckets import Buckets
from fedcalib.metrics.score_table import ScoreTable
from fedcalib.queries.reliability import ScoreHistogram
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
    inner = np.clip(score, 1e-6, 1 - 1e-6)
    odds = np.log(inner) - np.log1p(-inner)
    intercept, slope = fit_noisy_counts(
        np.stack([np.ones_like(odds), odds], axis=1), positive, negative, noise=noise, start=(0.0, 1.0)
    )
    return Platt(float(np.clip(slope, _FLATTEST, _STEEPEST)), float(np.clip(intercept, -_FARTHEST, _FARTHEST)))
