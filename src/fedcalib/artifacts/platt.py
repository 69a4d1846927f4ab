"""Two or three numbers on the log-odds of a binary classifier: Platt and beta scaling."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import InputError
from fedcalib.types import Floats


@final
@dataclass(frozen=True)
class Platt(Calibrator):
    """Stretch and shift the log-odds of class 1; the slope is above zero, so ranking never changes."""

    slope: float
    intercept: float

    def __post_init__(self) -> None:
        if not (isfinite(self.slope) and self.slope > 0 and isfinite(self.intercept)):
            raise InputError(
                f"Expected a slope above 0 and a finite intercept, found {self.slope} and {self.intercept}."
            )

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Stretch and shift."""
        binary(probs)
        return of_log_odds(self.slope * (logits[:, 1] - logits[:, 0]) + self.intercept)


@final
@dataclass(frozen=True)
class Beta(Calibrator):
    """Give ln p and -ln(1 - p) a weight each and add an intercept; weights are not negative, so ranking stays.

    Equal weights are Platt scaling; unequal ones bend the two ends of the curve differently.
    """

    low: float  # the weight of ln p, which bends the curve near 0
    high: float  # the weight of -ln(1 - p), which bends it near 1
    intercept: float

    def __post_init__(self) -> None:
        finite = all(isfinite(value) for value in (self.low, self.high, self.intercept))
        if not (finite and self.low >= 0 and self.high >= 0 and self.low + self.high > 0):
            raise InputError(f"Expected two weights of at least 0, not both 0, and a finite intercept, found {self}.")

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Bend and shift."""
        binary(probs)
        shifted = logits - np.logaddexp(logits[:, :1], logits[:, 1:])  # log-probabilities, whatever came in
        return of_log_odds(self.low * shifted[:, 1] - self.high * shifted[:, 0] + self.intercept)


def binary(probs: Floats) -> None:
    """Refuse records of more than two classes."""
    if probs.shape[1] != 2:
        raise InputError(f"Expected a binary classifier, found {probs.shape[1]} classes; use a multiclass calibrator.")


def of_log_odds(odds: Floats) -> Floats:
    """Turn the log-odds of class 1 into both classes' probabilities, (n, 2)."""
    one = 0.5 * (1 + np.tanh(odds / 2))
    return np.stack([1 - one, one], axis=1)
