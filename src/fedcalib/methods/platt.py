"""Parametric calibration of binary classifiers: Platt scaling and beta calibration, from counts of labels by score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.scaling import Beta, Platt
from fedcalib.errors import InputError
from fedcalib.estimation.noise_aware import fit_noisy_counts
from fedcalib.estimation.score_table import Buckets, ScoreTable
from fedcalib.flows.tables import ScoreCalibration, check_buckets, two_classes
from fedcalib.method import Flow, Method
from fedcalib.numeric import log_odds
from fedcalib.queries.reliability import ScoreHistogram
from fedcalib.queries.scores import TREE, ScoreTree
from fedcalib.records import Schema
from fedcalib.types import Floats

_MIN_SLOPE = 1e-3  # a slope of zero would lose the ranking
_MAX_SLOPE = 1e3
_MAX_INTERCEPT = 50.0


@final
@dataclass(frozen=True)
class PlattScaling(Method[Platt]):
    """Fit slope and intercept on the log-odds of a binary classifier, from one histogram of scores.

    One record touches one count, so noise costs little, and two parameters average it over all cells.

    Parameters
    ----------
    cells
        Number of cells of equal width of the score.

    Examples
    --------
    >>> import fedcalib as fc
    >>> federation = fc.Federation.simulated(classes=2, temperature=2.0, records=20_000)
    >>> platt = fc.run(fc.PlattScaling(cells=256), fc.InProcess(federation), fc.SecAgg()).artifact
    >>> round(platt.slope, 1), abs(round(platt.intercept, 1))
    (0.5, 0.0)
    """

    cells: int = 32

    def __post_init__(self) -> None:
        if not 2 <= self.cells <= 1 << 20:
            raise InputError(f"Expected 2 to 2^20 cells, found {self.cells}.")

    def protocol(self, schema: Schema) -> Flow[Platt]:
        two_classes(schema)
        answer = yield ScoreHistogram(self.cells)
        negative, positive = answer["scores"]
        middle = (np.arange(self.cells) + 0.5) / self.cells
        return fit_platt(middle, positive, negative, answer.variance("scores")[0])

    def fit(self, table: ScoreTable) -> Platt:
        """Fit to the table of an evaluation that was made already, which costs no further privacy."""
        buckets = Buckets.even(table, 2 * self.cells)
        return fit_platt(buckets.score, buckets.positive, buckets.negative, buckets.noise.mean(axis=0))


def fit_platt(score: Floats, positive: Floats, negative: Floats, noise: Floats) -> Platt:
    """Fit a line through the log-odds of cells, each at its score; without records, the line is the identity."""
    odds = log_odds(score, 1e-6)
    columns = np.stack([np.ones_like(odds), odds], axis=1)
    intercept, slope = fit_noisy_counts(columns, positive, negative, noise=noise, prior_mean=(0.0, 1.0))
    limited = np.clip([slope, intercept], [_MIN_SLOPE, -_MAX_INTERCEPT], [_MAX_SLOPE, _MAX_INTERCEPT])
    return Platt(*limited.tolist())


@final
@dataclass(frozen=True)
class BetaScaling(ScoreCalibration):
    """Fit log-odds of a binary classifier that are linear in ln p and -ln(1 - p); negative weights become zero.

    Parameters
    ----------
    buckets
        Number of equi-depth buckets that are fitted.
    tree
        The tree of scores to count.

    Examples
    --------
    >>> import fedcalib as fc
    >>> import numpy as np
    >>> federation = fc.Federation.simulated(classes=2, temperature=2.0, records=20_000)
    >>> beta = fc.run(fc.methods.BetaScaling(), fc.InProcess(federation), fc.SecAgg()).artifact
    >>> beta(np.array([0.1, 0.9])).round(1)  # scores were over-confident
    array([0.3, 0.8])
    """

    buckets: int = 64
    tree: ScoreTree = TREE

    def __post_init__(self) -> None:
        check_buckets(self.buckets)

    def fit(self, table: ScoreTable) -> Beta:
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
    """Fit some of the weights, starting from the identity; the others are zero."""
    weights = np.zeros(columns.shape[1])
    noise, mean = buckets.noise.mean(axis=0), np.array([0.0, 1.0, 1.0])[kept]
    counts = buckets.positive, buckets.negative
    weights[kept] = fit_noisy_counts(columns[:, kept], *counts, noise=noise, prior_mean=mean)
    return weights
