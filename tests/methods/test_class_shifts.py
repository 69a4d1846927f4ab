"""ClassShifts: right where much is known, no change where noise is too large, and within its bounds."""

from __future__ import annotations

import numpy as np
import pytest

import fedcalib as fc
from fedcalib import metrics
from fedcalib.errors import InputError
from fedcalib.estimation.evidence import shifts
from fedcalib.queries.class_tables import ClassCurvature
from tests.contract.subjects import federation
from tests.methods.test_residual_binning import biased


def pooled(records: fc.Records, cells: int = 2) -> tuple[np.ndarray, np.ndarray]:
    query = ClassCurvature(records.classes, cells, 8.0)
    total = query.rows(records).dense(query.size).sum(axis=0)
    return total[: records.classes * cells], total[records.classes * cells :]


def test_it_undoes_a_push_by_class_better_than_offsets_do() -> None:
    data = fc.Federation.iid(biased(20_000), 20, seed=0)
    test = biased(20_000, seed=1)
    after = {
        method: metrics.classwise_ece(fc.run(method, fc.InProcess(data), fc.SecAgg()).artifact.of(test), test.labels)
        for method in (fc.methods.ClassShifts(), fc.methods.ResidualBinning())
    }
    assert after[fc.methods.ClassShifts()] < 0.25 * metrics.classwise_ece(test.probs, test.labels)
    assert after[fc.methods.ClassShifts()] < after[fc.methods.ResidualBinning()]


def test_the_curvature_is_that_of_the_log_likelihood() -> None:
    records = federation(3, records=200).records
    residual, triangle = pooled(records, cells=1)
    whole = np.zeros((3, 3))
    whole[np.triu_indices(3)] = triangle
    whole = whole + whole.T - np.diag(np.diag(whole))
    step = 1e-6
    for j in range(3):
        moved = fc.artifacts.LogitShifts(tuple((step if k == j else 0.0,) for k in range(3)), 8.0).of(records)
        labels = np.eye(3)[records.labels]
        np.testing.assert_allclose(((labels - moved).sum(axis=0) - residual) / step, -whole[j], atol=1e-2)


def test_without_noise_many_records_buy_a_newton_step() -> None:
    records = biased(20_000)
    residual, triangle = pooled(records, cells=1)
    whole = np.zeros((4, 4))
    whole[np.triu_indices(4)] = triangle
    whole = whole + whole.T - np.diag(np.diag(whole))
    found = shifts(residual, triangle, 0.0, 0.0, 4)[:, 0]
    newton = np.append(np.linalg.solve(whole[:3, :3], residual[:3]), 0.0)  # relative to the last class
    np.testing.assert_allclose(found - found[-1], newton, atol=0.02)


def test_noise_buys_smaller_shifts_until_none() -> None:
    residual, triangle = pooled(biased(2_000))
    rng = np.random.default_rng(0)
    sizes = []
    for noise in (1e2, 1e5, 1e7):
        noisy_residual = residual + rng.normal(0, noise**0.5, residual.shape)
        noisy_triangle = triangle + rng.normal(0, (noise / 4) ** 0.5, triangle.shape)
        sizes.append(float(np.abs(shifts(noisy_residual, noisy_triangle, noise, noise / 4, 4)).mean()))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 0.01


@pytest.mark.parametrize("value", [0.0, 1e300, -1e300, np.inf, np.nan])
def test_whatever_is_heard_becomes_finite_shifts(value: float) -> None:
    found = shifts(np.full(4, value), np.full(10, value), 1.0, 1.0, 2)
    assert np.isfinite(np.clip(np.nan_to_num(found), -1, 1)).all()


def test_no_record_adds_more_curvature_than_two_halves() -> None:
    rng = np.random.default_rng(0)
    for classes in (2, 3, 5, 10):
        probs = rng.dirichlet(np.full(classes, 0.3), 20_000)
        query = ClassCurvature(classes, 2, 8.0)
        added = query.rows(fc.Records.of_probs(probs, np.zeros(len(probs), dtype=int))).values[:, classes:]
        assert np.linalg.norm(added, axis=1).max() <= query.blocks["curvature"].bound.l2 + 1e-12
        assert np.abs(added).sum(axis=1).max() <= query.blocks["curvature"].bound.l1 + 1e-12


def test_too_much_noise_changes_nothing_and_warns() -> None:
    data = federation(4, clients=5, records=50)
    for seed in range(5):
        privacy = fc.UserGaussian(0.01, 1e-6)
        artifact = fc.run(fc.methods.ClassShifts(), fc.InProcess(data), privacy, randomness=fc.Simulated(seed)).artifact
        if isinstance(artifact, fc.artifacts.Identity):
            assert "noise" in artifact.reason
        else:
            assert np.abs(np.array(artifact.table)).mean() < 0.05


def test_too_many_classes_are_sent_to_residual_binning() -> None:
    with pytest.raises(InputError, match="ResidualBinning"):
        fc.method.Plan.of(fc.methods.ClassShifts(), fc.Schema(1000, 10))
    for wrong in ({"cap": 0.0}, {"curvature_share": 1.0}):
        with pytest.raises(InputError):
            fc.methods.ClassShifts(**wrong)
    for table in (((0.0,), (0.0, 1.0)), ((float("nan"),), (0.0,))):
        with pytest.raises(InputError):
            fc.artifacts.LogitShifts(table, 8.0)
    with pytest.raises(InputError):
        fc.artifacts.LogitShifts(((0.0,), (0.0,)), 8.0)(np.full((1, 3), 1 / 3))
