"""Logit offsets: each class's log-odds moved by what its cell calls for."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator, normalised
from fedcalib.errors import InputError
from fedcalib.types import Floats, Ints

_FLOOR = 1e-12  # log-odds stop at 27.6 on either side


@final
@dataclass(frozen=True)
class LogitOffsets(Calibrator):
    """Add `table[j][cell]` to the log-odds of class j, then normalise; cells are equal steps on [-reach, reach]."""

    table: tuple[tuple[float, ...], ...]
    reach: float

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.table}
        if len(widths) != 1 or 0 in widths or not all(map(isfinite, sum(self.table, ()))) or not self.reach > 0:
            raise InputError("Expected a finite offset a class and cell, as many cells a class, and a reach above 0.")

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Move and normalise."""
        table = np.array(self.table)
        if probs.shape[1] != len(table):
            raise InputError(f"Expected {len(table)} classes, found {probs.shape[1]}.")
        odds = log_odds(probs)
        moved = odds + table[np.arange(len(table)), odds_cells(odds, table.shape[1], self.reach)]
        return normalised(0.5 * (1 + np.tanh(moved / 2)), probs)


def log_odds(probs: Floats) -> Floats:
    """Take log-odds, with 0 and 1 read as a hair inside."""
    inside = np.clip(np.asarray(probs, dtype=np.float64), _FLOOR, 1 - _FLOOR)
    odds: Floats = np.log(inside) - np.log1p(-inside)
    return odds


def odds_cells(odds: Floats, cells: int, reach: float) -> Ints:
    """Number the cell of each log-odds; those beyond the reach fall into the outer cells."""
    cell: Ints = np.clip((odds + reach) * (cells / (2 * reach)), 0, cells - 1).astype(np.int64)
    return cell
