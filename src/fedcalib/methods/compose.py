"""Together: several methods in one run, their questions joined into as few messages as possible.

Pipelines: methods one after another, each on the probabilities that the ones before leave.

Averaged: several methods side by side, and the mean of what their calibrators say.

FitAndMeasure: a calibrator and its report from one conversation, where nobody can be asked to hold records out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

from fedcalib.artifacts.calibrator import Calibrator, Identity, KeepTop, Mixture, chained
from fedcalib.artifacts.evaluation import Fitted
from fedcalib.errors import InputError
from fedcalib.flows.wrapped import after, lockstep
from fedcalib.method import Budget, Flow, Method
from fedcalib.methods.evaluation import FederatedMetrics
from fedcalib.records import Schema


@final
@dataclass(frozen=True)
class Together(Method[tuple[Any, ...]]):
    """Run methods side by side and return their artifacts in order; one budget covers all of them."""

    methods: tuple[Method[Any], ...]

    def __post_init__(self) -> None:
        if not self.methods:
            raise InputError("Expected at least one method, found none.")

    def with_budget(self, budget: Budget) -> Together:
        """Share it among the methods."""
        return Together(tuple(method.with_budget(budget.split(len(self.methods))) for method in self.methods))

    def protocol(self, schema: Schema) -> Flow[tuple[Any, ...]]:
        """Advance all of them in lockstep."""
        return (yield from lockstep([method.protocol(schema) for method in self.methods]))


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

    def with_budget(self, budget: Budget) -> Pipeline:
        """Share it among the stages."""
        return replace(self, stages=tuple(stage.with_budget(budget.split(len(self.stages))) for stage in self.stages))

    def protocol(self, schema: Schema) -> Flow[Calibrator]:
        """Hold the stages' conversations, each after the calibrators so far."""
        found: Calibrator = Identity()
        for stage in self.stages:
            step = yield from after(found, stage.protocol(schema))
            found = chained(found, step)
        return KeepTop(found) if self.guard and not isinstance(found, Identity) else found


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

    def with_budget(self, budget: Budget) -> Averaged:
        """Share it among the methods."""
        return Averaged(tuple(method.with_budget(budget.split(len(self.methods))) for method in self.methods))

    def protocol(self, schema: Schema) -> Flow[Calibrator]:
        """Advance all of them in lockstep, then mix what they found in equal parts."""
        found = yield from lockstep([method.protocol(schema) for method in self.methods])
        return Mixture(tuple(found), (1 / len(found),) * len(found))


@final
@dataclass(frozen=True)
class FitAndMeasure(Method[Fitted]):
    """Fit a calibrator, then measure before and after in one message; one budget covers both.

    The records that are measured are the fitted ones, so the measurement flatters a little: by about as many
    parameters as the calibrator has, divided by the number of records.
    """

    fit: Method[Calibrator]

    def with_budget(self, budget: Budget) -> FitAndMeasure:
        """Leave the fit about half, beside two measurements."""
        return FitAndMeasure(self.fit.with_budget(budget.split(2)))

    def protocol(self, schema: Schema) -> Flow[Fitted]:
        """Fit, then ask everything else at once."""
        calibrator = yield from self.fit.protocol(schema)
        measure = FederatedMetrics()
        found = yield from lockstep([measure.protocol(schema), after(calibrator, measure.protocol(schema))])
        return Fitted(calibrator, *found)
