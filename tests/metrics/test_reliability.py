"""The reliability table and the errors read from it: by hand, by brute force, and by what must not change."""

from __future__ import annotations

import tracemalloc
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.metrics.cases import binary_records, random_records, scored_records

from fedcalib import metrics
from fedcalib.errors import InputError
from fedcalib.metrics import Reliability
from fedcalib.metrics.intervals import BLOCK


def slow_ece(scores: np.ndarray, truth: np.ndarray, bins: int) -> float:
    """The definition, one bin at a time."""
    place = [min(int(score * bins), bins - 1) for score in scores]
    total = 0.0
    for k in range(bins):
        filled = np.array([where == k for where in place])
        if filled.any():
            total += filled.mean() * abs(scores[filled].mean() - truth[filled].mean())
    return total


def test_a_table_by_hand() -> None:
    probs = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [1.0, 0.0]]
    table = Reliability.top_label(probs, [0, 1, 1, 0], bins=2)
    assert table.count.tolist() == [[0, 4]]
    assert table.confidence == pytest.approx(np.array([[0, 3.4]]))
    assert table.correct.tolist() == [[0, 3]]
    assert table.ece() == pytest.approx(0.1)
    assert table.worst_gap() == pytest.approx(0.1)
    assert table.records == 4
    assert np.isnan(table.accuracy[0, 0])
    assert table.accuracy[0, 1] == 0.75
    assert table.mean_confidence[0, 1] == pytest.approx(0.85)


def test_a_classwise_table_by_hand() -> None:
    table = Reliability.classwise([[0.9, 0.1], [0.4, 0.6]], [0, 0], bins=2)
    assert table.count.tolist() == [[1, 1], [1, 1]]
    assert table.confidence == pytest.approx(np.array([[0.4, 0.9], [0.1, 0.6]]))
    assert table.correct.tolist() == [[1, 1], [0, 0]]
    assert table.records == 2
    assert table.ece() == pytest.approx((0.6 + 0.1 + 0.1 + 0.6) / (2 * 2))
    assert table.ece_by_group() == pytest.approx(np.array([0.35, 0.35]))


@given(scored_records(), st.integers(1, 20))
def test_top_label_and_classwise_errors_are_their_definitions(
    records: tuple[np.ndarray, np.ndarray], bins: int
) -> None:
    probs, labels = records
    right = (probs.argmax(1) == labels).astype(float)
    assert slow_ece(probs.max(1), right, bins) == pytest.approx(metrics.ece(probs, labels, bins))
    each = [slow_ece(probs[:, j], (labels == j).astype(float), bins) for j in range(probs.shape[1])]
    assert np.mean(each) == pytest.approx(metrics.classwise_ece(probs, labels, bins))
    assert each == pytest.approx(Reliability.classwise(probs, labels, bins).ece_by_group())


@given(binary_records(), st.integers(1, 20))
def test_the_binary_error_is_its_definition(records: tuple[np.ndarray, np.ndarray], bins: int) -> None:
    scores, labels = records
    assert slow_ece(scores, labels, bins) == pytest.approx(metrics.binary_ece(scores, labels, bins))


@given(scored_records(), st.integers(0, 40), st.integers(1, 20))
def test_tables_of_disjoint_records_add_up(records: tuple[np.ndarray, np.ndarray], cut: int, bins: int) -> None:
    probs, labels = records
    for make in (Reliability.top_label, Reliability.classwise):
        whole = make(probs, labels, bins)
        parts = make(probs[:cut], labels[:cut], bins) + make(probs[cut:], labels[cut:], bins)
        assert (whole.count == parts.count).all()
        assert (whole.correct == parts.correct).all()
        assert whole.confidence == pytest.approx(parts.confidence)


