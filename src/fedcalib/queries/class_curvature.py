"""How far each class's probability is off, and how classes give way to each other when one is shifted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import final

import numpy as np

from fedcalib.artifacts.logit_offsets import log_odds, odds_cells
from fedcalib.errors import InputError
from fedcalib.query import Block, Bound, RecordQuery, Rows
from fedcalib.records import Records
from fedcalib.types import Ints


@final
@dataclass(frozen=True)
class ClassCurvature(RecordQuery):
    """The slope and curvature of the log-likelihood in shifts of logits, one shift a class and cell of its log-odds.

    In `residual` a record adds 1 - p_y to one cell and -p_j to one cell of each other class: L1 <= 2, L2 <= sqrt(2),
    Linf <= 1, approached by a certain, wrong record. In `curvature`, the upper triangle of a symmetric matrix of cells,
    it adds p_j (1 - p_j) on the diagonal and -p_j p_k above: Linf <= 1/4, L1 = 3/2 (1 - sum p_j^2), largest with equal
    probabilities, and L2 <= sqrt(3)/4, attained by two probabilities of a half. `clip` is the L2 norm to which a
    client's residuals are cut when the client is the unit, `clip_curvature` likewise.
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
                "cells; use ResidualBinning, whose questions grow with the classes and not with their square."
            )

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Summed residuals, and the matrix by which shifts would change them."""
        size = self.classes * self.cells
        told = Bound(1.5 * (1 - 1 / self.classes), sqrt(3) / 4, 0.25)
        return {
            "residual": Block((size,), Bound(2.0, sqrt(2.0), 1.0), weight=self.weight, clip=self.clip),
            "curvature": Block((size * (size + 1) // 2,), told, weight=self.weight_curvature, clip=self.clip_curvature),
        }

    def rows(self, records: Records) -> Rows:
        """Touch one cell a class, and one a pair of classes."""
        probs = np.asarray(records.probs, dtype=np.float64)
        probs = probs / probs.sum(axis=1, keepdims=True)  # the bounds rest on it, and given rows sum to one only nearly
        place = odds_cells(log_odds(probs), self.cells, self.reach) + self.cells * np.arange(self.classes)
        residual = -probs
        residual[np.arange(len(probs)), records.labels] += 1
        first, second = np.triu_indices(self.classes)
        product = -probs[:, first] * probs[:, second]
        product[:, first == second] += probs
        pair = self._triangle[place[:, first], place[:, second]] + self.classes * self.cells
        return Rows(np.concatenate([place, pair], axis=1), np.concatenate([residual, product], axis=1))

    @cached_property
    def _triangle(self) -> Ints:
        """Number the cells of the upper triangle, row by row."""
        size = self.classes * self.cells
        numbers = np.zeros((size, size), dtype=np.int64)
        numbers[np.triu_indices(size)] = np.arange(size * (size + 1) // 2)
        return numbers
