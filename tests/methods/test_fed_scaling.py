"""Scalings trained by local fits: the pooled optimum with one client, and nothing breaks with bad ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq

import fedcalib as fc
from fedcalib import metrics
from fedcalib.errors import InputError
from fedcalib.records import softmax
from tests.contract.subjects import federation


def pooled_temperature(records: fc.Records) -> float:
    """The root of the exact slope: a minimum of the loss itself is known to eight digits only."""
    logits, labels = records.logits, records.labels

    def slope(log_inverse: float) -> float:
        mean = (softmax(np.exp(log_inverse) * logits) * logits).sum(axis=1)
        return float((mean - logits[np.arange(len(labels)), labels]).sum())

    return float(np.exp(-brentq(slope, -3, 3, xtol=1e-14)))


@pytest.mark.parametrize("logarithm", [False, True])
def test_a_single_client_finds_the_pooled_optimum(logarithm: bool) -> None:
    data = federation(4, clients=1, records=2000)
    method = fc.FedTemp(rounds=3, clip=10.0, ridge=0.0, logarithm=logarithm)
    found = fc.run(method, fc.InProcess(data), fc.Open()).artifact.temperature
    assert found == pytest.approx(pooled_temperature(data.records), abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_one_shot_refined_finds_the_pooled_optimum(seed: int) -> None:
    data = federation(5, clients=40, records=3000, seed=seed)
    method = fc.OneShotTemperature(reach=1e3, refinements=5)
    found = fc.run(method, fc.InProcess(data), fc.Open()).artifact.temperature
    assert found == pytest.approx(pooled_temperature(data.records), abs=1e-6)


def test_averaging_temperatures_survives_skew() -> None:
    data = fc.Federation.dirichlet(federation(4, records=4000).records, 60, 0.1, seed=0)
    artifact = fc.run(fc.FedTemp(rounds=6), fc.InProcess(data), fc.Open()).artifact
    before = metrics.nll(data.records.probs, data.records.labels)
    assert metrics.nll(artifact.of(data.records), data.records.labels) < before


@pytest.mark.parametrize(
    "method",
    [fc.FedVector(rounds=4, clip=50.0), fc.FedMatrix(rounds=4, clip=50.0), fc.FedOPVector(rounds=4, clip=50.0)],
    ids=repr,
)
def test_a_single_client_lowers_the_loss(method: fc.Method) -> None:
    data = federation(4, clients=1, records=1500)
    artifact = fc.run(method, fc.InProcess(data), fc.Open()).artifact
    temperature = fc.run(fc.OneShotTemperature(), fc.InProcess(data), fc.Open()).artifact
    tempered = metrics.nll(temperature.of(data.records), data.records.labels)
    assert metrics.nll(artifact.of(data.records), data.records.labels) < tempered + 1e-3


def test_fedcal_learns_and_keeps_the_top_class() -> None:
    data = federation(4, clients=10, records=3000)
    artifact = fc.run(fc.FedCal(rounds=30, hidden=16, clip=50.0), fc.InProcess(data), fc.Open()).artifact
    probs, labels = data.records.probs, data.records.labels
    assert metrics.nll(artifact.of(data.records), labels) < 0.97 * metrics.nll(probs, labels)
    assert (artifact.of(data.records).argmax(axis=1) == probs.argmax(axis=1)).all()


@pytest.mark.parametrize("method", [fc.FedTemp(rounds=2), fc.FedVector(rounds=2), fc.FedOPVector(rounds=2)], ids=repr)
def test_clients_of_one_record_of_one_class_and_of_nothing(method: fc.Method) -> None:
    rng = np.random.default_rng(0)
    single = [fc.Records.of_logits(rng.normal(size=(1, 3)), [k % 3]) for k in range(6)]
    alone = fc.Records.of_logits(rng.normal(size=(20, 3)) + 5 * np.eye(3)[0], np.zeros(20, dtype=int))
    data = fc.Federation.of([*single, alone, fc.Records.empty(3), fc.Records.empty(3)])
    for privacy in (fc.Open(), fc.UserGaussian(1.0, 1e-5)):
        artifact = fc.run(method, fc.InProcess(data), privacy, randomness=fc.Simulated(1)).artifact
        out = artifact(rng.dirichlet(np.ones(3), 50))
        np.testing.assert_allclose(out.sum(axis=1), 1.0)


def test_an_empty_cohort_changes_nothing_in_the_open_and_is_refused_otherwise() -> None:
    data = federation(3, clients=3, records=60)
    rare = fc.Poisson(1e-9)
    artifact = fc.run(
        fc.FedTemp(rounds=2), fc.InProcess(data), fc.Open(), participation=rare, randomness=fc.Simulated(0)
    ).artifact
    assert artifact.temperature == 1.0
    with pytest.raises(fc.errors.TooFewClients):
        fc.run(fc.FedBBQ(), fc.InProcess(data), fc.SecAgg(), participation=rare, randomness=fc.Simulated(0))


def test_temperatures_stay_in_range_whatever_the_noise() -> None:
    data = federation(3, clients=4, records=40)
    for seed in range(5):
        privacy = fc.UserGaussian(0.01, 1e-9)
        artifact = fc.run(fc.FedTemp(), fc.InProcess(data), privacy, randomness=fc.Simulated(seed)).artifact
        assert 0.05 <= artifact.temperature <= 20


def test_settings_are_checked() -> None:
    for wrong in ({"rounds": 0}, {"clip": 0.0}, {"ridge": -1.0}, {"steps": 0}):
        with pytest.raises(InputError):
            fc.FedTemp(**wrong)