@given(scored_records(), st.randoms(use_true_random=False))
def test_order_of_records_and_names_of_classes_do_not_matter(
    records: tuple[np.ndarray, np.ndarray], random: Random
) -> None:
    probs, labels = records
    rows, names = np.arange(len(labels)), np.arange(probs.shape[1])
    random.shuffle(rows)
    random.shuffle(names)
    renamed = np.argsort(names)[labels]
    for metric in (metrics.ece, metrics.classwise_ece, metrics.debiased_squared_ece):
        assert metric(probs, labels) == pytest.approx(metric(probs[rows], labels[rows]), abs=1e-12)
    for metric in (metrics.classwise_ece, metrics.debiased_squared_classwise_ece):
        assert metric(probs, labels) == pytest.approx(metric(probs[:, names], renamed), abs=1e-12)
    ordered = np.sort(probs, axis=1)
    clear = ordered[:, -1] > ordered[:, -2]  # a tie for the top goes to the lowest name
    named = (
        Reliability.top_label(probs[clear], labels[clear]),
        Reliability.top_label(probs[clear][:, names], renamed[clear]),
    )
    assert np.abs(named[0].gap) == pytest.approx(np.abs(named[1].gap))


@given(scored_records(), st.integers(1, 20))
def test_bounds(records: tuple[np.ndarray, np.ndarray], bins: int) -> None:
    probs, labels = records
    assert 0 <= metrics.ece(probs, labels, bins) <= 1
    assert 0 <= metrics.classwise_ece(probs, labels, bins) <= 2 / probs.shape[1] + 1e-12
    table = Reliability.top_label(probs, labels, bins)
    assert table.ece() <= table.worst_gap() + 1e-12
    assert metrics.debiased_squared_ece(probs, labels, bins) <= 1
    assert abs(metrics.ece(probs, labels, 1)) == pytest.approx(
        abs(probs.max(1).mean() - metrics.accuracy(probs, labels))
    )


@given(scored_records(), st.integers(1, 10), st.integers(1, 3))
def test_splitting_bins_never_lowers_the_error(
    records: tuple[np.ndarray, np.ndarray], bins: int, doublings: int
) -> None:
    probs, labels = records
    assert metrics.ece(probs, labels, bins) <= metrics.ece(probs, labels, bins * 2**doublings) + 1e-12


def test_the_classwise_pass_works_in_cache_sized_blocks() -> None:
    probs, labels = random_records(2, n=20_000, classes=100)
    each = [metrics.binary_ece(probs[:, j], labels == j) for j in range(100)]
    tracemalloc.start()
    found = metrics.classwise_ece(probs, labels), Reliability.classwise(probs, labels).ece()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == pytest.approx((np.mean(each), np.mean(each)))
    assert peak < 8 * BLOCK * 6 < probs.nbytes  # a few blocks of doubles, never another copy of the matrix


def test_certain_and_right_is_perfect() -> None:
    probs = np.eye(4)[[0, 1, 2, 3, 3]]
    labels = [0, 1, 2, 3, 3]
    errors = (metrics.ece, metrics.classwise_ece, metrics.debiased_squared_ece, metrics.smooth_ece)
    assert [error(probs, labels) for error in errors] == [0, 0, 0, 0]


