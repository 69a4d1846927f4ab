"""Sources 002 (CCVR) and 003 (recalibration under domain shift): every method against a short formula of its own."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from benchmarks.similarity import linear_cka

import fedcalib as fc
from fedcalib.artifacts.networks import Head
from fedcalib.methods import CCVR, ECET, NLLT, FeatureGaussians, SourceBinning
from fedcalib.queries.shift import RightWrong

SOURCES, CLASSES = 50, 10


def shifted() -> tuple[fc.Federation, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(SOURCES * 30, CLASSES)) * 2.2
    y = (z / 1.9 + rng.gumbel(size=z.shape)).argmax(axis=1)
    return fc.Federation.grouped(fc.Records.of_logits(z, y), np.repeat(np.arange(SOURCES), 30)), z, y


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def golden(f, low: float, high: float, steps: int) -> float:
    """Golden section with points in the new bracket; both values are computed again each time."""
    r = (sqrt(5) - 1) / 2
    for _ in range(steps):
        left, right = high - r * (high - low), low + r * (high - low)
        low, high = (low, right) if f(left) < f(right) else (left, high)
    return (low + high) / 2


def printed(f, low: float, high: float, steps: int) -> tuple[float, float]:
    """Algorithm 1 as printed: new points from the old bracket."""
    t0, t1 = high - 0.618 * (high - low), low + 0.618 * (high - low)
    for _ in range(steps):
        if f(t0) >= f(t1):
            low, t0, t1 = t0, t1, low + 0.618 * (high - low)
        else:
            high, t1, t0 = t1, t0, high - 0.618 * (high - low)
    return low, high


def gap(z: np.ndarray, y: np.ndarray, t: float) -> float:
    return abs(float(((z.argmax(axis=1) == y) - softmax(z / t).max(axis=1)).sum()))


def clipped_loss(z: np.ndarray, y: np.ndarray, t: float) -> float:
    return float(np.minimum(-np.log(softmax(z / t)[np.arange(len(y)), y]), 10).sum())


def binned_gap(z: np.ndarray, y: np.ndarray, t: float) -> float:
    p = softmax(z / t).max(axis=1)
    cells = np.minimum((p * 15).astype(int), 14)
    return float(np.abs(np.bincount(cells, (z.argmax(axis=1) == y) - p, 15)).sum())


@pytest.mark.parametrize(
    ("method", "objective"),
    [(fc.AccT, gap), (NLLT, clipped_loss), (ECET, binned_gap)],
    ids=["section-4-acc-t", "section-3-nll-t", "section-3-ece-t"],
)
def test_appendix_c_1_golden_section(method, objective) -> None:
    data, z, y = shifted()
    found = fc.run(method.as_published(), fc.InProcess(data), fc.Open()).artifact.temperature
    assert found == pytest.approx(golden(lambda t: objective(z, y, t), 0.5, 3.0, 5), abs=1e-9)


def test_algorithm_1_as_printed_turns_its_bracket_inside_out() -> None:
    _, z, y = shifted()
    low, high = printed(lambda t: gap(z, y, t), 0.5, 3.0, 5)
    assert low >= high - 1e-9 or not low <= golden(lambda t: gap(z, y, t), 0.5, 3.0, 20) <= high


@pytest.mark.parametrize(
    ("method", "scale"),
    [(fc.AccT, 6.0), (NLLT, 60.0), (ECET, 6.0), (SourceBinning, 2.0)],
    ids=["acc-t", "nll-t", "ece-t", "histogram"],
)
def test_section_4_noise_of_each_source_has_scale_looks_times_sensitivity_over_epsilon(method, scale: float) -> None:
    plan = fc.method.Plan.of(method.as_published(), fc.Schema(CLASSES, SOURCES))
    who, query = fc.Everyone(), plan.queries[0]
    mechanism = fc.SourceLaplace(1.0).mechanism(query, plan, who.cohort(SOURCES), who)
    (width,), (steps,) = mechanism.widths.values(), mechanism.scales.values()
    unit = query.worst if method is NLLT else 1.0
    assert unit * width / steps == pytest.approx(scale, rel=1e-6)


def test_section_3_histogram_binning_counts_right_and_all() -> None:
    data, z, y = shifted()
    found = fc.run(SourceBinning.as_published(), fc.InProcess(data), fc.Open()).artifact
    p, right = softmax(z).max(axis=1), z.argmax(axis=1) == y
    cells = np.minimum((p * 15).astype(int), 14)
    correct, total = np.bincount(cells, right, 15), np.bincount(cells, minlength=15)
    middle = (np.arange(15) + 0.5) / 15
    expected = np.maximum(np.where(total > 0, correct / np.maximum(total, 1), middle), 1 / CLASSES)
    np.testing.assert_allclose(found.steps, expected, atol=1e-9)
    query = RightWrong(15, totals=True)
    np.testing.assert_array_equal(query.total(data, fc.Simulated(0)), np.concatenate([correct, total]))
    rows = query.rows(data.records)
    assert np.abs(rows.values).sum(axis=1).max() == query.blocks["counts"].bound.l1 == 2


def features() -> fc.Federation:
    rng = np.random.default_rng(0)
    roots, centres, y = rng.normal(size=(4, 6, 6)), rng.normal(size=(4, 6)) * 2, rng.integers(4, size=1500)
    f = np.stack([centres[k] + roots[k] @ rng.normal(size=6) for k in y])
    return fc.Federation.dirichlet(fc.Records.of_logits(np.zeros((1500, 4)), y, features=f), 12, 0.2, seed=0)


def test_notes_class_means_and_covariances_from_the_clients_own() -> None:
    """mu_c and Sigma_c of the pooled records, with weights N_ck / N_c, which the notes print inverted."""
    data = features()
    found = fc.run(FeatureGaussians(features=6), fc.InProcess(data), fc.Open()).artifact
    for j in range(4):
        parts = [r.extra["features"][r.labels == j] for r in data.clients()]
        parts = [part for part in parts if len(part)]
        n, mu = np.array([len(part) for part in parts]), np.array([part.mean(axis=0) for part in parts])
        own = [np.cov(part.T) if len(part) > 1 else np.zeros((6, 6)) for part in parts]
        mean = n @ mu / n.sum()
        within = sum((k - 1) * s for k, s in zip(n, own, strict=True)) + (mu.T * n) @ mu
        np.testing.assert_allclose(found.means[j], mean, atol=1e-9)
        expected = (within - n.sum() * np.outer(mean, mean)) / (n.sum() - 1)
        np.testing.assert_allclose(found.covariances[j], expected, atol=1e-9)


def test_notes_ccvr_retrains_the_head_on_virtual_features_with_raw_covariances() -> None:
    data, rng = features(), np.random.default_rng(0)
    start = Head(np.full((4, 6), 0.1), np.zeros(4))
    method = CCVR.as_published(6, 50, start=start)
    found = fc.run(method, fc.InProcess(data), fc.Open()).artifact
    gaussians = fc.run(FeatureGaussians(features=6), fc.InProcess(data), fc.Open()).artifact
    counts = np.ceil(50 * 4 * gaussians.counts / gaussians.counts.sum()).astype(int)  # M_c in proportion to N_c
    z, y = [], np.repeat(np.arange(4), counts)
    for mean, covariance, m in zip(gaussians.means, gaussians.covariances, counts, strict=True):
        values, vectors = np.linalg.eigh(covariance)
        z.append(mean + rng.normal(size=(m, 6)) @ ((vectors * np.sqrt(values)) @ vectors.T))
    z, w, b = np.concatenate(z), start.matrix.copy(), start.shift.copy()
    rows = [o[at : at + 64] for o in [rng.permutation(len(y)) for _ in range(10)] for at in range(0, len(y), 64)]
    rate = 2.0 / (1 + (z**2).sum(axis=1).mean())
    for step, batch in enumerate(rows):
        residual = softmax(z[batch] @ w.T + b) - np.eye(4)[y[batch]]
        falling = rate * (1 - step / len(rows))
        w = w - falling * (residual.T @ z[batch] / len(batch) + 1e-4 * w)
        b = b - falling * residual.mean(axis=0)
    np.testing.assert_allclose(found.matrix, w, atol=1e-9)
    np.testing.assert_allclose(found.shift, b, atol=1e-9)


def test_notes_virtual_features_have_the_classes_own_distribution() -> None:
    gaussians = fc.run(FeatureGaussians(features=6), fc.InProcess(features()), fc.Open()).artifact
    drawn, labels = gaussians.sample(np.full(4, 40_000), np.random.default_rng(1))
    for j in range(4):
        np.testing.assert_allclose(drawn[labels == j].mean(axis=0), gaussians.means[j], atol=0.15)
        error = np.linalg.norm(np.cov(drawn[labels == j].T) - gaussians.covariances[j])
        assert error < 0.03 * np.linalg.norm(gaussians.covariances[j])


def test_notes_normalised_classifier_and_cka() -> None:
    rng = np.random.default_rng(2)
    f, w = rng.normal(size=(50, 6)), rng.normal(size=(4, 6))
    expected = softmax(f @ (w / np.linalg.norm(w, axis=1, keepdims=True)).T)
    np.testing.assert_allclose(Head(w, rng.normal(size=4)).normalised(f), expected, atol=1e-9)
    x, other = rng.normal(size=(200, 5)), rng.normal(size=(200, 7))
    centre = np.eye(200) - 1 / 200

    def hsic(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.trace(centre @ a @ a.T @ centre @ b @ b.T))

    own = hsic(x, other) / sqrt(hsic(x, x) * hsic(other, other))
    assert linear_cka(x, other) == pytest.approx(own, rel=1e-9)
