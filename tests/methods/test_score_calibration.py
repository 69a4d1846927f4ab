from __future__ import annotations

import numpy as np
import pytest

import fedcalib as fc
from fedcalib.errors import InputError
from fedcalib.estimation.score_table import ScoreTable, default_buckets
from fedcalib.flows.tables import ScoreCalibration
from fedcalib.metrics import roc_auc
from fedcalib.metrics.reliability import binary_ece
from fedcalib.privacy.local import LocalDP
from tests.methods.test_score_curves import one_each, scored

METHODS = [
    fc.QuantileBinning(),
    fc.QuantileBinning(buckets=20, recount=0.7),
    fc.IsotonicBuckets(),
    fc.BinaryBBQ(),
    fc.PlattScaling(),
    fc.methods.BetaScaling(),
]


@pytest.fixture(scope="module")
def held_out() -> tuple[np.ndarray, np.ndarray]:
    return scored(60_000, 7)


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize(
    ("privacy", "most"), [(fc.SecAgg(), 0.012), (fc.DistributedDP(1.0), 0.012), (LocalDP(5.0), 0.04)]
)
def test_calibrates_and_keeps_the_ranking(
    method: fc.Method, privacy: fc.privacy.Privacy, most: float, held_out: tuple[np.ndarray, np.ndarray]
) -> None:
    runtime = fc.InProcess(one_each(*scored(60_000, 6)))
    calibrator = fc.run(method, runtime, privacy, randomness=fc.Simulated(5)).artifact
    scores, labels = held_out
    base = binary_ece(scores, labels)
    assert base > 0.04
    assert binary_ece(calibrator(scores), labels) < most
    assert roc_auc(calibrator(scores), labels) > roc_auc(scores, labels) - (0.02 if most > 0.02 else 0.002)


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_one_release_serves_evaluation_and_every_calibrator(method: fc.Method) -> None:
    runtime = fc.InProcess(one_each(*scored(5000, 6)))
    table = fc.run(fc.ScoreCurves(), runtime, fc.SecAgg()).artifact.table
    read = method.fit(table)
    if isinstance(method, ScoreCalibration) and method != METHODS[1]:
        assert read == fc.run(method, runtime, fc.SecAgg()).artifact


def test_isotonic_steps_rise() -> None:
    runtime = fc.InProcess(one_each(*scored(3000, 1)))
    steps = fc.run(fc.IsotonicBuckets(), runtime, fc.DistributedDP(0.5), randomness=fc.Simulated(1)).artifact
    assert (np.diff(steps.values) >= 0).all()


def test_default_buckets_follow_the_theory() -> None:
    def table(records: float, spread: float) -> ScoreTable:
        counts = np.full((2, 1024), records / 2048)
        noise = np.full((2, 1), spread**2 / 128)  # eight buckets of 128 cells carry `spread` each
        return ScoreTable(np.arange(1025) / 1024, counts, 1024, (noise,))

    assert default_buckets(table(1e6, 0.0)) in (99, 100)
    assert default_buckets(table(1e6, 1.0)) in (99, 100)
    assert default_buckets(table(1e6, 1e3 / 5)) == int(np.sqrt(5) * 1e6**0.25)


def test_noise_alone_leaves_scores_nearly_alone() -> None:
    rng = np.random.default_rng(0)
    table = ScoreTable(np.arange(65) / 64, rng.normal(10, 1000, (2, 64)), 64, (np.full((2, 1), 1e6),))
    scores = np.linspace(0.01, 0.99, 50)
    for method in (fc.PlattScaling(), fc.methods.BetaScaling()):
        assert np.abs(method.fit(table)(scores) - scores).max() < 0.2


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_one_class_only_gives_valid_probabilities(method: fc.Method, label: int) -> None:
    runtime = fc.InProcess(one_each(np.linspace(0, 1, 300), np.full(300, label)))
    answered = fc.run(method, runtime, fc.SecAgg()).artifact(np.linspace(0, 1, 21))
    assert np.isfinite(answered).all()
    assert (answered.min() >= 0) and (answered.max() <= 1)
    assert abs(answered.mean() - label) < 0.35


@pytest.mark.parametrize("privacy", [fc.SecAgg(), fc.DistributedDP(4.0)], ids=repr)
def test_a_spike_of_equal_scores_makes_no_empty_bucket_and_gets_its_own_rate(privacy: fc.privacy.Privacy) -> None:
    """Most quantiles fall on one score: edges still rise, and its neighbours do not dilute it."""
    rng = np.random.default_rng(0)
    scores = np.where(rng.random(20_000) < 0.6, 0.3, rng.random(20_000))
    labels = (rng.random(20_000) < np.where(scores == 0.3, 0.5, scores)).astype(int)
    data = fc.Federation.iid(fc.Records.of_scores(scores, labels), 5, seed=0)
    steps = fc.run(fc.QuantileBinning(buckets=10), fc.InProcess(data), privacy, randomness=fc.Simulated(0)).artifact
    assert (np.diff(steps.edges) > 0).all()
    assert steps(np.array([0.3]))[0] == pytest.approx(0.5, abs=0.03)
    assert steps(np.array([0.15, 0.75])) == pytest.approx([0.15, 0.75], abs=0.15)


def test_bad_settings_are_refused() -> None:
    with pytest.raises(InputError, match="buckets"):
        fc.QuantileBinning(buckets=0)
    with pytest.raises(InputError, match="fraction `recount`"):
        fc.QuantileBinning(recount=0.5)
    with pytest.raises(InputError, match="levels"):
        fc.BinaryBBQ(levels=0)
    with pytest.raises(InputError, match="binary"):
        fc.method.Plan.of(fc.BinaryBBQ(), fc.Schema(3, 5))
