from __future__ import annotations

import numpy as np
import pytest

import fedcalib as fc
from fedcalib.metrics.ranking import confusion


@pytest.mark.parametrize("privacy", [fc.SecAgg(), fc.DistributedDP(1.0), fc.Open()])
def test_four_children_where_noise_is_shared_or_absent(privacy: fc.privacy.Privacy) -> None:
    assert fc.planning.suited_tree(privacy) == fc.methods.ScoreTree(4, 5)


def test_two_children_do_better_under_local_reports() -> None:
    privacy = fc.LocalDP(5.0)
    scores, labels = fc.planning.ScoreModel().draw(100_000, np.random.default_rng(0))
    federation = fc.Federation(fc.Records.of_scores(scores, labels), np.arange(len(scores) + 1))
    thresholds = np.arange(1, 11) / 11
    truth = confusion(scores, labels, thresholds).recall
    errors = {}
    for tree in (fc.planning.suited_tree(privacy), fc.methods.ScoreTree()):
        runs = [
            fc.run(fc.ScoreCurves(tree), fc.InProcess(federation), privacy, randomness=fc.Simulated(seed)).artifact
            for seed in range(20)
        ]
        found = np.array([[curves.recall(threshold).value for threshold in thresholds] for curves in runs])
        errors[tree.arity] = float(np.sqrt(np.nanmean((found - truth) ** 2)))
    assert errors[2] < errors[4]
