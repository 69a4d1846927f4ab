"""Accuracy, log loss and Brier score, with confidence intervals."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcalib.metrics.intervals import Interval, mean_interval, proportion_interval, some_blocks, some_scores
from fedcalib.types import Bools, Floats

FLOOR = 1e-12  # smallest probability of which log-odds are taken
SMALLEST = float(np.finfo(np.float64).eps)  # the log loss of a probability of zero is 36.04, as in scikit-learn


def accuracy(probs: Any, labels: Any) -> float:
    """Fraction of records whose most probable class is the true one; ties go to the lowest class.

    Parameters
    ----------
    probs
        Probabilities, shape (n, classes); rows sum to one.
    labels
        Class numbers from 0, shape (n,).

    Examples
    --------
    >>> import fedcalib as fc
    >>> round(fc.metrics.accuracy([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]], [0, 1, 1]), 3)
    0.667
    """
    return float(hits(probs, labels).mean())


def nll(probs: Any, labels: Any) -> float:
    """Log loss: the mean negative log-likelihood of the true class, in nats.

    The parameters are those of `accuracy`.

    Examples
    --------
    >>> import fedcalib as fc
    >>> round(fc.metrics.nll([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]], [0, 1, 1]), 3)
    0.607
    """
    return float(nll_losses(probs, labels).mean())


def brier(probs: Any, labels: Any) -> float:
    """Brier score: the mean squared error of the probabilities, summed over classes, from 0 to 2.

    The parameters are those of `accuracy`.

    Examples
    --------
    >>> import fedcalib as fc
    >>> round(fc.metrics.brier([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]], [0, 1, 1]), 3)
    0.44
    """
    return float(brier_losses(probs, labels).mean())


def binary_nll(scores: Any, labels: Any) -> float:
    """Log loss of a binary score: the mean negative log-likelihood of the label, in nats.

    Parameters
    ----------
    scores
        Probabilities of class 1, shape (n,).
    labels
        0 or 1, shape (n,).

    Examples
    --------
    >>> import fedcalib as fc
    >>> round(fc.metrics.binary_nll([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]), 3)
    0.472
    """
    column, truth = some_scores(scores, labels)
    return float(_log_loss(np.where(truth == 1, column, 1 - column)).mean())


def binary_brier(scores: Any, labels: Any) -> float:
    """Brier score of a binary score: its mean squared error, from 0 to 1; half of `brier` of both classes.

    The parameters are those of `binary_nll`.

    Examples
    --------
    >>> import fedcalib as fc
    >>> round(fc.metrics.binary_brier([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]), 3)
    0.158
    """
    column, truth = some_scores(scores, labels)
    return float(np.square(column - truth).mean())


def scaled_brier(scores: Any, labels: Any) -> float:
    """One minus the Brier score over that of a model that always gives the prevalence: 1 is perfect, 0 is useless.

    The parameters are those of `binary_nll`.

    Examples
    --------
    >>> import fedcalib as fc
    >>> round(fc.metrics.scaled_brier([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]), 3)
    0.367
    """
    rate = float(some_scores(scores, labels)[1].mean())
    return 1 - binary_brier(scores, labels) / (rate * (1 - rate)) if 0 < rate < 1 else float("nan")


def accuracy_interval(probs: Any, labels: Any, level: float = 0.95) -> Interval:
    """Wilson's confidence interval for the accuracy.

    Parameters
    ----------
    probs
        Probabilities, shape (n, classes); rows sum to one.
    labels
        Class numbers from 0, shape (n,).
    level
        Confidence level.

    Examples
    --------
    >>> import fedcalib as fc
    >>> round(fc.metrics.accuracy_interval([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]], [0, 1, 1]).low, 3)
    0.208
    """
    right = hits(probs, labels)
    return proportion_interval(int(right.sum()), len(right), level)


def nll_interval(probs: Any, labels: Any, level: float = 0.95) -> Interval:
    """Confidence interval for the log loss.

    The parameters are those of `accuracy_interval`.

    Examples
    --------
    >>> import fedcalib as fc
    >>> probs, labels = [[0.9, 0.1], [0.4, 0.6]], [0, 1]
    >>> fc.metrics.nll(probs, labels) in fc.metrics.nll_interval(probs, labels)
    True
    """
    return _interval(nll_losses(probs, labels), level)


def brier_interval(probs: Any, labels: Any, level: float = 0.95) -> Interval:
    """Confidence interval for the Brier score.

    The parameters are those of `accuracy_interval`.

    Examples
    --------
    >>> import fedcalib as fc
    >>> probs, labels = [[0.9, 0.1], [0.4, 0.6]], [0, 1]
    >>> fc.metrics.brier(probs, labels) in fc.metrics.brier_interval(probs, labels)
    True
    """
    return _interval(brier_losses(probs, labels), level)


def hits(probs: Any, labels: Any) -> Bools:
    """Whether each record's most probable class is the true one, shape (n,).

    The parameters are those of `accuracy`.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.metrics.hits([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]], [0, 1, 1]).tolist()
    [True, True, False]
    """
    return np.concatenate([block.argmax(axis=1) == column for block, column in some_blocks(probs, labels)])


def nll_losses(probs: Any, labels: Any) -> Floats:
    """Negative log-likelihood of each record's true class, shape (n,).

    The parameters are those of `accuracy`.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.metrics.nll_losses([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]], [0, 1, 1]).round(3)
    array([0.105, 0.511, 1.204])
    """
    own = [block[np.arange(len(column)), column] for block, column in some_blocks(probs, labels)]
    return _log_loss(np.concatenate(own))


def brier_losses(probs: Any, labels: Any) -> Floats:
    """Brier score of each record, shape (n,).

    The parameters are those of `accuracy`.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.metrics.brier_losses([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]], [0, 1, 1]).round(3)
    array([0.02, 0.32, 0.98])
    """
    parts = []
    for block, column in some_blocks(probs, labels):
        error = block.copy()
        error[np.arange(len(column)), column] -= 1
        parts.append(np.einsum("ij,ij->i", error, error))
    return np.concatenate(parts)


def top_label(probs: Any, labels: Any) -> tuple[Floats, Bools]:
    """The largest probability of each record, and whether that class is the true one: a binary problem.

    Parameters
    ----------
    probs
        Probabilities, shape (n, classes); rows sum to one.
    labels
        Class numbers from 0, shape (n,).

    Returns
    -------
    tuple of arrays
        The largest probabilities and the correctness, each of shape (n,).

    Examples
    --------
    >>> import fedcalib as fc
    >>> confidence, correct = fc.metrics.top_label([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]], [0, 1, 1])
    >>> confidence
    array([0.9, 0.6, 0.7])
    """
    parts = []
    for block, column in some_blocks(probs, labels):
        best = block.argmax(axis=1)
        parts.append((block[np.arange(len(best)), best], best == column))
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _log_loss(own: Floats) -> Floats:
    return -np.log(np.maximum(own, SMALLEST))


def _interval(losses: Floats, level: float) -> Interval:
    return mean_interval(float(losses.sum()), float(np.square(losses).sum()), len(losses), level)
