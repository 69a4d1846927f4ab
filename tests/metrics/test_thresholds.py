"""Confusion counts, rates and curves against scikit-learn and by the definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn import metrics as peer
from tests.metrics.cases import binary_records, random_scores

from fedcalib import metrics
from fedcalib.errors import InputError

thresholds = st.lists(st.one_of(st.floats(0, 1), st.integers(0, 15).map(lambda k: k / 15)), min_size=1, max_size=6)


@given(binary_records(), thresholds)
def test_counts_are_their_definition(records: tuple[np.ndarray, np.ndarray], at: list[float]) -> None:
    scores, labels = records
    found = metrics.confusion(scores, labels, at)
    for place, threshold in enumerate(at):
        called = scores >= threshold
        assert found.true_positive[place] == (called & (labels == 1)).sum()
        assert found.false_positive[place] == (called & (labels == 0)).sum()
        assert found.false_negative[place] == (~called & (labels == 1)).sum()
        assert found.true_negative[place] == (~called & (labels == 0)).sum()


@pytest.mark.parametrize("threshold", [0.1, 0.35, 0.5, 0.9])
def test_rates_agree_with_scikit_learn(threshold: float) -> None:
    scores, labels = random_scores(1)
    found, called = metrics.confusion(scores, labels, threshold), scores >= threshold
    assert peer.precision_score(labels, called) == pytest.approx(float(found.precision))
    assert peer.recall_score(labels, called) == pytest.approx(float(found.recall))
    assert peer.accuracy_score(labels, called) == pytest.approx(float(found.accuracy))
    assert found.recall.shape == ()


def test_rates_without_anybody_to_rate() -> None:
    nobody = metrics.confusion([0.2, 0.3], [0, 0], [[0.9, 0.1]])
    assert nobody.precision.tolist() == [[1.0, 0.0]]
    assert np.isnan(nobody.recall).all()
    assert nobody.false_positive_rate.tolist() == [[0.0, 1.0]]


def test_thresholds_must_be_numbers() -> None:
    with pytest.raises(InputError, match="NaN"):
        metrics.confusion([0.2], [0], [np.nan])


def test_infinite_thresholds_call_everybody_or_nobody() -> None:
    assert metrics.confusion([0.0, 1.0], [0, 1], [-np.inf, np.inf]).true_positive.tolist() == [1, 0]


@pytest.mark.parametrize("seed", range(3))
def test_curves_agree_with_scikit_learn(seed: int) -> None:
    scores, labels = random_scores(seed)
    roc, pr = metrics.roc_curve(scores, labels), metrics.pr_curve(scores, labels)
    fpr, tpr, at = peer.roc_curve(labels, scores, drop_intermediate=False)
    assert roc.false_positive_rate == pytest.approx(fpr)
    assert roc.true_positive_rate == pytest.approx(tpr)
    assert roc.threshold.tolist() == at.tolist()
    precision, recall, _ = peer.precision_recall_curve(labels, scores)
    assert pr.precision[::-1] == pytest.approx(precision)
    assert pr.recall[::-1] == pytest.approx(recall)
    assert pr.average_precision() == pytest.approx(peer.average_precision_score(labels, scores))


@given(binary_records())
def test_curves_rise_and_hold_the_area(records: tuple[np.ndarray, np.ndarray]) -> None:
    scores, labels = records
    assume(0 < labels.sum() < len(labels))
    roc = metrics.roc_curve(scores, labels)
    assert (np.diff(roc.false_positive_rate) >= 0).all()
    assert (np.diff(roc.true_positive_rate) >= 0).all()
    assert (roc.false_positive_rate[-1], roc.true_positive_rate[-1]) == (1.0, 1.0)
    assert roc.area() == pytest.approx(metrics.roc_auc(scores, labels))
    at = metrics.confusion(scores, labels, roc.threshold)
    assert roc.true_positive_rate == pytest.approx(at.recall)
    assert metrics.pr_curve(scores, labels).precision == pytest.approx(at.precision)
