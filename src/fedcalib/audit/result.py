"""What an audit found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class Audit:
    """A lower bound on epsilon that holds with the stated confidence, beside the epsilon that is claimed."""

    subject: str
    lower_epsilon: float
    claimed: float
    delta: float
    confidence: float
    draws: int  # with the unit, and as many without it
    evidence: str  # how error rates became an epsilon

    @property
    def passes(self) -> bool:
        """Say whether the claim stands."""
        return self.lower_epsilon <= self.claimed

    @property
    def power(self) -> float:
        """Say which share of the claim the audit could show to be needed."""
        return self.lower_epsilon / self.claimed if self.claimed else float(self.lower_epsilon > 0)
