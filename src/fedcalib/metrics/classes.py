"""Metrics that go class by class: precision, recall, F1, and the AUC of each class against the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from fedcalib.metrics.intervals import matching, ratio, some_blocks
from fedcalib.metrics.losses import nll_losses
from fedcalib.metrics.ranking import roc_auc
from fedcalib.types import Floats, Ints


@final
@dataclass(frozen=True, eq=False)
class ClassTable:
    """Precision, recall, F1 and number of records of each class.

    A ratio without a denominator is 0, as in scikit-learn's `precision_recall_fscore_support`.

    Parameters
    ----------
    confusion
        Records by predicted class (rows) and true class (columns).

    Examples
    --------
    >>> import fedcalib as fc
    >>> table = fc.metrics.class_table([[0.9, 0.1, 0.0], [0.2, 0.5, 0.3], [0.6, 0.3, 0.1]], [0, 1, 1])
    >>> table.precision.tolist(), table.recall.tolist(), table.records.tolist()
    ([0.5, 1.0, 0.0], [1.0, 0.5, 0.0], [1, 2, 0])
    """

    confusion: Ints

    @property
    def right(self) -> Ints:
        return np.asarray(np.diag(self.confusion))

    @property
    def records(self) -> Ints:
        """Records of each class, shape (classes,)."""
        return np.asarray(self.confusion.sum(axis=0))

    @property
    def predicted(self) -> Ints:
        """Records that are predicted to be of each class, shape (classes,)."""
        return np.asarray(self.confusion.sum(axis=1))

    @property
    def precision(self) -> Floats:
        return ratio(self.right, self.predicted, 0.0)

    @property
    def recall(self) -> Floats:
        return ratio(self.right, self.records, 0.0)

    @property
    def f1(self) -> Floats:
        return ratio(2 * self.right, self.predicted + self.records, 0.0)


def class_table(probs: Any, labels: Any) -> ClassTable:
    """Records by predicted and true class; ties between probabilities go to the lowest class.

    Parameters
    ----------
    probs
        Probabilities, shape (n, classes); rows sum to one.
    labels
        Class numbers from 0, shape (n,).

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.metrics.class_table([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]], [0, 1, 1]).confusion.tolist()
    [[1, 1], [0, 1]]
    """
    matrix, _ = matching(probs, labels)
    classes = matrix.shape[1]
    counts = np.zeros(classes * classes, dtype=np.int64)
    for block, column in some_blocks(matrix, labels):
        counts += np.bincount(classes * block.argmax(axis=1) + column, minlength=len(counts))
    return ClassTable(counts.reshape(classes, classes))


def macro_f1(probs: Any, labels: Any) -> float:
    """Mean of the classes' F1, over the classes that occur among labels or predictions, as in scikit-learn.

    The parameters are those of `class_table`.

    Examples
    --------
    >>> import fedcalib as fc
    >>> round(fc.metrics.macro_f1([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]], [0, 1, 1]), 3)
    0.667
    """
    table = class_table(probs, labels)
    return float(table.f1[(table.records + table.predicted) > 0].mean())


def weighted_f1(probs: Any, labels: Any) -> float:
    """Mean of the classes' F1, weighted by their records.

    The parameters are those of `class_table`.

    Examples
    --------
    >>> import fedcalib as fc
    >>> round(fc.metrics.weighted_f1([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]], [0, 1, 1]), 3)
    0.667
    """
    table = class_table(probs, labels)
    return float(table.f1 @ table.records / table.records.sum())


def class_aucs(probs: Any, labels: Any) -> Floats:
    """AUC of each class's probability against all other classes, shape (classes,); NaN for a class without records.

    The parameters are those of `class_table`.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.metrics.class_aucs([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]], [0, 1, 1]).tolist()
    [1.0, 1.0]
    """
    matrix, column = matching(probs, labels)
    return np.array([roc_auc(matrix[:, label], column == label) for label in range(matrix.shape[1])])


def macro_auc(probs: Any, labels: Any) -> float:
    """Mean over classes of the AUC of each class against the rest; classes without records, or with all, are left out.

    The parameters are those of `class_table`.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.metrics.macro_auc([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]], [0, 1, 1])
    1.0
    """
    found = class_aucs(probs, labels)
    return float(found[np.isfinite(found)].mean()) if np.isfinite(found).any() else float("nan")


def cut_nll(probs: Any, labels: Any, margin: float = 5.0) -> float:
    """Log loss with each record's loss cut at ln(classes) + `margin`: a bounded quantity, which noise can hide.

    Parameters
    ----------
    probs
        Probabilities, shape (n, classes); rows sum to one.
    labels
        Class numbers from 0, shape (n,).
    margin
        How far above that of equal probabilities a record's loss may be.

    Examples
    --------
    >>> import fedcalib as fc
    >>> round(fc.metrics.cut_nll([[1.0, 0.0], [0.4, 0.6]], [1, 1]), 3)
    3.102
    """
    return float(np.minimum(nll_losses(probs, labels), log_loss_cut(np.shape(probs)[1], margin)).mean())


def log_loss_cut(classes: int, margin: float = 5.0) -> float:
    """The public bound at which a record's log loss is cut: ln(classes) + `margin`."""
    return float(np.log(classes)) + margin
