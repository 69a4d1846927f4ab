"""Without labels: accuracy from calibrated confidence, and the mix of classes from predictions."""

from __future__ import annotations

import numpy as np
import pytest

import fedcalib as fc
from fedcalib.artifacts.calibrator import Identity
from fedcalib.artifacts.evaluation import Confusion
from fedcalib.errors import InputError
from fedcalib.methods.bbse import class_weights
from fedcalib.queries.shift import Confidence, ConfusionCounts, Predictions

MIX, OTHER = np.array([0.6, 0.3, 0.1]), np.array([0.1, 0.3, 0.6])


def drawn(n: int, mix: np.ndarray, seed: int) -> fc.Records:
    """Three Gaussian classes, scored by their true posterior under MIX; another mix is a pure shift of labels."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, size=n, p=mix)
    points = 1.5 * np.eye(3)[labels] + rng.normal(size=(n, 3))
    return fc.Records.of_logits(1.5 * points + np.log(MIX), labels)


def ask(method: fc.Method, records: fc.Records, privacy: fc.privacy.Privacy | None = None) -> object:
    runtime = fc.InProcess(fc.Federation.iid(records, 10, seed=0))
    return fc.run(method, runtime, privacy or fc.Open(), randomness=fc.Simulated(0)).artifact


def test_calibrated_confidence_tells_accuracy() -> None:
    records = drawn(40_000, MIX, 0)
    accuracy = (records.probs.argmax(axis=1) == records.labels).mean()
    for privacy in (fc.Open(), fc.SecAgg(), fc.DistributedDP(epsilon=0.5), fc.SourceLaplace(epsilon=0.5)):
        estimate = ask(fc.methods.CBPE(), records, privacy)
        assert estimate.value == pytest.approx(accuracy, abs=0.01)
        assert estimate.low < accuracy < estimate.high


def test_labels_are_not_looked_at() -> None:
    records = drawn(500, MIX, 0)
    others = fc.Records.of_logits(records.given, np.zeros(500, dtype=int))
    for query in (Confidence(), Predictions(3)):
        assert query.pooled(records).tolist() == query.pooled(others).tolist()
    assert ConfusionCounts(3).pooled(records).tolist() != ConfusionCounts(3).pooled(others).tolist()


def test_nothing_known_spans_everything() -> None:
    estimate = ask(fc.methods.CBPE(), fc.Records.of_logits(np.zeros((0, 3)), np.zeros(0, dtype=int)))
    assert np.isnan(estimate.value)
    assert (estimate.low, estimate.high) == (0.0, 1.0)


def test_bbse_finds_the_mix_of_a_target_without_labels() -> None:
    confusion = ask(fc.methods.ConfusionOf(), drawn(40_000, MIX, 0))
    found = ask(fc.BBSE(confusion), drawn(40_000, OTHER, 1))
    np.testing.assert_allclose(found.own, OTHER, atol=0.02)
    np.testing.assert_allclose(found.overall, MIX, atol=0.02)


def test_bbse_repairs_calibration_and_accuracy_under_noise() -> None:
    target = drawn(20_000, OTHER, 3)
    confusion = ask(fc.methods.ConfusionOf(), drawn(20_000, MIX, 2), fc.DistributedDP(epsilon=0.5))
    found = ask(fc.BBSE(confusion), target, fc.DistributedDP(epsilon=0.5))
    before, after = np.asarray(target.probs), found.of(target)
    from fedcalib import metrics

    assert metrics.ece(after, target.labels) < 0.3 * metrics.ece(before, target.labels)
    assert metrics.accuracy(after, target.labels) > metrics.accuracy(before, target.labels) + 0.03


def test_no_shift_changes_little() -> None:
    confusion = ask(fc.methods.ConfusionOf(), drawn(20_000, MIX, 0))
    found = ask(fc.BBSE(confusion), drawn(20_000, MIX, 1))
    np.testing.assert_allclose(np.array(found.own) / np.array(found.overall), 1.0, atol=0.1)


def test_a_ridge_draws_to_no_shift() -> None:
    joint = np.array([[0.4, 0.1], [0.1, 0.4]])
    assert class_weights(joint, np.array([0.65, 0.35]), 0.0) == pytest.approx([1.5, 0.5])
    far, near = (abs(class_weights(joint, np.array([0.65, 0.35]), ridge)[0] - 1) for ridge in (0.01, 1.0))
    assert near < far < 0.5
    assert class_weights(joint, np.array([1.0, 0.0]), 0.0).min() >= 0


def test_counts_within_noise_change_nothing() -> None:
    confusion = Confusion(((-3.0, 0.0), (0.0, -1.0)), 100.0)
    records = fc.Records.of_scores([0.3, 0.9], [0, 1])
    found = ask(fc.BBSE(confusion), records)
    np.testing.assert_allclose(found.of(records), Identity().of(records))


def test_nonsense_is_refused() -> None:
    for make in (
        lambda: Confusion(((1.0, 2.0),)),
        lambda: Confusion(((1.0, 2.0), (3.0, 4.0)), -1.0),
        lambda: fc.BBSE(Confusion(((1.0, 2.0), (3.0, 4.0))), ridge=-1.0),
        lambda: Predictions(1),
    ):
        with pytest.raises(InputError):
            make()
    with pytest.raises(InputError, match="as many classes"):
        ask(fc.BBSE(Confusion(((1.0, 2.0), (3.0, 4.0)))), drawn(20, MIX, 0))
