"""Federated metrics are the central ones without noise, and know how wrong they may be with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedcalib as fc
from fedcalib import metrics
from tests.contract.subjects import federation


def measured(data: fc.Federation, privacy: fc.privacy.Privacy, seed: int = 0):
    return fc.run(fc.FederatedMetrics(), fc.InProcess(data), privacy, randomness=fc.Simulated(seed)).artifact


@pytest.mark.parametrize("privacy", [fc.Open(), fc.SecAgg()], ids=repr)
def test_multiclass_equals_central(privacy: fc.privacy.Privacy) -> None:
    data = federation(4, records=3000)
    report = measured(data, privacy)
    probs, labels = data.records.probs, data.records.labels
    assert report.accuracy.value == pytest.approx(metrics.accuracy(probs, labels), abs=1e-12)
    assert report.ece.value == pytest.approx(metrics.ece(probs, labels), abs=1e-6)
    assert report.cwece.value == pytest.approx(metrics.classwise_ece(probs, labels), abs=1e-6)
    assert report.brier.value == pytest.approx(metrics.brier(probs, labels), abs=1e-6)
    assert report.nll.value == pytest.approx(metrics.nll(probs, labels), abs=1e-6)
    assert report.auc is None


@pytest.mark.shared
def test_binary_equals_central_on_real_flights(shared: Path) -> None:
    import pyarrow.parquet as pq

    table = pq.read_table(shared / "flights_scored" / "flights_scored.parquet").slice(0, 200_000)
    names = {name.lower(): name for name in table.column_names}
    score = table[names["score"]].to_numpy().astype(float)
    label = table[names["label"]].to_numpy().astype(int)
    site = np.asarray(table[names["origin"]].to_pylist())
    report = measured(fc.Federation.by_site(fc.Records.of_scores(score, label), site), fc.SecAgg())
    assert report.auc.value == pytest.approx(metrics.roc_auc(score, label), abs=2e-5)
    assert report.auc.low <= metrics.roc_auc(score, label) <= report.auc.high
    assert report.ece.value == pytest.approx(metrics.binary_ece(score, label), abs=1e-6)
    line = metrics.calibration_line(score, label)
    assert report.slope.value == pytest.approx(line.slope, abs=0.02)
    assert report.intercept.value == pytest.approx(line.intercept, abs=0.03)
    assert report.observed_expected.value == pytest.approx(metrics.observed_expected(score, label), abs=0.01)
    assert report.smooth_ece.value == pytest.approx(metrics.binary_smooth_ece(score, label), abs=2e-3)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("privacy", [fc.DistributedDP(1.0), fc.DistributedDP(1.0, 1e-6)], ids=repr)
def test_intervals_cover_the_truth_under_noise(classes: int, privacy: fc.privacy.Privacy) -> None:
    """Truth: the exact metrics of these records. The intervals also allow for sampling, so they cover with ease."""
    data = federation(classes, records=4000)
    exact = measured(data, fc.Open())
    names = ["accuracy", "ece", "cwece", "nll", "brier", *(["auc"] if classes == 2 else [])]
    missed = dict.fromkeys(names, 0)
    for seed in range(60):
        noisy = measured(data, privacy, seed)
        for name in names:
            found, truth = getattr(noisy, name), getattr(exact, name).value
            if found is None:  # many of these scores lie beyond the table, which then states no log loss
                assert name in noisy.unmeasurable() and name == "nll"
                continue
            missed[name] += not found.low - 1e-6 <= truth <= found.high + 1e-6
    assert max(missed.values()) <= 6, missed


def test_no_records_no_numbers() -> None:
    empty = fc.Federation.of([fc.Records.empty(3)] * 4)
    report = measured(empty, fc.Open())
    assert not report.measures() and set(report.to_json().values()) == {None}
    assert set(report.unmeasurable()) >= {"accuracy", "ece", "cwece", "nll", "brier"}


def test_one_class_only_has_no_auc() -> None:
    rng = np.random.default_rng(0)
    data = fc.Federation.iid(fc.Records.of_scores(rng.random(500), np.zeros(500, int)), 5, 0)
    report = measured(data, fc.Open())
    assert report.auc is None
    assert report.unmeasurable()["auc"] == "undefined: there are no positives"


def test_probabilities_that_sum_to_a_little_more_keep_the_bound() -> None:
    """Reading allows sums that are off by a thousandth; what a record may add does not grow by it."""
    from fedcalib.queries.reliability import ClasswiseResiduals

    query = ClasswiseResiduals(3, 15)
    held = fc.Records.of_probs(np.array([[0.5004, 0.5004, 0.0], [1.0, 0.0009, 0.0]]), np.array([2, 2]))
    for row in query.rows(held).dense(query.size):
        for block, part in query.split(row).items():
            bound = query.blocks[block].bound
            assert np.abs(part).sum() <= bound.l1 * (1 + 1e-12)
            assert np.linalg.norm(part) <= bound.l2 * (1 + 1e-12)
