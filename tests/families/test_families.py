"""Families know their own slopes, keep the order where they promise to, and start at the identity."""

from __future__ import annotations

from math import expm1, log

import numpy as np
import pytest

import fedcalib as fc
from fedcalib.artifacts.scaling import OrderPreservingNetwork, OrderPreservingVector
from fedcalib.families import Family
from fedcalib.families.affine import MatrixFamily, TemperatureFamily, VectorFamily
from fedcalib.families.local_fits import fit_batched
from fedcalib.families.order_preserving import OrderPreservingNetworkFamily, OrderPreservingVectorFamily
from fedcalib.queries.scaling import LocalFit
from fedcalib.records import softmax
from tests.contract.subjects import federation

FAMILIES = [
    TemperatureFamily(),
    TemperatureFamily(logarithm=True),
    VectorFamily(),
    MatrixFamily(),
    OrderPreservingVectorFamily(),
    OrderPreservingNetworkFamily(hidden=6),
]
EACH = pytest.mark.parametrize("family", FAMILIES, ids=repr)
BY_CLASS = pytest.mark.parametrize("family", [VectorFamily(), OrderPreservingVectorFamily()], ids=repr)


def records(classes: int = 4, n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(0, 2, (n, classes)), rng.integers(classes, size=n)


def nearby(family: Family, classes: int, seed: int) -> np.ndarray:
    start = family.start(classes)
    return start + np.random.default_rng(seed).normal(0, 0.2, start.shape)


@EACH
def test_the_start_is_the_identity(family: Family) -> None:
    logits, _ = records()
    np.testing.assert_allclose(family.artifact(family.start(4), 4).from_logits(logits), softmax(logits), atol=1e-14)


@EACH
@pytest.mark.parametrize("seed", range(3))
def test_gradients_agree_with_finite_differences(family: Family, seed: int) -> None:
    logits, labels = records(seed=seed)
    at = nearby(family, 4, seed)
    gradient = family.loss(at, logits, labels)[1]
    chosen = np.random.default_rng(seed).choice(len(at), min(len(at), 25), replace=False)
    for index in chosen:
        step = np.zeros_like(at)
        step[index] = 1e-5
        change = family.loss(at + step, logits, labels)[0] - family.loss(at - step, logits, labels)[0]
        assert gradient[index] == pytest.approx(change / 2e-5, rel=1e-4, abs=1e-4)


@EACH
def test_the_loss_is_the_log_loss_of_the_artifact(family: Family) -> None:
    logits, labels = records()
    at = nearby(family, 4, 5)
    probs = family.artifact(at, 4).from_logits(logits)
    expected = -np.log(probs[np.arange(len(labels)), labels]).sum()
    assert family.loss(at, logits, labels)[0] == pytest.approx(expected, rel=1e-9)


@BY_CLASS
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_derivatives_agree_with_finite_differences(family: Family, classes: int) -> None:
    logits, labels = records(classes)
    at = nearby(family, classes, 1)
    here = family.derivatives(at, logits, labels)
    value, slope = family.loss(at, logits, labels)
    assert here.loss.sum() == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(here.gradient.sum(axis=1), slope, atol=1e-10)
    steps = 1e-6 * np.eye(len(at))
    changes = [family.loss(at + step, logits, labels)[1] - family.loss(at - step, logits, labels)[1] for step in steps]
    np.testing.assert_allclose(here.curvature().sum(axis=2), np.array(changes) / 2e-6, atol=1e-6)


@BY_CLASS
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_sums_and_norms_of_curvature_are_those_of_what_is_written_out(family: Family, classes: int) -> None:
    logits, labels = records(classes)
    here = family.derivatives(nearby(family, classes, 2), logits, labels)
    weights = np.random.default_rng(3).random(len(labels))
    full = here.curvature()
    np.testing.assert_allclose(here.summed_curvature(weights), full @ weights, atol=1e-10)
    upper = full[np.triu_indices(2 * classes)]
    np.testing.assert_allclose(here.curvature_norms(), np.linalg.norm(upper, axis=0), rtol=1e-10)
    first, second = np.split(np.arange(2 * classes), 2)
    by_class = [full[first, first], full[first, second], full[second, second]]
    np.testing.assert_allclose(here.curvature_by_class, by_class, atol=1e-12)


@BY_CLASS
def test_the_soft_start_halves_logits(family: Family) -> None:
    logits, _ = records()
    softer = family.artifact(family.soft_start(4), 4).from_logits(logits)
    np.testing.assert_allclose(softer, softmax(logits / 2), atol=1e-14)


@pytest.mark.parametrize("family", [VectorFamily(), MatrixFamily()], ids=repr)
def test_curvature_agrees_with_finite_differences(family: Family) -> None:
    logits, labels = records(3)
    at = nearby(family, 3, 4)
    steps = 1e-6 * np.eye(len(at))
    changes = [family.loss(at + step, logits, labels)[1] - family.loss(at - step, logits, labels)[1] for step in steps]
    np.testing.assert_allclose(family.curvature(at, logits, labels), np.array(changes) / 2e-6, atol=1e-6)


@pytest.mark.parametrize("family", [VectorFamily(), MatrixFamily()], ids=repr)
def test_a_client_of_many_records_is_fitted_to_the_same_place(family: Family) -> None:
    rng = np.random.default_rng(0)
    true = 2 * rng.normal(size=(20_000, 4))
    labels = (true + rng.gumbel(size=true.shape)).argmax(axis=1)
    logits = 2 * true * rng.uniform(0.8, 1.2, 4) + rng.normal(size=4)
    start = family.start(4)
    alone = family.fit(start, logits, labels, ridge=1.0, steps=50, rng=rng)
    held = logits, labels, np.array([0, len(labels)])
    beside = fit_batched(family.record_losses, start, held, ridge=1.0, steps=500)[0]
    losses = [family.loss(at, logits, labels)[0] + 0.5 * float((at - start) @ (at - start)) for at in (alone, beside)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-7)
    small = fc.Records.of_logits(logits[:50], labels[:50])
    data = fc.Federation.of([small, fc.Records.of_logits(logits, labels), fc.Records.empty(4), small])
    each = family.fit_each(start, data, ridge=1.0, steps=50, randomness=fc.Simulated(0))
    np.testing.assert_allclose(each[1], alone, atol=1e-12)
    np.testing.assert_allclose(each[0], family.fit(start, logits[:50], labels[:50], ridge=1.0, steps=50, rng=rng))
    np.testing.assert_allclose(each[2], start)
    np.testing.assert_allclose(each[3], each[0])


def test_families_without_a_hessian_say_so() -> None:
    with pytest.raises(fc.errors.InputError, match="known Hessian"):
        OrderPreservingVectorFamily().curvature(np.zeros(6), np.zeros((1, 3)), np.zeros(1, dtype=int))


def test_families_without_derivatives_say_so() -> None:
    with pytest.raises(fc.errors.InputError, match="local fits"):
        MatrixFamily().derivatives(MatrixFamily().start(3), np.zeros((1, 3)), np.zeros(1, dtype=int))


def order_preserving(classes: int, seed: int) -> list[fc.Calibrator]:
    rng = np.random.default_rng(seed)
    vector = OrderPreservingVector(tuple(rng.normal(0, 1, classes)), tuple(rng.normal(0, 3, classes)))
    shapes = OrderPreservingNetworkFamily(hidden=5).shapes(classes)
    network = OrderPreservingNetwork(
        tuple(rng.normal(0, 1, shape) for shape in shapes), tuple(rng.normal(0, 1, shape[0]) for shape in shapes)
    )
    return [vector, network]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_order_preserving_maps_keep_ranking_and_ties(classes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits = np.round(rng.normal(0, 3, (10_000, classes)), 1)  # rounded, so that many are tied
    for calibrator in order_preserving(classes, seed):
        out = calibrator.from_logits(logits)
        for i in range(classes):
            for j in range(i):
                tied = logits[:, i] == logits[:, j]
                assert (out[tied, i] == out[tied, j]).all()
                above = logits[:, i] > logits[:, j]
                assert (out[above, i] >= out[above, j]).all()
        held = out[np.arange(len(out)), logits.argmax(axis=1)]
        assert (held == out.max(axis=1)).all()  # equal where a stretched gap is below the last digit, never less


def test_vectors_of_the_order_preserving_map() -> None:
    logits, _ = records(7, 300)
    flat = OrderPreservingVector((0.0,) * 7, (log(expm1(1.0)),) * 7)
    np.testing.assert_allclose(flat.from_logits(logits), softmax(logits), atol=1e-15)
    warm = OrderPreservingVector((0.0,) * 7, (log(expm1(1 / 1.7)),) * 7)
    np.testing.assert_allclose(warm.from_logits(logits), softmax(logits / 1.7), atol=1e-14)


def test_messages_have_the_published_lengths() -> None:
    schema = fc.Schema(classes=10, clients=100)
    sizes = {
        method: fc.method.Plan.of(method, schema).queries[0].size
        for method in (fc.FedTemp(), fc.FedVector(), fc.FedMatrix(), fc.FedOPVector(), fc.FedCal())
    }
    assert list(sizes.values()) == [1, 20, 110, 20, 5514]


@EACH
def test_all_clients_at_once_equal_one_at_a_time(family: Family) -> None:
    data = federation(3, clients=9, records=150)
    query = LocalFit(family, tuple(family.start(3).tolist()), 0.5, 1.0, 20)
    source = fc.Simulated(3)
    together = query.terms(data, source)
    for client, held in enumerate(data.clients()):
        alone = query.term(held, source.derive("term", client).generator())
        np.testing.assert_allclose(together[client], alone, atol=1e-8)
