"""A guard for accuracy: whatever a calibrator does, the base model's top class stays on top."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.types import Floats, Ints

_LEAD = 1e-9  # by how much the top class stays ahead, relative: enough to decide, too little to see


@final
@dataclass(frozen=True)
class KeepTop(Calibrator):
    """Calibrate, and where the top class would change, move to the nearest probabilities for which it does not.

    Nearest in least squares: the base model's top class and all that overtook it meet at one common value. It depends
    on the record alone, so it costs no privacy.
    """

    inner: Calibrator

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Calibrate, then level what overtook."""
        calibrated = self.inner.calibrate(probs, logits)
        top = probs.argmax(axis=1)
        changed = np.flatnonzero(calibrated.argmax(axis=1) != top)
        if not changed.size:
            return calibrated
        kept: Floats = np.array(calibrated)
        kept[changed] = _levelled(kept[changed], top[changed])
        return kept


def _levelled(probs: Floats, top: Ints) -> Floats:
    """Lower every class above a level to it and raise the top class there, so that rows keep their sum."""
    rows = np.arange(len(probs))
    own = probs[rows, top]
    others = probs.copy()
    others[rows, top] = -np.inf
    falling = -np.sort(-others, axis=1)[:, :-1]  # (n, classes - 1)
    counts = np.arange(1, falling.shape[1] + 1)
    levels = (own[:, None] + np.cumsum(falling, axis=1)) / (counts + 1)
    level = levels.max(axis=1)  # averages rise while the next class lies above them, and fall after
    out = np.minimum(probs, level[:, None])
    out[rows, top] = level * (1 + _LEAD)
    shared: Floats = out / out.sum(axis=1, keepdims=True)
    return shared
