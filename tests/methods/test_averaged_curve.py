"""Auto of two classes: a curve averaged by evidence, under every privacy model, and none without evidence."""

from __future__ import annotations

import numpy as np
import pytest

import fedcalib as fc
from fedcalib import metrics, wire
from fedcalib.artifacts.scaling import OddsCurve
from fedcalib.errors import InputError
from fedcalib.estimation.evidence import FALSE_MOVES
from fedcalib.estimation.odds_curves import Counts, Line, Unchanged, residual_ratio
from fedcalib.methods.averaged_curve import AveragedCurve
from fedcalib.numeric import log_odds, sigmoid
from fedcalib.queries.score_residuals import EndLabels, ScoreResiduals
from fedcalib.types import Floats, Ints

MODELS = [
    fc.Open(),
    fc.SecAgg(),
    fc.DistributedDP(1.0),
    fc.LocalDP(5.0),
    fc.SourceLaplace(3.0),
    fc.UserGaussian(1.0, 1e-5),
]
EACH_MODEL = pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)


def drawn(records: int, seed: int, slope: float = 1.0, shift: float = 0.0) -> tuple[Floats, Ints]:
    """Scores whose log-odds are `slope` times the true ones plus `shift`, and labels."""
    rng = np.random.default_rng(seed)
    true = rng.normal(-0.8, 1.6, records)
    return sigmoid(slope * true + shift), (rng.random(records) < sigmoid(true)).astype(int)


def federation(score: Floats, label: Ints, clients: int = 400) -> fc.Federation:
    return fc.Federation(fc.Records.of_scores(score, label), np.linspace(0, len(label), clients + 1).astype(int))


def loss(score: Floats, label: Ints) -> float:
    return metrics.nll(np.stack([1 - score, score], axis=1), label)


@EACH_MODEL
@pytest.mark.parametrize(("slope", "shift"), [(2.0, 0.0), (1.0, 1.0), (0.6, -0.5)])
def test_every_privacy_model_corrects_a_line(model: fc.privacy.Privacy, slope: float, shift: float) -> None:
    score, label = drawn(40_000, 0, slope, shift)
    test, truth = drawn(40_000, 1, slope, shift)
    true = (log_odds(test) - shift) / slope
    found = fc.run(fc.Auto(), fc.InProcess(federation(score, label)), model, randomness=fc.Simulated(0)).artifact
    least, before, after = (loss(each, truth) for each in (sigmoid(true), test, found(test)))
    assert after - least < 0.15 * (before - least)
    assert wire.loads(wire.dumps(found)) == found


