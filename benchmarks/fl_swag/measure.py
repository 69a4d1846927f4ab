"""The slides' figures, and how ours are measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

import fedcalib as fc
from fedcalib import metrics

SLIDES = {
    "mnist": {
        "client 1": 84.07, "client 2": 87.41, "client 3": 87.75, "client 4": 89.57, "client 5": 90.21,
        "client 6": 90.09, "client 7": 90.77, "client 8": 90.29, "client 9": 90.69, "client 10": 90.8,
        "FL-SWAG": 90.96, "FedAvg": 91.58, "wFedAvg": 91.93, "BayAvg": 91.65, "wBayAvg": 91.98,
    },
    "fashion-mnist": {
        "client 1": 75.72, "client 2": 80.15, "client 3": 78.63, "client 4": 80.81, "client 5": 81.11,
        "client 6": 81.75, "client 7": 80.82, "client 8": 82.51, "client 9": 83.1, "client 10": 82.8,
        "FL-SWAG": 81.32, "FedAvg": 83.0, "wFedAvg": 83.63, "BayAvg": 83.05, "wBayAvg": 83.61,
    },
}  # fmt: skip
BINS = 20  # as in the slides' code


def figures(records: fc.Records) -> dict[str, object]:
    """Accuracy in percent, ECE x 100, Brier score x 10, NLL x 10: the slides' units."""
    probs, labels = np.asarray(records.probs, dtype=np.float64), records.labels
    return {
        "accuracy": round(100 * metrics.accuracy(probs, labels), 2),
        "ece_x100": round(100 * metrics.ece(probs, labels, bins=BINS), 2),
        "brier_x10": round(10 * metrics.brier(probs, labels), 3),
        "nll_x10": round(10 * metrics.nll(probs, labels), 3),
    }


def plot_confidence(scored: Mapping[str, fc.Records], path: Path) -> None:
    """Draw the accuracy among records above each confidence."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4))
    axes = figure.subplots()
    levels = np.linspace(0, 0.98, 50)
    for name, records in scored.items():
        sure, right = records.probs.max(axis=1), records.probs.argmax(axis=1) == records.labels
        above = [right[sure >= level].mean() if (sure >= level).sum() >= 20 else np.nan for level in levels]
        axes.plot(levels, above, label=name)
    axes.set(xlabel="confidence at least", ylabel="accuracy")
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
