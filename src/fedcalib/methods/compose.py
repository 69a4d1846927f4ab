"""Methods made of methods: side by side, one after another, averaged, or a fit with its measurement.

Methods that do not wait for each other share their messages, so several of them take as many rounds as the longest. All
of them share one budget, by the weights of their blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final, final

from fedcalib.artifacts.calibrator import Calibrator, Identity, KeepTop, Mixture, chained
from fedcalib.artifacts.evaluation import Fitted
from fedcalib.artifacts.performance_parts import PairedPerformance
from fedcalib.errors import InputError
from fedcalib.flows.wrapped import after, lockstep
from fedcalib.method import Budget, Flow, Method
from fedcalib.methods.class_evaluation import PairedClassMetrics
from fedcalib.methods.evaluation import FederatedMetrics
from fedcalib.methods.paired_evaluation import PairedMetrics
from fedcalib.records import Schema
from fedcalib.wire import ADDED

MEASURE: Final = FederatedMetrics()


@final
@dataclass(frozen=True)
class Together(Method[tuple[Any, ...]]):
    """Run methods side by side in as few messages as possible and return their artifacts in order.

    Parameters
    ----------
    methods
        The methods; one budget covers all of them.

    Examples
    --------
    >>> import fedcalib as fc
    >>> method = fc.methods.Together((fc.FedBin(), fc.FederatedMetrics()))
    >>> result = fc.run(method, fc.InProcess(fc.Federation.simulated()), fc.SecAgg())
    >>> len(result.plan.queries), [type(artifact).__name__ for artifact in result.artifact]
    (1, ['Steps', 'ClassPerformance'])
    """

    methods: tuple[Method[Any], ...]

    def __post_init__(self) -> None:
        if not self.methods:
            raise InputError("Expected at least one method, found none.")

    def with_budget(self, budget: Budget) -> Together:
        return Together(tuple(method.with_budget(budget.split(len(self.methods))) for method in self.methods))

    def protocol(self, schema: Schema) -> Flow[tuple[Any, ...]]:
        return (yield from lockstep([method.protocol(schema) for method in self.methods]))


@final
@dataclass(frozen=True)
class Pipeline(Method[Calibrator]):
    """Run methods one after another; a client applies the calibrators so far before it answers the next.

    Parameters
    ----------
    stages
        The methods, in order; one budget covers all of them.
    guard
        Keep the classifier's top class on top, record by record.

    Examples
    --------
    >>> import fedcalib as fc
    >>> method = fc.methods.Pipeline((fc.OneShotTemperature(), fc.FedBin(bins=5)))
    >>> calibrator = fc.run(method, fc.InProcess(fc.Federation.simulated()), fc.SecAgg()).artifact
    >>> [type(stage).__name__ for stage in calibrator.stages]
    ['Temperature', 'Steps']
    """

    stages: tuple[Method[Calibrator], ...]
    guard: bool = False

    def __post_init__(self) -> None:
        if not self.stages:
            raise InputError("Expected at least one stage, found none.")

    def with_budget(self, budget: Budget) -> Pipeline:
        return replace(self, stages=tuple(stage.with_budget(budget.split(len(self.stages))) for stage in self.stages))

    def protocol(self, schema: Schema) -> Flow[Calibrator]:
        found: Calibrator = Identity()
        for stage in self.stages:
            step = yield from after(found, stage.protocol(schema))
            found = chained(found, step)
        return KeepTop(found) if self.guard and not isinstance(found, Identity) else found


@final
@dataclass(frozen=True)
class Averaged(Method[Calibrator]):
    """Fit methods side by side and average the probabilities of their calibrators.

    Calibrators of different kinds err in different places, so their mean errs less than most of them, and nobody has to
    choose.

    Parameters
    ----------
    methods
        The methods; their queries share messages and one budget.

    Examples
    --------
    >>> import fedcalib as fc
    >>> method = fc.methods.Averaged((fc.OneShotTemperature(), fc.FedBin()))
    >>> fc.run(method, fc.InProcess(fc.Federation.simulated()), fc.SecAgg()).artifact.weights
    (0.5, 0.5)
    """

    methods: tuple[Method[Calibrator], ...]

    def __post_init__(self) -> None:
        if not self.methods:
            raise InputError("Expected at least one method to average, found none.")

    def with_budget(self, budget: Budget) -> Averaged:
        return Averaged(tuple(method.with_budget(budget.split(len(self.methods))) for method in self.methods))

    def protocol(self, schema: Schema) -> Flow[Calibrator]:
        found = yield from lockstep([method.protocol(schema) for method in self.methods])
        return Mixture(tuple(found), (1 / len(found),) * len(found))


def before_and_after(calibrator: Calibrator, classes: int, measure: FederatedMetrics) -> Method[PairedPerformance]:
    """The method that measures before and after a calibrator with the paired change, from one message."""
    if classes == 2:
        return PairedMetrics(calibrator, measure=measure)
    return PairedClassMetrics(calibrator, measure.of_classes)


@final
@dataclass(frozen=True)
class FitAndMeasure(Method[Fitted]):
    """Fit a calibrator and measure before and after it, where nobody can hold records out; one budget covers both.

    The measured records are those of the fit, so the measurement is slightly optimistic: by about the number of the
    calibrator's parameters divided by the number of records.

    Parameters
    ----------
    fit
        The method that fits the calibrator.
    measure
        Settings of the evaluation.

    Examples
    --------
    >>> import fedcalib as fc
    >>> method = fc.methods.FitAndMeasure(fc.FedBin())
    >>> fitted = fc.run(method, fc.InProcess(fc.Federation.simulated()), fc.SecAgg()).artifact
    >>> round(fitted.before.ece.value, 2), round(fitted.after.ece.value, 2)
    (0.12, 0.02)
    """

    fit: Method[Calibrator]
    measure: FederatedMetrics = field(default=MEASURE, metadata=ADDED)

    def with_budget(self, budget: Budget) -> FitAndMeasure:
        """Leave the fit half, and the measurement the other."""
        half = budget.split(2)
        return replace(self, fit=self.fit.with_budget(half), measure=self.measure.with_budget(half))

    def protocol(self, schema: Schema) -> Flow[Fitted]:
        calibrator = yield from self.fit.protocol(schema)
        found = yield from before_and_after(calibrator, schema.classes, self.measure).protocol(schema)
        return Fitted(calibrator, found.before, found.after, found.change)
