"""BoundedTemperature hears each client as loudly as any other, and is still near the pooled optimum."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedcalib as fc
from fedcalib.artifacts.scaling import Temperature
from fedcalib.errors import InputError
from fedcalib.queries.temperature import TemperatureScores
from fedcalib.query import Answer
from fedcalib.records import softmax
from tests.contract.subjects import federation
from tests.methods.test_one_shot_temperature import pooled_optimum

QUERY = TemperatureScores((0.3, 0.6, 1.2))
RNG = np.random.default_rng(0)


def literal(query: TemperatureScores, records: fc.Records) -> list[float]:
    """A client's scores by the definition, one record and one class at a time."""
    found = []
    for inverse in query.inverses:
        total, spread = 0.0, 0.0
        for logits, label in zip(records.logits, records.labels, strict=True):
            probs = softmax(inverse * logits[None])[0]
            mean = sum(p * inverse * z for p, z in zip(probs, logits, strict=True))
            cut = [min(max(mean - inverse * z, -query.cut), query.cut) for z in logits]
            centre = sum(p * c for p, c in zip(probs, cut, strict=True))
            total += cut[label] - centre
            spread += sum(p * (c - centre) ** 2 for p, c in zip(probs, cut, strict=True))
        found.append(min(max(total / np.sqrt(spread + query.quiet), -1.0), 1.0))
    return found


@given(st.integers(0, 12), st.integers(2, 5), st.floats(0.1, 20.0), st.integers(0, 1000))
def test_scores_follow_their_definition(records: int, classes: int, scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    held = fc.Records.of_logits(scale * rng.normal(size=(records, classes)), rng.integers(classes, size=records))
    np.testing.assert_allclose(QUERY.term(held, RNG), literal(QUERY, held), atol=1e-9)


def test_all_clients_at_once_say_what_each_says_alone() -> None:
    data = fc.Federation.dirichlet(federation(4, records=9000).records, 700, 0.2, seed=0)  # some hold nothing
    together = QUERY.terms(data, fc.Simulated(0))
    alone = np.stack([QUERY.term(held, RNG) for held in data.clients()])
    np.testing.assert_allclose(together, alone, atol=1e-9)
    assert (alone[data.sizes == 0] == 0).all()


def test_however_much_a_client_holds_it_says_no_more() -> None:
    wrong = fc.Records.of_logits(np.tile([30.0, 0.0, 0.0], (10_000, 1)), np.full(10_000, 2))
    np.testing.assert_allclose(QUERY.term(wrong, RNG), 1.0)
    assert QUERY.blocks["score"].bound == fc.query.Bound(3.0, 3**0.5, 1.0, "client")


def test_scores_average_to_nothing_where_the_model_is_right() -> None:
    rng = np.random.default_rng(1)
    logits = 3 * rng.normal(size=(40_000, 4))
    probs = softmax(logits / 1.6)
    labels = (probs.cumsum(axis=1) < rng.random((40_000, 1))).sum(axis=1).clip(0, 3)
    data = fc.Federation.iid(fc.Records.of_logits(logits, labels), 2000, seed=0)
    right, sharp, soft = TemperatureScores((1 / 1.6, 1.0, 1 / 2.5)).terms(data, fc.Simulated(0)).mean(axis=0)
    assert abs(right) < 0.03
    assert sharp > 0.15
    assert soft < -0.15


@pytest.mark.parametrize("skew", [0.1, 100.0])
def test_exact_sums_lead_near_the_pooled_optimum(skew: float) -> None:
    records = federation(4, records=20_000).records
    data = fc.Federation.dirichlet(records, 400, skew, seed=0)
    found = fc.run(fc.BoundedTemperature(), fc.InProcess(data), fc.SecAgg()).artifact.temperature
    assert found == pytest.approx(pooled_optimum(records), rel=0.05)


@pytest.mark.shared
def test_at_equal_epsilon_it_errs_less_than_clipped_slopes(shared: Path) -> None:
    archive = np.load(shared / "cifar10_logits" / "cifar10_logits.npz")
    records = fc.Records.of_logits(archive["vgg16_plambda_logp"].astype(float), archive["y"])
    best = pooled_optimum(records)
    errors: dict[str, list[float]] = {"gradients": [], "scores": []}
    for seed in range(12):
        rows = np.random.default_rng(seed).choice(len(records), 5000, replace=False)
        place = fc.InProcess(fc.Federation.dirichlet(records.take(rows), 100, 0.1, seed))
        methods = {
            "gradients": fc.OneShotTemperature(lowest=0.7, breadth=1.0),
            "scores": fc.BoundedTemperature(doubt=0),
        }
        for name, method in methods.items():
            ran = fc.run(method, place, fc.UserGaussian(0.5, 1e-5), randomness=fc.Simulated(seed))
            errors[name].append(float(np.log(ran.artifact.temperature / best)))
    gradients, scores = (float(np.sqrt(np.mean(np.square(errors[name])))) for name in ("gradients", "scores"))
    assert scores < 0.8 * gradients


def test_a_score_within_noise_changes_nothing_and_warns() -> None:
    data = federation(4, clients=5, records=100)
    privacy = fc.UserGaussian(0.05, 1e-6)
    method = fc.BoundedTemperature(doubt=3.0)
    kept = [fc.run(method, fc.InProcess(data), privacy, randomness=fc.Simulated(k)).artifact for k in range(5)]
    assert [artifact.temperature for artifact in kept].count(1.0) >= 4
    assert any("noise" in artifact.warning for artifact in kept)


def estimated(turn: float, noise: float) -> Temperature:
    """The method's result for exact scores that cross zero at `turn`, in ln(1 / T), with noise of this width."""
    flow = fc.BoundedTemperature().protocol(fc.Schema(4, 200))
    query = next(flow)
    sums = 200 * np.tanh((np.log(query.inverses) - turn) / 0.5)
    with pytest.raises(StopIteration) as end:
        flow.send(Answer.of(query, sums, np.full(len(sums), noise**2), None))
    found: Temperature = end.value.value
    return found


def test_a_call_for_a_sharper_model_has_to_stand_out_more() -> None:
    sharper, softer = (
        [width for width in range(5, 200, 5) if estimated(turn, width).temperature != 1.0] for turn in (0.2, -0.2)
    )
    assert softer == list(range(5, max(softer) + 1, 5))  # found up to some noise, and not beyond
    assert 0 < 1.3 * max(sharper) < max(softer)
    assert estimated(0.2, 5).temperature < 0.9
    assert estimated(-0.2, 5).temperature > 1.1


def test_nobody_has_anything_to_say() -> None:
    nobody = fc.Federation.of([fc.Records.empty(3)] * 4)
    assert fc.run(fc.BoundedTemperature(), fc.InProcess(nobody), fc.Open()).artifact.temperature == 1.0


@pytest.mark.parametrize("wrong", [{"points": 3}, {"lowest": 1.2}, {"highest": 0.9}, {"doubt": -1.0}])
def test_settings_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError):
        fc.BoundedTemperature(**wrong)


@pytest.mark.parametrize("wrong", [{"inverses": ()}, {"inverses": (0.0,)}, {"cut": 0.0}, {"quiet": 0.0}])
def test_queries_are_checked(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        TemperatureScores(**{"inverses": (1.0,), **wrong})
