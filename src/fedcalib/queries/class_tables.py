"""Tables per class: counts of labels by probability bin, and residuals with variances or curvature by log-odds cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf, sqrt
from typing import TypeAlias, final

import numpy as np

from fedcalib.artifacts.steps import step_functions
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.metrics.binning import EVEN, Axis, odds_cells
from fedcalib.numeric import finite, log_odds
from fedcalib.query import Block, Bound, RecordQuery, Rows, counted_on
from fedcalib.randomness import Randomness
from fedcalib.records import Records
from fedcalib.types import Array, Floats, Ints

Clips: TypeAlias = float | tuple[float, float] | None


@final
@dataclass(frozen=True)
class LabelHistogram(RecordQuery):
    """For each class: records with the class's probability in each bin, counted by whether they are of the class.

    A record adds one to exactly one of the 2 x bins cells of each class's block: (of the class, bin) or (not, bin). So
    every block is one-hot with L1 = L2 = Linf = 1, attained by every record; all blocks together have L1 = classes and
    L2 = sqrt(classes). With two classes the second class's block determines the first, and is the only one sent. `clip`
    is the L2 norm to which a client's counts in a block are clipped when the client is the unit, `axis` places the
    bins. Two clips, as published, make two blocks per class, each with its own clip: noise is then paid for both,
    though a record is in one.
    """

    classes: int
    bins: int
    clip: Clips = None
    axis: Axis = EVEN

    def __post_init__(self) -> None:
        if self.classes < 2 or self.bins < 1 or self.classes * self.bins > 1 << 26:
            raise InputError(f"Expected at least 2 classes and 1 bin, found {self.classes} and {self.bins}.")
        if isinstance(self.clip, tuple) and not (len(self.clip) == 2 and all(map(_is_clip, self.clip))):
            raise InputError(f"Expected one clip, or one for positives and one for negatives, found {self.clip!r:.80}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        """One block per step function, shape (of the class or not, bin); two blocks where there are two clips."""
        labels = range(self.classes - step_functions(self.classes), self.classes)
        if isinstance(self.clip, tuple):
            signs = zip("+-", self.clip, strict=True)
            halves = {sign: Block((self.bins,), integral=True, one_hot=True, clip=clip) for sign, clip in signs}
            return {f"{label}{sign}": half for label in labels for sign, half in halves.items()}
        block = Block((2, self.bins), integral=True, one_hot=True, clip=self.clip)
        return {str(label): block for label in labels}

    def rows(self, records: Records) -> Rows:
        records.check_classes(self.classes)
        labels = np.arange(self.classes - step_functions(self.classes), self.classes)
        cells = self.axis.cells(records.probs[:, labels[0] :], self.bins)
        cells += 2 * self.bins * np.arange(len(labels))
        cells[records.labels[:, None] != labels] += self.bins
        return Rows(cells, None)

    def pooled(self, records: Records, scale: Floats | None = None) -> Array:
        """Count all records per bin and those of the class; the others are the difference."""
        records.check_classes(self.classes)
        first = self.classes - step_functions(self.classes)
        probs = records.probs[:, first:]
        counts = self.axis.counted(probs, self.bins)
        mine = np.flatnonzero(records.labels >= first)  # with two classes, only class 1 has a block
        label = records.labels[mine] - first
        own = self.axis.cells(probs[mine, label], self.bins) + self.bins * label
        hits = np.bincount(own, minlength=counts.size).reshape(counts.shape)
        return counted_on(self, np.stack([hits, counts - hits], axis=1).reshape(-1), scale)


def _is_clip(value: object) -> bool:
    return isinstance(value, int | float) and 0 < value < inf


@final
@dataclass(frozen=True)
class LabelCounts(RecordQuery):
    """Number of records per class: one cell of one, so every norm is 1."""

    classes: int

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"labels": Block((self.classes,), integral=True, one_hot=True)}

    def rows(self, records: Records) -> Rows:
        return Rows(records.labels[:, None], None)


def residuals(records: Records) -> tuple[Floats, Floats]:
    """Probabilities whose rows sum to one, and labels minus them, shape (n, classes) each."""
    probs = np.asarray(records.probs, dtype=np.float64)
    probs = probs / probs.sum(axis=1, keepdims=True)  # bounds rest on it, and given rows sum to one only nearly
    residual = -probs
    residual[np.arange(len(probs)), records.labels] += 1
    return probs, residual


@final
@dataclass(frozen=True)
class LogitResiduals(RecordQuery):
    """By class and cell of the log-odds: label minus probability, and probability times its complement.

    In `residual` a record adds 1 - p_y to one cell and -p_j to one cell of each other class: L1 = 2 (1 - p_y) <= 2, L2
    <= sqrt(2) (1 - p_y) <= sqrt(2), Linf <= 1, whatever the number of classes; approached by a certain, wrong record.
    In `spread` it adds p_j (1 - p_j): Linf <= 1/4, L1 = 1 - sum p_j^2 <= 1 - 1/classes by equal probabilities, and L2
    is largest with three equal probabilities (two where there are only two). `pooled_classes` sends all classes to one
    row of cells: then one cell may hold all of a record's spread, and the residuals' bounds stay. `clip` is the L2 norm
    to which a client's residuals are clipped when the client is the unit, `clip_spread` likewise.
    """

    classes: int
    cells: int
    reach: float
    pooled_classes: bool = False
    clip: float | None = None
    clip_spread: float | None = None
    weight: float = 0.8
    weight_spread: float = 0.2

    def __post_init__(self) -> None:
        if self.classes < 2 or not 1 <= self.cells <= 1 << 16 or not 0 < self.reach < 1e3:
            raise InputError(f"Expected at least 2 classes, 1 to 65,536 cells and a reach above 0, found {self}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Summed residuals, and the variance that calibrated labels would have."""
        shape = (1 if self.pooled_classes else self.classes, self.cells)
        l1 = 1 - 1 / self.classes
        l2 = sqrt(2) / 4 if self.classes == 2 else 2 * sqrt(3) / 9
        spread = Bound(l1, l1, l1) if self.pooled_classes else Bound(l1, l2, 0.25)
        return {
            "residual": Block(shape, Bound(2.0, sqrt(2.0), 1.0), weight=self.weight, clip=self.clip),
            "spread": Block(shape, spread, weight=self.weight_spread, clip=self.clip_spread),
        }

    def rows(self, records: Records) -> Rows:
        probs, residual = residuals(records)
        cells = odds_cells(log_odds(probs), self.cells, self.reach)
        if not self.pooled_classes:
            cells += self.cells * np.arange(self.classes)
        offset = self.blocks["residual"].size
        lanes = None if self.pooled_classes else self.cells * np.arange(2 * self.classes + 1)
        return Rows(np.hstack([cells, cells + offset]), np.hstack([residual, probs * (1 - probs)]), lanes)


