"""ECET: the temperature with the smallest expected calibration error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.scaling import Temperature
from fedcalib.errors import InputError
from fedcalib.flows.search import GoldenSection, MinimumSearch
from fedcalib.method import Flow, Method
from fedcalib.methods.acc_t import check_bracket, tempered
from fedcalib.queries.shift import BinnedGaps
from fedcalib.records import Schema
from fedcalib.types import Floats


@final
@dataclass(frozen=True)
class ECET(Method[Temperature]):
    """Recalibrate after a domain shift by minimising the summed gaps of all bins.

    The error has several valleys, and noise adds a floor to every bin: kept because it was published.
    """

    search: MinimumSearch = GoldenSection()
    low: float = 0.5
    high: float = 3.0
    bins: int = 15

    def __post_init__(self) -> None:
        check_bracket(self.low, self.high)
        if self.bins < 1:
            raise InputError(f"Expected at least one bin, found {self.bins}.")

    def protocol(self, schema: Schema) -> Flow[Temperature]:
        """Search for the minimum."""

        def probe(temperatures: tuple[float, ...]) -> Flow[Floats]:
            answer = yield BinnedGaps(temperatures, self.bins)
            return np.asarray(np.abs(answer["gap"]).sum(axis=1))

        return tempered((yield from self.search.minimum(probe, self.low, self.high)), self.low, self.high)
