"""Pipelines hand records on, the guard keeps the top class, and Auto composes what public facts call for."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import fedcalib as fc
from fedcalib import metrics, wire
from fedcalib.artifacts.calibrator import chained
from fedcalib.artifacts.scaling import Temperature, VectorScaling
from fedcalib.errors import InputError
from fedcalib.families import SoftmaxDerivatives
from fedcalib.families.affine import VectorFamily
from fedcalib.methods.compare_models import ReviewWindow
from fedcalib.queries.class_tables import ClassCurvature
from fedcalib.queries.reliability import MOST_LOSS, PairedGains
from fedcalib.queries.scaling import ScalingGradient
from fedcalib.queries.temperature import TemperatureScores
from fedcalib.queries.wrapped import Calibrated, Clipped
from tests.contract.subjects import federation


def test_a_pipeline_equals_running_the_stages_by_hand() -> None:
    data = federation(4, records=2000)
    place = fc.InProcess(data)
    first = fc.run(fc.OneShotTemperature(), place, fc.Open()).artifact
    tempered = fc.Federation(first.over(data.records), data.offsets)
    second = fc.run(fc.methods.ResidualBinning(), fc.InProcess(tempered), fc.Open()).artifact
    both = fc.run(
        fc.methods.Pipeline((fc.OneShotTemperature(), fc.methods.ResidualBinning())), place, fc.Open()
    ).artifact
    new = np.random.default_rng(0).normal(0, 3, (200, 4))
    np.testing.assert_allclose(both.from_logits(new), second(first.from_logits(new)), atol=1e-12)


def test_later_stages_ask_about_calibrated_records() -> None:
    plan = fc.method.Plan.of(fc.methods.Pipeline((fc.OneShotTemperature(), fc.FedBin())), fc.Schema(3, 10))
    assert isinstance(plan.queries[1], Calibrated)
    with pytest.raises(InputError, match="whole"):
        fc.method.Plan.of(fc.methods.Pipeline((fc.OneShotTemperature(), fc.FedTemp())), fc.Schema(3, 10))
    with pytest.raises(InputError):
        fc.methods.Pipeline(())


def test_chains_unroll_and_forget_identities() -> None:
    warm, wide = Temperature(2.0), VectorScaling((1.0, 2.0), (0.0, 0.1))
    assert chained(fc.artifacts.Identity(), warm) == warm
    assert chained(chained(warm, wide), fc.artifacts.Identity("no")) == fc.artifacts.Chain((warm, wide))
    assert chained(fc.artifacts.Identity(), fc.artifacts.Identity("because")) == fc.artifacts.Identity("because")


@given(
    base=hnp.arrays(np.float64, (20, 5), elements=st.floats(0.0, 1.0)),
    shift=hnp.arrays(np.float64, 5, elements=st.floats(-5, 5)),
)
def test_the_guard_keeps_the_top_class(base: np.ndarray, shift: np.ndarray) -> None:
    probs = (base + 1e-6) / (base + 1e-6).sum(axis=1, keepdims=True)
    inner = VectorScaling((1.0,) * 5, tuple(shift.tolist()))
    out = fc.artifacts.KeepTop(inner)(probs)
    assert (out.argmax(axis=1) == probs.argmax(axis=1)).all()
    np.testing.assert_allclose(out.sum(axis=1), 1.0)
    kept = inner(probs).argmax(axis=1) == probs.argmax(axis=1)
    np.testing.assert_array_equal(out[kept], inner(probs)[kept])


def test_the_guard_moves_as_little_as_possible() -> None:
    inner = VectorScaling((1.0, 1.0, 1.0), (0.0, float(np.log(4.0)), 0.0))
    out = fc.artifacts.KeepTop(inner)(np.array([[0.5, 0.3, 0.2]]))  # 0.5 : 1.2 : 0.2 before it
    np.testing.assert_allclose(out, [[0.85 / 1.9, 0.85 / 1.9, 0.2 / 1.9]], atol=1e-6)


def test_composition_follows_public_facts() -> None:
    names = {
        (clients, epsilon): [type(stage).__name__ for stage in fc.Auto(epsilon=epsilon).stages(fc.Schema(10, clients))]
        for clients, epsilon in ((100, None), (5, 1.0), (100, 1.0), (1000, 1.0))
    }
    assert names == {
        (100, None): ["Pipeline", "ResidualBinning"],
        (5, 1.0): [],
        (100, 1.0): ["BoundedTemperature"],
        (1000, 1.0): ["BoundedTemperature", "ClassShifts"],
    }
    loose = fc.Auto(guard=False).stages(fc.Schema(10, 100))
    assert [type(stage).__name__ for stage in loose] == ["OneShotTemperature", "Averaged"]
    many = fc.Auto(epsilon=1.0).stages(fc.Schema(100, 1000))
    assert [type(stage).__name__ for stage in many] == ["BoundedTemperature", "ResidualBinning"]
    records = fc.Auto(epsilon=1.0, unit="record").stages(fc.Schema(10, 100))
    # five thousand records protect themselves as well as five thousand clients
    assert [type(stage).__name__ for stage in records] == ["MonotoneTemperature", "ClassShifts"]


@pytest.mark.parametrize("typical", [20.0, None])
@pytest.mark.parametrize("unit", ["client", "record"])
@pytest.mark.parametrize("classes", [4, 40])
def test_every_query_protects_the_unit_that_was_named(typical: float | None, unit: str, classes: int) -> None:
    method = fc.Auto(epsilon=1.0, unit=unit, typical_records=typical)
    assert fc.method.Plan.of(method, fc.Schema(classes, 2000)).unit == unit


def test_votes_are_asked_as_they_are_and_sums_are_cut() -> None:
    scores, shifts = fc.method.Plan.of(fc.Auto(epsilon=1.0), fc.Schema(4, 2000)).queries
    assert isinstance(scores, TemperatureScores)
    assert isinstance(shifts, Clipped)


def test_whole_clients_are_hidden_without_a_trusted_aggregator_too() -> None:
    data = fc.Federation.dirichlet(federation(4, records=20_000).records, 1000, 0.1, seed=0)
    method, privacy = fc.Auto(unit="client", typical_records=20.0), fc.DistributedDP(1.0, delta=1e-5)
    result = fc.run(method, fc.InProcess(data), privacy, randomness=fc.Simulated(0))
    assert result.privacy.unit == "client"
    before, after = (metrics.classwise_ece(probs, data.records.labels) for probs in _both(result, data.records))
    assert after < 0.7 * before


def _both(result: fc.Result[fc.Calibrator], records: fc.Records) -> tuple[np.ndarray, np.ndarray]:
    return records.probs, result.artifact.of(records)


def test_the_result_says_what_the_guard_costs() -> None:
    """Logits of one class that are too low by far: letting go gains what the note says, in no further message."""
    data = federation(4, records=8000)
    biased = fc.Records.of_logits(np.asarray(data.records.logits) - [4.0, 0.0, 0.0, 0.0], data.records.labels)
    place = fc.InProcess(fc.Federation.iid(biased, 20, seed=0))
    kept = fc.run(fc.Auto(), place, fc.SecAgg()).artifact
    free = fc.run(fc.Auto(guard=False), place, fc.SecAgg()).artifact
    accuracy = [metrics.accuracy(one.of(biased), biased.labels) for one in (kept, free)]
    points, low, high = (float(word) for word in re.findall(r"[0-9]+[.][0-9]+", kept.note))
    assert low < points < high
    assert low < 100 * (accuracy[1] - accuracy[0]) < high
    assert wire.loads(wire.dumps(kept)).note == kept.note
    assert not fc.run(fc.Auto(), fc.InProcess(data), fc.SecAgg()).artifact.note


def test_exact_sums_take_six_messages() -> None:
    for guard in (True, False):
        assert len(fc.method.Plan.of(fc.Auto(guard=guard), fc.Schema(10, 100)).queries) == 6


def test_exact_sums_move_as_far_as_they_save_log_loss() -> None:
    """The more the labels say against the classifier, the less of it is kept; none of it where it is clearly wrong."""
    records, kept = calibrated(3000, 5, 0), []
    for temperature in (1.0, 1.18, 2.0):
        warmer = fc.Records.of_logits(temperature * np.asarray(records.logits), records.labels)
        found = fc.run(fc.Auto(), fc.InProcess(fc.Federation.iid(warmer, 30, seed=0)), fc.SecAgg()).artifact
        mixed = isinstance(found, fc.artifacts.Mixture)
        kept.append(found.weights[0] if mixed else float(isinstance(found, fc.artifacts.Identity)))
    assert kept[0] == 1.0
    assert 0 < kept[1] < 1
    assert kept[2] == 0.0


def test_what_a_calibrator_saves_is_summed_as_its_rows_are() -> None:
    data, query = federation(5, records=3000), PairedGains(Temperature(1.7))
    scale = np.full(query.size, 2.0**24)
    sums = [total(data, fc.Simulated(0), scale) for total in (query.rounded, query.total)]
    np.testing.assert_array_equal(*sums)
    saved = query.total(data, fc.Simulated(0))[-1] * MOST_LOSS
    before, after = (metrics.nll(probs, data.records.labels) for probs in _pair(query.calibrator, data.records))
    assert saved == pytest.approx(3000 * (before - after))


def test_a_calibrator_that_turns_a_certain_record_round_saves_the_most() -> None:
    sure = fc.Records.of_logits([[0.0, 40.0], [0.0, -40.0]], [0, 0])
    turned = PairedGains(VectorScaling((1.0, 1.0), (80.0, 0.0))).rows(sure)
    np.testing.assert_allclose(turned.values[:, 1], [1.0, 0.0], atol=1e-9)
    wrong = PairedGains(VectorScaling((1.0, 1.0), (0.0, 80.0))).rows(sure)
    np.testing.assert_allclose(wrong.values[:, 1], [0.0, -1.0], atol=1e-9)


def _pair(calibrator: fc.Calibrator, records: fc.Records) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(records.probs), calibrator.of(records)


def test_exact_sums_write_no_hessian_of_a_record_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under secure aggregation the curvature is a sum of matrix products, near the sum of what records would add."""
    data = federation(5, records=3000)
    query = ScalingGradient(VectorFamily(), (0.9,) * 5 + (0.1,) * 5, 50.0)
    scale = np.full(query.size, 2.0**24)
    by_row = query.total(data, fc.Simulated(0), scale)
    monkeypatch.setattr(SoftmaxDerivatives, "curvature", None)
    whole = query.rounded(data, fc.Simulated(0), scale)
    blocks = query.split(whole - by_row)
    assert not blocks["gradient"].any()
    assert not blocks["loss"].any()
    assert np.abs(blocks["curvature"]).max() <= len(data.records)  # one step per record


