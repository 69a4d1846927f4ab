"""Mixtures: several calibrators, averaged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import InputError
from fedcalib.types import Floats


@final
@dataclass(frozen=True)
class Mixture(Calibrator):
    """Average what several calibrators say of the same record, by weights that sum to one."""

    parts: tuple[Calibrator, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        fitting = len(self.parts) == len(self.weights) >= 1 and all(weight >= 0 for weight in self.weights)
        if not fitting or abs(sum(self.weights) - 1) > 1e-6:
            raise InputError("Expected one weight a calibrator, all summing to one, found others.")

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Average."""
        mixed: Floats = np.zeros_like(probs, dtype=np.float64)
        for part, weight in zip(self.parts, self.weights, strict=True):
            mixed += weight * part.calibrate(probs, logits)
        return mixed
