"""Accuracy, log loss and Brier score against scikit-learn and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from sklearn import metrics as peer
from tests.metrics.cases import binary_records, random_records, random_scores, scored_records

from fedcalib import metrics
from fedcalib.metrics.intervals import BLOCK


@pytest.mark.parametrize("seed", range(3))
def test_multiclass_losses_agree_with_scikit_learn(seed: int) -> None:
    probs, labels = random_records(seed)
    assert peer.accuracy_score(labels, probs.argmax(1)) == pytest.approx(metrics.accuracy(probs, labels))
    assert peer.log_loss(labels, probs) == pytest.approx(metrics.nll(probs, labels), rel=1e-12)
    assert peer.brier_score_loss(labels, probs, scale_by_half=False) == pytest.approx(metrics.brier(probs, labels))


def test_binary_losses_agree_with_scikit_learn() -> None:
    scores, labels = random_scores(0)
    scores = scores.clip(0.01, 0.99)  # scikit-learn floors a zero at another place
    assert peer.log_loss(labels, scores) == pytest.approx(metrics.binary_nll(scores, labels), rel=1e-12)
    assert peer.brier_score_loss(labels, scores) == pytest.approx(metrics.binary_brier(scores, labels), rel=1e-12)


def test_by_hand() -> None:
    probs, labels = [[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]], [1, 2]
    assert metrics.accuracy(probs, labels) == 0.5
    assert metrics.nll(probs, labels) == pytest.approx(-(math.log(0.3) + math.log(0.8)) / 2)
    assert metrics.brier(probs, labels) == pytest.approx((0.25 + 0.49 + 0.04 + 0.01 + 0.01 + 0.04) / 2)


def test_ties_go_to_the_lowest_class() -> None:
    assert metrics.hits([[0.4, 0.4, 0.2]] * 2, [0, 1]).tolist() == [True, False]


def test_a_probability_of_zero_costs_its_floor_and_no_more() -> None:
    assert metrics.nll([[1.0, 0.0]], [1]) == pytest.approx(-math.log(2.0**-52))
    assert metrics.binary_nll([0.0, 1.0], [1, 0]) == pytest.approx(-math.log(2.0**-52))


def test_blocks_make_no_difference() -> None:
    probs, labels = random_records(1, n=BLOCK // 40, classes=100)  # two and a half blocks
    own = probs[np.arange(len(labels)), labels]
    assert metrics.nll_losses(probs, labels) == pytest.approx(-np.log(own), rel=1e-12)
    assert metrics.brier(probs, labels) == pytest.approx(np.square(probs - np.eye(100)[labels]).sum(1).mean())
    confidence, right = metrics.top_label(probs, labels)
    assert (confidence == probs.max(1)).all()
    assert (right == (probs.argmax(1) == labels)).all()


def test_single_precision_is_widened_before_it_is_summed() -> None:
    probs, labels = random_records(2)
    narrow = probs.astype(np.float32)
    assert metrics.brier(narrow.astype(float), labels) == metrics.brier(narrow, labels)
    assert metrics.nll(narrow.astype(float), labels) == metrics.nll(narrow, labels)


@given(scored_records())
def test_bounds_and_order(records: tuple[np.ndarray, np.ndarray]) -> None:
    probs, labels = records
    turned = np.arange(len(labels))[::-1]
    assert 0 <= metrics.accuracy(probs, labels) <= 1
    assert 0 <= metrics.brier(probs, labels) <= 2 + 1e-12
    assert -1e-12 <= metrics.nll(probs, labels) <= -math.log(1e-12)
    for metric in (metrics.accuracy, metrics.brier, metrics.nll):
        assert metric(probs, labels) == pytest.approx(metric(probs[turned], labels[turned]))


@given(binary_records())
def test_the_binary_brier_score_is_half_of_both_classes(records: tuple[np.ndarray, np.ndarray]) -> None:
    scores, labels = records
    both = np.stack([1 - scores, scores], axis=1)
    assert metrics.brier(both, labels) / 2 == pytest.approx(metrics.binary_brier(scores, labels))
    assert metrics.nll(both, labels) == pytest.approx(metrics.binary_nll(scores, labels))


def test_intervals_hold_the_value_and_shrink_with_records() -> None:
    probs, labels = random_records(3, n=4000)
    pairs = [
        (metrics.nll, metrics.nll_interval),
        (metrics.brier, metrics.brier_interval),
        (metrics.accuracy, metrics.accuracy_interval),
    ]
    for metric, interval in pairs:
        wide, narrow = interval(probs[:1000], labels[:1000]), interval(probs, labels)
        assert metric(probs, labels) in narrow
        assert 0.4 < narrow.width / wide.width < 0.6


def test_the_intervals_of_nll_and_brier_cover_as_often_as_they_say() -> None:
    probs, labels = random_records(4, n=200_000, classes=3)
    parts = [slice(start, start + 100) for start in range(0, 200_000, 100)]
    for interval, truth in (
        (metrics.nll_interval, metrics.nll(probs, labels)),
        (metrics.brier_interval, metrics.brier(probs, labels)),
    ):
        covered = np.mean([truth in interval(probs[part], labels[part], 0.9) for part in parts])
        assert 0.87 < covered < 0.93  # 0.9, four standard deviations of 2,000 trials either way
