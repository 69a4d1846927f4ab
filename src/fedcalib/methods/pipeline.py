"""Pipelines: methods one after another, each on the probabilities that the ones before leave."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from fedcalib.artifacts.calibrator import Calibrator, Identity
from fedcalib.artifacts.chain import chained
from fedcalib.artifacts.guard import KeepTop
from fedcalib.errors import InputError
from fedcalib.flows.after import after
from fedcalib.method import Budget, Flow, Method
from fedcalib.records import Schema


@final
@dataclass(frozen=True)
class Pipeline(Method[Calibrator]):
    """Run several methods in turn; a client applies what was learnt so far before it answers the next.

    All stages share one budget, by the weights of their blocks. With `guard` the base model's top class stays.
    """

    stages: tuple[Method[Calibrator], ...]
    guard: bool = False

    def __post_init__(self) -> None:
        if not self.stages:
            raise InputError("Expected at least one stage, found none.")

    def within(self, budget: Budget) -> Pipeline:
        """Share it among the stages."""
        return replace(self, stages=tuple(stage.within(budget.among(len(self.stages))) for stage in self.stages))

    def protocol(self, schema: Schema) -> Flow[Calibrator]:
        """Hold the stages' conversations, each after the calibrators so far."""
        found: Calibrator = Identity()
        for stage in self.stages:
            step = yield from after(found, stage.protocol(schema))
            found = chained(found, step)
        return KeepTop(found) if self.guard and not isinstance(found, Identity) else found
