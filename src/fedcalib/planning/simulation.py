"""Simulated studies: counts sampled from a model of scores, with the noise of a privacy model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Final, final

import numpy as np

from fedcalib.cohort import Cohort, Everyone
from fedcalib.errors import InputError
from fedcalib.estimation.score_table import ScoreTable
from fedcalib.estimation.trees import consistent
from fedcalib.method import Plan
from fedcalib.metrics.binning import bin_edges
from fedcalib.numeric import log_odds, sigmoid
from fedcalib.privacy import Mechanism, Privacy
from fedcalib.privacy.local import RandomisedReports
from fedcalib.queries.scores import ScoreTree
from fedcalib.randomness import Simulated
from fedcalib.types import Array, Floats, Ints

_FINE_CELLS: Final = 1 << 16  # so many that they stand for a continuous score


@final
@dataclass(frozen=True)
class ScoreModel:
    """A model of a binary classifier's scores.

    Log-odds of negatives and positives are normal with the same variance and a distance that gives the AUC.

    Parameters
    ----------
    positive_rate
        Fraction of positives.
    auc
        Area under the ROC curve, above 0.5.
    confidence
        With 1 the scores are calibrated; above 1 the log-odds are that many times too large.

    Examples
    --------
    >>> import numpy as np
    >>> import fedcalib as fc
    >>> model = fc.planning.ScoreModel(positive_rate=0.2, auc=0.9)
    >>> scores, labels = model.draw(50_000, np.random.default_rng(0))
    >>> round(fc.metrics.roc_auc(scores, labels), 2)
    0.9
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
    def _distance(self) -> float:
        from statistics import NormalDist

        return float(np.sqrt(2.0)) * NormalDist().inv_cdf(self.auc)

    def chances(self, cells: int) -> Floats:
        """Probability of each label and cell, shape (2, cells), for cells of equal width."""
        from scipy.special import ndtr

        edges = bin_edges(cells)[1:-1]
        odds = log_odds(edges) / self.confidence
        base = np.log(self.positive_rate / (1 - self.positive_rate))
        z = (odds - base) / self._distance + self._distance / 2  # the standard normal variable of a negative
        below = np.stack([ndtr(z), ndtr(z - self._distance)])
        cumulative = np.concatenate([np.zeros((2, 1)), below, np.ones((2, 1))], axis=1)
        chances: Floats = np.diff(cumulative, axis=1) * np.array([[1 - self.positive_rate], [self.positive_rate]])
        return chances

    @cached_property
    def fine(self) -> Floats:
        """Probabilities in cells so narrow that they stand for the continuous distribution."""
        return self.chances(_FINE_CELLS)

    def draw(self, records: int, rng: np.random.Generator) -> tuple[Floats, Ints]:
        """Random scores and labels, shape (records,) each."""
        labels = (rng.random(records) < self.positive_rate).astype(np.int64)
        normal = rng.normal(self._distance * labels - self._distance / 2)
        odds = self.confidence * (self._distance * normal + np.log(self.positive_rate / (1 - self.positive_rate)))
        scores: Floats = sigmoid(odds)
        return scores, labels


_SEED: Final = 20231


def simulated_tables(
    model: ScoreModel, tree: ScoreTree, privacy: Privacy, clients: int, *, runs: int, seed: int = _SEED
) -> tuple[ScoreTable, Floats]:
    """Simulate runs with one record per client.

    Returns the expected table, and the estimated counts of all runs, (runs, 2, leaves).
    """
    rng = np.random.default_rng(seed)
    chances = model.chances(tree.leaves)
    levels = noise_levels(tree, privacy, clients, chances)
    expected = ScoreTable(bin_edges(tree.leaves), clients * chances, tree.arity, levels)
    sampled = rng.multinomial(clients, chances.reshape(-1), size=runs).reshape(runs, 2, tree.leaves).astype(np.float64)
    if expected.exact:
        return expected, sampled
    sums = _levels(sampled, tree)
    noisy = [cells + rng.normal(size=cells.shape) * np.sqrt(noise) for cells, noise in zip(sums, levels, strict=True)]
    return expected, consistent(noisy, levels, tree.arity)


def noise_levels(tree: ScoreTree, privacy: Privacy, clients: int, chances: Floats) -> tuple[Floats, ...]:
    """Noise variances that a privacy model adds to each level, (2, cells) each."""
    everyone = Everyone()
    cohort: Cohort = everyone.cohort(clients)
    mechanism = privacy.mechanism(tree, Plan((tree,)), cohort, everyone)
    total = _expected_total(mechanism, tree, clients, chances)
    _, variance = mechanism.decode(tree, total, clients, Simulated(0))
    return tuple(tree.split(variance).values())


def _expected_total(mechanism: Mechanism, tree: ScoreTree, clients: int, chances: Floats) -> Array:
    """The total that a mechanism decodes on average; only the noise of local reports depends on it."""
    if not isinstance(mechanism, RandomisedReports):
        return np.zeros(mechanism.width(tree), dtype=np.uint64)
    parts = []
    for (name, coder), level in zip(mechanism.coders.items(), _levels(chances[None], tree), strict=True):
        reports = round(clients * (1.0 if mechanism.chances is None else mechanism.chances[name]))
        own, other = coder.encoder.probabilities(coder.symbols.count)
        parts.append(np.append(reports * (level[0].reshape(-1) * (own - other) + other), reports))
    return np.concatenate(parts)


def _levels(leaves: Floats, tree: ScoreTree) -> list[Floats]:
    """Sums of leaves, (runs, 2, leaves), at every level, from coarse to fine."""
    steps = [leaves] + [tree.arity] * (tree.height - 1)
    levels = accumulate(steps, lambda cells, arity: cells.reshape(*cells.shape[:2], -1, arity).sum(axis=3))
    return list(levels)[::-1]
