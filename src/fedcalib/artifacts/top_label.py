"""Step functions of the top label's confidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.binning import bin_index_unchecked
from fedcalib.errors import InputError
from fedcalib.types import Floats


@final
@dataclass(frozen=True)
class TopLabelSteps(Calibrator):
    """Give the top class the confidence of its bin, and share the rest among the others as before.

    The top class stays on top: where the bin's confidence would put another above it, both end up equal.
    """

    classes: int
    steps: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.steps or not all(0 <= step <= 1 for step in self.steps):
            raise InputError("Expected a confidence between 0 and 1 a bin, found others.")

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Look the top probability up, then rescale the others."""
        if probs.shape[1] != self.classes:
            raise InputError(f"Expected {self.classes} classes, found {probs.shape[1]}.")
        rows, best = np.arange(len(probs)), probs.argmax(axis=1)
        others = probs.copy()
        others[rows, best] = 0.0
        left = others.sum(axis=1)
        even = np.full_like(others, 1 / max(self.classes - 1, 1))
        even[rows, best] = 0.0
        shares = np.where(left[:, None] > 0, others / np.where(left > 0, left, 1.0)[:, None], even)
        runner_up = shares.max(axis=1, initial=0.0)
        wanted = np.array(self.steps)[bin_index_unchecked(probs[rows, best], len(self.steps))]
        confidence = np.maximum(wanted, runner_up / (1 + runner_up))
        calibrated: Floats = shares * (1 - confidence)[:, None]
        calibrated[rows, best] = confidence
        return calibrated
