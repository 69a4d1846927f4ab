"""The doors of the metrics: shapes and ranges are checked here, once, and nowhere behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fedcalib.binning import check_unit_interval
from fedcalib.errors import InputError
from fedcalib.types import Array, Floats, Ints

BLOCK = 1 << 17  # numbers handled at once: a megabyte of doubles, so that a block stays in cache
TOLERANCE = 1e-3  # how far a row may be from summing to one: half precision is, by rounding alone


def record_blocks(probs: Any, labels: Any) -> Iterator[tuple[Floats, Ints]]:
    """Walk through scored records a cache-sized block at a time, checking each block on the way.

    Blocks are double precision whatever came in. The shapes are checked before the first block.
    """
    matrix, column = matching(probs, labels)
    rows = max(1, BLOCK // matrix.shape[1])
    return (
        (_checked_rows(matrix[start : start + rows], start), column[start : start + rows])
        for start in range(0, len(column), rows)
    )


def matching(probs: Any, labels: Any) -> tuple[Array, Ints]:
    """Return a (records, classes) matrix and its labels, or say why they do not fit together."""
    matrix = np.asarray(probs)
    if matrix.ndim != 2 or matrix.shape[1] < 2 or matrix.dtype.kind not in "fiub":
        raise InputError(
            f"Expected probabilities of shape (records, classes), found {matrix.dtype} of shape {matrix.shape}; "
            "for the scores of a binary classifier use the metrics that take one score a record."
        )
    return matrix, _label_column(labels, len(matrix), matrix.shape[1])


def scores_and_labels(scores: Any, labels: Any) -> tuple[Floats, Ints]:
    """Return one score in [0, 1] a record and its 0/1 label, or say what is wrong."""
    column = np.asarray(scores)
    if column.ndim != 1 or column.dtype.kind not in "fiub":
        raise InputError(
            f"Expected one score a record, found {column.dtype} of shape {column.shape}; "
            "pass the probability of class 1, which is probs[:, 1] of a matrix."
        )
    widened = column.astype(np.float64, copy=False)
    check_unit_interval(widened, "scores")
    return widened, _label_column(labels, len(column), 2)


def some_records(labels: Any) -> None:
    """Refuse to average over nothing."""
    if not np.size(labels):
        raise InputError("Expected at least one record, found none; leave empty sites out of a metric.")


def _checked_rows(rows: Array, start: int) -> Floats:
    block: Floats = rows.astype(np.float64, copy=False)
    check_unit_interval(block, "probabilities")
    off = np.abs(block.sum(axis=1) - 1)
    worst = int(off.argmax())
    if off[worst] > TOLERANCE:
        raise InputError(
            f"Expected probabilities that sum to one, found {block[worst].sum():.6g} in row {start + worst}; "
            "normalise the rows, or measure each class by its own scores."
        )
    return block


def _label_column(labels: Any, records: int, classes: int) -> Ints:
    column = np.asarray(labels)
    if column.shape != (records,):
        raise InputError(f"Expected one label for each of {records} records, found shape {column.shape}.")
    if column.size:
        if column.dtype.kind not in "fiub" or not (np.floor(column) == column).all():
            raise InputError(f"Expected whole numbers as labels, found {column.dtype}; number the classes from 0.")
        low, high = column.min(), column.max()
        if not (low >= 0 and high < classes):
            raise InputError(
                f"Expected labels from 0 to {classes - 1}, found {low} to {high}; number the classes from 0."
            )
    return column.astype(np.int64, copy=False)
