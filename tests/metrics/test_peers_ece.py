"""Calibration errors against netcal and torchmetrics: we agree where they are right, and name where they are wrong."""

from __future__ import annotations

import numpy as np
import pytest
from tests.metrics.cases import random_records, random_scores

from fedcalib import metrics


def netcal_ece(probs: np.ndarray, labels: np.ndarray, bins: int = 15) -> float:
    peer = pytest.importorskip("netcal.metrics", reason="netcal is not installed: it needs torch")
    return float(peer.ECE(bins).measure(np.asarray(probs, dtype=float), np.asarray(labels)))


def torchmetrics_ece(probs: np.ndarray, labels: np.ndarray, bins: int = 15) -> float:
    """Of several classes where `probs` has two dimensions, of scores where it has one."""
    torch = pytest.importorskip("torch")
    peer = pytest.importorskip("torchmetrics.functional.classification")
    given, truth = torch.tensor(np.asarray(probs, dtype=float)), torch.tensor(np.asarray(labels))
    if given.ndim == 1:
        return float(peer.binary_calibration_error(given, truth, n_bins=bins))
    return float(peer.multiclass_calibration_error(given, truth, num_classes=given.shape[1], n_bins=bins))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("bins", [7, 15, 20])
def test_ece_agrees_inside_the_open_interval(seed: int, bins: int) -> None:
    probs, labels = random_records(seed)
    ours = metrics.ece(probs, labels, bins)
    assert netcal_ece(probs, labels, bins) == pytest.approx(ours, rel=1e-9)
    assert torchmetrics_ece(probs, labels, bins) == pytest.approx(ours, rel=2e-6)  # it works in single precision


def test_binary_ece_agrees_inside_the_open_interval() -> None:
    scores, labels = random_scores(0)
    scores = scores * 0.98 + 0.005  # no score on an edge, at 0 or at 1
    ours = metrics.binary_ece(scores, labels)
    assert netcal_ece(scores, labels) == pytest.approx(ours, rel=1e-9)
    assert torchmetrics_ece(scores, labels) == pytest.approx(ours, rel=1e-9)


def test_torchmetrics_gives_confidence_one_a_bin_of_its_own() -> None:
    # Both confidences lie in the last of 15 bins: one of two is right, 1.95 was expected, so ECE = 0.95 / 2.
    probs, labels = np.array([[1.0, 0.0, 0.0], [0.95, 0.05, 0.0]]), np.array([2, 0])
    assert metrics.ece(probs, labels) == pytest.approx(0.475)
    # The sixteenth bin parts them: (|1 - 0| + |0.95 - 1|) / 2.
    assert torchmetrics_ece(probs, labels) == pytest.approx(0.525)


def test_the_usual_loop_over_half_open_bins_drops_a_score_of_zero() -> None:
    # A binning calibrator that says 0 for records half of which are positive is off by one half.
    scores, labels = np.array([0.0, 0.0, 0.0, 0.0]), np.array([0, 1, 0, 1])
    assert metrics.binary_ece(scores, labels) == 0.5
    usual = 0.0
    for low, high in zip(np.linspace(0, 1, 16)[:-1], np.linspace(0, 1, 16)[1:], strict=True):
        held = (scores > low) & (scores <= high)
        usual += held.mean() * abs(scores[held].mean() - labels[held].mean()) if held.any() else 0.0
    assert usual == 0.0


def test_netcal_reads_two_columns_as_one_score() -> None:
    # The top label is right twice of three times at a mean confidence of 0.8.
    probs, labels = np.array([[0.8, 0.2], [0.8, 0.2], [0.2, 0.8]]), np.array([0, 1, 1])
    assert metrics.ece(probs, labels) == pytest.approx(abs(0.8 - 2 / 3))
    assert netcal_ece(probs, labels) == pytest.approx(metrics.binary_ece(probs[:, 1], labels))
    assert netcal_ece(probs, labels) != pytest.approx(metrics.ece(probs, labels), abs=0.05)


def test_netcal_fails_on_a_site_that_holds_two_of_three_classes() -> None:
    probs, labels = np.array([[0.7, 0.2, 0.1], [0.1, 0.7, 0.2]]), np.array([0, 1])
    assert metrics.ece(probs, labels) == pytest.approx(0.3)
    with pytest.raises(RuntimeError, match="binary"):
        netcal_ece(probs, labels)
