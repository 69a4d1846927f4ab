"""Scalings from summed gradients are the pooled optimum, whoever holds what."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

import fedcalib as fc
from fedcalib.families.affine import VectorFamily
from fedcalib.families.family import Family
from fedcalib.families.order_preserving import OrderPreservingVectorFamily
from tests.contract.subjects import federation


def pooled_optimum(family: Family, records: fc.Records, ridge: float) -> tuple[np.ndarray, float]:
    start = family.start(records.classes)

    def objective(at: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = family.loss(at, records.logits, records.labels)
        return value + ridge / 2 * float((at - start) @ (at - start)), slope + ridge * (at - start)

    found = minimize(objective, start, jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 2000})
    return found.x, float(found.fun)


def parameters(artifact: fc.Calibrator) -> np.ndarray:
    first = artifact.scale if hasattr(artifact, "scale") else artifact.slope
    return np.concatenate([first, artifact.shift])


@pytest.mark.parametrize("beta", [0.1, 100.0])
def test_vector_scaling_is_the_pooled_optimum_whatever_the_skew(beta: float) -> None:
    records = federation(5, records=3000).records
    data = fc.Federation.dirichlet(records, 50, beta, seed=0)
    artifact = fc.run(fc.RidgeVector(rounds=10, reach=1e3), fc.InProcess(data), fc.Open()).artifact
    best, _ = pooled_optimum(VectorFamily(), data.records, 10.0)
    np.testing.assert_allclose(parameters(artifact), best, atol=1e-6)


def test_order_preserving_scaling_reaches_a_pooled_optimum() -> None:
    data = federation(4, clients=20, records=2000)
    method = fc.RidgeOPVector(rounds=25, reach=1e3)
    artifact = fc.run(method, fc.InProcess(data), fc.Open()).artifact
    family = OrderPreservingVectorFamily()
    _, least = pooled_optimum(family, data.records, 10.0)
    at = parameters(artifact)
    start = family.start(4)
    reached = family.loss(at, data.records.logits, data.records.labels)[0] + 5 * float((at - start) @ (at - start))
    assert reached == pytest.approx(least, rel=1e-6)
    assert (artifact.of(data.records).argmax(axis=1) == data.records.probs.argmax(axis=1)).all()


def test_many_classes_use_blocks_and_still_descend() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(40, size=4000)
    logits = rng.normal(size=(4000, 40)) + 3 * np.eye(40)[labels] + rng.normal(0, 1, 40)
    data = fc.Federation.iid(fc.Records.of_logits(logits, labels), 10, seed=0)
    query = fc.Plan.of(fc.RidgeVector(), data.schema).queries[0]
    assert query.size == 80 + 120 + 1
    artifact = fc.run(fc.RidgeVector(rounds=12), fc.InProcess(data), fc.Open()).artifact
    _, least = pooled_optimum(VectorFamily(), data.records, 10.0)
    family, at = VectorFamily(), parameters(artifact)
    off = at - family.start(40)
    reached = family.loss(at, logits, labels)[0] + 5 * float(off @ off)
    begun = family.loss(family.start(40), data.records.logits, data.records.labels)[0]
    assert reached - least < 0.02 * (begun - least)


def test_noise_shrinks_the_steps() -> None:
    data = federation(4, clients=30, records=300)
    wild = fc.run(
        fc.RidgeVector(rounds=3), fc.InProcess(data), fc.DistributedDP(0.1), randomness=fc.Simulated(0)
    ).artifact
    np.testing.assert_allclose(parameters(wild), VectorFamily().start(4), atol=0.35)
