"""Auto: the composition of methods that public facts about clients and budget call for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import Final, final

from fedcalib.artifacts.calibrator import Calibrator, Identity, KeepTop, chained
from fedcalib.artifacts.scaling import Temperature
from fedcalib.errors import InputError
from fedcalib.flows.wrapped import after, clip_quantile, within_clip
from fedcalib.method import Budget, Flow, Method
from fedcalib.methods.bbse import ClassCounts
from fedcalib.methods.compose import Averaged, Pipeline
from fedcalib.methods.residual_binning import ClassShifts, ResidualBinning, TwoLevel
from fedcalib.methods.ridge_scaling import RidgeOPVector, RidgeVector
from fedcalib.methods.temperature import BoundedTemperature, OneShotTemperature
from fedcalib.query import Unit
from fedcalib.records import Schema

HOPELESS: Final = 10.0  # units times epsilon below which the noise on a temperature is as large as temperatures are
ENOUGH: Final = 250.0  # units times epsilon from which shifts by class are worth a share of the budget
PLENTY: Final = 750.0  # units times epsilon from which finding out how large clients are is worth a share too
MANY: Final = 32  # classes beyond which the curvature between pairs of them is too much to ask for
WARMTH: Final = 0.2  # the temperature's share of the budget where shifts by class follow it
_DOUBT = 1.5  # standard deviations by which a slope at T = 1 has to stand out: a calibrated model is left alone
_SIZES: Final = tuple(float(2**i) for i in range(11))  # of clients, from 1 to 1,024 records
_POINTS: Final = 9  # temperatures a factor of the square root of two apart: half of the exponentials are squares
_REST: Final = ResidualBinning(sharing=TwoLevel())
_WORTH = 0.22  # a client's sums grow as the square root of its records: so many records' worth, at one record


@final
@dataclass(frozen=True)
class Auto(Method[Calibrator]):
    """Choose and chain calibration methods by the number of clients and the privacy budget, both public.

    With exact sums (`epsilon` None): a temperature, then the mean of a vector and an order-preserving scaling, each
    with logit offsets on two levels. A private run tells it its `epsilon`, whose records that hides (`unit`; "client"
    asks for whole clients where a model serves both) and who adds noise `alone`; what is said here goes first. Enough
    units times epsilon pay for a temperature and shifts by class, fewer for a temperature alone, and very few for
    nothing: then it asks nothing and says why. `typical_records` is a public guess
    at a client's size; None finds it privately with a twentieth of the budget, where that buys an answer, and otherwise
    takes fifty. `guard` keeps the base model's top class on top, record by record.
    """

    epsilon: float | None = None
    unit: Unit | None = None
    alone: Unit | None = None
    typical_records: float | None = 50.0
    guard: bool = True
    ridge: float = 3.0

    def __post_init__(self) -> None:
        if self.epsilon is not None and not self.epsilon > 0:
            raise InputError(f"Expected epsilon above 0, or None for exact sums, found {self.epsilon}.")
        if not {self.unit, self.alone} <= {"client", "record", None}:
            raise InputError(f"Expected the units 'client' or 'record', found {self.unit!r} and {self.alone!r}.")
        if self.typical_records is not None and not self.typical_records > 0:
            raise InputError(f"Expected typical records above 0, or None, found {self.typical_records}.")

    def with_budget(self, budget: Budget) -> Auto:
        """Know what a run may spend, on whom, and who adds the noise, as far as this was not said before."""
        epsilon, unit, alone = self.epsilon or budget.epsilon, self.unit or budget.unit, self.alone or budget.alone
        return replace(self, epsilon=epsilon, unit=unit, alone=alone)

    def protocol(self, schema: Schema) -> Flow[Calibrator]:
        """Hold the stages' conversations, each after the calibrators so far."""
        stages = self.stages(schema)
        if not stages:
            return Identity(f"nothing was asked: {schema.clients} clients and epsilon = {self.epsilon} tell too little")
        clip = yield from self._clip(schema)
        found: Calibrator = Identity()
        for stage in stages:
            flow = after(found, stage.protocol(schema))
            step = yield from (flow if clip is None else within_clip(clip, flow))
            found = chained(found, _honest(step))
        return KeepTop(found) if self.guard and not isinstance(found, Identity) else found

    def stages(self, schema: Schema) -> tuple[Method[Calibrator], ...]:
        """Say which methods public facts call for, in order; none where noise would drown them all."""
        if self.epsilon is None:
            return self._exact(schema.classes)
        strength = self._strength(schema)
        if strength < HOPELESS:
            return ()
        if strength < ENOUGH:
            return (self._temperature(1.0),)
        return self._temperature(WARMTH), self._by_class(schema.classes, 1 - WARMTH)

    def _exact(self, classes: int) -> tuple[Method[Calibrator], ...]:
        """A temperature, then two chains averaged; what a guard takes from a class, offsets after it give back."""
        warm = OneShotTemperature(_POINTS, reach=30.0, refinements=2, typical_records=self._typical)
        both = Averaged((self._by_vector(), self._by_order(classes)))
        return (Pipeline((warm, both), guard=True), _REST) if self.guard else (warm, both)

    def _by_vector(self) -> Method[Calibrator]:
        """A factor and a shift a class, then what is left."""
        return Pipeline((RidgeVector(ridge=self.ridge), _REST))

    def _by_order(self, classes: int) -> Method[Calibrator]:
        """Shifts by class, then gaps between sorted logits, then what is left."""
        if classes <= MANY:
            return Pipeline((ClassShifts(typical_records=self._typical), RidgeOPVector(ridge=10.0), _REST))
        return Pipeline((RidgeVector(ridge=10.0), RidgeOPVector(ridge=30.0), _REST))

    @property
    def _typical(self) -> float:
        return self.typical_records or 50.0

    @property
    def _unit(self) -> Unit:
        return self.unit or "client"

    def _strength(self, schema: Schema) -> float:
        """Say how many units' worth of evidence stand against one unit's noise."""
        counts = {"client": float(schema.clients), "record": schema.clients * self._typical}
        noises = 1.0 if self.alone is None else counts[self.alone]
        return counts[self._unit] * (self.epsilon or 0.0) / sqrt(noises)

    def _temperature(self, weight: float) -> Method[Calibrator]:
        if self._unit == "client":
            return BoundedTemperature(weight=weight)
        return OneShotTemperature(lowest=0.7, highest=4.0, doubt=_DOUBT, weight=weight, typical_records=self._typical)

    def _by_class(self, classes: int, weight: float) -> Method[Calibrator]:
        if classes <= MANY:
            return ClassShifts(typical_records=self._typical, weight=weight)
        return ResidualBinning(cells=1, typical_records=self._typical, weight=weight)

    def _clip(self, schema: Schema) -> Flow[float | None]:
        """Say how many records' worth a client may add; where nobody guessed, a question of its own finds out."""
        if self.epsilon is None or self._unit == "record":
            return None
        size = self._typical
        if self.typical_records is None and self._strength(schema) >= PLENTY:
            size = yield from clip_quantile(ClassCounts(schema.classes), 0.5, edges=_SIZES, weight=0.05)
        return max(1.0, _WORTH * sqrt(size))


def _honest(step: Calibrator) -> Calibrator:
    """Call a temperature that was left at 1 what it is."""
    if isinstance(step, Temperature) and step.temperature == 1.0 and step.warning:
        return Identity(step.warning)
    return step
