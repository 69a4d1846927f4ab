"""A figure with its interval: what artifacts hold, reports show and files keep."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

NOTHING = math.nan


@final
@dataclass(frozen=True)
class Measured:
    """A figure with the interval that chance and privacy noise leave it (95%); NaN stands for what is not known."""

    value: float
    low: float = NOTHING
    high: float = NOTHING

    def to_json(self) -> dict[str, float | None]:
        """Give the three numbers by name, with null for what is not known."""
        numbers = {"value": self.value, "low": self.low, "high": self.high}
        return {name: None if math.isnan(number) else number for name, number in numbers.items()}
