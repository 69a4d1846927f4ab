from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import fedcalib as fc
from fedcalib.artifacts.evaluation import Comparison
from fedcalib.errors import InputError


def rivals(n: int, seed: int, better: float = 0.4) -> fc.Federation:
    """Two models that share most of their noise; the first one sees a little more."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < 0.35).astype(int)
    common = rng.normal(1.0 * labels, 1.0)
    own = common + rng.normal(better * labels, 0.5) - 0.5
    other = common + rng.normal(0, 0.5, n) - 0.5
    scores, rival = 1 / (1 + np.exp(-own)), 1 / (1 + np.exp(-other))
    return fc.Federation(fc.Records.of_scores(scores, labels, rival=rival), np.arange(n + 1))


def compared(federation: fc.Federation, privacy: fc.privacy.Privacy, seed: int = 0) -> Comparison:
    return fc.run(fc.CompareModels(), fc.InProcess(federation), privacy, randomness=fc.Simulated(seed)).artifact


@pytest.mark.parametrize(
    ("privacy", "off"), [(fc.SecAgg(), 5e-4), (fc.DistributedDP(2.0), 5e-3), (fc.LocalDP(6.0), 0.1)]
)
def test_agrees_with_the_pooled_figures(privacy: fc.privacy.Privacy, off: float) -> None:
    federation = rivals(60_000, 0)
    records = federation.records
    scores, rival, labels = records.score, records.extra["rival"], records.labels
    found = compared(federation, privacy)
    difference = roc_auc_score(labels, scores) - roc_auc_score(labels, rival)
    assert found.auc_difference.value == pytest.approx(difference, abs=off)
    assert found.auc_difference.low < difference < found.auc_difference.high
    right = ((scores >= 0.5) == labels).mean() - ((rival >= 0.5) == labels).mean()
    assert found.accuracy_difference.value == pytest.approx(right, abs=1e-12 if off < 1e-3 else off)
    assert found.accuracy_difference.low < right < found.accuracy_difference.high


def test_pairing_makes_the_interval_shorter_than_two_single_ones() -> None:
    found = compared(rivals(20_000, 1), fc.SecAgg())
    width = {name: figure["high"] - figure["low"] for name, figure in found.to_json().items()}
    assert width["auc_difference"] < 0.75 * np.hypot(width["auc"], width["rival_auc"])
    assert found.auc_difference.low > 0  # the better model is told apart


def test_the_interval_of_the_difference_covers_it() -> None:
    big = rivals(400_000, 9).records
    truth = roc_auc_score(big.labels, big.score) - roc_auc_score(big.labels, big.extra["rival"])
    runs = [compared(rivals(4000, seed), fc.DistributedDP(3.0), seed).auc_difference for seed in range(60)]
    assert np.mean([run.low <= truth <= run.high for run in runs]) >= 0.85
    spread = np.subtract(*np.quantile([run.value for run in runs], [0.975, 0.025]))
    assert np.mean([run.high - run.low for run in runs]) < 1.6 * spread


def test_it_is_accounted_once() -> None:
    plan = fc.method.Plan.of(fc.CompareModels(), fc.Schema(2, 1000))
    cohort, privacy = fc.Everyone().cohort(1000), fc.DistributedDP(1.0)
    costs = [privacy.mechanism(q, plan, cohort, fc.Everyone()).event(q, cohort).epsilon for q in plan.queries]
    assert costs == pytest.approx([0.2, 0.8])


def test_too_little_data_is_flagged_and_bad_input_refused() -> None:
    found = compared(rivals(60, 2), fc.DistributedDP(0.1))
    assert np.isnan(found.auc_difference.value)
    assert found.warnings
    assert found.to_json()["auc"] is None
    bare = fc.Federation.iid(fc.Records.of_scores([0.2, 0.4, 0.6, 0.8] * 5, [0, 1] * 10), 5, 0)
    with pytest.raises(InputError, match="column 'rival'"):
        compared(bare, fc.SecAgg())
    with pytest.raises(InputError, match="threshold"):
        fc.CompareModels(threshold=1.0)


def test_method_and_queries_survive_the_wire() -> None:
    from fedcalib import wire

    method = fc.CompareModels()
    assert wire.loads(wire.dumps(method)) == method
    for query in fc.method.Plan.of(method, fc.Schema(2, 10)).queries:
        assert dict(wire.loads(wire.dumps(query)).blocks) == dict(query.blocks)
