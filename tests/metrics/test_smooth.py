"""The smooth calibration error against a direct sum over the kernel, and within its two bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from tests.examples import examples
from tests.metrics.cases import binary_records, random_records, scored_records

from fedcalib import metrics


def direct(scores: np.ndarray, labels: np.ndarray, bandwidth: float, points: int = 4000) -> float:
    """Integrate the smoothed residual by summing the kernel and its mirror images, record by record."""
    at = ((np.arange(points) + 0.5) / points)[:, None]
    images = [sign * scores + 2 * turn for turn in range(-3, 4) for sign in (1, -1)]
    kernel = sum(np.exp(-0.5 * np.square((at - image) / bandwidth)) for image in images)
    smoothed = kernel @ (scores - labels) / (len(scores) * bandwidth * np.sqrt(2 * np.pi))
    return float(np.abs(smoothed).mean())


@pytest.mark.parametrize("power", [1.0, 1.4, 0.5])
@pytest.mark.parametrize("n", [50, 600])
def test_the_bandwidth_is_a_fixed_point_of_the_direct_sum(power: float, n: int) -> None:
    rng = np.random.default_rng(n)
    scores = rng.random(n)
    labels = (rng.random(n) < scores**power).astype(int)
    found = metrics.binary_smooth_ece(scores, labels)
    assert direct(scores, labels, found) == pytest.approx(found, rel=1e-4)


@settings(max_examples=examples(40))  # forty transforms an example
@given(binary_records())
def test_it_lies_between_the_mean_gap_and_the_mean_error(records: tuple[np.ndarray, np.ndarray]) -> None:
    scores, labels = records
    found = metrics.binary_smooth_ece(scores, labels)
    assert abs(np.mean(scores - labels)) - 1e-9 <= found <= np.mean(np.abs(scores - labels)) + 1e-9


@settings(max_examples=examples(40))  # forty transforms an example
@given(scored_records())
def test_it_lies_in_the_unit_interval_whatever_the_order(records: tuple[np.ndarray, np.ndarray]) -> None:
    probs, labels = records
    found = metrics.smooth_ece(probs, labels)
    assert 0 <= found <= 1
    assert found == pytest.approx(metrics.smooth_ece(probs[::-1], labels[::-1]), abs=1e-9)


@settings(max_examples=examples(40))  # forty transforms an example
@given(binary_records())
def test_it_is_the_same_for_the_other_class(records: tuple[np.ndarray, np.ndarray]) -> None:
    scores, labels = records
    assert metrics.binary_smooth_ece(scores, labels) == pytest.approx(
        metrics.binary_smooth_ece(1 - scores, 1 - labels), abs=1e-9
    )


def test_residuals_of_one_sign_cannot_cancel() -> None:
    assert metrics.binary_smooth_ece([0.3, 0.6], [1, 1]) == pytest.approx(0.55)
    assert metrics.binary_smooth_ece([0.0, 1.0], [0, 1]) == 0


def test_a_calibrated_model_tends_to_zero() -> None:
    rng = np.random.default_rng(0)
    scores = rng.random(100_000)
    found = [metrics.binary_smooth_ece(scores[:n], rng.random(n) < scores[:n]) for n in (100, 3000, 100_000)]
    assert found[0] > found[1] > found[2]
    assert found[2] < 0.012


def test_it_does_not_jump_where_bins_do() -> None:
    # Two scores a hair apart, on either side of an edge, with opposite labels: the bins see errors, a reader sees none.
    scores, labels = np.repeat([0.4 - 1e-9, 0.4 + 1e-9], 500), np.repeat([0, 1], [600, 400])
    assert metrics.binary_ece(scores, labels, 5) == pytest.approx(0.4)
    assert metrics.binary_smooth_ece(scores, labels) < 1e-3


def test_the_top_label_is_what_is_measured() -> None:
    probs, labels = random_records(0)
    confidence, right = metrics.top_label(probs, labels)
    assert metrics.smooth_ece(probs, labels) == metrics.binary_smooth_ece(confidence, right)


def test_a_coarse_histogram_of_residuals_is_nearly_as_good() -> None:
    rng = np.random.default_rng(1)
    scores = rng.beta(2, 2, 20_000)
    labels = (rng.random(20_000) < scores**1.3).astype(int)
    exact = metrics.binary_smooth_ece(scores, labels)
    coarse = metrics.residual_histogram(scores, labels, 512)
    assert coarse.sum() == pytest.approx((scores - labels).sum())
    assert metrics.smooth_ece_of_residuals(coarse, 20_000) == pytest.approx(exact, rel=1e-3)
