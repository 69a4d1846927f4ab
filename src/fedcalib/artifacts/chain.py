"""Chains: calibrators one after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from fedcalib.artifacts.calibrator import Calibrator, Identity
from fedcalib.records import log_probs
from fedcalib.types import Floats


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
