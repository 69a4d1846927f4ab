"""Logit shifts: each class's logit moved by what its cell calls for, all classes giving way together."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.logit_offsets import log_odds, odds_cells
from fedcalib.errors import InputError
from fedcalib.records import log_probs, softmax
from fedcalib.types import Floats


@final
@dataclass(frozen=True)
class LogitShifts(Calibrator):
    """Add `table[j][cell]` to the logit of class j; cells are equal steps of its log-odds on [-reach, reach]."""

    table: tuple[tuple[float, ...], ...]
    reach: float

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.table}
        if len(widths) != 1 or 0 in widths or not all(map(isfinite, sum(self.table, ()))) or not self.reach > 0:
            raise InputError("Expected a finite shift a class and cell, as many cells a class, and a reach above 0.")

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Move, and let the softmax share the rest."""
        table = np.array(self.table)
        if probs.shape[1] != len(table):
            raise InputError(f"Expected {len(table)} classes, found {probs.shape[1]}.")
        cells = odds_cells(log_odds(probs), table.shape[1], self.reach)
        return softmax(log_probs(np.asarray(probs, dtype=np.float64)) + table[np.arange(len(table)), cells])
