"""A million and a half real flights, one per client."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedcalib as fc
from fedcalib.estimation.score_table import Buckets
from fedcalib.metrics import roc_auc
from fedcalib.metrics.ranking import auc_of_counts, confusion
from fedcalib.metrics.reliability import binary_ece
from tests.methods.test_score_curves import one_each

pytestmark = pytest.mark.shared
THRESHOLDS = np.arange(1, 11) / 11


@pytest.fixture(scope="module")
def flights(shared: Path) -> tuple[np.ndarray, np.ndarray]:
    import pyarrow.parquet as pq

    table = pq.read_table(shared / "flights_scored" / "flights_scored.parquet", columns=["score", "label"])
    return table["score"].to_numpy().astype(np.float64), table["label"].to_numpy().astype(np.int64)


def test_bucketing_error_falls_with_the_square_of_the_buckets(flights: tuple[np.ndarray, np.ndarray]) -> None:
    federation, exact = one_each(*flights), roc_auc(*flights)
    table = fc.run(fc.ScoreCurves(fc.methods.ScoreTree(4, 8)), fc.InProcess(federation), fc.SecAgg()).artifact.table
    errors = {}
    for buckets in (10, 20, 40, 100, 400):
        even = Buckets.even(table, buckets)
        errors[buckets] = abs(auc_of_counts(even.positive, even.negative) - exact)
    assert errors[100] <= 1e-4
    assert errors[400] <= 1e-5
    slope = np.polyfit(np.log(list(errors)), np.log(list(errors.values())), 1)[0]
    assert slope == pytest.approx(-2, abs=0.3)


def test_secure_sums_at_height_14_are_as_good_as_exact(flights: tuple[np.ndarray, np.ndarray]) -> None:
    method = fc.ScoreCurves(fc.methods.ScoreTree(4, 7))
    found = fc.run(method, fc.InProcess(one_each(*flights)), fc.SecAgg()).artifact
    exact = confusion(*flights, THRESHOLDS)
    assert abs(found.auc.value - roc_auc(*flights)) < 1e-6
    for name, truth in (("precision", exact.precision), ("recall", exact.recall), ("accuracy", exact.accuracy)):
        values = [getattr(found, name)(threshold).value for threshold in THRESHOLDS]
        assert np.abs(values - truth).max() < 1e-4, name


@pytest.mark.parametrize(
    ("privacy", "most", "mean"), [(fc.DistributedDP(1.0), 5e-4, 5e-4), (fc.LocalDP(5.0), 3e-3, 4.5e-3)]
)
def test_noise_costs_little(
    flights: tuple[np.ndarray, np.ndarray], privacy: fc.privacy.Privacy, most: float, mean: float
) -> None:
    """AUC, and rates at most thresholds; under local reports the mean has the noise of the highest thresholds in it.

    The benchmark shows how little room is left there even for somebody who asks about these thresholds only.
    """
    federation = one_each(*flights)
    exact = confusion(*flights, THRESHOLDS)
    truth = np.stack([exact.precision, exact.recall, exact.accuracy])
    areas, errors, method = [], [], fc.ScoreCurves(fc.planning.suited_tree(privacy))
    for seed in range(3):
        found = fc.run(method, fc.InProcess(federation), privacy, randomness=fc.Simulated(seed)).artifact
        areas.append(abs(found.auc.value - roc_auc(*flights)))
        values = [[getattr(found, name)(t).value for t in THRESHOLDS] for name in ("precision", "recall", "accuracy")]
        errors.append(np.abs(np.array(values) - truth))
    assert np.median(areas) <= most
    assert np.median(np.nanmedian(errors, axis=(1, 2))) <= most
    assert np.median(np.nanmean(errors, axis=(1, 2))) <= mean


@pytest.mark.parametrize(
    ("privacy", "method", "most"),
    [
        (fc.SecAgg(), fc.QuantileBinning(), 0.0025),
        (fc.DistributedDP(1.0), fc.QuantileBinning(), 0.003),
        (fc.LocalDP(5.0), fc.methods.BetaScaling(), 0.01),
        (fc.LocalDP(5.0), fc.IsotonicBuckets(tree=fc.planning.suited_tree(fc.LocalDP(5.0))), 0.01),
    ],
)
def test_half_of_the_flights_calibrate_the_other_half(
    flights: tuple[np.ndarray, np.ndarray], privacy: fc.privacy.Privacy, method: fc.Method, most: float
) -> None:
    scores, labels = flights
    half = np.random.default_rng(2).random(len(scores)) < 0.5
    runtime = fc.InProcess(one_each(scores[half], labels[half]))
    mapped = fc.run(method, runtime, privacy, randomness=fc.Simulated(0)).artifact(scores[~half])
    assert binary_ece(scores[~half], labels[~half]) > 0.034
    assert binary_ece(mapped, labels[~half]) <= most
    assert abs(roc_auc(mapped, labels[~half]) - roc_auc(scores[~half], labels[~half])) < 1e-3
