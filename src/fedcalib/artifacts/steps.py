"""Step functions: one value a class and bin, as binning calibrators leave them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.axes import EVEN, Axis
from fedcalib.errors import InputError
from fedcalib.normalisers import SCALED, Normaliser
from fedcalib.types import Floats


@final
@dataclass(frozen=True)
class Steps(Calibrator):
    """A step function a class: probabilities in bin m of class j become `table[j][m]`, then rows are normalised.

    Two classes share one step function, that of class 1. `axis` says where the bins lie, `normaliser` how rows come to
    sum to one.
    """

    classes: int
    table: tuple[tuple[float, ...], ...]
    axis: Axis = EVEN
    normaliser: Normaliser = SCALED

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.table}
        values = np.array(self.table, dtype=np.float64) if len(widths) == 1 else np.full((1, 1), np.nan)
        if len(self.table) != asked_classes(self.classes) or not ((values >= 0) & (values <= 1)).all():
            raise InputError("Expected one row of values between 0 and 1 a class, all of one length, found others.")

    @classmethod
    def of_table(cls, classes: int, table: Floats, axis: Axis = EVEN, normaliser: Normaliser = SCALED) -> Steps:
        """Take the values as an array, (classes asked, bins)."""
        clipped = np.clip(np.nan_to_num(table, nan=0.0), 0.0, 1.0)
        return cls(classes, tuple(tuple(row) for row in clipped.tolist()), axis, normaliser)

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Look each probability up in its class's steps, and normalise."""
        return self.normaliser.shared(self.raw(probs), probs)

    def without_mass(self, probs: Floats) -> int:
        """Count the records for which every class's step is zero: they keep the base model's probabilities."""
        return int((self.raw(probs).sum(axis=1) == 0).sum())

    def raw(self, probs: Floats) -> Floats:
        """Look each probability up, without normalising."""
        table = np.array(self.table)
        if probs.shape[1] != self.classes:
            raise InputError(f"Expected {self.classes} classes, found {probs.shape[1]}.")
        if self.classes == 2:
            one = table[0][self.axis.checked_cells(probs[:, 1], table.shape[1])]
            return np.stack([1 - one, one], axis=1)
        cells = self.axis.checked_cells(probs, table.shape[1])
        looked: Floats = table[np.arange(self.classes), cells]
        return looked


def asked_classes(classes: int) -> int:
    """Count the step functions that tell everything: with two classes, one does."""
    return 1 if classes == 2 else classes
