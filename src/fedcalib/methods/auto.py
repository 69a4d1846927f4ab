"""Auto: the chain of calibration methods that the number of clients and the budget call for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log, sqrt
from typing import Final, final

import numpy as np

from fedcalib.artifacts.calibrator import UNCHANGED, Calibrator, Identity, KeepTop, Mixture, chained
from fedcalib.artifacts.scaling import Temperature
from fedcalib.errors import InputError
from fedcalib.estimation.evidence import unmoved_share
from fedcalib.flows.wrapped import after, clip_quantile, lockstep, within_clip
from fedcalib.method import Budget, Flow, Method
from fedcalib.methods.averaged_curve import AveragedCurve
from fedcalib.methods.bbse import ClassCounts
from fedcalib.methods.compose import Averaged, Pipeline
from fedcalib.methods.residual_binning import ClassShifts, ResidualBinning, TwoLevel
from fedcalib.methods.ridge_scaling import RidgeOPVector, RidgeVector
from fedcalib.methods.temperature import BoundedTemperature, MonotoneTemperature, OneShotTemperature
from fedcalib.metrics.intervals import normal_quantile
from fedcalib.queries.reliability import MOST_LOSS, PairedGains
from fedcalib.query import Answer, Unit
from fedcalib.records import Schema

MIN_SIGNAL_FOR_TEMPERATURE: Final = 10.0  # units times epsilon; below, noise is as large as temperatures differ
MIN_SIGNAL_FOR_CLASS_SHIFTS: Final = 150.0  # units times epsilon from which they have a part of the budget
MIN_SIGNAL_FOR_CLIENT_SIZE: Final = 750.0  # the same for a private estimate of how many records a client has
MAX_CLASSES_FOR_CURVATURE: Final = 32  # beyond, the message of all pairs of classes is too long
TEMPERATURE_WEIGHT: Final = 0.3  # the least fraction of the budget for the temperature, where signal is plenty
_ALONE_FACTOR: Final = 4.0  # where noise adds up, a temperature can be found long before shifts per class
_CLIENT_SIZES: Final = tuple(float(2**i) for i in range(11))  # from 1 to 1,024 records
_TEMPERATURES: Final = 9  # a factor of the square root of two apart: half of the exponentials are squares
_ROUNDS: Final = 2  # Newton steps of the gaps, after a temperature and shifts
_MOST_RECORDS: Final = 1e15
_OFFSETS: Final = ResidualBinning(sharing=TwoLevel())
_FREE_NUMBERS_PER_CLASS: Final = 4.0  # fitted with exact sums: factors, shifts, gaps, and what offsets are worth
_LEAST_SHARE: Final = 1e-6  # of the identity; less is none
CHANCE: Final = "nothing was changed: chance may explain all that the labels say against the classifier"
_CLIP_PER_ROOT_RECORD = 0.22  # a client's sums grow as the square root of its number of records


@final
@dataclass(frozen=True)
class Auto(Method[Calibrator]):
    """Choose and chain calibration methods by the number of clients and the privacy budget, both public.

    Two classes have a composition of their own, `AveragedCurve`. With more, and exact sums (`epsilon` None): a
    temperature, then the mean of a vector scaling and an order-preserving scaling, each with logit offsets on two
    levels. A private run passes its budget on, and what is set here goes first. Many units times epsilon pay for a
    temperature and shifts per class, fewer for a temperature alone; with very few, no query is sent and the artifact is
    an `Identity` that states why.

    Parameters
    ----------
    epsilon
        The budget of the run; None for exact sums, or to take it from the privacy model.
    unit
        Whose contribution is hidden, "record" or "client"; "client" selects queries about whole clients where a privacy
        model serves both.
    alone
        Who adds noise of its own, "record" or "client"; None where one noise covers the sum.
    typical_records
        A public guess at a client's number of records. None estimates it privately with a twentieth of the budget where
        that buys an answer, and otherwise takes fifty.
    guard
        Keep the classifier's top class on top, record by record. None keeps it with more than two classes; a curve of
        two classes keeps the ranking, and a class that was chosen at 0.5 may change. Where exact counts show that
        letting go gains accuracy, the `note` of the calibrator says by how much.
    ridge
        Penalty of the vector scaling toward the identity.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.metrics import classwise_ece
    >>> records = (federation := fc.Federation.simulated()).records
    >>> calibrator = fc.run(fc.Auto(), fc.InProcess(federation), fc.SecAgg()).artifact
    >>> [round(classwise_ece(probs, records.labels), 2) for probs in (records.probs, calibrator(records.probs))]
    [0.08, 0.02]
    >>> [type(stage).__name__ for stage in fc.Auto(epsilon=1.0).stages(fc.Schema(classes=3, clients=10_000))]
    ['BoundedTemperature', 'ClassShifts']
    """

    epsilon: float | None = None
    unit: Unit | None = None
    alone: Unit | None = None
    typical_records: float | None = 50.0
    guard: bool | None = None
    ridge: float = 3.0

    def __post_init__(self) -> None:
        if self.epsilon is not None and not self.epsilon > 0:
            raise InputError(f"Expected epsilon above 0, or None for exact sums, found {self.epsilon}.")
        if not {self.unit, self.alone} <= {"client", "record", None}:
            raise InputError(f"Expected the units 'client' or 'record', found {self.unit!r} and {self.alone!r}.")
        if self.typical_records is not None and not self.typical_records > 0:
            raise InputError(f"Expected typical records above 0, or None, found {self.typical_records}.")

    def with_budget(self, budget: Budget) -> Auto:
        """Take what was not set here from the run's budget."""
        epsilon, unit, alone = self.epsilon or budget.epsilon, self.unit or budget.unit, self.alone or budget.alone
        return replace(self, epsilon=epsilon, unit=unit, alone=alone)

    def protocol(self, schema: Schema) -> Flow[Calibrator]:
        stages = self.stages(schema)
        if not stages:
            return Identity(f"no query was sent: {schema.clients} clients are too few for epsilon = {self.epsilon}")
        if self.epsilon is None and schema.classes > 2:
            return (yield from (_guarded_chain if self._guarded(schema.classes) else _free_chain)(schema, *stages))
        clip = yield from self._clip(schema)
        found: Calibrator = Identity()
        for stage in stages:
            flow = after(found, stage.protocol(schema))
            step = yield from (flow if clip is None else within_clip(clip, flow))
            found = chained(found, _named_identity(step))
        return KeepTop(found) if self._guarded(schema.classes) and not isinstance(found, Identity) else found

    def _guarded(self, classes: int) -> bool:
        return classes > 2 if self.guard is None else self.guard

    def stages(self, schema: Schema) -> tuple[Method[Calibrator], ...]:
        """The methods that public facts call for, in order; none where noise would be too large for all of them."""
        if self.epsilon is None:
            return (AveragedCurve(),) if schema.classes == 2 else self._exact(schema.classes)
        signal = self._signal(schema)
        if signal < MIN_SIGNAL_FOR_TEMPERATURE:
            return ()
        if schema.classes == 2:
            return (AveragedCurve(self.epsilon, self._unit, self.alone, self._typical),)
        weight = self._shifts_weight(signal)
        if weight <= 0:
            return (self._temperature(1.0),)
        return self._temperature(1 - weight), self._by_class(schema.classes, weight)

    def _shifts_weight(self, signal: float) -> float:
        """The fraction of the budget for shifts per class, which grows from nothing with the signal."""
        least = MIN_SIGNAL_FOR_CLASS_SHIFTS * (_ALONE_FACTOR if self.alone else 1.0)
        return (1 - TEMPERATURE_WEIGHT) * max(1 - least / signal, 0.0)

    def _exact(self, classes: int) -> tuple[Method[Calibrator], ...]:
        """A temperature, then two chains averaged; offsets after the guard restore what it takes from a class."""
        few = classes <= MAX_CLASSES_FOR_CURVATURE  # Newton steps with a whole Hessian make up for a rough temperature
        typical, refinements = self._typical, 0 if few else 2
        temperature = OneShotTemperature(_TEMPERATURES, reach=30.0, refinements=refinements, typical_records=typical)
        both = Averaged((self._by_vector(few), self._by_order(few)))
        return (Pipeline((temperature, both), guard=True), _OFFSETS) if self._guarded(classes) else (temperature, both)

    def _by_vector(self, few: bool) -> Method[Calibrator]:
        """A factor and a shift per class, then offsets; with few classes, as many messages as the other chain."""
        vector = RidgeVector(rounds=_ROUNDS + 1, ridge=self.ridge, soft=False) if few else RidgeVector(ridge=self.ridge)
        return Pipeline((vector, _OFFSETS))

    def _by_order(self, few: bool) -> Method[Calibrator]:
        """Shifts per class, then gaps between sorted logits, then offsets."""
        if few:
            gaps = RidgeOPVector(rounds=_ROUNDS, ridge=10.0, soft=False)
            return Pipeline((ClassShifts(typical_records=self._typical), gaps, _OFFSETS))
        return Pipeline((RidgeVector(ridge=10.0), RidgeOPVector(ridge=30.0), _OFFSETS))

    @property
    def _typical(self) -> float:
        return self.typical_records or 50.0

    @property
    def _unit(self) -> Unit:
        return self.unit or "client"

    def _signal(self, schema: Schema) -> float:
        """Number of units over the standard deviation of the noise in units, up to a constant."""
        counts = {"client": float(schema.clients), "record": schema.clients * self._typical}
        noises = 1.0 if self.alone is None else counts[self.alone]
        return counts[self._unit] * (self.epsilon or 0.0) / sqrt(noises)

    def _temperature(self, weight: float) -> Method[Calibrator]:
        if self._unit == "client":
            return BoundedTemperature(weight=weight, shrunken=True)
        return MonotoneTemperature(weight=weight)

    def _by_class(self, classes: int, weight: float) -> Method[Calibrator]:
        if classes <= MAX_CLASSES_FOR_CURVATURE:
            return ClassShifts(typical_records=self._typical, weight=weight)
        return ResidualBinning(cells=1, typical_records=self._typical, weight=weight)

    def _clip(self, schema: Schema) -> Flow[float | None]:
        """The most that one client may add, in records; where nobody guessed a client's size, a query estimates it."""
        if self.epsilon is None or self._unit == "record":
            return None
        size = self._typical
        if self.typical_records is None and self._signal(schema) >= MIN_SIGNAL_FOR_CLIENT_SIZE:
            size = yield from clip_quantile(ClassCounts(schema.classes), 0.5, edges=_CLIENT_SIZES, weight=0.05)
        return max(1.0, _CLIP_PER_ROOT_RECORD * sqrt(size))


