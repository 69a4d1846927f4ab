"""How far each class's probability is off, by cell of its log-odds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import final

import numpy as np

from fedcalib.artifacts.logit_offsets import log_odds, odds_cells
from fedcalib.errors import InputError
from fedcalib.query import Block, Bound, RecordQuery, Rows
from fedcalib.records import Records


@final
@dataclass(frozen=True)
class LogitResiduals(RecordQuery):
    """By class and cell of the log-odds: label minus probability, and probability times its complement.

    In `residual` a record adds 1 - p_y to one cell and -p_j to one cell of each other class: L1 = 2 (1 - p_y) <= 2, L2
    <= sqrt(2) (1 - p_y) <= sqrt(2), Linf <= 1, whatever the number of classes; approached by a certain, wrong record.
    In `spread` it adds p_j (1 - p_j): Linf <= 1/4, L1 = 1 - sum p_j^2 <= 1 - 1/classes by equal probabilities, and L2
    is largest with three equal probabilities (two where there are only two). `pooled_classes` sends all classes to one
    row of cells: then one cell may hold all of a record's spread, and the residuals' bounds stay. `clip` is the L2 norm
    to which a client's residuals are cut when the client is the unit, `clip_spread` likewise.
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
            raise InputError("Expected at least 2 classes, 1 to 65,536 cells and a reach above 0, found others.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Summed residuals, and the variance that calibrated labels would have."""
        shape = (1 if self.pooled_classes else self.classes, self.cells)
        most = 1 - 1 / self.classes
        l2 = sqrt(2) / 4 if self.classes == 2 else 2 * sqrt(3) / 9
        spread = Bound(most, most, most) if self.pooled_classes else Bound(most, l2, 0.25)
        return {
            "residual": Block(shape, Bound(2.0, sqrt(2.0), 1.0), weight=self.weight, clip=self.clip),
            "spread": Block(shape, spread, weight=self.weight_spread, clip=self.clip_spread),
        }

    def rows(self, records: Records) -> Rows:
        """Touch one cell a class and block."""
        probs = np.asarray(records.probs, dtype=np.float64)
        probs = probs / probs.sum(axis=1, keepdims=True)  # the bounds rest on it, and given rows sum to one only nearly
        cells = odds_cells(log_odds(probs), self.cells, self.reach)
        if not self.pooled_classes:
            cells += self.cells * np.arange(self.classes)
        residual = -probs
        residual[np.arange(len(probs)), records.labels] += 1
        offset = self.blocks["residual"].size
        return Rows(
            np.concatenate([cells, cells + offset], axis=1), np.concatenate([residual, probs * (1 - probs)], axis=1)
        )