@pytest.mark.parametrize(("classes", "cells"), [(2, 1), (3, 2), (10, 2), (4, 5)])
def test_exact_sums_of_pairs_of_classes_are_those_of_the_records(classes: int, cells: int) -> None:
    data = federation(classes, records=3000)
    query = ClassCurvature(classes, cells, 8.0)
    values = np.asarray((rows := query.rows(data.records)).values)
    steps = np.repeat([2.0**20, 2.0**22], [classes, values.shape[1] - classes])
    expected = np.bincount(np.asarray(rows.cells).reshape(-1), np.trunc(values * steps).reshape(-1), query.size)
    scale = np.repeat([2.0**20, 2.0**22], [block.size for block in query.blocks.values()])
    np.testing.assert_array_equal(query.rounded(data, fc.Simulated(0), scale), expected)


def test_it_sends_no_query_where_noise_is_too_large() -> None:
    data = federation(4)
    result = fc.run(fc.Auto(), fc.InProcess(data), fc.UserGaussian(1.0, 1e-5))
    assert isinstance(result.artifact, fc.artifacts.Identity)
    assert "5 clients" in result.artifact.reason
    assert result.plan.queries == ()


def test_exact_sums_beat_every_stage_alone() -> None:
    data = federation(5, clients=50, records=20_000)
    fit, test = data.split(0.5, seed=0)
    place = fc.InProcess(fit)
    auto = fc.run(fc.Auto(), place, fc.SecAgg()).artifact
    warm = fc.run(fc.OneShotTemperature(), place, fc.SecAgg()).artifact
    labels = test.records.labels
    assert metrics.nll(auto.of(test.records), labels) <= metrics.nll(warm.of(test.records), labels) + 1e-3
    assert (auto.of(test.records).argmax(axis=1) == test.records.probs.argmax(axis=1)).all()
    assert wire.loads(wire.dumps(auto)) == auto


