"""Step functions of a binary classifier's score, between edges of any spacing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.platt import binary
from fedcalib.errors import InputError
from fedcalib.types import Floats


@final
@dataclass(frozen=True)
class EdgeSteps(Calibrator):
    """One value a bucket of the score of class 1; `edges` are the inner ones, and a bucket holds its lower edge."""

    edges: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        inner, values = np.array(self.edges, dtype=np.float64), np.array(self.values, dtype=np.float64)
        if len(values) != len(inner) + 1 or not (np.diff(inner) > 0).all():
            raise InputError("Expected rising edges and one value more than edges, found others.")
        if not ((values >= 0) & (values <= 1)).all():
            raise InputError("Expected values between 0 and 1, found others.")

    @classmethod
    def of_arrays(cls, edges: Any, values: Any) -> EdgeSteps:
        """Take inner edges and values as arrays."""
        clipped = np.clip(np.nan_to_num(np.asarray(values, dtype=np.float64), nan=0.0), 0.0, 1.0)
        return cls(tuple(np.asarray(edges, dtype=np.float64).tolist()), tuple(clipped.tolist()))

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Look each score up."""
        binary(probs)
        one = np.array(self.values)[np.searchsorted(np.array(self.edges), probs[:, 1], side="right")]
        return np.stack([1 - one, one], axis=1)
