"""Metrics raise an error that says what to do for bad input, and accept good input of any container or type."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from fedcalib import metrics
from fedcalib.errors import InputError

MULTICLASS = [
    metrics.accuracy,
    metrics.accuracy_interval,
    metrics.brier,
    metrics.brier_interval,
    metrics.classwise_ece,
    metrics.debiased_squared_classwise_ece,
    metrics.debiased_squared_ece,
    metrics.ece,
    metrics.nll,
    metrics.nll_interval,
    metrics.smooth_ece,
    metrics.top_label,
    metrics.Reliability.classwise,
    metrics.Reliability.top_label,
]
BINARY = [
    metrics.binary_brier,
    metrics.binary_ece,
    metrics.binary_nll,
    metrics.binary_smooth_ece,
    metrics.calibration_line,
    metrics.debiased_squared_binary_ece,
    metrics.observed_expected,
    metrics.observed_expected_interval,
    metrics.pr_curve,
    metrics.roc_auc,
    metrics.roc_auc_interval,
    metrics.roc_curve,
    metrics.Reliability.binary,
]
TABLES = [metrics.Reliability.classwise, metrics.Reliability.top_label, metrics.Reliability.binary]


@pytest.mark.parametrize("metric", MULTICLASS)
@pytest.mark.parametrize(
    ("probs", "labels", "why"),
    [
        ([0.5, 0.5], [0, 1], "shape"),
        ([[1.0], [1.0]], [0, 0], "shape"),
        ([["a", "b"]], [0], "shape"),
        ([[0.5, 0.5]], [0, 1], "one label"),
        ([[0.5, 0.5]], [[0]], "one label"),
        ([[0.5, 0.5]], [2], "labels from 0 to 1"),
        ([[0.5, 0.5]], [-1], "labels from 0 to 1"),
        ([[0.5, 0.5]], [0.5], "whole numbers"),
        ([[0.5, 0.5]], [np.nan], "whole numbers"),
        ([[0.5, 0.5]], [np.inf], "labels from 0 to 1"),
        ([[0.5, 0.5]], ["cat"], "whole numbers"),
        ([[2.0, -1.0]], [0], "between 0 and 1"),
        ([[np.nan, 0.5]], [0], "between 0 and 1"),
        ([[0.5, 0.5], [0.5, 0.4]], [0, 0], "row 1"),
    ],
)
def test_multiclass_metrics_refuse(metric: Any, probs: Any, labels: Any, why: str) -> None:
    with pytest.raises(InputError, match=why):
        metric(probs, labels)


@pytest.mark.parametrize("metric", BINARY)
@pytest.mark.parametrize(
    ("scores", "labels", "why"),
    [
        ([[0.5, 0.5]], [0], r"probs\[:, 1\]"),
        ([0.5, 0.5], [0], "one label"),
        ([0.5], [2], "labels from 0 to 1"),
        ([1.5], [1], "between 0 and 1"),
        ([np.nan], [1], "between 0 and 1"),
        (["high"], [1], "one score"),
    ],
)
def test_binary_metrics_refuse(metric: Any, scores: Any, labels: Any, why: str) -> None:
    with pytest.raises(InputError, match=why):
        metric(scores, labels)


@pytest.mark.parametrize("metric", [one for one in (*MULTICLASS, *BINARY) if one not in TABLES])
def test_nothing_has_no_metric(metric: Any) -> None:
    empty = np.zeros((0, 3)) if metric in MULTICLASS else np.zeros(0)
    with pytest.raises(InputError, match="at least one record"):
        metric(empty, np.zeros(0, dtype=int))


@pytest.mark.parametrize("kind", [np.uint8, np.int32, np.int64, np.float64, bool])
def test_labels_come_in_any_whole_type(kind: Any) -> None:
    probs, labels = [[0.7, 0.3], [0.2, 0.8]], np.array([1, 1]).astype(kind)
    assert metrics.accuracy(probs, labels) == 0.5
    assert metrics.ece(probs, labels) == pytest.approx(metrics.ece(probs, [1, 1]))
    assert metrics.roc_auc([0.2, 0.8], np.array([0, 1]).astype(kind)) == 1.0


def test_inputs_are_left_as_they_were() -> None:
    probs, labels = np.array([[0.7, 0.3], [0.2, 0.8]]), np.array([1, 1])
    scores = np.array([-0.0, 0.8])
    for one in (probs, labels, scores):
        one.flags.writeable = False
    for metric in MULTICLASS:
        metric(probs, labels)
    for metric in BINARY:
        metric(scores, labels)


@pytest.mark.parametrize("metric", [metrics.ece, metrics.classwise_ece])
def test_the_number_of_bins_is_checked(metric: Any) -> None:
    with pytest.raises(InputError, match="number of bins"):
        metric([[0.5, 0.5]], [0], 0)


def test_importing_the_metrics_loads_no_scipy() -> None:
    code = f"import sys; sys.path[:] = {sys.path!r}; import fedcalib.metrics; print('scipy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_public_names_are_sorted_and_there() -> None:
    assert sorted(metrics.__all__) == metrics.__all__
    assert all(hasattr(metrics, name) for name in metrics.__all__)
