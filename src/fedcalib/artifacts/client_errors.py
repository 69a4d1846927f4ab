"""How calibration errors lie over clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from fedcalib.artifacts.saving import Artifact
from fedcalib.measured import Measured


@final
@dataclass(frozen=True)
class ClientErrors(Artifact):
    """The mean over clients of each one's own calibration error, and how far single clients are from it.

    Both are None where noise drowns the clients, or there are none; `warnings` says so.
    """

    mean: Measured | None
    spread: float | None  # standard deviation over clients
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Give both by name, with null for what is missing."""
        return {"mean": None if self.mean is None else self.mean.to_json(), "spread": self.spread}
