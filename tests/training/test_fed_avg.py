"""FedAvg: a method like any other, whose clients never move the weights further than they may."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcalib as fc
from fedcalib import wire
from fedcalib.errors import InputError, TranscriptError
from fedcalib.methods.fed_avg import FedAvg
from fedcalib.queries.training import LocalUpdate
from fedcalib.training import SGD, Adam, LocalTraining, SoftmaxRegression
from tests.examples import examples

NETWORK = SoftmaxRegression(4, 3)


def data(n: int = 300, seed: int = 0) -> fc.Records:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    truth = 2 * np.random.default_rng(5).normal(size=(4, 3))
    labels = (x @ truth + rng.gumbel(size=(n, 3))).argmax(axis=1)
    return fc.Records.of_logits(np.zeros((n, 3)), labels, inputs=x)


def accuracy(artifact: object, records: fc.Records) -> float:
    return float((artifact.over(records).logits.argmax(axis=1) == records.labels).mean())


@pytest.mark.parametrize("optimiser", [SGD(0.1), SGD(0.05, 0.9), Adam(0.02)])
@pytest.mark.parametrize("largest", [None, 50])
def test_it_learns(optimiser: SGD | Adam, largest: int | None) -> None:
    method = FedAvg(NETWORK, 10, LocalTraining(2, 16, optimiser), largest=largest)
    federation = fc.Federation.dirichlet(data(), 6, 1.0, 0)
    model = fc.run(method, fc.InProcess(federation), fc.SecAgg(), randomness=fc.Simulated(0)).artifact
    assert accuracy(model, data(seed=1)) > 0.7


def test_one_step_of_one_full_batch_is_central_gradient_descent() -> None:
    """Clients of equal size that each take one full-batch step average to the step of the pooled records."""
    records = data(120)
    federation = fc.Federation.of([records.take(slice(k * 30, k * 30 + 30)) for k in range(4)])
    method = FedAvg(NETWORK, 5, LocalTraining(1, 1000, SGD(0.3)), clip=1e3)
    model = fc.run(method, fc.InProcess(federation), fc.Open()).artifact
    session = NETWORK.session(NETWORK.start(0))
    for _ in range(5):
        session.weights -= 0.3 * session.gradient(records.extra["inputs"], records.labels)
    np.testing.assert_allclose(model.weights, session.weights, atol=1e-9)


def test_weighted_clients_count_by_their_records() -> None:
    records = data(120)
    uneven = fc.Federation.of(
        [records.take(slice(0, 100)), records.take(slice(100, 110)), records.take(slice(110, 120))]
    )
    method = FedAvg(NETWORK, 3, LocalTraining(1, 1000, SGD(0.3)), clip=1e3, largest=100)
    model = fc.run(method, fc.InProcess(uneven), fc.Open()).artifact
    session = NETWORK.session(NETWORK.start(0))
    for _ in range(3):
        session.weights -= 0.3 * session.gradient(records.extra["inputs"], records.labels)
    np.testing.assert_allclose(model.weights, session.weights, atol=1e-9)


@settings(max_examples=examples(25))
@given(st.integers(0, 40), st.floats(1e-3, 10), st.sampled_from([None, 1, 20]), st.floats(0.01, 100))
def test_no_client_exceeds_its_bound(n: int, clip: float, largest: int | None, rate: float) -> None:
    query = LocalUpdate(NETWORK, NETWORK.start(0), LocalTraining(1, 8, SGD(rate)), clip, largest)
    term = query.split(query.term(data(60).take(slice(0, n)), np.random.default_rng(0)))
    for name, part in term.items():
        bound = query.blocks[name].bound
        assert np.linalg.norm(part) <= bound.l2
        assert np.abs(part).sum() <= bound.l1 * (1 + 1e-12)
    if not n:
        assert all((part == 0).all() for part in term.values())


def test_a_training_that_explodes_adds_nothing_worse_than_its_clip() -> None:
    records = fc.Records.of_logits(np.zeros((20, 3)), np.arange(20) % 3, inputs=np.full((20, 4), 1e200))
    query = LocalUpdate(NETWORK, NETWORK.start(0), LocalTraining(3, 4, SGD(1e200)), 1.0)
    with np.errstate(all="ignore"):
        term = query.term(records, np.random.default_rng(0))
    assert np.isfinite(term).all()
    assert np.linalg.norm(term) <= 1


def test_the_fast_sum_is_the_sum_of_the_terms() -> None:
    federation = fc.Federation.dirichlet(data(), 5, 0.5, 0)
    query = LocalUpdate(NETWORK, NETWORK.start(0), LocalTraining(), 1.0, 100)
    terms = query.terms(federation, fc.Simulated(0))
    np.testing.assert_allclose(query.total(federation, fc.Simulated(0)), terms.sum(axis=0))
    scale = np.full(query.size, 2.0**20)
    whole = query.total(federation, fc.Simulated(0), scale)
    assert whole.tolist() == np.trunc(terms * scale).sum(axis=0).astype(int).tolist()


def test_the_proximal_term_holds_the_head_back() -> None:
    federation = fc.Federation.dirichlet(data(), 5, 0.1, 0)

    def moved(proximal: float, whole: bool = False) -> float:
        training = LocalTraining(5, 16, SGD(0.1), proximal=proximal, whole=whole)
        query = LocalUpdate(NETWORK, NETWORK.start(0), training, 100.0)
        return float(np.linalg.norm(query.terms(federation, fc.Simulated(0)), axis=1).mean())

    assert moved(5.0) < moved(1.0) < moved(0.0)
    assert moved(1.0, whole=True) == pytest.approx(moved(1.0))  # here the head is all there is


def test_user_level_privacy_is_charged_once_for_all_rounds() -> None:
    federation = fc.Federation.iid(data(2000), 200, 0)
    method = FedAvg(NETWORK, 5, LocalTraining(2, 16, SGD(0.2)), clip=1.0)
    result = fc.run(
        method, fc.InProcess(federation), fc.UserGaussian(8.0, 1e-5), participation=fc.Poisson(0.5),
        randomness=fc.Simulated(0),
    )  # fmt: skip
    assert (result.privacy.epsilon, result.privacy.unit) == (8.0, "client")
    assert accuracy(result.artifact, data(seed=1)) > 0.6


def test_a_cut_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    federation = fc.Federation.iid(data(), 4, 0)
    method = FedAvg(NETWORK, 4)
    path = tmp_path / "run.jsonl"
    whole = fc.run(method, fc.InProcess(federation), fc.Open(), randomness=fc.Simulated(1), transcript=path).artifact
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:5]))
    recalled = []
    again = fc.run(
        method, fc.InProcess(federation), fc.Open(), randomness=fc.Simulated(1), transcript=path,
        watch=lambda progress: recalled.append(progress.recalled),
    ).artifact  # fmt: skip
    assert recalled == [True, True, False, False]
    np.testing.assert_array_equal(again.weights, whole.weights)
    with pytest.raises(TranscriptError):
        fc.run(FedAvg(NETWORK, 5), fc.InProcess(federation), fc.Open(), randomness=fc.Simulated(1), transcript=path)


def test_training_can_continue() -> None:
    federation = fc.Federation.iid(data(), 4, 0)
    first = fc.run(FedAvg(NETWORK, 2), fc.InProcess(federation), fc.Open(), randomness=fc.Simulated(0)).artifact
    second = fc.run(FedAvg(NETWORK, 1, initial=first), fc.InProcess(federation), fc.Open()).artifact
    assert 0 < np.linalg.norm(second.weights - first.weights) < np.linalg.norm(first.weights)


def test_models_and_questions_survive_the_wire(tmp_path: Path) -> None:
    model = fc.run(FedAvg(NETWORK, 1), fc.InProcess(fc.Federation.iid(data(), 4, 0)), fc.Open()).artifact
    again = fc.load(model.save(tmp_path / "model.json"))
    np.testing.assert_array_equal(again.weights, model.weights)
    query = fc.method.Plan.of(FedAvg(NETWORK, 1), fc.Schema(3, 4)).queries[0]
    assert wire.dumps(wire.loads(wire.dumps(query))) == wire.dumps(query)


def test_wrong_data_and_settings_are_explained() -> None:
    with pytest.raises(InputError, match="network for 2 classes"):
        fc.method.Plan.of(FedAvg(NETWORK), fc.Schema(2, 5))
    bare = fc.Federation.iid(fc.Records.of_logits(np.zeros((20, 3)), np.zeros(20, int)), 4, 0)
    with pytest.raises(InputError, match="column 'inputs'"):
        fc.run(FedAvg(NETWORK, 1), fc.InProcess(bare), fc.Open())
    with pytest.raises(InputError, match="above 0"):
        FedAvg(NETWORK, rounds=0)


@pytest.mark.parametrize("who", [fc.Everyone(), fc.Poisson(0.9)], ids=["everyone", "sampled"])
def test_private_rounds_take_the_same_work_each_however_many_there_are(
    who: fc.cohort.Participation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every mechanism went through the blocks of all rounds: 400 rounds took 60 times as long as 100."""
    blocks, calls = LocalUpdate.blocks.fget, []
    monkeypatch.setattr(LocalUpdate, "blocks", property(lambda query: calls.append(1) or blocks(query)))
    federation = fc.Federation.iid(data(120), 24, 0)
    work = []
    for rounds in (10, 40):
        calls.clear()
        method = FedAvg(NETWORK, rounds, clip=1.0)
        model = fc.UserGaussian(8.0, 1e-5)
        fc.run(method, fc.InProcess(federation), model, participation=who, randomness=fc.Simulated(0))
        work.append(len(calls) / rounds)
    assert work[1] <= 1.05 * work[0]
