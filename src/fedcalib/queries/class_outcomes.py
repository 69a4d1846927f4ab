"""Statistics of the evaluation of a classifier with several classes.

Under noise: outcomes by confidence, outcomes by class, residuals by class and bin, and losses up to a public cut, each
as few numbers as possible. Exact sums also have whatever makes a figure exact or its interval shorter: gaps with their
squares, products of residuals, the whole confusion table, and losses without a cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import log, sqrt
from typing import Final, final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import InputError
from fedcalib.metrics.binning import bin_index_unchecked
from fedcalib.metrics.losses import SMALLEST
from fedcalib.queries.class_tables import residuals
from fedcalib.query import Block, Bound, RecordQuery, Rows
from fedcalib.records import Records
from fedcalib.types import Floats, Ints

MAX_LOG_LOSS: Final = -log(SMALLEST)


@final
@dataclass(frozen=True)
class TopLabelOutcomes(RecordQuery):
    """Records that are classified rightly and wrongly, by cell of the top probability.

    A record adds one to one of the 2 x cells: every norm is 1. `inner` holds the edges between the cells.
    """

    inner: tuple[float, ...]
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not all(0 < low < high < 1 for low, high in pairwise((*self.inner, 1 - 1e-15))) or not self.inner:
            raise InputError(f"Expected increasing edges between 0 and 1, found {self.inner!r:.80}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Right records, then wrong ones, by increasing confidence."""
        shape = (2, len(self.inner) + 1)
        return {"outcomes": Block(shape, integral=True, one_hot=True, weight=self.weight)}

    def rows(self, records: Records) -> Rows:
        best, confidence = top(records)
        cells = np.searchsorted(np.array(self.inner), confidence, side="right")
        return Rows((cells + (len(self.inner) + 1) * (best != records.labels))[:, None], None)


@final
@dataclass(frozen=True)
class TopLabelGaps(RecordQuery):
    """By bin of the top probability: right and wrong records, and confidence minus correctness with its square.

    A record adds one to one cell of `outcomes`, and a number in (-1, 1) and its square to one cell of `gap` and one of
    `squares`: every norm is 1, approached by a confident, wrong record.
    """

    bins: int

    def __post_init__(self) -> None:
        _check(2, self.bins)

    @property
    def blocks(self) -> Mapping[str, Block]:
        row = Block((self.bins,))
        return {"outcomes": Block((2, self.bins), integral=True, one_hot=True), "gap": row, "squares": row}

    def rows(self, records: Records) -> Rows:
        best, confidence = top(records)
        right = best == records.labels
        cell, gap = bin_index_unchecked(confidence, self.bins), confidence - right
        first = np.where(right, cell, cell + self.bins)
        cells = np.stack([first, cell + 2 * self.bins, cell + 3 * self.bins], axis=1)
        values = np.stack([np.ones_like(gap), gap, gap**2], axis=1)
        return Rows(cells, values, self.bins * np.array([0, 2, 3, 4]))


@final
@dataclass(frozen=True)
class ClassOutcomes(RecordQuery):
    """Right and wrong records by predicted class, and wrong records by true class.

    A record adds one to one of the 2 x classes cells of `predicted`, and one to one of the classes + 1 cells of
    `missed`, whose last holds all right records: every norm is 1.
    """

    classes: int
    weight: float = 1.0

    def __post_init__(self) -> None:
        _check(self.classes, 1)

    @property
    def blocks(self) -> Mapping[str, Block]:
        def block(*shape: int) -> Block:
            return Block(shape, integral=True, one_hot=True, weight=self.weight / 2)

        return {"predicted": block(2, self.classes), "missed": block(self.classes + 1)}

    def rows(self, records: Records) -> Rows:
        records.check_classes(self.classes)
        best = records.probs.argmax(axis=1)
        right = best == records.labels
        missed = np.where(right, self.classes, records.labels)
        return Rows(np.stack([np.where(right, best, best + self.classes), missed + 2 * self.classes], axis=1), None)


@final
@dataclass(frozen=True)
class ConfusionTable(RecordQuery):
    """Records by predicted class (rows) and true class (columns): one cell of one, so every norm is 1."""

    classes: int
    weight: float = 1.0

    def __post_init__(self) -> None:
        _check(self.classes, self.classes)

    @property
    def blocks(self) -> Mapping[str, Block]:
        shape = (self.classes, self.classes)
        return {"confusion": Block(shape, integral=True, one_hot=True, weight=self.weight)}

    def rows(self, records: Records) -> Rows:
        records.check_classes(self.classes)
        return Rows((self.classes * records.probs.argmax(axis=1) + records.labels)[:, None], None)


