from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import precision_score, recall_score, roc_auc_score

import fedcalib as fc
from fedcalib import wire
from fedcalib.artifacts.evaluation import Curves
from fedcalib.errors import InputError
from fedcalib.estimation.score_table import ScoreTable
from fedcalib.flows.tables import table_of
from fedcalib.metrics.reliability import Reliability
from fedcalib.privacy.local import LocalDP
from tests.examples import examples
from tests.strategies import answers


def scored(n: int, seed: int, rate: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    """Binormal scores of an over-confident model."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < rate).astype(int)
    odds = rng.normal(1.2 * labels - 1.0, 1.0)
    return 1 / (1 + np.exp(-1.6 * odds)), labels


def one_each(scores: np.ndarray, labels: np.ndarray) -> fc.Federation:
    return fc.Federation(fc.Records.of_scores(scores, labels), np.arange(len(scores) + 1))


def curves(n: int, privacy: fc.privacy.Privacy, seed: int = 0, method: fc.Method | None = None) -> Curves:
    runtime = fc.InProcess(one_each(*scored(n, seed)))
    return fc.run(method or fc.ScoreCurves(), runtime, privacy, randomness=fc.Simulated(seed)).artifact


def test_every_distinct_score_in_its_own_leaf_is_exact() -> None:
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 64, 3000) / 64
    labels = (rng.random(3000) < 0.2 + 0.6 * scores).astype(int)
    found = fc.run(
        fc.ScoreCurves(fc.methods.ScoreTree(4, 3)), fc.InProcess(one_each(scores, labels)), fc.SecAgg()
    ).artifact
    assert found.auc.value == pytest.approx(roc_auc_score(labels, scores), abs=1e-14)
    for threshold in (0.25, 0.5, 0.625):
        called = scores >= threshold
        assert found.accuracy(threshold).value == pytest.approx((called == labels).mean(), abs=1e-14)
        assert found.recall(threshold).value == pytest.approx(recall_score(labels, called), abs=1e-14)
        assert found.precision(threshold).value == pytest.approx(precision_score(labels, called), abs=1e-14)


@pytest.mark.parametrize("recount", [0.0, 0.7])
@pytest.mark.parametrize(
    ("privacy", "auc", "rates"),
    [(fc.SecAgg(), 1e-4, 2e-3), (fc.DistributedDP(1.0), 2e-3, 5e-3), (LocalDP(5.0), 0.06, 0.06)],
)
def test_close_to_the_pooled_figures(privacy: fc.privacy.Privacy, auc: float, rates: float, recount: float) -> None:
    scores, labels = scored(40_000, 1)
    method = fc.ScoreCurves(recount=recount)
    found = fc.run(method, fc.InProcess(one_each(scores, labels)), privacy, randomness=fc.Simulated(3)).artifact
    exact = roc_auc_score(labels, scores)
    assert found.auc.value == pytest.approx(exact, abs=auc)
    assert found.auc.low < exact < found.auc.high
    for threshold in (0.2, 0.5):
        called = scores >= threshold
        assert found.accuracy(threshold).value == pytest.approx((called == labels).mean(), abs=rates)
        assert found.recall(threshold).value == pytest.approx(recall_score(labels, called), abs=rates)
        assert found.precision(threshold).value == pytest.approx(precision_score(labels, called), abs=rates)
    table = Reliability.binary(scores, labels, 15)
    ece = float(np.abs(table.confidence - table.correct).sum() / len(labels))
    assert found.ece().value == pytest.approx(ece, abs=rates)
    assert found.ece().low < ece < found.ece().high


@pytest.mark.parametrize("privacy", [fc.SecAgg(), fc.DistributedDP(1.0), LocalDP(5.0)])
def test_curves_fall_and_stay_within_their_bands(privacy: fc.privacy.Privacy) -> None:
    found = curves(20_000, privacy)
    roc, pr = found.roc(), found.pr()
    assert (np.diff(roc.threshold) < 0).all()
    assert (np.diff(roc.x.value) >= -1e-12).all()
    assert (np.diff(roc.y.value) >= -1e-12).all()
    for rate in (roc.x, roc.y, pr.x, pr.y):
        known = ~np.isnan(rate.value)
        assert ((rate.low <= rate.value) & (rate.value <= rate.high))[known].all()
        assert rate.low.min() >= 0
        assert rate.high.max() <= 1
    bins = found.reliability(10)
    assert bins.records.sum() == pytest.approx(found.records, rel=1e-9)


def test_one_release_answers_everything() -> None:
    result = fc.run(
        fc.ScoreCurves(), fc.InProcess(one_each(*scored(2000, 0))), fc.DistributedDP(1.0), randomness=fc.Simulated(0)
    )
    assert len(result.plan.queries) == 1
    assert wire.dumps(wire.loads(wire.dumps(result.artifact))) == wire.dumps(result.artifact)


def test_both_ways_to_count_spend_the_whole_budget_and_no_more() -> None:
    for method in (fc.ScoreCurves(), fc.ScoreCurves(recount=0.7)):
        plan = fc.method.Plan.of(method, fc.Schema(2, 1000))
        cohort = fc.Everyone().cohort(1000)
        privacy = fc.DistributedDP(1.0)
        costs = [privacy.mechanism(q, plan, cohort, fc.Everyone()).event(q, cohort).epsilon for q in plan.queries]
        assert sum(costs) == pytest.approx(1.0)
    assert costs == pytest.approx([0.3, 0.7])


@pytest.mark.parametrize("drop", [0.1, 0.5])
def test_dropouts_within_the_promise_keep_epsilon_and_below_it_the_run_refuses(drop: float) -> None:
    everyone = one_each(*scored(1000, 4))
    present = everyone.subset(np.arange(round(1000 * (1 - drop))))
    query = fc.methods.ScoreTree(4, 2)
    plan, promised = fc.method.Plan((query,)), fc.Everyone(dropout=drop)
    mechanism = fc.DistributedDP(1.0).mechanism(query, plan, promised.cohort(1000), promised)
    assert mechanism.event(query, promised.cohort(1000)).epsilon == pytest.approx(1.0)
    total = mechanism.gather(query, present, fc.Simulated(0))
    _, variance = mechanism.decode(query, total, len(present), fc.Simulated(0))
    assert variance[0] == pytest.approx(2 * np.exp(-0.5) / (1 - np.exp(-0.5)) ** 2)  # discrete Laplace of epsilon 1/2
    with pytest.raises(fc.errors.TooFewClients):
        promised.cohort(1000).require(len(present) - 1)


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_only_is_flagged(label: int) -> None:
    found = fc.run(
        fc.ScoreCurves(fc.methods.ScoreTree(2, 4)),
        fc.InProcess(one_each(np.linspace(0, 1, 50), np.full(50, label))),
        fc.SecAgg(),
    ).artifact
    assert np.isnan(found.auc.value)
    assert (found.auc.low, found.auc.high) == (0.0, 1.0)
    assert any("left out" in warning for warning in found.warnings)
    assert found.to_json()["auc"] is None
    assert np.isnan(found.recall(0.5).value) == (label == 0)


def test_constant_scores_are_flagged_and_rank_nothing() -> None:
    found = fc.run(
        fc.ScoreCurves(), fc.InProcess(one_each(np.full(100, 0.4), np.arange(100) % 2)), fc.SecAgg()
    ).artifact
    assert found.auc.value == 0.5
    assert found.auc.low == 0.0
    assert found.auc.high == 1.0
    assert any("one cell" in warning for warning in found.warnings)


def test_too_few_clients_for_the_noise_are_flagged() -> None:
    found = curves(40, fc.DistributedDP(0.1))
    assert np.isnan(found.auc.value)
    assert np.isnan(found.accuracy(0.5).value)
    assert np.isnan(found.ece().value)
    assert found.warnings


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        fc.Records.of_scores([0.2, 1.3], [0, 1])
    found = curves(500, fc.SecAgg())
    for threshold in (-0.1, 1.1, float("nan")):
        with pytest.raises(InputError, match="thresholds between 0 and 1"):
            found.recall(threshold)
    with pytest.raises(InputError, match="recounting"):
        fc.ScoreCurves(recount=1.0)
    with pytest.raises(InputError, match="epsilon above 0"):
        fc.DistributedDP(0.0)
    with pytest.raises(InputError, match="binary"):
        fc.method.Plan.of(fc.ScoreCurves(), fc.Schema(3, 5))
    with pytest.raises(InputError, match="bins"):
        found.ece(0)
    with pytest.raises(InputError, match="rising edges"):
        ScoreTable(np.array([0.0, 0.6, 0.5, 1.0]), np.zeros((2, 3)), 3, (np.zeros((2, 1)),))


@pytest.mark.parametrize("privacy", [fc.SecAgg(), fc.DistributedDP(1.0), LocalDP(5.0)])
def test_intervals_cover_the_truth_and_are_not_padded(privacy: fc.privacy.Privacy) -> None:
    # sixty runs of fixed seeds here; a thousand in the benchmark
    scores, labels = scored(400_000, 99)
    table = Reliability.binary(scores, labels, 15)
    truth = {
        "auc": roc_auc_score(labels, scores),
        "accuracy": float(((scores >= 0.5) == labels).mean()),
        "ece": float(np.abs(table.confidence - table.correct).sum() / len(labels)),
    }
    runs = [curves(6000, privacy, seed, fc.ScoreCurves(fc.methods.ScoreTree(4, 4))) for seed in range(60)]
    for name, true in truth.items():
        figures = [run.auc if name == "auc" else run.accuracy(0.5) if name == "accuracy" else run.ece() for run in runs]
        covered = np.mean([figure.low <= true <= figure.high for figure in figures])
        spread = np.subtract(*np.quantile([figure.value for figure in figures], [0.975, 0.025]))
        assert covered >= 0.85, name
        assert np.mean([figure.high - figure.low for figure in figures]) <= 2.0 * spread, name


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_any_answer_gives_figures_in_range_or_nan(data: st.DataObject) -> None:
    tree = fc.methods.ScoreTree(4, 2)
    found = Curves(table_of(tree, data.draw(answers(tree))))
    figures = [
        found.auc,
        found.accuracy(0.5),
        found.precision(0.3),
        found.recall(1.0),
        found.ece(7),
        found.positive_rate,
    ]
    for figure in figures:
        assert 0 <= figure.low <= figure.high <= 1
        assert np.isnan(figure.value) or figure.low <= figure.value <= figure.high
    for curve in (found.roc(), found.pr()):
        assert len(curve.threshold) == len(curve.x.value) == len(curve.y.low)
    assert len(found.reliability(5).records) == 5
    for method in (
        fc.QuantileBinning(),
        fc.IsotonicBuckets(),
        fc.BinaryBBQ(3),
        fc.PlattScaling(),
        fc.methods.BetaScaling(),
    ):
        calibrated = method.fit(found.table)(np.linspace(0, 1, 7))
        assert ((calibrated >= 0) & (calibrated <= 1)).all()
