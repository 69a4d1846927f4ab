"""One round of local training: each client improves parameters on its own records and sends the change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.families.family import Family, bounded_logits
from fedcalib.federation import Federation
from fedcalib.query import Block, Bound, ClientQuery
from fedcalib.randomness import Randomness
from fedcalib.records import Records
from fedcalib.types import Floats


@final
@dataclass(frozen=True)
class LocalFit(ClientQuery):
    """The change that a client's own records make to parameters, cut to the L2 norm `clip` and divided by it.

    The cut happens here, on the client, so a client adds a vector of L2 norm at most 1, attained by any client whose
    records move the parameters further; then L1 <= sqrt(size) and Linf <= 1. A client without records adds zero.
    """

    family: Family
    parameters: tuple[float, ...]
    clip: float
    ridge: float
    steps: int

    def __post_init__(self) -> None:
        if not self.clip > 0 or not self.ridge >= 0 or self.steps < 1 or not np.isfinite(self.parameters).all():
            raise InputError("Expected finite parameters, a clip and steps above 0 and no negative ridge.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        """One cell a parameter."""
        size = len(self.parameters)
        return {"change": Block((size,), Bound(sqrt(size), 1.0, 1.0, "client"), clip=1.0)}

    def term(self, records: Records, rng: np.random.Generator) -> Floats:
        """Fit, and cut the change."""
        parameters = np.array(self.parameters)
        if not len(records):
            return np.zeros_like(parameters)
        logits = bounded_logits(records)
        fitted = self.family.fit(parameters, logits, records.labels, ridge=self.ridge, steps=self.steps, rng=rng)
        change: Floats = self._cut(fitted[None])[0]
        return change

    def terms(self, federation: Federation, randomness: Randomness) -> Floats:
        """Fit all clients, side by side where the family can, and cut each one's change."""
        parameters = np.array(self.parameters)
        return self._cut(
            self.family.fit_each(parameters, federation, ridge=self.ridge, steps=self.steps, randomness=randomness)
        )

    def _cut(self, fitted: Floats) -> Floats:
        change = np.nan_to_num(fitted - np.array(self.parameters), nan=0.0, posinf=0.0, neginf=0.0)
        norms = np.linalg.norm(change, axis=1, keepdims=True)
        shortened: Floats = change / np.maximum(norms, self.clip) * (1 - 1e-12)
        return shortened