@pytest.mark.parametrize(("n", "expected"), [(200, 0.0861), (1000, 0.0391), (7000, 0.0147)])
def test_the_plug_in_error_of_a_calibrated_model(n: int, expected: float) -> None:
    # Uniform scores and 15 bins: chance alone gives this much, and the table says so from one sample.
    rng = np.random.default_rng(n)
    tables = []
    for _ in range(400_000 // n):
        scores = rng.random(n)
        tables.append(Reliability.binary(scores, rng.random(n) < scores))
    errors = np.array([table.ece() for table in tables])
    assert errors.mean() == pytest.approx(expected, abs=5 * errors.std() / np.sqrt(len(errors)))
    assert np.mean([table.ece_if_calibrated() for table in tables]) == pytest.approx(expected, rel=0.03)


def test_the_debiased_error_by_hand() -> None:
    # One record says nothing. Two at 0.1, one of them positive: (1/2)^2 / (2 - 1) off (0.1 - 1/2)^2. Three at 0.9, two
    # of them positive: (2/3)(1/3) / (3 - 1) off (0.9 - 2/3)^2.
    scores, labels = [0.5, 0.1, 0.1, 0.9, 0.9, 0.9], [1, 0, 1, 1, 1, 0]
    low, high = 0.4**2 - 0.25, (0.9 - 2 / 3) ** 2 - 1 / 9
    assert metrics.debiased_squared_binary_ece(scores, labels, 5) == pytest.approx((2 * low + 3 * high) / 6)


@pytest.mark.parametrize("excess", [0.0, 0.1])
def test_the_debiased_error_is_right_on_average_where_the_plug_in_is_not(excess: float) -> None:
    rng = np.random.default_rng(5)
    n, bins, repeats = 300, 10, 2000
    centres = (np.arange(bins) + 0.5) / bins
    debiased, plugged = np.empty(repeats), np.empty(repeats)
    for repeat in range(repeats):
        scores = rng.choice(centres, n)  # one score a bin: no spread inside, so nothing but chance is left
        table = Reliability.binary(scores, rng.random(n) < scores * (1 - excess), bins)
        debiased[repeat] = table.debiased_squared()
        plugged[repeat] = (table.gap[table.count > 0] ** 2 / table.count[table.count > 0]).sum() / n
    truth = (np.square(excess * centres)).mean()
    error = debiased.std() / np.sqrt(repeats)
    assert abs(debiased.mean() - truth) < 5 * error
    assert plugged.mean() - truth > 20 * error


def test_the_debiased_error_subtracts_the_stated_noise_variance() -> None:
    rng = np.random.default_rng(6)
    scores = rng.random(5000)
    table = Reliability.binary(scores, rng.random(5000) < scores, 10)
    noisy = [
        Reliability(table.count, table.confidence, table.correct + rng.normal(0, 30, (1, 10))) for _ in range(3000)
    ]
    cleaned = np.array([one.debiased_squared(noise_variance=900.0) for one in noisy])
    assert abs(cleaned.mean() - table.debiased_squared()) < 5 * cleaned.std() / np.sqrt(len(cleaned)) + 1e-5
    assert np.mean([one.debiased_squared() for one in noisy]) > 1e-3
    assert np.mean([one.ece() for one in noisy]) == pytest.approx(table.ece_if_calibrated(900.0), rel=0.15)


def test_classwise_error_of_the_prior_is_near_zero_so_accuracy_belongs_beside_it() -> None:
    labels = np.repeat([0, 1, 2], [600, 300, 100])
    probs = np.tile([0.6, 0.3, 0.1], (1000, 1))
    assert metrics.classwise_ece(probs, labels) == pytest.approx(0, abs=1e-12)
    assert metrics.accuracy(probs, labels) == 0.6


def test_an_empty_table_says_nothing_and_adds_nothing() -> None:
    probs, labels = random_records(0, n=50)
    for make in (Reliability.top_label, Reliability.classwise):
        empty = make(probs[:0], labels[:0])
        assert empty.records == 0
        assert np.isnan([empty.ece(), empty.debiased_squared(), empty.worst_gap(), *empty.ece_by_group()]).all()
        assert (empty + make(probs, labels)).ece() == make(probs, labels).ece()


def test_tables_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="one shape"):
        Reliability.binary([0.5], [1], 3) + Reliability.binary([0.5], [1], 4)
    with pytest.raises(InputError, match="one shape"):
        Reliability(np.zeros(3), np.zeros(3), np.zeros(3))


def test_bands_hold_the_accuracy_of_their_bin() -> None:
    probs, labels = random_records(1)
    table = Reliability.classwise(probs, labels)
    for bound in (metrics.wilson, metrics.clopper_pearson):
        band = table.band(0.9, bound)
        filled = table.count > 0
        assert ((band.low <= table.accuracy) & (table.accuracy <= band.high))[filled].all()
        assert (band.low[~filled] == 0).all()
        assert (band.high[~filled] == 1).all()
    assert table.edges.tolist() == [k / 15 for k in range(16)]
