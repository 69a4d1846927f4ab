"""The calibration line against scikit-learn's logistic regression, and where it does not exist."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from sklearn.linear_model import LogisticRegression
from tests.metrics.cases import binary_records, random_records, random_scores

from fedcalib import metrics


def logit(scores: np.ndarray) -> np.ndarray:
    return np.log(scores) - np.log1p(-scores)


def sigmoid(line: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-line))


@pytest.mark.parametrize("seed", range(3))
def test_the_fit_agrees_with_scikit_learn(seed: int) -> None:
    scores, labels = random_scores(seed)
    scores = scores.clip(0.005, 0.995)
    line = metrics.calibration_line(scores, labels)
    peer = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(logit(scores)[:, None], labels)
    assert line.slope == pytest.approx(peer.coef_[0, 0], abs=1e-5)
    assert line.intercept == pytest.approx(peer.intercept_[0], abs=1e-5)


def test_the_fit_is_a_zero_of_both_score_equations_and_its_errors_are_the_inverse_curvature() -> None:
    scores, labels = random_scores(4)
    scores = scores.clip(0.005, 0.995)
    line, x = metrics.calibration_line(scores, labels), logit(scores)
    mean = sigmoid(line.intercept + line.slope * x)
    assert [np.sum(labels - mean), np.sum((labels - mean) * x)] == pytest.approx([0, 0], abs=1e-6)
    design = np.stack([np.ones_like(x), x], axis=1)
    errors = np.sqrt(np.diag(np.linalg.inv((design * (mean * (1 - mean))[:, None]).T @ design)))
    assert [line.intercept_error, line.slope_error] == pytest.approx(errors, rel=1e-9)
    assert np.sum(labels) == pytest.approx(np.sum(sigmoid(x + line.in_the_large)))


def test_a_known_distortion_is_found() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=20_000) * 1.5
    labels = rng.random(20_000) < sigmoid(0.4 + 0.7 * x)
    line = metrics.calibration_line(sigmoid(x), labels)
    assert 0.7 in line.slope_interval(1 - 1e-6)
    assert 0.4 in line.intercept_interval(1 - 1e-6)
    assert line.slope_interval().width < 0.1


def test_the_interval_of_the_slope_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(800):
        scores = rng.beta(2, 2, 300)
        covered += 1.0 in metrics.calibration_line(scores, rng.random(300) < scores).slope_interval(0.9)
    assert 0.85 < covered / 800 < 0.94


def test_several_classes_are_measured_by_their_top_label() -> None:
    probs, labels = random_records(0)  # logits blown up by 1.6
    assert metrics.calibration_line(*metrics.top_label(probs, labels)).slope < 0.8


@pytest.mark.parametrize(
    ("scores", "labels"),
    [
        ([0.2, 0.7], [1, 1]),
        ([0.5, 0.5, 0.5], [0, 1, 0]),
        ([0.1, 0.4, 0.6], [0, 0, 1]),
        ([0.1, 0.4, 0.4], [1, 1, 0]),
        ([0.1, 0.4, 0.4], [0, 0, 1]),
    ],
)
def test_no_line_where_the_data_determine_none(scores: list[float], labels: list[int]) -> None:
    line = metrics.calibration_line(scores, labels)
    assert np.isnan([line.slope, line.intercept, line.slope_error, line.intercept_error]).all()
    assert np.isnan(line.in_the_large) == (len(set(labels)) == 1)


@given(binary_records())
def test_it_is_either_finite_or_not_determined(records: tuple[np.ndarray, np.ndarray]) -> None:
    scores, labels = records
    line = metrics.calibration_line(scores, labels)
    up, down = scores[labels == 1], scores[labels == 0]
    if not np.isnan(line.slope):
        assert np.isfinite([line.slope, line.intercept, line.slope_error, line.intercept_error]).all()
        assert min(up.max() - down.min(), down.max() - up.min()) > 0  # touching is not overlapping
    if len(up) and len(down):
        x = logit(scores.clip(1e-12, 1 - 1e-12))
        assert sigmoid(x + line.in_the_large).sum() == pytest.approx(labels.sum(), rel=1e-3, abs=1e-3)


def test_scores_of_zero_and_one_are_survived() -> None:
    line = metrics.calibration_line([0.0, 1.0, 0.0, 1.0, 0.5], [0, 1, 1, 0, 1])
    assert np.isfinite([line.slope, line.in_the_large]).all()


def test_observed_against_expected() -> None:
    assert metrics.observed_expected([0.2, 0.4, 0.4], [1, 0, 1]) == pytest.approx(2.0)
    assert metrics.observed_expected([0.0, 0.0], [0, 1]) == np.inf
    assert np.isnan(metrics.observed_expected([0.0], [0]))
    assert metrics.observed_expected_interval([0.0], [0]).high == np.inf


def test_the_interval_of_observed_against_expected_covers_at_least_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    scores = rng.beta(1, 9, 60)
    covered = [1.0 in metrics.observed_expected_interval(scores, rng.random(60) < scores, 0.9) for _ in range(1000)]
    assert np.mean(covered) > 0.9
