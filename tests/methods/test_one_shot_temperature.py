"""OneShotTemperature finds the pooled optimum, whatever the skew, and stays near it under noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import fedcalib as fc
from fedcalib import metrics
from fedcalib.methods.one_shot_temperature import crossing
from fedcalib.records import softmax
from tests.contract.subjects import federation


def pooled_optimum(records: fc.Records) -> float:
    def loss(log_temperature: float) -> float:
        return metrics.nll(softmax(records.logits / np.exp(log_temperature)), records.labels)

    return float(np.exp(minimize_scalar(loss, bounds=(-2, 2), method="bounded", options={"xatol": 1e-10}).x))


@pytest.mark.parametrize("seed", range(3))
def test_refined_it_equals_the_pooled_optimum(seed: int) -> None:
    data = federation(4, clients=50, records=3000, seed=seed)
    result = fc.run(fc.OneShotTemperature(reach=1e3, refinements=6), fc.InProcess(data), fc.Open())
    assert result.artifact.temperature == pytest.approx(pooled_optimum(data.records), abs=1e-5)


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
def test_crossing_works_on_any_bracket(bracket: tuple[float, float]) -> None:
    grid = np.linspace(*bracket, 8)
    for share in (0.2, 0.5, 0.9):
        root = bracket[0] + share * (bracket[1] - bracket[0])
        assert crossing(grid, np.sinh(0.5 * (grid - root)), 0.0, 0.0) == pytest.approx(root, abs=0.01)
    assert crossing(grid, np.full(8, 1.0), 0.0, 0.0) == pytest.approx(bracket[0])
    assert crossing(grid, np.full(8, -1.0), 0.0, 0.0) == pytest.approx(bracket[1])
    assert crossing(grid, np.zeros(8), 0.0, 0.7) == 0.7
