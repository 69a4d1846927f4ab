"""Blends: a calibrator mixed with the base model, class by class, where little is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.steps import Steps
from fedcalib.errors import InputError
from fedcalib.types import Floats


@final
@dataclass(frozen=True)
class Blend(Calibrator):
    """Mix calibrated and base probabilities with weights a class, then normalise as the steps do.

    With `changed_only`, only records whose top class the calibrator would change are mixed; ties go to the lowest
    class on both sides.
    """

    steps: Steps
    weights: tuple[float, ...]
    changed_only: bool = False

    def __post_init__(self) -> None:
        if len(self.weights) != self.steps.classes or not all(0 <= weight <= 1 for weight in self.weights):
            raise InputError("Expected one weight between 0 and 1 a class, found others.")

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Mix, and normalise."""
        calibrated = self.steps.calibrate(probs, logits)
        weights = np.array(self.weights)
        mixed = self.steps.normaliser.shared(weights * self.steps.raw(probs) + (1 - weights) * probs, probs)
        if not self.changed_only:
            return mixed
        changed = calibrated.argmax(axis=1) != probs.argmax(axis=1)
        kept: Floats = np.where(changed[:, None], mixed, calibrated)
        return kept