@pytest.mark.parametrize("typical", [20.0, None])
def test_private_runs_help_and_never_move_the_top_class(typical: float | None) -> None:
    data = fc.Federation.dirichlet(federation(4, records=20_000).records, 1000, 0.1, seed=0)
    fit, test = data.split(0.3, seed=0)
    method = fc.Auto(typical_records=typical)
    privacy = fc.UserGaussian(1.0, 1e-5)
    labels = test.records.labels
    before = metrics.classwise_ece(test.records.probs, labels)
    for seed in range(3):
        result = fc.run(method, fc.InProcess(fit), privacy, randomness=fc.Simulated(seed))
        probs = result.artifact.of(test.records)
        assert metrics.classwise_ece(probs, labels) < 0.6 * before
        assert (probs.argmax(axis=1) == test.records.probs.argmax(axis=1)).all()
        assert result.privacy.epsilon == 1.0


def test_a_calibrated_model_is_left_alone_where_noise_is_large() -> None:
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.full(4, 0.3), 4000)
    labels = (probs.cumsum(axis=1) < rng.random((4000, 1))).sum(axis=1).clip(0, 3)
    place = fc.InProcess(fc.Federation.dirichlet(fc.Records.of_probs(probs, labels), 80, 0.3, seed=0))
    model = fc.UserGaussian(0.5, 1e-5)
    kept = [fc.run(fc.Auto(), place, model, randomness=fc.Simulated(k)).artifact for k in range(12)]
    assert sum(isinstance(artifact, fc.artifacts.Identity) for artifact in kept) >= 8
    assert all("noise" in artifact.reason for artifact in kept if isinstance(artifact, fc.artifacts.Identity))