@EACH_MODEL
@pytest.mark.parametrize("records", [400, 20_000])
def test_a_calibrated_classifier_is_left_alone(model: fc.privacy.Privacy, records: int) -> None:
    """The rule allows one of a hundred to be changed; what was there before changed most of them."""
    changed = 0
    for seed in range(40):
        score, label = drawn(records, seed)
        place = fc.InProcess(federation(score, label, clients=records // 50))
        found = fc.run(AveragedCurve(), place, model, randomness=fc.Simulated(seed)).artifact
        changed += bool(np.abs(found(score) - score).max() > 1.01e-4)  # claims beyond 1e-4 may be read as 1e-4
    assert changed <= 40 * FALSE_MOVES + 1


def test_the_evidence_against_a_calibrated_classifier_has_a_mean_of_one_at_most() -> None:
    """Of a given shape, over labels that the classifier's own scores draw; five standard errors are allowed."""
    odds = np.linspace(-4, 3, 30)
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(2000):
        positive = rng.binomial(50, sigmoid(odds))
        counts = Counts.of(odds, np.stack([50.0 - positive, positive]), np.zeros(30))
        ratios.append(np.exp(counts.fit(Line(0.3)).evidence - counts.fit(Unchanged(0.0)).evidence))
    assert np.mean(ratios) < 1 + 5 * np.std(ratios) / np.sqrt(len(ratios))
    assert np.mean(np.array(ratios) > 1 / FALSE_MOVES) <= FALSE_MOVES


def test_residuals_of_noisy_counts_rarely_speak_against_a_calibrated_classifier() -> None:
    odds = np.linspace(-11.8, 11.8, 64)
    rng = np.random.default_rng(0)
    mass = 5000 * np.exp(-((odds + 1) ** 2) / 8) / np.exp(-((odds + 1) ** 2) / 8).sum()
    found = {}
    for shift in (0.0, 1.0):
        rates = np.stack([1 - sigmoid(odds - shift), sigmoid(odds - shift)])
        counts = [rng.poisson(mass * rates) + rng.laplace(0, 10.0, (2, 64)) for _ in range(400)]
        found[shift] = np.array([residual_ratio(odds, one, np.full(64, 200.0)) for one in counts])
    assert np.mean(found[0.0] > np.log(100)) <= FALSE_MOVES
    assert np.mean(found[1.0] > np.log(100)) > 0.99


def test_exact_sums_are_as_good_as_the_best_central_shape() -> None:
    score, label = drawn(20_000, 0)
    bent = sigmoid(np.where(log_odds(score) > 0, 2.5, 0.8) * log_odds(score) - 0.3)
    place = fc.InProcess(federation(bent, label))
    auto, platt, beta = (
        loss(fc.run(method, place, fc.SecAgg()).artifact(bent), label)
        for method in (fc.Auto(), fc.PlattScaling(), fc.methods.BetaScaling())
    )
    assert auto < min(platt, beta) + 1e-4
    assert auto < platt - 5e-3


def test_ties_and_scores_of_zero_and_one() -> None:
    """Eleven values, the ends among them: each gets the rate of its own records."""
    rng = np.random.default_rng(0)
    score = rng.integers(11, size=30_000) / 10
    label = (rng.random(30_000) < 0.1 + 0.6 * score**2).astype(int)
    found = fc.run(fc.Auto(), fc.InProcess(federation(score, label)), fc.SecAgg()).artifact
    values = np.arange(11) / 10
    rates = np.array([label[score == value].mean() for value in values])
    np.testing.assert_allclose(found(values), rates, atol=0.03)
    assert (np.diff(found(values)) > 0).all()


@EACH_MODEL
def test_the_ranking_stays_whatever_the_noise(model: fc.privacy.Privacy) -> None:
    score, label = drawn(3000, 3, slope=-1.0)  # scores that fall where labels rise
    found = fc.run(fc.Auto(), fc.InProcess(federation(score, label, 60)), model, randomness=fc.Simulated(1)).artifact
    grid = sigmoid(np.linspace(-20, 20, 500))
    assert (np.diff(found(grid)) >= 0).all()
    assert np.isfinite(found(np.array([0.0, 1.0]))).all()


def test_the_guard_of_two_classes_is_asked_for() -> None:
    score, label = drawn(20_000, 0, shift=1.5)
    place = fc.InProcess(federation(score, label))
    free, kept = (fc.run(fc.Auto(guard=guard), place, fc.SecAgg()).artifact(score) for guard in (None, True))
    assert ((free > 0.5) != (score > 0.5)).mean() > 0.1
    assert ((kept > 0.5) == (score > 0.5)).all()


def test_auto_of_two_classes_sends_one_table_or_four_bounded_messages() -> None:
    plans = {
        None: ["ScoreCells"],
        "record": ["ScoreCells"],
        "client": ["TemperatureScores", "EndLabels", "ScoreResiduals", "ScoreResiduals"],
    }
    for unit, expected in plans.items():
        method = fc.Auto(None if unit is None else 1.0, unit)
        plan = fc.method.Plan.of(method, fc.Schema(2, 1000))
        assert [type(query).__name__ for query in plan.queries] == expected
        assert plan.unit == (unit or "record")


def test_more_epsilon_is_not_worse() -> None:
    score, label = drawn(6000, 0, 1.4, 0.4)
    place = fc.InProcess(federation(score, label, 60))
    means, errors = [], []
    for epsilon in (0.1, 0.3, 1.0, 3.0, 10.0):
        model = fc.DistributedDP(epsilon)
        runs = [fc.run(fc.Auto(), place, model, randomness=fc.Simulated(seed)).artifact(score) for seed in range(12)]
        losses = [loss(run, label) for run in runs]
        means.append(float(np.mean(losses)))
        errors.append(float(np.std(losses)) / np.sqrt(len(losses)))
    for before, after, one, other in zip(means, means[1:], errors, errors[1:], strict=False):
        assert after <= before + 2 * np.hypot(one, other) + 1e-4


def test_what_a_client_sends_is_bounded_whatever_it_holds() -> None:
    query = ScoreResiduals(4, fc.artifacts.Identity(), largest=1.5)
    rng = np.random.default_rng(0)
    held = [
        fc.Records.of_scores(np.full(5000, 0.5), np.ones(5000, dtype=int)),
        fc.Records.of_scores(np.full(5000, 1.0), np.zeros(5000, dtype=int)),
        fc.Records.of_scores(rng.random(300), rng.integers(2, size=300)),
        fc.Records.of_scores(np.zeros(0), np.zeros(0, dtype=int)),
    ]
    together = query.terms(fc.Federation.of(held), fc.Simulated(0))
    for records, term in zip(held, together, strict=True):
        np.testing.assert_allclose(query.term(records, rng), term, atol=1e-12)
        assert np.linalg.norm(term[:4]) <= 1.0
        assert np.linalg.norm(term[4:]) <= 1.5
    assert not together[-1].any()
    for wrong in ({"cells": 1}, {"largest": 0.0}):
        with pytest.raises(InputError):
            ScoreResiduals(**{"cells": 4, "before": fc.artifacts.Identity(), **wrong})


def test_labels_of_scores_near_0_and_1_are_bounded_whatever_a_client_holds() -> None:
    query = EndLabels(fc.artifacts.Identity(), limit=2.0)
    rng = np.random.default_rng(0)
    far = float(sigmoid(2.001))
    held = [
        fc.Records.of_scores(np.full(9000, 1.0), rng.integers(2, size=9000)),
        fc.Records.of_scores(np.repeat([far, 1 - far], 5000), np.repeat([0, 1, 0, 1], 2500)),
        fc.Records.of_scores(rng.random(300), rng.integers(2, size=300)),
        fc.Records.of_scores(np.zeros(0), np.zeros(0, dtype=int)),
    ]
    together = query.terms(fc.Federation.of(held), fc.Simulated(0))
    bounds = [query.blocks[name].bound for name in ("labels", "claims")]
    for records, term in zip(held, together, strict=True):
        np.testing.assert_allclose(query.term(records, rng), term, atol=1e-12)
        for part, bound in zip((term[:4], term[4:]), bounds, strict=True):
            assert np.linalg.norm(part) <= bound.l2
            assert np.abs(part).sum() <= bound.l1
            assert np.abs(part).max() <= bound.linf
    assert np.linalg.norm(together[1, :4]) > 0.999 * bounds[0].l2  # a client of many records attains both
    assert np.linalg.norm(together[1, 4:]) > 0.998 * bounds[1].l2
    assert not together[-1].any()
    for wrong in ({"limit": 0.0}, {"quiet": 0.0}):
        with pytest.raises(InputError):
            EndLabels(fc.artifacts.Identity(), **wrong)


@pytest.mark.parametrize("clients", [100, 1000])
def test_whole_clients_correct_scores_near_0_and_1(clients: int) -> None:
    """Naive Bayes that counts everything ten times: most scores are next to 0 and 1, and a quarter of them is wrong."""
    score, label = drawn(10_000, 0, 10.0, 3.0)
    test, truth = drawn(10_000, 1, 10.0, 3.0)
    place, method = fc.InProcess(federation(score, label, clients)), fc.Auto(typical_records=10_000 / clients)
    for seed in range(4):
        found = fc.run(method, place, fc.UserGaussian(1.0, 1e-5), randomness=fc.Simulated(seed)).artifact
        assert loss(found(test), truth) < 0.4 * loss(test, truth)


def test_a_few_hundred_records_are_enough_for_what_is_far_off() -> None:
    """At epsilon 0.3 a table of 64 cells drowned 300 records in noise, and everything was left as it was."""
    score, label = drawn(300, 0, 10.0, 3.0)
    place, method = fc.InProcess(federation(score, label, 4)), fc.Auto(typical_records=75.0)
    for seed in range(4):
        found = fc.run(method, place, fc.DistributedDP(0.3), randomness=fc.Simulated(seed)).artifact
        assert loss(found(score), label) < 0.4 * loss(score, label)


def test_noise_bounds_claims_that_it_hides_and_moves_nothing_else() -> None:
    """A calibrated classifier with scores next to 0: no probability moves by more than 1e-4."""
    rng = np.random.default_rng(0)
    odds = rng.normal(-9.0, 4.0, 20_000)
    score = sigmoid(odds)
    label = (rng.random(len(odds)) < score).astype(int)
    for model in (fc.DistributedDP(1.0), fc.LocalDP(5.0), fc.UserGaussian(1.0, 1e-5)):
        place = fc.InProcess(federation(score, label, 200))
        found = fc.run(fc.Auto(typical_records=100.0), place, model, randomness=fc.Simulated(0)).artifact
        assert 0 < np.abs(found(score) - score).max() < 1.01e-4
        assert (np.diff(found(np.sort(score)[::100])) > 0).all()


def test_curves_are_checked() -> None:
    for nodes, values in (
        ((0.0,), (0.0,)),
        ((0.0, 1.0), (1.0, 0.0)),
        ((0.0, 1.0), (0.0,)),
        ((0.0, 1.0), (0.0, np.inf)),
    ):
        with pytest.raises(InputError):
            OddsCurve(nodes, values)
    for wrong in ({"epsilon": 0.0}, {"typical_records": 0.0}):
        with pytest.raises(InputError):
            AveragedCurve(**wrong)
    with pytest.raises(InputError, match="binary"):
        fc.method.Plan.of(AveragedCurve(), fc.Schema(3, 10))
