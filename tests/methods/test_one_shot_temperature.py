"""OneShotTemperature finds the pooled optimum, whatever the skew, and stays near it under noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import fedcalib as fc
from fedcalib import metrics
from fedcalib.estimation.roots import noisy_root
from fedcalib.method import drive
from fedcalib.query import Answer
from fedcalib.records import softmax
from tests.contract.subjects import federation


def pooled_optimum(records: fc.Records) -> float:
    def loss(log_temperature: float) -> float:
        return metrics.nll(softmax(records.logits / np.exp(log_temperature)), records.labels)

    return float(np.exp(minimize_scalar(loss, bounds=(-2, 2), method="bounded", options={"xatol": 1e-10}).x))


@pytest.mark.parametrize("seed", range(3))
def test_refined_it_equals_the_pooled_optimum(seed: int) -> None:
    data = federation(4, clients=50, records=3000, seed=seed)
    result = fc.run(fc.OneShotTemperature(reach=1e3, refinements=2), fc.InProcess(data), fc.Open())
    assert result.artifact.temperature == pytest.approx(pooled_optimum(data.records), abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_refined_it_equals_the_pooled_optimum_to_the_last_digits(seed: int) -> None:
    data = federation(4, clients=50, records=3000, seed=seed)
    result = fc.run(fc.OneShotTemperature(reach=1e3, refinements=3), fc.InProcess(data), fc.Open())
    assert abs(float(slope_of(data.records, result.artifact.temperature).mean())) < 1e-13


def slope_of(records: fc.Records, temperature: float) -> np.ndarray:
    own = records.logits[np.arange(len(records)), records.labels]
    return np.asarray(np.einsum("ij,ij->i", softmax(records.logits / temperature), records.logits) - own)


@pytest.mark.parametrize("factor", [0.02, 0.2, 1.5, 3.0, 50.0])
def test_newton_finds_a_root_beyond_the_grid_and_stops_half_a_grid_beyond(factor: float) -> None:
    data = federation(4, clients=50, records=3000)
    stretched = fc.Records.of_logits(factor * data.records.logits, data.records.labels)
    method = fc.OneShotTemperature(reach=1e4, refinements=20)
    found = fc.run(method, fc.InProcess(fc.Federation.iid(stretched, 20, seed=0)), fc.Open()).artifact.temperature
    expected = float(np.clip(factor * pooled_optimum(data.records), 0.25 / 4, 4.0 * 4))
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.shared
@pytest.mark.parametrize("skew", [0.1, 100.0])
def test_two_refinements_are_the_pooled_optimum_of_real_logits(shared: Path, skew: float) -> None:
    archive = np.load(shared / "cifar10_logits" / "cifar10_logits.npz")
    for network in ("resnet20_logits", "wideresnet164_logp"):
        records = fc.Records.of_logits(archive[network].astype(float), archive["y"])
        data = fc.Federation.dirichlet(records, 100, skew, seed=0)
        found = fc.run(fc.OneShotTemperature(reach=1e3, refinements=2), fc.InProcess(data), fc.Open()).artifact
        assert abs(float(slope_of(records, found.temperature).mean())) < 1e-8
        summed = fc.run(fc.OneShotTemperature(reach=1e3, refinements=2), fc.InProcess(data), fc.SecAgg()).artifact
        assert summed.temperature == pytest.approx(found.temperature, abs=1e-3)


def test_noisy_refinements_do_not_undo_what_the_curve_told() -> None:
    data = federation(4, clients=100, records=20_000)
    exact = fc.run(fc.OneShotTemperature(refinements=3), fc.InProcess(data), fc.Open()).artifact.temperature
    errors = []
    for seed in range(20):
        noisy = fc.run(
            fc.OneShotTemperature(refinements=2),
            fc.InProcess(data),
            fc.DistributedDP(1.0),
            randomness=fc.Simulated(seed),
        )
        errors.append(np.log(noisy.artifact.temperature / exact))
    assert np.std(errors) < 0.05
    assert abs(np.mean(errors)) < 0.03


@pytest.mark.shared
def test_one_message_is_close_on_real_logits(shared: Path) -> None:
    archive = np.load(shared / "cifar10_logits" / "cifar10_logits.npz")
    for network in ("resnet20_logits", "resnet56_logits", "wideresnet164_logp"):
        records = fc.Records.of_logits(archive[network].astype(float), archive["y"])
        skewed = fc.Federation.dirichlet(records, 100, 0.1, seed=0)
        best = pooled_optimum(records)
        once = fc.run(fc.OneShotTemperature(), fc.InProcess(skewed), fc.SecAgg()).artifact.temperature
        assert abs(np.log(once / best)) < 0.03
        loss = [metrics.nll(softmax(records.logits / t), records.labels) for t in (once, best, 1.0)]
        assert loss[0] - loss[1] < 0.01 * (loss[2] - loss[1])


def test_noise_moves_it_little() -> None:
    data = federation(4, clients=100, records=20_000)
    exact = fc.run(fc.OneShotTemperature(), fc.InProcess(data), fc.Open()).artifact.temperature
    noisy = [
        fc.run(fc.OneShotTemperature(), fc.InProcess(data), fc.DistributedDP(1.0), randomness=fc.Simulated(k)).artifact
        for k in range(20)
    ]
    errors = [np.log(artifact.temperature / exact) for artifact in noisy]
    assert np.std(errors) < 0.05
    assert abs(np.mean(errors)) < 0.03


@pytest.mark.parametrize("bracket", [(-1.4, 1.4), (0.2, 3.0), (-5.0, -1.0)])
def test_noisy_root_works_on_any_bracket(bracket: tuple[float, float]) -> None:
    grid = np.linspace(*bracket, 8)
    for share in (0.2, 0.5, 0.9):
        root = bracket[0] + share * (bracket[1] - bracket[0])
        assert noisy_root(grid, np.sinh(0.5 * (grid - root)), 0.0, 0.0) == pytest.approx(root, abs=0.01)
    assert noisy_root(grid, np.full(8, 1.0), 0.0, 0.0) == pytest.approx(bracket[0])
    assert noisy_root(grid, np.full(8, -1.0), 0.0, 0.0) == pytest.approx(bracket[1])
    assert noisy_root(grid, np.zeros(8), 0.0, 0.7) == 0.7


@pytest.mark.parametrize("derivative", [0.0, 3e-286, 1e200])
def test_a_derivative_beyond_floats_moves_nothing(derivative: float) -> None:
    def ask(step: int, query: fc.query.Query) -> Answer:
        values = {name: np.zeros(block.shape) for name, block in query.blocks.items()}
        if step:
            values = {"slope": np.array([derivative]), "bend": np.array([derivative])}
        return Answer(values, {name: np.zeros_like(value) for name, value in values.items()}, 0)

    found = drive(fc.OneShotTemperature(refinements=2), fc.Schema(2, 5), ask)
    assert 0 < found.temperature < np.inf