def test_a_temperature_in_doubt_is_left_at_one() -> None:
    data = federation(4, clients=5, records=100)
    privacy = fc.UserGaussian(0.05, 1e-6)
    method = fc.OneShotTemperature(doubt=3.0)
    kept = [fc.run(method, fc.InProcess(data), privacy, randomness=fc.Simulated(k)).artifact for k in range(5)]
    assert [artifact.temperature for artifact in kept].count(1.0) >= 4
    assert any("noise" in artifact.warning for artifact in kept)


def test_label_shift_helps_a_skewed_client_and_absent_classes_stay_possible() -> None:
    data = fc.Federation.dirichlet(federation(4, records=8000).records, 20, 0.3, seed=1)
    fit, test = data.split(0.5, seed=0)
    overall = fc.run(fc.methods.ClassShares(), fc.InProcess(fit), fc.SecAgg()).artifact
    warm = fc.run(fc.OneShotTemperature(), fc.InProcess(fit), fc.SecAgg()).artifact
    plain, own = 0.0, 0.0
    for k in range(20):
        shifted = fc.artifacts.LabelShift.local(fit.client(k), overall, warm)
        assert min(shifted.own) > 0
        held = test.client(k)
        if not len(held):
            continue
        plain += len(held) * metrics.nll(warm.of(held), held.labels)
        own += len(held) * metrics.nll(shifted.of(held), held.labels)
    assert own < 0.95 * plain
    with pytest.raises(InputError):
        fc.artifacts.LabelShares((0.5, 0.6))


def test_a_run_tells_it_what_it_may_spend() -> None:
    data = fc.Federation.dirichlet(federation(4, records=6000).records, 300, 0.3, seed=0)
    adapted = {
        fc.UserGaussian(2.0, 1e-5): fc.Auto(2.0, "client"),
        fc.DistributedDP(2.0): fc.Auto(2.0, "record"),
        fc.SourceLaplace(2.0): fc.Auto(2.0, "record", "client"),
        fc.LocalDP(2.0): fc.Auto(2.0, "record", "record"),
        fc.SecAgg(): fc.Auto(),
        fc.Open(): fc.Auto(),
    }
    for model, method in adapted.items():
        assert model.adapt(fc.Auto()) == method
        quiet, loud = (
            fc.run(each, fc.InProcess(data), model, randomness=fc.Simulated(1)).artifact for each in (fc.Auto(), method)
        )
        assert quiet == loud
    assert fc.UserGaussian(2.0, 1e-5).adapt(fc.Auto(0.5, "record")) == fc.Auto(0.5, "record")  # what was said stays
    assert fc.DistributedDP(2.0, 1e-5).adapt(fc.Auto(unit="client")) == fc.Auto(2.0, "client")
    assert fc.SourceLaplace(2.0).adapt(fc.Auto(0.5)) == fc.Auto(0.5, "record", "client")


def test_whoever_holds_it_shares_the_budget_with_it() -> None:
    budget = fc.method.Budget(4.0, "record")
    assert fc.methods.Pipeline((fc.FedBin(), fc.Auto())).with_budget(budget) == fc.methods.Pipeline(
        (fc.FedBin(), fc.Auto(2.0, "record"))
    )
    assert fc.methods.Averaged((fc.Auto(),)).with_budget(budget) == fc.methods.Averaged((fc.Auto(4.0, "record"),))
    assert fc.methods.Together((fc.Auto(), fc.methods.ClassShares())).with_budget(budget).methods[0] == fc.Auto(
        2.0, "record"
    )
    measure = fc.FederatedMetrics(epsilon=2.0, unit="record")
    shared = fc.methods.FitAndMeasure(fc.Auto(2.0, "record"), measure)
    assert fc.methods.FitAndMeasure(fc.Auto()).with_budget(budget) == shared
    assert ReviewWindow(recalibration=fc.Auto()).with_budget(budget).recalibration == fc.Auto(1.0, "record")
    assert ReviewWindow().with_budget(budget).measure == fc.FederatedMetrics(epsilon=4.0, unit="record")


