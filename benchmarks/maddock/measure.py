"""One row of results: what a calibrator does to a test half."""

from __future__ import annotations

import numpy as np

import fedcalib as fc
from fedcalib import metrics

COLUMNS = [
    *("table", "dataset", "network", "clients", "records", "beta", "epsilon", "method", "setting", "run"),
    *("cwece", "debiased", "ece", "nll", "brier", "accuracy", "base_accuracy", "seconds", "bytes"),
]


def row(calibrator: fc.Calibrator, test: fc.Records) -> dict[str, float]:
    """Measure a calibrator: errors in percent, losses and accuracies as they are."""
    probs = calibrator.of(test)
    labels = test.labels
    squared = metrics.debiased_squared_classwise_ece(probs, labels)
    return {
        "cwece": 100 * metrics.classwise_ece(probs, labels),
        "debiased": 100 * np.sign(squared) * np.sqrt(abs(squared)),  # with its sign, so that squares can be averaged
        "ece": 100 * metrics.ece(probs, labels),
        "nll": metrics.nll(probs, labels),
        "brier": metrics.brier(probs, labels),
        "accuracy": float((probs.argmax(axis=1) == labels).mean()),
        "base_accuracy": float((test.probs.argmax(axis=1) == labels).mean()),
    }
