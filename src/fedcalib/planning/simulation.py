"""Runs of a study that nobody took part in: counts drawn from a model of scores, noise from the model's own law."""

from __future__ import annotations

from itertools import accumulate
from typing import Final

import numpy as np

from fedcalib.binning import bin_edges
from fedcalib.cohort import Cohort, Everyone
from fedcalib.method import Plan
from fedcalib.metrics.score_table import ScoreTable
from fedcalib.planning.score_model import ScoreModel
from fedcalib.privacy.local import RandomisedReports
from fedcalib.privacy.model import Mechanism, Privacy
from fedcalib.queries.score_tree import ScoreTree
from fedcalib.randomness import Simulated
from fedcalib.trees import consistent
from fedcalib.types import Array, Floats

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
        own, other = coder.encoder.chances(coder.symbols.count)
        parts.append(np.append(reports * (share[0].reshape(-1) * (own - other) + other), reports))
    return np.concatenate(parts)


def _levels(leaves: Floats, tree: ScoreTree) -> list[Floats]:
    """Sum leaves, (runs, 2, leaves), up to every level, from coarse to fine."""
    steps = [leaves] + [tree.arity] * (tree.height - 1)
    up = accumulate(steps, lambda cells, arity: cells.reshape(*cells.shape[:2], -1, arity).sum(axis=3))
    return list(up)[::-1]
