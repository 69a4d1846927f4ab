"""ResidualBinning: small where nothing is known, right where much is, and as sensitive as it says."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import fedcalib as fc
from fedcalib import metrics
from fedcalib.artifacts.logit_shifts import LogitOffsets
from fedcalib.errors import InputError
from fedcalib.estimation.evidence import offsets
from fedcalib.metrics.binning import odds_cells
from fedcalib.numeric import log_odds
from tests.contract.subjects import federation


def biased(records: int, classes: int = 4, seed: int = 0) -> fc.Records:
    """Calibrated probabilities whose classes were then pushed up and down."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(classes, 0.5), records)
    labels = np.array([rng.choice(classes, p=row) for row in probs])
    pushed = probs * np.exp(np.linspace(-0.6, 0.6, classes))
    return fc.Records.of_probs(pushed / pushed.sum(axis=1, keepdims=True), labels)


def test_evidence_finds_an_offset_and_leaves_chance_alone() -> None:
    rng = np.random.default_rng(0)
    spread = np.full((200, 16), 40.0)
    found = offsets(rng.normal(0.3 * spread, np.sqrt(spread)), spread, 0.0)
    assert found.mean() == pytest.approx(0.3, abs=0.02)
    assert np.abs(found - 0.3).mean() < 0.05
    chance = offsets(rng.normal(0, np.sqrt(spread)), spread, 0.0)
    assert np.abs(chance).mean() < 0.02


def test_noise_buys_smaller_offsets_until_none() -> None:
    rng = np.random.default_rng(1)
    spread = np.full((100, 16), 40.0)
    sizes = []
    for noise in (0.0, 1e2, 1e4, 1e6):
        residual = rng.normal(0.3 * spread, np.sqrt(spread + noise))
        sizes.append(float(np.abs(offsets(residual, spread, noise)).mean()))
    assert all(later <= earlier + 1e-3 for earlier, later in pairwise(sizes))
    assert sizes[-1] < 0.01


def test_rows_learn_from_each_other_how_large_offsets_are() -> None:
    rng = np.random.default_rng(2)
    spread = np.full((50, 1), 40.0)
    truth = rng.normal(0, 0.3, spread.shape)
    residual = rng.normal(spread * truth, np.sqrt(spread + 60.0))
    together = offsets(residual, spread, 60.0)
    alone = np.concatenate([offsets(residual[k : k + 1], spread[:1], 60.0) for k in range(50)])
    assert np.square(together - truth).mean() < 0.95 * np.square(alone - truth).mean()


def test_one_group_is_the_posterior_mean_by_hand() -> None:
    found = offsets(np.array([[3.0]]), np.array([[10.0]]), 5.0, deviations=(0.5,))
    information, gradient = 10 / 15 * 10, 10 / 15 * 3
    gain = -0.5 * np.log(1 + 0.25 * information) + 0.5 * 0.25 * gradient**2 / (1 + 0.25 * information)
    weight = np.exp(gain) / (1 + np.exp(gain))
    assert found[0, 0] == pytest.approx(weight * 0.25 * gradient / (1 + 0.25 * information))


@pytest.mark.parametrize("sharing", [fc.methods.ClassWise(), fc.methods.TwoLevel()], ids=repr)
def test_it_undoes_a_push_by_class(sharing: fc.methods.ClassWise) -> None:
    data = fc.Federation.iid(biased(20_000), 20, seed=0)
    test = biased(20_000, seed=1)
    artifact = fc.run(fc.methods.ResidualBinning(sharing=sharing), fc.InProcess(data), fc.SecAgg()).artifact
    before = metrics.classwise_ece(test.probs, test.labels)
    assert metrics.classwise_ece(artifact.of(test), test.labels) < 0.35 * before
    assert metrics.nll(artifact.of(test), test.labels) < metrics.nll(test.probs, test.labels)


def test_pooled_classes_send_one_row() -> None:
    plan = fc.method.Plan.of(fc.methods.ResidualBinning(sharing=fc.methods.Pooled()), fc.Schema(10, 5))
    assert plan.queries[0].size == 32
    assert fc.method.Plan.of(fc.methods.ResidualBinning(), fc.Schema(10, 5)).queries[0].size == 320


def test_bounds_do_not_grow_with_the_classes() -> None:
    for classes in (2, 10, 100):
        block = fc.method.Plan.of(fc.methods.ResidualBinning(), fc.Schema(classes, 5)).queries[0].blocks["residual"]
        assert block.bound.l2 == 2**0.5
        assert block.bound.l1 == 2.0


def test_too_much_noise_changes_nothing_and_warns() -> None:
    data = federation(4, clients=5, records=50)
    privacy = fc.UserGaussian(0.01, 1e-6)
    for seed in range(5):
        artifact = fc.run(
            fc.methods.ResidualBinning(), fc.InProcess(data), privacy, randomness=fc.Simulated(seed)
        ).artifact
        if isinstance(artifact, fc.artifacts.Identity):
            assert "noise" in artifact.reason
        else:
            assert np.abs(np.array(artifact.table)).mean() < 0.05


def test_offsets_are_capped() -> None:
    certain = np.array([[0.01, 0.99]] * 500)
    data = fc.Federation.iid(fc.Records.of_probs(certain, np.zeros(500, dtype=int)), 3, seed=0)
    artifact = fc.run(fc.methods.ResidualBinning(), fc.InProcess(data), fc.Open()).artifact
    assert np.abs(np.array(artifact.table)).max() == 1.0


def test_cells_are_equal_steps_with_closed_ends() -> None:
    odds = np.array([-1e9, -8.0, -7.0, -0.001, 0.0, 7.999, 8.0, 1e9])
    assert odds_cells(odds, 16, 8.0).tolist() == [0, 0, 1, 7, 8, 15, 15, 15]
    assert np.isfinite(log_odds(np.array([0.0, 1.0]))).all()


def test_artifacts_are_checked() -> None:
    with pytest.raises(InputError):
        LogitOffsets(((0.0,), (0.0, 1.0)), 8.0)
    with pytest.raises(InputError):
        LogitOffsets(((float("nan"),), (0.0,)), 8.0)
    with pytest.raises(InputError):
        LogitOffsets(((0.0,), (0.0,)), 8.0)(np.full((1, 3), 1 / 3))