@final
@dataclass(frozen=True)
class ClassResiduals(RecordQuery):
    """By class and bin of its probability: probability minus label.

    A record adds p_y - 1 to one cell and p_j to one cell of each other class: L1 = 2 (1 - p_y) <= 2, L2 <= sqrt(2)
    (1 - p_y) <= sqrt(2), Linf <= 1, whatever the number of classes; approached by a confident, wrong record.
    """

    classes: int
    bins: int
    weight: float = 1.0

    def __post_init__(self) -> None:
        _check(self.classes, self.bins)

    @property
    def blocks(self) -> Mapping[str, Block]:
        shape = (self.classes, self.bins)
        return {"residual": Block(shape, Bound(2.0, sqrt(2.0), 1.0), weight=self.weight)}

    def rows(self, records: Records) -> Rows:
        probs, residual = residuals(records)
        return Rows(_cells(probs, self.bins), -residual, self.bins * np.arange(self.classes + 1))


@final
@dataclass(frozen=True)
class ResidualSquares(RecordQuery):
    """By class and bin of its probability: the squared residual.

    A record adds (1 - p_y)^2 to one cell and p_j^2 to one cell of each other class, each at most 1: L1 <= 2, L2 <=
    sqrt(2), Linf <= 1, approached by a confident, wrong record.
    """

    classes: int
    bins: int

    def __post_init__(self) -> None:
        _check(self.classes, self.bins)

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"squares": Block((self.classes, self.bins), Bound(2.0, sqrt(2.0), 1.0))}

    def rows(self, records: Records) -> Rows:
        probs, residual = residuals(records)
        return Rows(_cells(probs, self.bins), residual**2, self.bins * np.arange(self.classes + 1))