def _guarded_chain(schema: Schema, first: Method[Calibrator], last: Method[Calibrator]) -> Flow[Calibrator]:
    """Two stages with the guard after each; what both change is measured in the message of the last one."""
    guarded = yield from first.protocol(schema)
    free = guarded.inner if isinstance(guarded, KeepTop) else guarded
    step, answer = yield from lockstep([after(guarded, last.protocol(schema)), _gains(free)])
    return _as_far_as(answer, schema.classes, KeepTop(chained(guarded, step), _let_go(answer)))


def _free_chain(schema: Schema, *stages: Method[Calibrator]) -> Flow[Calibrator]:
    """Stages without a guard, and a message that measures what they change."""
    free = yield from Pipeline(stages).protocol(schema)
    return _as_far_as((yield PairedGains(free)), schema.classes, free)


def _gains(free: Calibrator) -> Flow[Answer]:
    return (yield PairedGains(free))


def _as_far_as(answer: Answer, classes: int, found: Calibrator) -> Calibrator:
    """As much of a calibrator as the log loss that it saves on the records of its fit allows.

    Fitting d free numbers to a calibrated classifier saves half of a chi-square variable with d degrees of freedom. The
    exponential of half of that has mean 2^(d/2), so divided by it, it obeys the rule of `unmoved_share`.
    """
    if answer.variance("gain").any():  # exact sums were expected, and noise came
        return found
    saved = float(np.nan_to_num(answer["gain"][0])) * MOST_LOSS
    kept = unmoved_share(saved / 2 - _FREE_NUMBERS_PER_CLASS * classes / 2 * log(2.0))
    if kept == 1.0:
        return Identity(CHANCE)
    return found if kept < _LEAST_SHARE else Mixture((UNCHANGED, found), (kept, 1 - kept))


def _let_go(answer: Answer) -> str:
    """What letting the top class go would gain in accuracy, where that is clear; from exact paired counts."""
    hits = np.clip(np.nan_to_num(answer["hits"]), 0.0, _MOST_RECORDS)
    if answer.variance("hits").any():  # exact sums were expected, and noise came
        return ""
    (_, gained), (lost, _) = hits.tolist()
    records = max(float(hits.sum()), 1.0)
    change, half = (gained - lost) / records, normal_quantile(0.95) * sqrt(gained + lost) / records
    if change <= half:
        return ""
    points, low, high = (100 * part for part in (change, change - half, change + half))
    return f"{points:.1f} points more accuracy with guard=False, interval {low:.1f} to {high:.1f}"


def _named_identity(step: Calibrator) -> Calibrator:
    """A temperature that was left at 1 is an `Identity` with the same warning."""
    if isinstance(step, Temperature) and step.temperature == 1.0 and step.warning:
        return Identity(step.warning)
    return step
