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
LAST_LAYER = {  # accuracy, ECE x 100, Brier score x 10, NLL x 10
    "mnist": {
        "FL-SWAG": (97.41, 0.77, 0.41, 0.86), "SGLD": (97.61, 1.22, 0.38, 0.89), "pSGLD": (97.42, 1.97, 0.45, 1.58),
    },
    "fashion-mnist": {
        "FL-SWAG": (87.57, 6.92, 3.18, 4.69), "SGLD": (87.15, 4.16, 1.90, 3.91), "pSGLD": (86.67, 2.73, 1.95, 3.93),
    },
    "cifar10": {
        "FL-SWAG": (70.35, 7.82, 4.18, 9.18), "SGLD": (75.16, 6.38, 3.51, 7.39), "pSGLD": (77.67, 13.84, 3.55, 9.77),
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


def plot_confidence(scored: Mapping[str, fc.Records], path: Path, title: str) -> None:
    """Draw the accuracy among records above each confidence, and how far it is from what was promised."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4))
    left, right = figure.subplots(1, 2)
    levels = np.linspace(0, 0.99, 100)
    for name, records in scored.items():
        right_, sure = records.probs.argmax(axis=1) == records.labels, records.probs.max(axis=1)
        above = [sure >= level for level in levels]
        kept = [each if each.sum() >= 20 else None for each in above]  # fewer say nothing
        accuracy = np.array([np.nan if rows is None else right_[rows].mean() for rows in kept])
        promised = np.array([np.nan if rows is None else sure[rows].mean() for rows in kept])
        left.plot(levels, accuracy, label=name)
        right.plot(levels, accuracy - promised, label=name)
    left.set(xlabel="confidence at least", ylabel="accuracy among these", title=title)
    right.set(xlabel="confidence at least", ylabel="accuracy - mean confidence", title="above 0: less sure than right")
    right.axhline(0, color="black", linewidth=0.8)
    left.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
