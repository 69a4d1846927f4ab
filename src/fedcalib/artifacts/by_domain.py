"""Temperatures by domain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from fedcalib.artifacts.saving import Artifact
from fedcalib.artifacts.scaling import Temperature
from fedcalib.errors import InputError


@final
@dataclass(frozen=True)
class TemperatureByDomain(Artifact):
    """One temperature a domain, and one for everybody else."""

    overall: Temperature
    domains: tuple[Temperature, ...]

    def of(self, domain: int) -> Temperature:
        """Give a domain's own calibrator."""
        if not 0 <= domain < len(self.domains):
            raise InputError(f"Expected a domain from 0 to {len(self.domains) - 1}, found {domain}; use `overall`.")
        return self.domains[domain]
