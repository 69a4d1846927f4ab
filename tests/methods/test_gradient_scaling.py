"""Scalings from summed gradients are the pooled optimum, whoever holds what."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

import fedcalib as fc
from fedcalib.artifacts.scaling import Temperature
from fedcalib.families import Family
from fedcalib.families.affine import VectorFamily
from fedcalib.families.order_preserving import OrderPreservingVectorFamily
from fedcalib.queries.scaling import ScalingGradient
from fedcalib.queries.wrapped import Calibrated
from tests.contract.subjects import federation


def pooled_optimum(family: Family, records: fc.Records, ridge: float) -> tuple[np.ndarray, float]:
    start = family.start(records.classes)

    def objective(at: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = family.loss(at, records.logits, records.labels)
        return value + ridge / 2 * float((at - start) @ (at - start)), slope + ridge * (at - start)

    found = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"gtol": 1e-9, "ftol": 1e-16, "maxiter": 3000, "maxcor": 50},
    )
    return found.x, float(found.fun)


def parameters(artifact: fc.Calibrator) -> np.ndarray:
    first = artifact.scale if hasattr(artifact, "scale") else artifact.slope
    return np.concatenate([first, artifact.shift])


def distance(
    method: fc.Method[fc.Calibrator], family: Family, data: fc.Federation, privacy: fc.privacy.Privacy
) -> float:
    found = fc.run(method, fc.InProcess(data), privacy).artifact
    best, _ = pooled_optimum(family, data.records, 10.0)
    return float(np.abs(parameters(found) - best).max())


@pytest.mark.parametrize("beta", [0.1, 100.0])
def test_vector_scaling_is_the_pooled_optimum_whatever_the_skew(beta: float) -> None:
    data = fc.Federation.dirichlet(federation(5, records=3000).records, 50, beta, seed=0)
    assert distance(fc.methods.RidgeVector(reach=1e3), VectorFamily(), data, fc.Open()) < 1e-6


def certain(classes: int, records: int, clients: int) -> fc.Federation:
    """Records of a model that is twice as sure as it should be, and partial to some classes."""
    rng = np.random.default_rng(0)
    labels = rng.integers(classes, size=records)
    logits = 2 * (rng.normal(size=(records, classes)) + 3 * np.eye(classes)[labels] + rng.normal(0, 1, classes))
    return fc.Federation.dirichlet(fc.Records.of_logits(logits, labels), clients, 0.1, seed=0)


@pytest.mark.parametrize("classes", [10, 40, 100])
def test_rounds_by_default_reach_the_pooled_optimum_of_an_overconfident_model(classes: int) -> None:
    data = certain(classes, 4000, 20)
    assert distance(fc.methods.RidgeVector(reach=1e3), VectorFamily(), data, fc.Open()) < 1e-6


@pytest.mark.parametrize("classes", [10, 40])
def test_twenty_rounds_reach_an_order_preserving_optimum_of_an_overconfident_model(classes: int) -> None:
    data = certain(classes, 2000, 20)
    assert (
        distance(fc.methods.RidgeOPVector(rounds=20, reach=1e3), OrderPreservingVectorFamily(), data, fc.Open()) < 1e-5
    )


def test_secure_sums_reach_it_as_closely_as_their_grid_allows() -> None:
    data = certain(10, 2000, 20)
    assert distance(fc.methods.RidgeVector(reach=1e2), VectorFamily(), data, fc.SecAgg(bits=32)) < 1e-5


@pytest.mark.shared
@pytest.mark.parametrize("network", ["lenet5_logp", "densenetbc100_logp"])
def test_a_hundred_real_classes_reach_the_pooled_optimum(shared: Path, network: str) -> None:
    archive = np.load(shared / "cifar100_probs" / "cifar100_logp.npz")
    records = fc.Records.of_logits(archive[network][:3000].astype(float), archive["y"][:3000])
    data = fc.Federation.dirichlet(records, 100, 0.1, seed=0)
    assert distance(fc.methods.RidgeVector(reach=1e3), VectorFamily(), data, fc.Open()) < 1e-6


def test_order_preserving_scaling_keeps_the_top_class() -> None:
    data = federation(4, clients=20, records=2000)
    artifact = fc.run(fc.methods.RidgeOPVector(), fc.InProcess(data), fc.Open()).artifact
    assert (artifact.of(data.records).argmax(axis=1) == data.records.probs.argmax(axis=1)).all()


def test_a_later_stage_sums_as_fast_as_the_first() -> None:
    data = certain(6, 1000, 20)
    query = Calibrated(fc.method.Plan.of(fc.methods.RidgeVector(), data.schema).queries[0], Temperature(2.0))
    rows = query.rows(data.records).dense(query.size)
    np.testing.assert_allclose(query.total(data, fc.Simulated(0)), rows.sum(axis=0), rtol=1e-9, atol=1e-9)
    scale = np.full(query.size, 2.0**20)
    whole = query.total(data, fc.Simulated(0), scale)
    assert whole.tolist() == np.trunc(rows * scale).sum(axis=0).astype(int).tolist()


def test_many_classes_send_five_numbers_each() -> None:
    data = certain(100, 2000, 10)
    plan = fc.method.Plan.of(fc.methods.RidgeVector(), data.schema)
    assert len(plan.queries) == 16
    assert {query.size for query in plan.queries} == {501}
    held = data.records.take(slice(0, 50))
    query = plan.queries[0]
    np.testing.assert_allclose(query.pooled(held), query.rows(held).dense(query.size).sum(axis=0), atol=1e-9)


def test_very_many_classes_reach_the_pooled_optimum_too() -> None:
    data = certain(300, 2000, 10)
    assert distance(fc.methods.RidgeVector(reach=1e3), VectorFamily(), data, fc.Open()) < 1e-6


def test_parameters_beyond_floating_point_are_refused() -> None:
    with pytest.raises(fc.errors.InputError, match="beyond"):
        ScalingGradient(VectorFamily(), (1e7, 0.0), 1.0)
    with pytest.raises(fc.errors.InputError, match="beyond"):
        ScalingGradient(VectorFamily(), (float("nan"), 0.0), 1.0)


def test_noise_shrinks_the_steps() -> None:
    data = federation(4, clients=30, records=300)
    wild = fc.run(
        fc.methods.RidgeVector(rounds=3), fc.InProcess(data), fc.DistributedDP(0.1), randomness=fc.Simulated(0)
    ).artifact
    np.testing.assert_allclose(parameters(wild), VectorFamily().start(4), atol=0.35)
