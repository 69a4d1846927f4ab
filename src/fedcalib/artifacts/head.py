"""A linear head: the last layer of a classifier, on features that anybody may have computed."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, final

import numpy as np

from fedcalib.artifacts.scorer import Scorer
from fedcalib.errors import InputError
from fedcalib.records import Records, softmax
from fedcalib.types import Floats


@final
@dataclass(frozen=True)
class Representation:
    """What is done to features before anything else: a power for each (Tukey), then perhaps unit length.

    A power of 0.5 makes what a rectifier leaves more like a Gaussian; signs are kept. Without a column the logits are
    the features.
    """

    column: str | None = "features"
    power: float = 1.0
    unit: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.power <= 1:
            raise InputError(f"Expected a power above 0 and at most 1, found {self.power}.")

    def of(self, records: Records) -> Floats:
        """Read and represent the features of records, (n, features)."""
        if self.column is None:
            return self.apply(records.logits)
        if self.column not in records.extra:
            raise InputError(
                f"Expected a column '{self.column}' with features beside the scores, found "
                f"{sorted(records.extra) or 'none'}; score the records with the trained network first."
            )
        return self.apply(records.extra[self.column])

    def apply(self, features: Any) -> Floats:
        """Represent features, (n, features)."""
        given = np.asarray(features, dtype=np.float64)
        values = given.reshape(len(given), prod(given.shape[1:]))
        if self.power != 1:
            values = np.sign(values) * np.abs(values) ** self.power
        if self.unit:
            length = np.linalg.norm(values, axis=1, keepdims=True)
            values = values / np.where(length > 0, length, 1)
        return values


@final
@dataclass(frozen=True, eq=False)
class Head(Scorer):
    """One linear layer from features to logits."""

    matrix: Floats  # (classes, features)
    shift: Floats  # (classes,)
    representation: Representation = Representation()
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.matrix.ndim != 2 or self.shift.shape != self.matrix.shape[:1]:
            raise InputError(
                f"Expected a matrix (classes, features) and a shift (classes,), found {self.matrix.shape} and "
                f"{self.shift.shape}."
            )
        if not (np.isfinite(self.matrix).all() and np.isfinite(self.shift).all()):
            raise InputError("Expected a finite head, found NaN or infinity.")

    @property
    def classes(self) -> int:
        """Count the classes."""
        return int(self.matrix.shape[0])

    def logits(self, features: Any) -> Floats:
        """Score features, (n, classes)."""
        scored: Floats = self.representation.apply(features) @ self.matrix.T + self.shift
        return scored

    def __call__(self, features: Any) -> Floats:
        """Give probabilities, (n, classes)."""
        return softmax(self.logits(features))

    def over(self, records: Records) -> Records:
        """Score records that carry their features."""
        logits = self.representation.of(records) @ self.matrix.T + self.shift
        return Records(logits, records.labels, True, records.unit, records.extra)

    @property
    def normalised(self) -> Head:
        """Give each class's weights unit length, and no shift: the normalised classifier of the literature."""
        length = np.linalg.norm(self.matrix, axis=1, keepdims=True)
        unit = self.matrix / np.where(length > 0, length, 1)
        return Head(unit, np.zeros_like(self.shift), self.representation, self.warnings)
