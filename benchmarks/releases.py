"""Releases of score trees drawn from the law of the sum, for studies that repeat them hundreds of times."""

from __future__ import annotations

import numpy as np

import fedcalib as fc
from fedcalib.estimation.score_table import ScoreTable
from fedcalib.flows.tables import table_of
from fedcalib.privacy.local import RandomisedReports


def release(leaves: np.ndarray, tree: fc.methods.ScoreTree, privacy: fc.privacy.Privacy, seed: int) -> ScoreTable:
    """What the library's own mechanism would release for these leaves, drawn from the law of the sum over clients.

    Reading 1.5 million records again for every repetition would give the same law and take an hour; the tests run the
    whole path on the same flights.
    """
    clients, everyone, source = int(leaves.sum()), fc.Everyone(), fc.Simulated(seed)
    mechanism = privacy.mechanism(tree, fc.method.Plan((tree,)), everyone.cohort(clients), everyone)
    if isinstance(mechanism, RandomisedReports):
        total = _reports(mechanism, leaves, tree, source)
    else:
        nobody = fc.Federation(fc.Records.of_scores(np.zeros(0), np.zeros(0)), np.zeros(clients + 1, np.int64))
        exact = leaves.reshape(-1) if isinstance(privacy, fc.SecAgg) else tree.expand(leaves.reshape(-1))
        total = mechanism.gather(tree, nobody, source) + exact.astype(np.uint64)
    value, variance = mechanism.decode(tree, total, clients, source)
    return table_of(tree, fc.query.Answer.of(tree, value, variance, None))


def _reports(
    mechanism: RandomisedReports, leaves: np.ndarray, tree: fc.methods.ScoreTree, source: fc.Simulated
) -> np.ndarray:
    """Deal the records of each leaf to levels at random, then draw each level's reports."""
    rng, left, chance, parts = source.derive("deal").generator(), leaves.astype(np.int64), 1.0, []
    for level, (name, coder) in enumerate(mechanism.coders.items(), start=1):
        own = left  # where every record reports every level
        if mechanism.chances is not None:
            own = rng.binomial(left, min(mechanism.chances[name] / chance, 1.0))
            left, chance = left - own, chance - mechanism.chances[name]
        counts = own.reshape(2, tree.arity**level, -1).sum(axis=2).reshape(-1)
        reported = coder.encoder.total(np.append(counts, 0), source.derive(name))
        parts.append(np.append(reported, counts.sum()))
    return np.concatenate(parts)
