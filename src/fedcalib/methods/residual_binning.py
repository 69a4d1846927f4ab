"""ResidualBinning: logit offsets from residuals whose sensitivity does not grow with the number of classes.

ClassShifts: a shift of each class's logit where it is likely and where it is not, from a single message.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import sqrt
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator, Identity
from fedcalib.artifacts.logit_shifts import LogitOffsets, LogitShifts
from fedcalib.errors import InputError
from fedcalib.estimation.evidence import offsets, shifts
from fedcalib.method import Flow, Method
from fedcalib.queries.class_tables import ClassCurvature, LogitResiduals
from fedcalib.records import Schema
from fedcalib.types import Floats

_WORTH = 1e-3  # an offset below a thousandth of a logit changes nothing that anybody could measure


class Sharing(ABC):
    """Which classes share offsets."""

    pooled: bool = False

    @abstractmethod
    def offsets(self, residual: Floats, spread: Floats, noise: float) -> Floats:
        """Find each row's offsets."""


@final
@dataclass(frozen=True)
class ClassWise(Sharing):
    """Each class has its own."""

    def offsets(self, residual: Floats, spread: Floats, noise: float) -> Floats:
        """Look at each class alone."""
        return offsets(residual, spread, noise)


@final
@dataclass(frozen=True)
class Pooled(Sharing):
    """All classes share one row of offsets, and only one row is asked for."""

    pooled = True

    def offsets(self, residual: Floats, spread: Floats, noise: float) -> Floats:
        """Look at the one row."""
        return offsets(residual, spread, noise)


@final
@dataclass(frozen=True)
class TwoLevel(Sharing):
    """What all classes have in common first, then what is left of each."""

    def offsets(self, residual: Floats, spread: Floats, noise: float) -> Floats:
        """Add the classes up, take their common offsets out, look at each class's rest."""
        held = np.maximum(spread, 0.0)
        common = offsets(residual.sum(axis=0, keepdims=True), held.sum(axis=0, keepdims=True), noise * len(residual))
        common = np.clip(common, -1.0, 1.0)
        return common + offsets(residual - held * common, held, noise)


@final
@dataclass(frozen=True)
class ResidualBinning(Method[Calibrator]):
    """Move each class's log-odds by an offset a cell, as far as residuals and their noise are evidence for it.

    Use it after a temperature (see `Pipeline`): offsets beyond `cap` are not believed. `typical_records` is a public
    guess at a client's size, from which clips for whole clients follow. `weight` is its share of a pipeline's budget.
    """

    cells: int = 16
    reach: float = 8.0
    cap: float = 1.0
    sharing: Sharing = ClassWise()
    typical_records: float = 50.0
    weight: float = 1.0
    spread_share: float = 0.2

    def __post_init__(self) -> None:
        if not self.cap > 0 or not self.typical_records > 0 or not self.weight > 0 or not 0 < self.spread_share < 1:
            raise InputError("Expected a cap, typical records, a weight above 0 and a spread share between 0 and 1.")

    def protocol(self, schema: Schema) -> Flow[Calibrator]:
        """Ask for residuals and spreads once; the rest is arithmetic."""
        clip = max(1.0, 0.38 * sqrt(self.typical_records))
        answer = yield LogitResiduals(
            schema.classes,
            self.cells,
            self.reach,
            self.sharing.pooled,
            clip,
            0.42 * clip,
            self.weight * (1 - self.spread_share),
            self.weight * self.spread_share,
        )
        noise = float(answer.variance("residual").max(initial=0.0))
        spread = believable(answer["spread"], float(answer.variance("spread").max(initial=0.0)))
        found = self.sharing.offsets(answer["residual"], spread, noise)
        table = np.clip(np.nan_to_num(found), -self.cap, self.cap)
        if np.abs(table).max(initial=0.0) < _WORTH:
            return Identity("no offset stands out from chance and noise")
        rows = np.broadcast_to(table, (schema.classes, self.cells))
        return LogitOffsets(tuple(map(tuple, rows.tolist())), self.reach)


def believable(spread: Floats, noise: float) -> Floats:
    """Shrink noisy spreads toward zero, most where they are no larger than their noise; exact ones stay."""
    held = np.maximum(spread, 0.0)
    squares = held**2
    shrunk: Floats = held * np.divide(squares, squares + noise, out=np.zeros_like(held), where=squares + noise > 0)
    return shrunk


_CLASS_SHIFTS_WORTH = 1e-3  # a shift below a thousandth of a logit changes nothing that anybody could measure


@final
@dataclass(frozen=True)
class ClassShifts(Method[Calibrator]):
    """Shift each class's logit by cell of its log-odds, as far as residuals and their noise are evidence for it.

    One step of a Newton method in which noise is part of the likelihood: clients send residuals and the curvature that
    says how classes give way to each other, so its message grows with the square of the classes; beyond a hundred or so
    use `ResidualBinning`. Use it after a temperature: shifts beyond `cap` are not believed. `typical_records` is a
    public guess at a client's size, from which clips for whole clients follow. `weight` is its share of a pipeline's
    budget, and `curvature_share` the curvature's share of that.
    """

    cells: int = 2
    reach: float = 8.0
    cap: float = 1.0
    typical_records: float = 50.0
    weight: float = 1.0
    curvature_share: float = 0.2

    def __post_init__(self) -> None:
        if not min(self.cap, self.typical_records, self.weight) > 0 or not 0 < self.curvature_share < 1:
            raise InputError("Expected a cap, typical records, a weight above 0 and a curvature share between 0 and 1.")

    def protocol(self, schema: Schema) -> Flow[Calibrator]:
        """Ask for residuals and curvature once; the rest is arithmetic."""
        clip = max(1.0, 0.25 * sqrt(self.typical_records))
        share = self.curvature_share
        answer = yield ClassCurvature(
            schema.classes,
            self.cells,
            self.reach,
            clip,
            0.5 * clip,
            self.weight * (1 - share),
            self.weight * share,
        )
        noise = [float(answer.variance(name).max(initial=0.0)) for name in ("residual", "curvature")]
        found = shifts(answer["residual"], answer["curvature"], noise[0], noise[1], schema.classes)
        table = np.clip(np.nan_to_num(found), -self.cap, self.cap)
        if np.abs(table).max(initial=0.0) < _CLASS_SHIFTS_WORTH:
            return Identity("no shift stands out from chance and noise")
        return LogitShifts(tuple(map(tuple, table.tolist())), self.reach)
