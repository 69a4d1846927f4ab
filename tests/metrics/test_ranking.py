"""AUC with ties at one half: against scikit-learn, against all pairs, and by counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn import metrics as peer
from tests.metrics.cases import binary_records, random_scores

from fedcalib import metrics


def pairwise(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Who wins each pair: 1 the positive, 0 the negative, one half neither; (positives, negatives)."""
    gap = scores[labels == 1][:, None] - scores[labels == 0][None, :]
    return (np.sign(gap) + 1) / 2


@pytest.mark.parametrize("seed", range(3))
def test_it_agrees_with_scikit_learn_on_tied_scores(seed: int) -> None:
    scores, labels = random_scores(seed)
    assert peer.roc_auc_score(labels, scores) == pytest.approx(metrics.roc_auc(scores, labels), rel=1e-12)
    narrow = scores.astype(np.float32)
    assert peer.roc_auc_score(labels, narrow) == pytest.approx(metrics.roc_auc(narrow, labels), rel=1e-12)


@given(binary_records())
def test_it_is_the_mean_over_all_pairs(records: tuple[np.ndarray, np.ndarray]) -> None:
    scores, labels = records
    wins = pairwise(scores, labels)
    found = metrics.roc_auc(scores, labels)
    if wins.size:
        assert found == pytest.approx(wins.mean(), abs=1e-12)
        assert 1 - found == pytest.approx(metrics.roc_auc(scores, 1 - labels), abs=1e-12)
    else:
        assert np.isnan(found)


@given(binary_records())
def test_only_the_order_of_scores_matters(records: tuple[np.ndarray, np.ndarray]) -> None:
    scores, labels = records
    ranks = np.unique(scores, return_inverse=True)[1] / len(scores)
    assert np.array_equal(metrics.roc_auc(scores, labels), metrics.roc_auc(ranks, labels), equal_nan=True)


@given(binary_records())
def test_counts_at_distinct_scores_are_complete(records: tuple[np.ndarray, np.ndarray]) -> None:
    scores, labels = records
    counts = metrics.ScoreCounts.of(scores, labels)
    distinct = np.unique(scores)
    assert counts.score.tolist() == distinct.tolist()
    assert counts.positive.tolist() == [int((labels[scores == score] == 1).sum()) for score in distinct]
    assert counts.negative.tolist() == [int((labels[scores == score] == 0).sum()) for score in distinct]


def test_minus_zero_is_zero() -> None:
    assert metrics.roc_auc([0.0, -0.0], [0, 1]) == 0.5


@pytest.mark.parametrize(
    ("positive", "negative", "area"),
    [([0, 0, 5], [5, 0, 0], 1.0), ([5, 0, 0], [0, 0, 5], 0.0), ([3, 1, 4], [3, 1, 4], 0.5), ([0, 0], [3, 4], np.nan)],
)
def test_counts_by_hand(positive: list[int], negative: list[int], area: float) -> None:
    assert metrics.auc_of_counts(positive, negative) == pytest.approx(area, nan_ok=True)


def test_noisy_counts_are_clipped_only_at_the_end() -> None:
    assert metrics.auc_of_counts([-1.0, 0.0, 6.0], [6.0, 0.0, -1.0]) == 1.0
    assert np.isnan(metrics.auc_of_counts([-3.0, 1.0], [1.0, 1.0]))
    assert metrics.auc_of_counts([2.5, 7.5], [6.0, 4.0]) == pytest.approx((2.5 * 3 + 7.5 * 8) / 100)


@given(binary_records(), st.integers(1, 12))
def test_bucketing_errs_no_more_than_its_bound(records: tuple[np.ndarray, np.ndarray], buckets: int) -> None:
    scores, labels = records
    assume(0 < labels.sum() < len(labels))
    table = metrics.Reliability.binary(scores, labels, buckets)
    positive, negative = table.correct[0], (table.count - table.correct)[0]
    error = abs(metrics.auc_of_counts(positive, negative) - metrics.roc_auc(scores, labels))
    assert error <= metrics.auc_bucket_bound(positive, negative) + 1e-12


@given(binary_records())
def test_the_variance_is_delongs(records: tuple[np.ndarray, np.ndarray]) -> None:
    scores, labels = records
    wins, counts = pairwise(scores, labels), metrics.ScoreCounts.of(scores, labels)
    found = metrics.auc_variance(counts.positive, counts.negative)
    if min(wins.shape) < 2:
        assert np.isnan(found)
    else:
        expected = wins.mean(1).var(ddof=1) / wins.shape[0] + wins.mean(0).var(ddof=1) / wins.shape[1]
        assert found == pytest.approx(expected, abs=1e-12)


def test_the_interval_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    truth, trials, covered = 1 - 1 / 6, 1500, 0
    for _ in range(trials):
        scores = rng.random(200)
        covered += truth in metrics.roc_auc_interval(scores, rng.random(200) < scores, 0.9)
    assert 0.86 < covered / trials < 0.93  # E[positive beats negative] is 5/6 when the chance is the score itself


def test_a_perfect_ranking_of_few_records_is_no_proof() -> None:
    few = metrics.roc_auc_interval([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1])
    assert (few.low, few.high) == (pytest.approx(0.025 ** (1 / 2)), 1.0)
    worst = metrics.roc_auc_interval([0.8, 0.9, 0.1, 0.2], [0, 0, 1, 1])
    assert (worst.low, worst.high) == (0.0, pytest.approx(1 - 0.025 ** (1 / 2)))
    assert np.isnan(metrics.roc_auc_interval([0.1, 0.2], [1, 1]).low)
