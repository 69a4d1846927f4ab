"""Accuracy, log loss and Brier score, with intervals from sums of squares."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcalib.metrics.intervals import (
    Interval,
    mean_interval,
    proportion_interval,
    record_blocks,
    scores_and_labels,
    some_records,
)
from fedcalib.types import Bools, Floats

FLOOR = 1e-12  # a probability of zero costs -log of this, about 27.6; the floor is inside the logarithm only


def accuracy(probs: Any, labels: Any) -> float:
    """Say how often the largest probability is on the right class; ties go to the lowest class."""
    return float(hits(probs, labels).mean())


def nll(probs: Any, labels: Any) -> float:
    """Average the negative log-likelihood of the true class, in nats."""
    return float(nll_losses(probs, labels).mean())


def brier(probs: Any, labels: Any) -> float:
    """Average the squared distance to the truth, summed over classes: from 0 to 2."""
    return float(brier_losses(probs, labels).mean())


def binary_nll(scores: Any, labels: Any) -> float:
    """Average the negative log-likelihood of the label under a binary score, in nats."""
    some_records(labels)
    column, truth = scores_and_labels(scores, labels)
    return float(_log_cost(np.where(truth == 1, column, 1 - column)).mean())


def binary_brier(scores: Any, labels: Any) -> float:
    """Average the squared error of a binary score: from 0 to 1, half of what `brier` gives for both classes."""
    some_records(labels)
    column, truth = scores_and_labels(scores, labels)
    return float(np.square(column - truth).mean())


def accuracy_interval(probs: Any, labels: Any, level: float = 0.95) -> Interval:
    """Bound the accuracy by Wilson's interval."""
    right = hits(probs, labels)
    return proportion_interval(int(right.sum()), len(right), level)


def nll_interval(probs: Any, labels: Any, level: float = 0.95) -> Interval:
    """Bound the mean negative log-likelihood."""
    return _spread(nll_losses(probs, labels), level)


def brier_interval(probs: Any, labels: Any, level: float = 0.95) -> Interval:
    """Bound the mean Brier score."""
    return _spread(brier_losses(probs, labels), level)


def hits(probs: Any, labels: Any) -> Bools:
    """Say of each record whether its largest probability is on the right class, (n,)."""
    some_records(labels)
    return np.concatenate([block.argmax(axis=1) == column for block, column in record_blocks(probs, labels)])


def nll_losses(probs: Any, labels: Any) -> Floats:
    """Give the negative log-likelihood of each record, (n,)."""
    some_records(labels)
    own = [block[np.arange(len(column)), column] for block, column in record_blocks(probs, labels)]
    return _log_cost(np.concatenate(own))


def brier_losses(probs: Any, labels: Any) -> Floats:
    """Give the Brier score of each record, (n,)."""
    some_records(labels)
    parts = []
    for block, column in record_blocks(probs, labels):
        error = block.copy()
        error[np.arange(len(column)), column] -= 1
        parts.append(np.einsum("ij,ij->i", error, error))
    return np.concatenate(parts)


def top_label(probs: Any, labels: Any) -> tuple[Floats, Bools]:
    """Reduce each record to its largest probability and whether that class is right: a binary problem, (n,) twice."""
    some_records(labels)
    parts = []
    for block, column in record_blocks(probs, labels):
        best = block.argmax(axis=1)
        parts.append((block[np.arange(len(best)), best], best == column))
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _log_cost(own: Floats) -> Floats:
    return -np.log(np.maximum(own, FLOOR))


def _spread(losses: Floats, level: float) -> Interval:
    return mean_interval(float(losses.sum()), float(np.square(losses).sum()), len(losses), level)
