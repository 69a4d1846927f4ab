"""Scalings: maps that act on logits."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import InputError
from fedcalib.records import softmax
from fedcalib.types import Floats


@final
@dataclass(frozen=True)
class Temperature(Calibrator):
    """Divide logits by a temperature: above 1 it softens an over-confident model; ranking never changes.

    `warning` says what to know about how it was found; empty if nothing.
    """

    temperature: float
    warning: str = ""

    def __post_init__(self) -> None:
        if not (isfinite(self.temperature) and self.temperature > 0):
            raise InputError(f"Expected a temperature above 0, found {self.temperature}.")

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Soften or sharpen."""
        return softmax(logits / self.temperature)


@final
@dataclass(frozen=True)
class VectorScaling(Calibrator):
    """Multiply each class's logit by its own factor and add its own shift."""

    scale: tuple[float, ...]
    shift: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.scale) != len(self.shift) or not all(map(isfinite, (*self.scale, *self.shift))):
            raise InputError("Expected a finite factor and shift a class, found others.")

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Scale and shift."""
        _check_classes(len(self.scale), logits)
        return softmax(np.array(self.scale) * logits + np.array(self.shift))


@final
@dataclass(frozen=True)
class MatrixScaling(Calibrator):
    """Multiply the logits by a matrix and add a shift."""

    matrix: tuple[tuple[float, ...], ...]
    shift: tuple[float, ...]

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.matrix}
        if widths != {len(self.shift)} or not all(map(isfinite, (*sum(self.matrix, ()), *self.shift))):
            raise InputError("Expected a finite square matrix and a shift a class, found others.")

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Multiply and shift."""
        _check_classes(len(self.shift), logits)
        return softmax(logits @ np.array(self.matrix).T + np.array(self.shift))


def _check_classes(expected: int, logits: Floats) -> None:
    if logits.shape[1] != expected:
        raise InputError(f"Expected {expected} classes, found {logits.shape[1]}.")
