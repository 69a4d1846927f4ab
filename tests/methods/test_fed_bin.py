"""FedBin equals a central one-vs-all binning written out the slow way."""

from __future__ import annotations

import numpy as np
import pytest

import fedcalib as fc
from fedcalib import metrics
from fedcalib.accounting import rho_for
from fedcalib.errors import InputError
from fedcalib.privacy.user_gaussian import ClippedGaussian
from fedcalib.queries.class_tables import LabelHistogram
from tests.contract.subjects import federation


def central(probs: np.ndarray, labels: np.ndarray, bins: int, smoothing: float, new: np.ndarray) -> np.ndarray:
    """One class at a time, one bin at a time."""
    out = np.zeros_like(new)
    for j in range(probs.shape[1]):
        for m in range(bins):
            low, high = m / bins, (m + 1) / bins
            inside = (probs[:, j] >= low) & ((probs[:, j] < high) | (m == bins - 1))
            hits, held = (labels[inside] == j).sum(), inside.sum()
            value = (hits + smoothing * (low + high) / 2) / (held + smoothing) if held + smoothing else 0.0
            there = (new[:, j] >= low) & ((new[:, j] < high) | (m == bins - 1))
            out[there, j] = value
    mass = out.sum(axis=1, keepdims=True)
    return np.where(mass > 0, out / np.where(mass > 0, mass, 1), new)


@pytest.mark.parametrize("smoothing", [0.0, 2.0])
def test_equals_the_central_computation(smoothing: float) -> None:
    data = federation(4, records=1500)
    new = np.random.default_rng(1).dirichlet(np.ones(4), 300)
    method = fc.FedBin(bins=16, smoothing=smoothing)
    artifact = fc.run(method, fc.InProcess(data), fc.SecAgg()).artifact
    expected = central(data.records.probs, data.records.labels, 16, smoothing, new)
    np.testing.assert_allclose(artifact(new), expected, atol=1e-12)


def test_message_has_the_published_length() -> None:
    plan = fc.method.Plan.of(fc.FedBin(bins=128), fc.Schema(classes=10, clients=100))
    assert plan.queries[0].size == 2560
    bounds = [block.bound for block in plan.queries[0].blocks.values()]
    assert sum(bound.l1 for bound in bounds) == 10
    assert sum(bound.l2**2 for bound in bounds) ** 0.5 == pytest.approx(10**0.5)


def test_rounds_over_disjoint_cohorts_equal_one_round() -> None:
    data = federation(4, clients=12, records=2000)
    once = fc.run(fc.FedBin(), fc.InProcess(data), fc.SecAgg()).artifact
    rounds = fc.run(fc.FedBin(rounds=4), fc.InProcess(data), fc.SecAgg(), participation=fc.Disjoint(4)).artifact
    assert rounds == once


def test_it_calibrates() -> None:
    data = federation(4, records=20_000)
    fit, test = data.split(0.5, seed=0)
    artifact = fc.run(fc.FedBin(), fc.InProcess(fit), fc.DistributedDP(1.0), randomness=fc.Simulated(0)).artifact
    before = metrics.classwise_ece(test.records.probs, test.records.labels)
    after = metrics.classwise_ece(artifact.of(test.records), test.records.labels)
    assert after < before / 2


def test_two_classes_share_one_histogram() -> None:
    plan = fc.method.Plan.of(fc.FedBin(), fc.Schema(2, 5))
    assert list(plan.queries[0].blocks) == ["1"]
    artifact = fc.run(fc.FedBin(), fc.InProcess(federation(2)), fc.SecAgg()).artifact
    scores = np.linspace(0, 1, 50)
    np.testing.assert_allclose(artifact(scores), artifact(np.stack([1 - scores, scores], axis=1))[:, 1])


def test_empty_bins_keep_the_base_model() -> None:
    empty = fc.Federation.of([fc.Records.empty(3)] * 3)
    artifact = fc.run(fc.FedBin(bins=100), fc.InProcess(empty), fc.Open()).artifact
    probs = np.random.default_rng(0).dirichlet(np.ones(3), 100)
    np.testing.assert_allclose(artifact(probs), probs, atol=0.01)
    published = fc.run(fc.FedBin(smoothing=0.0), fc.InProcess(empty), fc.Open()).artifact
    np.testing.assert_array_equal(published(probs), probs)  # all-zero steps: the base model, never 0/0


def test_two_clips_are_the_published_recipe() -> None:
    """Every cell of P has noise C+ sqrt(2 c T / (2 rho)), every cell of N the same with C-: 2c blocks, T rounds."""
    rounds, classes, model = 3, 4, fc.UserGaussian(1.0, 1e-5, separate=True)
    plan = fc.method.Plan.of(fc.FedBin(bins=8, rounds=rounds, clip=(10.0, 50.0)), fc.Schema(classes, 100))
    who, query = fc.Everyone(), plan.queries[0]
    mechanism = model.mechanism(query, plan, who.cohort(100), who)
    assert isinstance(mechanism, ClippedGaussian)
    for block, sigma in mechanism.sigmas.items():
        clip = 10.0 if block.endswith("+") else 50.0
        noise = clip * np.sqrt(2 * classes * rounds / (2 * rho_for(1.0, 1e-5)))
        assert sigma / mechanism.scales[block] == pytest.approx(noise, rel=1e-6)
    client = fc.Federation.of([federation(classes, clients=1, records=4000).records])
    sent = query.split(mechanism.exact(query, client, fc.Simulated(0)))
    norms = {block: float(np.linalg.norm(part)) for block, part in sent.items()}
    assert norms == pytest.approx({block: 10.0 if block.endswith("+") else 50.0 for block in norms}, rel=1e-6)


@pytest.mark.parametrize("method", [fc.FedBin, fc.FedBBQ])
def test_two_clips_change_nothing_where_they_do_not_bind(method: type[fc.FedBin]) -> None:
    data = federation(3, clients=8, records=400)
    one, two = (fc.run(method(clip=clip), fc.InProcess(data), fc.Open()).artifact for clip in (5.0, (5.0, 9.0)))
    assert one == two


@pytest.mark.parametrize("clip", [(), (1.0,), (1.0, 2.0, 3.0), (1.0, 0.0), (1.0, float("nan")), (((),), 1.0)])
def test_clips_that_are_none_are_refused(clip: tuple[float, float]) -> None:
    with pytest.raises(InputError, match="one clip"):
        LabelHistogram(3, 4, clip)
