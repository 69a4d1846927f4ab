"""Averaged: several methods side by side, and the mean of what their calibrators say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.mixture import Mixture
from fedcalib.errors import InputError
from fedcalib.flows.lockstep import lockstep
from fedcalib.method import Budget, Flow, Method
from fedcalib.records import Schema


@final
@dataclass(frozen=True)
class Averaged(Method[Calibrator]):
    """Fit methods side by side, their questions in the same messages, and average their probabilities.

    Calibrators of different kinds err in different places, so their mean errs less than most of them, and nobody has to
    choose. All methods share one budget, by the weights of their blocks.
    """

    methods: tuple[Method[Calibrator], ...]

    def __post_init__(self) -> None:
        if not self.methods:
            raise InputError("Expected at least one method to average, found none.")

    def within(self, budget: Budget) -> Averaged:
        """Share it among the methods."""
        return Averaged(tuple(method.within(budget.among(len(self.methods))) for method in self.methods))

    def protocol(self, schema: Schema) -> Flow[Calibrator]:
        """Advance all of them in lockstep, then mix what they found in equal parts."""
        found = yield from lockstep([method.protocol(schema) for method in self.methods])
        return Mixture(tuple(found), (1 / len(found),) * len(found))