def test_noise_that_adds_up_counts_for_less() -> None:
    schema, stages = fc.Schema(10, 400), {None: 2, "client": 1, "record": 1}
    for alone, expected in stages.items():
        assert len(fc.Auto(0.1, "record", alone).stages(schema)) == expected
    assert fc.Auto(0.01, "record", "record").stages(schema) == ()


@pytest.mark.parametrize(
    "model",
    [fc.UserGaussian(1.0, 1e-5), fc.DistributedDP(1.0), fc.SourceLaplace(1.0), fc.LocalDP(1.0)],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.parametrize("clients", [10, 60, 300])
def test_no_model_makes_a_calibrated_classifier_much_worse(model: fc.privacy.Privacy, clients: int) -> None:
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.full(5, 0.2), 40 * clients)
    labels = (probs.cumsum(axis=1) < rng.random((len(probs), 1))).sum(axis=1).clip(0, 4)
    records = fc.Records.of_probs(probs, labels)
    place = fc.InProcess(fc.Federation.dirichlet(records, clients, 0.3, seed=0))
    found = [fc.run(fc.Auto(), place, model, randomness=fc.Simulated(k)).artifact for k in range(10)]
    losses = [metrics.nll(one.of(records), labels) for one in found]
    assert np.mean(losses) < 1.03 * metrics.nll(probs, labels)


def calibrated(records: int, classes: int, seed: int) -> fc.Records:
    """Labels that are drawn from the classifier's own probabilities."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(classes, 0.2), records)
    labels = (probs.cumsum(axis=1) < rng.random((records, 1))).sum(axis=1).clip(0, classes - 1)
    return fc.Records.of_probs(probs, labels)


@pytest.mark.parametrize(
    "model",
    [
        fc.DistributedDP(0.3),
        fc.DistributedDP(3.0),
        fc.SourceLaplace(1.0),
        fc.LocalDP(3.0),
        fc.UserGaussian(1.0, 1e-5),
        fc.SecAgg(),
    ],
    ids=lambda model: f"{type(model).__name__}-{getattr(model, 'epsilon', 0)}",
)
def test_a_calibrated_classifier_is_rarely_changed(model: fc.privacy.Privacy) -> None:
    """By the rule, one run of a hundred at most, whatever the privacy model."""
    changed, losses = 0, []
    for seed in range(20):
        records = calibrated(3000, 5, seed)
        place = fc.InProcess(fc.Federation.iid(records, 60, seed=0))
        found = fc.run(fc.Auto(), place, model, randomness=fc.Simulated(seed)).artifact
        changed += not isinstance(found, fc.artifacts.Identity)
        test = calibrated(3000, 5, 1000 + seed)
        losses.append(metrics.nll(found.of(test), test.labels) / metrics.nll(test.probs, test.labels))
    assert changed <= 1
    assert np.mean(losses) < 1.005


def test_local_reports_carry_a_temperature() -> None:
    data = fc.Federation.iid(federation(6, records=10_000).records, 100, seed=0)
    before = metrics.classwise_ece(data.records.probs, data.records.labels)
    for seed in range(3):
        result = fc.run(fc.Auto(), fc.InProcess(data), fc.LocalDP(5.0), randomness=fc.Simulated(seed))
        assert metrics.classwise_ece(result.artifact.of(data.records), data.records.labels) < 0.8 * before


@pytest.mark.parametrize("alone", [None, "client", "record"])
def test_shares_of_the_budget_change_smoothly(alone: str | None) -> None:
    weights = []
    for epsilon in np.geomspace(0.02, 100.0, 400):
        stages = fc.Auto(float(epsilon), "record", alone).stages(fc.Schema(10, 100))
        weights.append([stage.weight for stage in stages] + [0.0] * (2 - len(stages)))
    found = np.array([pair for pair in weights if pair[0]])
    assert np.abs(np.diff(found, axis=0)).max() < 0.02
    assert found[0].tolist() == [1.0, 0.0]
    assert found[-1, 1] > 0.5


def test_settings_are_checked() -> None:
    for wrong in ({"epsilon": 0.0}, {"unit": "patient"}, {"alone": "site"}, {"typical_records": 0.0}):
        with pytest.raises(InputError):
            fc.Auto(**wrong)
