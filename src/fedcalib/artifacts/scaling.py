"""Scalings: maps that act on logits."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import final

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
