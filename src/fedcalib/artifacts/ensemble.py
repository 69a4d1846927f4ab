"""Several classifiers whose probabilities are averaged."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import final

import numpy as np

from fedcalib.artifacts.scorer import Scorer
from fedcalib.artifacts.trained import Trained
from fedcalib.errors import InputError
from fedcalib.records import Records


@final
@dataclass(frozen=True, eq=False)
class Ensemble(Scorer):
    """Networks whose probabilities are averaged, by shares that sum to one; each is needed to predict."""

    members: tuple[Trained, ...]
    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        fine = all(isfinite(share) and share >= 0 for share in self.shares)
        if not self.members or len(self.members) != len(self.shares) or not fine or abs(sum(self.shares) - 1) > 1e-9:
            raise InputError("Expected a share for each member, none negative, summing to one, found others.")

    @classmethod
    def of(cls, members: tuple[Trained, ...], sizes: tuple[float, ...] | None = None) -> Ensemble:
        """Average all alike, or by sizes."""
        sized = np.ones(len(members)) if sizes is None else np.asarray(sizes, dtype=np.float64)
        return cls(members, tuple((sized / sized.sum()).tolist()))

    def over(self, records: Records) -> Records:
        """Score records with averaged probabilities."""
        probs = np.zeros((len(records), records.classes))
        for member, share in zip(self.members, self.shares, strict=True):
            probs += share * member.over(records).probs
        return Records(probs / probs.sum(axis=1, keepdims=True), records.labels, False, records.unit, records.extra)
