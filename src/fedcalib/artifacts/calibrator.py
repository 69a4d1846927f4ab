"""Calibrators: maps from a classifier's probabilities to better ones.

Chains: calibrators one after another.

Mixtures: several calibrators, averaged.

A guard for accuracy: whatever a calibrator does, the base model's top class stays on top.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from fedcalib.artifacts import Artifact
from fedcalib.errors import InputError
from fedcalib.records import Records, log_probs, softmax
from fedcalib.types import Floats, Ints


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


@final
@dataclass(frozen=True)
class Chain(Calibrator):
    """Calibrate by each stage in turn: a later stage sees the probabilities of the one before, and their logarithms."""

    stages: tuple[Calibrator, ...]

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Hand the records from stage to stage."""
        for stage in self.stages:
            probs = stage.calibrate(probs, logits)
            logits = log_probs(probs)
        return probs


def chained(*stages: Calibrator) -> Calibrator:
    """Put calibrators in a row, with chains unrolled and identities left out unless nothing else is there."""
    flat: list[Calibrator] = []
    for stage in stages:
        flat.extend(stage.stages if isinstance(stage, Chain) else (stage,))
    active = tuple(stage for stage in flat if not isinstance(stage, Identity))
    if len(active) > 1:
        return Chain(active)
    return active[0] if active else flat[-1] if flat else Identity()


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
