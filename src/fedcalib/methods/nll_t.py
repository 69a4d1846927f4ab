"""NLLT: the temperature with the smallest log loss, each record's loss cut at a public bound."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import final

from fedcalib.artifacts.scaling import Temperature
from fedcalib.errors import InputError
from fedcalib.flows.search import GoldenSection, MinimumSearch
from fedcalib.method import Flow, Method
from fedcalib.methods.acc_t import check_bracket, tempered
from fedcalib.queries.shift import ClippedLosses
from fedcalib.records import Schema
from fedcalib.types import Floats


@final
@dataclass(frozen=True)
class NLLT(Method[Temperature]):
    """Recalibrate after a domain shift by minimising the summed log loss, cut at ln(classes) + `margin` a record."""

    search: MinimumSearch = GoldenSection()
    low: float = 0.5
    high: float = 3.0
    margin: float = 5.0

    def __post_init__(self) -> None:
        check_bracket(self.low, self.high)
        if not 0 < self.margin < 100:
            raise InputError(f"Expected a margin above 0, found {self.margin}.")

    def protocol(self, schema: Schema) -> Flow[Temperature]:
        """Search for the minimum."""
        worst = log(schema.classes) + self.margin

        def probe(temperatures: tuple[float, ...]) -> Flow[Floats]:
            answer = yield ClippedLosses(temperatures, worst)
            return answer["loss"]

        return tempered((yield from self.search.minimum(probe, self.low, self.high)), self.low, self.high)