@final
@dataclass(frozen=True)
class ResidualProducts(RecordQuery):
    """Summed products of a record's residuals, by pair of (class, bin) cells: the upper triangle of a matrix.

    With residuals r, of which sum |r| <= 2 and sum r^2 <= 2, the entries r_j r_k with j <= k have L1 = (|r|_1^2 +
    |r|_2^2) / 2 <= 3, L2^2 = (|r|_2^4 + |r|_4^4) / 2 <= 3 and Linf <= 1, approached by a confident, wrong record.
    """

    classes: int
    bins: int

    def __post_init__(self) -> None:
        _check(self.classes, self.bins)
        if self.classes * self.bins > 1 << 10:
            raise InputError(f"Expected at most 1,024 cells, found {self.classes} classes of {self.bins} bins.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        cells = self.classes * self.bins
        return {"products": Block((cells * (cells + 1) // 2,), Bound(3.0, sqrt(3.0), 1.0))}

    def rows(self, records: Records) -> Rows:
        probs, residual = residuals(records)
        place = _cells(probs, self.bins)
        first, second = np.triu_indices(self.classes)
        pair = self._triangle[place[:, first], place[:, second]]
        return Rows(pair, residual[:, first] * residual[:, second])

    @cached_property
    def _triangle(self) -> Ints:
        """Numbers of the cells of the upper triangle, row by row."""
        size = self.classes * self.bins
        numbers = np.zeros((size, size), dtype=np.int64)
        numbers[np.triu_indices(size)] = np.arange(size * (size + 1) // 2)
        return numbers


@final
@dataclass(frozen=True)
class CutLosses(RecordQuery):
    """Summed log loss up to a public cut, and summed Brier score, each scaled into [0, 1].

    A record adds two numbers in [0, 1]: L1 <= 2, L2 <= sqrt(2), Linf <= 1, attained by a record that is certain and
    wrong.
    """

    cut: float
    weight: float = 1.0

    def __post_init__(self) -> None:
        _check_cut(self.cut)

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"losses": Block((2,), Bound(2.0, sqrt(2.0), 1.0), weight=self.weight)}

    def rows(self, records: Records) -> Rows:
        log_loss, brier = losses(records)
        return Rows(None, np.stack([np.minimum(log_loss / self.cut, 1.0), brier / 2], axis=1))


@final
@dataclass(frozen=True)
class WholeLosses(RecordQuery):
    """Summed log loss and Brier score with their squares, without a cut: for exact sums.

    The Brier score is from 0 to 2, and the log loss from 0 to about 36, since probabilities count as at least the
    spacing of doubles: all bounds are attained by a record that is certain and wrong.
    """

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"log": _powers(MAX_LOG_LOSS), "squared": _powers(2.0)}

    def rows(self, records: Records) -> Rows:
        log_loss, brier = losses(records)
        return Rows(None, np.stack([log_loss, log_loss**2, brier, brier**2], axis=1))


@final
@dataclass(frozen=True)
class LossChanges(RecordQuery):
    """What a calibrator changes: log loss up to a public cut, Brier score and correctness, after minus before.

    Each change is scaled into [-1, 1] and summed with its square where `squares` is set. Without squares L1 <= 3, L2
    <= sqrt(3) and Linf <= 1, attained where a certain, wrong record becomes a certain, right one; with squares twice
    as many numbers.
    """

    calibrator: Calibrator
    cut: float
    squares: bool = False
    weight: float = 1.0

    def __post_init__(self) -> None:
        _check_cut(self.cut)

    @property
    def blocks(self) -> Mapping[str, Block]:
        numbers = 6 if self.squares else 3
        bound = Bound(float(numbers), sqrt(numbers), 1.0)
        return {"changes": Block((numbers,), bound, weight=self.weight)}

    def rows(self, records: Records) -> Rows:
        before, after = self._scaled(records), self._scaled(self.calibrator.over(records))
        change = np.clip(after - before, -1.0, 1.0)
        return Rows(None, np.hstack([change, change**2]) if self.squares else change)

    def _scaled(self, records: Records) -> Floats:
        """Cut log loss, Brier score and correctness of each record, each within [0, 1], shape (n, 3)."""
        log_loss, brier = losses(records)
        right = records.probs.argmax(axis=1) == records.labels
        return np.stack([np.minimum(log_loss / self.cut, 1.0), brier / 2, right.astype(np.float64)], axis=1)


@final
@dataclass(frozen=True)
class GapProducts(RecordQuery):
    """Summed products of a record's gap before and after a calibrator, by pair of bins of the top probability.

    A record adds the product of two numbers in (-1, 1) to one of the bins x bins cells: every norm is 1, approached by
    a record that is confident and wrong before and after.
    """

    calibrator: Calibrator
    bins: int

    def __post_init__(self) -> None:
        _check(2, self.bins)

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"products": Block((self.bins, self.bins))}

    def rows(self, records: Records) -> Rows:
        (cell, gap), (later, other) = (self._gap(held) for held in (records, self.calibrator.over(records)))
        return Rows((self.bins * cell + later)[:, None], (gap * other)[:, None])

    def _gap(self, records: Records) -> tuple[Ints, Floats]:
        best, confidence = top(records)
        return bin_index_unchecked(confidence, self.bins), confidence - (best == records.labels)


def top(records: Records) -> tuple[Ints, Floats]:
    """The most probable class of each record, the lowest of several, and its probability, shape (n,) each."""
    best = records.probs.argmax(axis=1)
    return best, np.asarray(records.probs[np.arange(len(best)), best], dtype=np.float64)


def losses(records: Records) -> tuple[Floats, Floats]:
    """Log loss and Brier score of each record, shape (n,) each."""
    probs = np.asarray(records.probs, dtype=np.float64)
    own = probs[np.arange(len(probs)), records.labels]
    brier = np.einsum("ij,ij->i", probs, probs) - 2 * own + 1
    return -np.log(np.clip(own, SMALLEST, 1.0)), np.clip(brier, 0.0, 2.0)


def _cells(probs: Floats, bins: int) -> Ints:
    """Number of the (class, bin) cell of every probability, shape (n, classes)."""
    return bin_index_unchecked(probs, bins) + bins * np.arange(probs.shape[1])


def _powers(most: float) -> Block:
    """A number from 0 to `most`, and its square."""
    square = most**2
    return Block((2,), Bound(most + square, sqrt(square + square**2), max(most, square)))


def _check(classes: int, bins: int) -> None:
    if not 2 <= classes <= 1 << 16 or not 1 <= bins <= 1 << 16 or classes * bins > 1 << 22:
        raise InputError(f"Expected at least 2 classes and 1 bin, found {classes} and {bins}.")


def _check_cut(cut: float) -> None:
    if not 0 < cut < 1e3:
        raise InputError(f"Expected a cut of the log loss above 0, found {cut}.")
