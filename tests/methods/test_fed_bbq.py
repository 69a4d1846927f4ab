"""FedBBQ equals a central Bayesian binning of each class against the rest, written out the slow way."""

from __future__ import annotations

from math import exp, lgamma

import numpy as np
import pytest

import fedcalib as fc
from fedcalib.flows.tables import LabelHistograms, class_weights
from tests.contract.subjects import federation


def central(probs: np.ndarray, labels: np.ndarray, new: np.ndarray, levels: range, strength: float) -> np.ndarray:
    """One class, one resolution, one bin at a time, straight from the definition."""
    out = np.zeros_like(new)
    for j in range(probs.shape[1]):
        scores, tables = [], []
        for level in levels:
            bins = 2**level
            score, table = 0.0, []
            for b in range(bins):
                inside = (probs[:, j] >= b / bins) & ((probs[:, j] < (b + 1) / bins) | (b == bins - 1))
                hits = int((labels[inside] == j).sum())
                misses = int(inside.sum()) - hits
                middle = min(max((b + 0.5) / bins, 0.005), 0.995)
                up, down = strength * middle, strength * (1 - middle)
                score += lgamma(strength) - lgamma(hits + misses + strength)
                score += lgamma(hits + up) - lgamma(up) + lgamma(misses + down) - lgamma(down)
                table.append((hits + up) / (hits + misses + strength))
            scores.append(score)
            tables.append(table)
        weights = [exp(score - max(scores)) for score in scores]
        for i, p in enumerate(new[:, j]):
            looked = [table[min(int(p * len(table)), len(table) - 1)] for table in tables]
            out[i, j] = sum(w * value for w, value in zip(weights, looked, strict=True)) / sum(weights)
    return out / out.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("coarsest", [0, 1])
@pytest.mark.parametrize("classes", [3, 5])
def test_equals_the_central_computation(classes: int, coarsest: int) -> None:
    data = federation(classes, records=900)
    new = np.random.default_rng(1).dirichlet(np.ones(classes), 60)
    artifact = fc.run(fc.FedBBQ(finest=5, coarsest=coarsest), fc.InProcess(data), fc.SecAgg()).artifact
    expected = central(data.records.probs, data.records.labels, new, range(coarsest, 6), 2.0)
    np.testing.assert_allclose(artifact(new), expected, atol=1e-10)


def test_thousands_of_records_do_not_underflow() -> None:
    data = federation(3, records=60_000)
    artifact = fc.run(fc.FedBBQ(), fc.InProcess(data), fc.Open()).artifact
    assert np.isfinite(artifact(np.random.default_rng(0).dirichlet(np.ones(3), 100))).all()


def test_merging_comes_before_cutting_negative_counts() -> None:
    noisy = np.array([[3.0, -2.0, 1.0, -1.0]])
    merged = LabelHistograms(noisy, noisy, 1.0, 1.0).merged(2)
    assert merged.positives.tolist() == [[1.0, 0.0]]
    assert merged.variance == 2.0


def test_repeated_participation_counts_twice_and_disjoint_cohorts_do_not() -> None:
    data = federation(3, clients=40, records=2000)
    once = fc.run(fc.FedBBQ(), fc.InProcess(data), fc.SecAgg()).artifact
    dealt = fc.run(fc.FedBBQ(rounds=4), fc.InProcess(data), fc.SecAgg(), participation=fc.Disjoint(4)).artifact
    assert dealt == once
    again = fc.run(
        fc.FedBBQ(rounds=4), fc.InProcess(data), fc.Open(), participation=fc.Poisson(0.9), randomness=fc.Simulated(0)
    ).artifact
    assert again != once


def counts(positives: float, variance: float, bins: int = 16, seen: float = 1.0) -> LabelHistograms:
    cells = np.full((3, bins), positives / bins)
    return LabelHistograms(cells, cells, variance, seen)


def test_the_private_weight_is_zero_without_data_and_one_with_plenty() -> None:
    rng = np.random.default_rng(0)
    nothing = [
        class_weights(LabelHistograms(rng.normal(0, 5, (3, 128)), np.zeros((3, 128)), 25.0, 1.0), 3, 2.0)
        for _ in range(300)
    ]
    assert np.mean(nothing) < 0.003  # as published, with a floor of 0, it would average 1 / (2 sqrt(128)) = 0.044
    published = [
        class_weights(LabelHistograms(rng.normal(0, 5, (3, 128)), np.zeros((3, 128)), 25.0, 1.0), 3, 0.0)
        for _ in range(300)
    ]
    assert np.mean(published) == pytest.approx(0.044, rel=0.2)
    assert class_weights(counts(1e6, 25.0), 3, 2.0) == (1.0, 1.0, 1.0)
    assert class_weights(counts(-50.0, 25.0), 3, 2.0) == (0.0, 0.0, 0.0)


def test_without_noise_the_weight_is_the_share_of_clients_seen() -> None:
    assert class_weights(counts(100.0, 0.0, seen=0.3), 3, 2.0) == (0.3, 0.3, 0.3)
    assert class_weights(counts(0.0, 0.0), 3, 2.0) == (0.0, 0.0, 0.0)  # a class that nobody has


def test_changed_only_leaves_records_whose_top_class_stays() -> None:
    data = federation(4, records=600)
    steps = fc.run(fc.FedBBQ(), fc.InProcess(data), fc.Open()).artifact
    part = {"rounds": 2, "finest": 7}
    blend = fc.run(
        fc.FedBBQ(**part, weighting=fc.methods.Weighted(changed_only=True)),
        fc.InProcess(data),
        fc.Open(),
        participation=fc.Disjoint(2),
    ).artifact
    probs = np.random.default_rng(0).dirichlet(np.ones(4), 500)
    same = steps(probs).argmax(axis=1) == probs.argmax(axis=1)
    np.testing.assert_allclose(blend(probs)[same], steps(probs)[same], atol=1e-12)
