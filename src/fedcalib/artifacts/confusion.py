"""How often each class is predicted for each true class."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import final

from fedcalib.artifacts.saving import Artifact
from fedcalib.errors import InputError


@final
@dataclass(frozen=True)
class Confusion(Artifact):
    """Counts of predicted (rows) by true (columns) classes, perhaps noisy, with the variance of their noise."""

    counts: tuple[tuple[float, ...], ...]
    noise: float = 0.0

    def __post_init__(self) -> None:
        square = len(self.counts) >= 2 and {len(row) for row in self.counts} == {len(self.counts)}
        if not square or not all(isfinite(count) for row in self.counts for count in row):
            raise InputError("Expected a square table of finite counts, found another.")
        if not (isfinite(self.noise) and self.noise >= 0):
            raise InputError(f"Expected a noise variance of at least 0, found {self.noise}.")
