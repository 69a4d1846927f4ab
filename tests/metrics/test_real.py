"""Real predictions: the published figures, and agreement with every peer that is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn import metrics as peer
from tests.metrics.cases import cifar10, cifar100, flights
from tests.metrics.test_peers_ece import netcal_ece, torchmetrics_ece

from fedcalib import metrics

pytestmark = pytest.mark.shared


@pytest.mark.parametrize(
    ("network", "accuracy", "error"),
    [
        ("resnet20_logits", 0.9173, 0.0532),
        ("resnet56_logits", 0.9339, 0.0464),
        ("lenet5_logp", 0.5308, 0.1079),
        ("vgg16_plambda_logp", 0.9359, 0.0398),
    ],
)
def test_ten_classes(shared: Path, network: str, accuracy: float, error: float) -> None:
    probs, labels = cifar10(shared, network)
    assert metrics.accuracy(probs, labels) == pytest.approx(accuracy, abs=5e-5)
    assert metrics.ece(probs, labels) == pytest.approx(error, abs=6e-5)
    assert metrics.ece(probs, labels) == pytest.approx(netcal_ece(probs, labels), rel=1e-9)
    assert metrics.ece(probs, labels) == pytest.approx(torchmetrics_ece(probs, labels), rel=2e-3)  # its extra bin
    assert metrics.nll(probs, labels) == pytest.approx(peer.log_loss(labels, probs), rel=1e-4)
    assert metrics.brier(probs, labels) == pytest.approx(
        peer.brier_score_loss(labels, probs, scale_by_half=False), rel=1e-9
    )


def test_a_real_network_is_miscalibrated_beyond_chance(shared: Path) -> None:
    probs, labels = cifar10(shared, "resnet20_logits")
    table = metrics.Reliability.top_label(probs, labels)
    assert metrics.ece_interval(table).low > 2 * table.ece_if_calibrated()
    assert np.sqrt(table.debiased_squared()) >= table.ece() * 0.9  # root mean square against mean
    line = metrics.calibration_line(*metrics.top_label(probs, labels))
    assert line.slope_interval().high < 1  # too extreme
    assert metrics.smooth_ece(probs, labels) == pytest.approx(table.ece(), abs=0.01)


@pytest.mark.parametrize(("network", "error"), [("wideresnet164_logp", 0.0581), ("densenetbc100_logp", 0.1422)])
def test_a_hundred_classes(shared: Path, network: str, error: float) -> None:
    probs, labels = cifar100(shared, network)
    assert metrics.ece(probs, labels) == pytest.approx(error, abs=2e-4)  # the copy is in half precision
    each = [metrics.binary_ece(probs[:, j], labels == j) for j in range(100)]
    assert metrics.classwise_ece(probs, labels) == pytest.approx(np.mean(each), rel=1e-9)


def test_flights(shared: Path) -> None:
    scores, labels = flights(shared)
    assert metrics.roc_auc(scores, labels) == pytest.approx(0.695, abs=0.003)
    assert metrics.roc_auc(scores, labels) == pytest.approx(peer.roc_auc_score(labels, scores), rel=1e-12)
    assert metrics.binary_ece(scores, labels) == pytest.approx(0.034, abs=0.002)
    assert metrics.binary_brier(scores, labels) == pytest.approx(peer.brier_score_loss(labels, scores), rel=1e-6)
    assert metrics.binary_nll(scores, labels) == pytest.approx(peer.log_loss(labels, scores), rel=1e-6)
    assert metrics.observed_expected(scores, labels) == pytest.approx(0.193 / 0.227, abs=0.01)
    roc = metrics.roc_curve(scores, labels)
    fpr, tpr, _ = peer.roc_curve(labels, scores, drop_intermediate=False)
    assert np.abs(roc.false_positive_rate - fpr).max() < 1e-12
    assert np.abs(roc.true_positive_rate - tpr).max() < 1e-12
    called = scores >= 0.3
    assert float(metrics.confusion(scores, labels, 0.3).precision) == pytest.approx(
        peer.precision_score(labels, called)
    )