@final
@dataclass(frozen=True)
class ClassCurvature(RecordQuery):
    """Gradient and Hessian of the log-likelihood in shifts of logits, one shift per class and cell of its log-odds.

    In `residual` a record adds 1 - p_y to one cell and -p_j to one cell of each other class: L1 <= 2, L2 <= sqrt(2),
    Linf <= 1, approached by a certain, wrong record. In `curvature`, the upper triangle of a symmetric matrix of cells,
    it adds p_j (1 - p_j) on the diagonal and -p_j p_k above: Linf <= 1/4, L1 = 3/2 (1 - sum p_j^2), largest with equal
    probabilities, and L2 <= sqrt(3)/4, attained by two probabilities of a half. `clip` is the L2 norm to which a
    client's residuals are clipped when the client is the unit, `clip_curvature` likewise.
    """

    classes: int
    cells: int
    reach: float
    clip: float | None = None
    clip_curvature: float | None = None
    weight: float = 0.8
    weight_curvature: float = 0.2

    def __post_init__(self) -> None:
        if self.classes < 2 or self.cells < 1 or self.classes * self.cells > 256 or not 0 < self.reach < 1e3:
            raise InputError(
                f"Expected at least 2 classes and at most 256 shifts, found {self.classes} classes of {self.cells} "
                "cells; use ResidualBinning, whose messages grow with the classes and not with their square."
            )

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Summed residuals, and the matrix by which shifts would change them."""
        size = self.classes * self.cells
        pairs = (size * (size + 1) // 2,)
        bound = Bound(1.5 * (1 - 1 / self.classes), sqrt(3) / 4, 0.25)
        return {
            "residual": Block((size,), Bound(2.0, sqrt(2.0), 1.0), weight=self.weight, clip=self.clip),
            "curvature": Block(pairs, bound, weight=self.weight_curvature, clip=self.clip_curvature),
        }

    def rows(self, records: Records) -> Rows:
        probs, residual = residuals(records)
        place = odds_cells(log_odds(probs), self.cells, self.reach) + self.cells * np.arange(self.classes)
        first, second = np.triu_indices(self.classes)
        product = -probs[:, first] * probs[:, second]
        product[:, first == second] += probs
        pair = self._triangle[place[:, first], place[:, second]] + self.classes * self.cells
        return Rows(np.concatenate([place, pair], axis=1), np.concatenate([residual, product], axis=1))

    def rounded(self, federation: Federation, randomness: Randomness, scale: Floats) -> Array:
        """The same integers as those of the rows, whose entries never share a cell, without a look at their norms."""
        residual, curvature = float(scale[0]), float(scale[-1])
        total = np.zeros(self.size, dtype=np.int64)
        for chunk in federation.records.chunks():
            probs, rest = residuals(chunk)
            place = odds_cells(log_odds(probs), self.cells, self.reach)
            cells, cut = place + self.cells * np.arange(self.classes), np.trunc(finite(rest * residual))
            total += np.bincount(cells.reshape(-1), cut.reshape(-1), self.size).astype(np.int64)
            total += self._summed_pairs(np.ascontiguousarray(probs.T), place.T, curvature).astype(np.int64)
        return total

    def _summed_pairs(self, probs: Floats, place: Ints, step: float) -> Floats:
        """Sums of truncated curvatures; classes are rows, so that cells are told apart by products of whole rows."""
        within = (place == np.arange(self.cells)[:, None, None]).astype(np.float64)  # (cells, classes, n)
        total = np.zeros(self.size)
        for first, own in enumerate(probs):
            product = -own * probs[first:]
            product[0] += own
            product *= step
            cut = np.trunc(finite(product), out=product)
            rows = self.cells * first + np.arange(self.cells)
            for cell in range(self.cells):
                columns = self.cells * np.arange(first, self.classes) + cell
                sums = (cut * within[cell, first:]) @ within[:, first].T  # (classes from the first on, cells)
                upper = rows <= columns[:, None]
                numbers = self._triangle[rows, columns[:, None]] + self.classes * self.cells
                total[numbers[upper]] += sums[upper]
        return total

    @cached_property
    def _triangle(self) -> Ints:
        """Numbers of the cells of the upper triangle, row by row."""
        size = self.classes * self.cells
        numbers = np.zeros((size, size), dtype=np.int64)
        numbers[np.triu_indices(size)] = np.arange(size * (size + 1) // 2)
        return numbers
