"""A model of scores to plan with: normal log-odds of both labels, shifted apart.

Runs of a study that nobody took part in: counts drawn from a model of scores, noise from the model's own law.
"""

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
        odds = log_odds(edges) / self.confidence
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
        scores: Floats = sigmoid(odds)
        return scores, labels


_SEED: Final = 20231


def simulated_tables(
    model: ScoreModel, tree: ScoreTree, privacy: Privacy, clients: int, *, runs: int, seed: int = _SEED
) -> tuple[ScoreTable, Floats]:
    """Simulate so many runs with one record a client.

    Gives the expected table, and the counts of all runs as estimated, (runs, 2, leaves).
    """
    rng = np.random.default_rng(seed)
    chances = model.chances(tree.leaves)
    levels = noise_levels(tree, privacy, clients, chances)
    expected = ScoreTable(bin_edges(tree.leaves), clients * chances, tree.arity, levels)
    drawn = rng.multinomial(clients, chances.reshape(-1), size=runs).reshape(runs, 2, tree.leaves).astype(np.float64)
    if expected.exact:
        return expected, drawn
    sums = _levels(drawn, tree)
    noisy = [cells + rng.normal(size=cells.shape) * np.sqrt(noise) for cells, noise in zip(sums, levels, strict=True)]
    return expected, consistent(noisy, levels, tree.arity)


def noise_levels(tree: ScoreTree, privacy: Privacy, clients: int, chances: Floats) -> tuple[Floats, ...]:
    """Ask the privacy model which noise it would add to each level, (2, cells) each."""
    everyone = Everyone()
    cohort: Cohort = everyone.cohort(clients)
    mechanism = privacy.mechanism(tree, Plan((tree,)), cohort, everyone)
    total = _expected_total(mechanism, tree, clients, chances)
    _, variance = mechanism.decode(tree, total, clients, Simulated(0))
    return tuple(tree.split(variance).values())


def _expected_total(mechanism: Mechanism, tree: ScoreTree, clients: int, chances: Floats) -> Array:
    """Give the total that a mechanism would read on average; only local reports have noise that depends on it."""
    if not isinstance(mechanism, RandomisedReports):
        return np.zeros(mechanism.width(tree), dtype=np.uint64)
    parts = []
    for (name, coder), share in zip(mechanism.coders.items(), _levels(chances[None], tree), strict=True):
        reports = round(clients * (1.0 if mechanism.chances is None else mechanism.chances[name]))
        own, other = coder.encoder.probabilities(coder.symbols.count)
        parts.append(np.append(reports * (share[0].reshape(-1) * (own - other) + other), reports))
    return np.concatenate(parts)


def _levels(leaves: Floats, tree: ScoreTree) -> list[Floats]:
    """Sum leaves, (runs, 2, leaves), up to every level, from coarse to fine."""
    steps = [leaves] + [tree.arity] * (tree.height - 1)
    up = accumulate(steps, lambda cells, arity: cells.reshape(*cells.shape[:2], -1, arity).sum(axis=3))
    return list(up)[::-1]
