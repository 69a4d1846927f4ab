"""Calibrators: maps from a classifier's probabilities to better ones."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from fedcalib.artifacts.saving import Artifact
from fedcalib.errors import InputError
from fedcalib.records import Records, log_probs, softmax
from fedcalib.types import Floats


@dataclass(frozen=True)
class Calibrator(Artifact):
    """A map from probabilities to calibrated probabilities; rows always sum to one.

    Call it with probabilities, (n, classes) or the (n,) scores of class 1 of a binary classifier; use `from_logits`
    for logits. It answers in the shape that it was asked in.
    """

    @abstractmethod
    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Map records whose probabilities and logits are both at hand, (n, classes)."""

    def __call__(self, probs: Any) -> Floats:
        """Calibrate probabilities."""
        values = np.asarray(probs, dtype=np.float64)
        if values.size and not (values.min() >= 0 and values.max() <= 1):
            raise InputError("Expected probabilities between 0 and 1, found others; use from_logits for logits.")
        if values.ndim == 1:
            pair = np.stack([1 - values, values], axis=1)
            return self.calibrate(pair, log_probs(pair))[:, 1]
        if values.ndim != 2:
            raise InputError(f"Expected probabilities of shape (n,) or (n, classes), found {values.shape}.")
        return self.calibrate(values, log_probs(values))

    def from_logits(self, logits: Any) -> Floats:
        """Calibrate logits, (n, classes)."""
        values = np.asarray(logits, dtype=np.float64)
        if values.ndim != 2 or not np.isfinite(values).all():
            raise InputError(f"Expected finite logits of shape (n, classes), found shape {values.shape}.")
        return self.calibrate(softmax(values), values)

    def of(self, records: Records) -> Floats:
        """Calibrate records in whichever form they came."""
        return self.calibrate(np.asarray(records.probs, dtype=np.float64), np.asarray(records.logits, dtype=np.float64))

    def over(self, records: Records) -> Records:
        """Give the same records with calibrated probabilities."""
        return Records(self.of(records), records.labels, False, records.unit, records.extra)


@final
@dataclass(frozen=True)
class Identity(Calibrator):
    """The map that changes nothing, and says why."""

    reason: str = ""

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Return the probabilities as they are."""
        return probs


UNCHANGED: Final = Identity()


def normalised(values: Floats, fallback: Floats) -> Floats:
    """Scale rows to sum to one; a row without any mass keeps the base model's probabilities."""
    mass = values.sum(axis=1, keepdims=True)
    empty = ~(mass > 0)
    shared: Floats = np.where(empty, fallback, values / np.where(empty, 1.0, mass))
    return shared
