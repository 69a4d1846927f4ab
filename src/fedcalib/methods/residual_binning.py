"""Logit offsets and shifts from summed residuals, whose sensitivity does not grow with the number of classes.

`ResidualBinning` moves each class's log-odds by an offset per cell; a `Sharing` decides which classes have offsets in
common. `ClassShifts` moves each class's logit jointly with the others, which needs their curvature too.
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

_MIN_SHIFT = 1e-3  # a smaller shift of logits changes nothing that anybody could measure


class Sharing(ABC):
    """Which classes have offsets in common."""

    pooled: bool = False

    @abstractmethod
    def offsets(self, residual: Floats, spread: Floats, noise: float) -> Floats:
        """The offsets of each row."""


@final
@dataclass(frozen=True)
class ClassWise(Sharing):
    """Each class has offsets of its own.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.methods.ResidualBinning(sharing=fc.methods.ClassWise()) == fc.methods.ResidualBinning()
    True
    """

    def offsets(self, residual: Floats, spread: Floats, noise: float) -> Floats:
        return offsets(residual, spread, noise)


@final
@dataclass(frozen=True)
class Pooled(Sharing):
    """All classes have one row of offsets in common, and only one row is sent.

    Examples
    --------
    >>> import fedcalib as fc
    >>> method = fc.methods.ResidualBinning(sharing=fc.methods.Pooled())
    >>> plan = fc.method.Plan.of(method, fc.Schema(classes=10, clients=5))
    >>> plan.queries[0].size  # instead of ten times as many
    32
    """

    pooled = True

    def offsets(self, residual: Floats, spread: Floats, noise: float) -> Floats:
        return offsets(residual, spread, noise)


@final
@dataclass(frozen=True)
class TwoLevel(Sharing):
    """Offsets that all classes have in common first, then offsets of each class for what is left.

    Examples
    --------
    >>> import fedcalib as fc
    >>> method = fc.methods.ResidualBinning(sharing=fc.methods.TwoLevel())
    >>> calibrator = fc.run(method, fc.InProcess(fc.Federation.simulated()), fc.SecAgg()).artifact
    >>> type(calibrator).__name__
    'LogitOffsets'
    """

    def offsets(self, residual: Floats, spread: Floats, noise: float) -> Floats:
        variance = np.maximum(spread, 0.0)
        sums = residual.sum(axis=0, keepdims=True), variance.sum(axis=0, keepdims=True)
        common = np.clip(offsets(*sums, noise * len(residual)), -1.0, 1.0)
        return common + offsets(residual - variance * common, variance, noise)


@final
@dataclass(frozen=True)
class ResidualBinning(Method[Calibrator]):
    """Move each class's log-odds by an offset per cell, as far as residuals and their noise are evidence for it.

    Use it after a temperature (see `Pipeline`).

    Parameters
    ----------
    cells
        Number of cells of the log-odds per class.
    reach
        Cells divide the log-odds from -`reach` to `reach`.
    cap
        The largest offset.
    sharing
        Which classes have offsets in common.
    typical_records
        A public guess at a client's number of records, from which clips for whole clients follow.
    weight
        The method's part of a pipeline's budget.
    spread_share
        The fraction of it that is spent on variances.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.metrics import classwise_ece
    >>> records = (federation := fc.Federation.simulated()).records
    >>> calibrator = fc.run(fc.methods.ResidualBinning(), fc.InProcess(federation), fc.SecAgg()).artifact
    >>> [round(classwise_ece(probs, records.labels), 2) for probs in (records.probs, calibrator(records.probs))]
    [0.08, 0.05]
    """

    cells: int = 16
    reach: float = 8.0
    cap: float = 1.0
    sharing: Sharing = ClassWise()
    typical_records: float = 50.0
    weight: float = 1.0
    spread_share: float = 0.2

    def __post_init__(self) -> None:
        _check_positive(self, self.spread_share)

    def protocol(self, schema: Schema) -> Flow[Calibrator]:
        clip = max(1.0, 0.38 * sqrt(self.typical_records))
        clips = clip, 0.42 * clip
        weights = self.weight * (1 - self.spread_share), self.weight * self.spread_share
        answer = yield LogitResiduals(schema.classes, self.cells, self.reach, self.sharing.pooled, *clips, *weights)
        noise = float(answer.variance("residual").max(initial=0.0))
        spread = shrunken(answer["spread"], float(answer.variance("spread").max(initial=0.0)))
        found = self.sharing.offsets(answer["residual"], spread, noise)
        table = np.clip(np.nan_to_num(found), -self.cap, self.cap)
        if np.abs(table).max(initial=0.0) < _MIN_SHIFT:
            return Identity("no offset is larger than sampling and noise explain")
        rows = np.broadcast_to(table, (schema.classes, self.cells))
        return LogitOffsets(tuple(map(tuple, rows.tolist())), self.reach)


def _check_positive(method: ResidualBinning | ClassShifts, share: float) -> None:
    positive = method.cap > 0 and method.typical_records > 0 and method.weight > 0
    if not positive or not 0 < share < 1:
        raise InputError(f"Expected cap, typical_records and weight above 0 and a share in (0, 1), found {method}.")


def shrunken(spread: Floats, noise: float) -> Floats:
    """Variances, shrunk toward zero, most where they are no larger than their noise; exact ones stay."""
    positive = np.maximum(spread, 0.0)
    squares, total = positive**2, positive**2 + noise
    shrunk: Floats = positive * np.divide(squares, total, out=np.zeros_like(squares), where=total > 0)
    return shrunk


@final
@dataclass(frozen=True)
class ClassShifts(Method[Calibrator]):
    """Shift each class's logit by cell of its log-odds, as far as residuals and their noise are evidence for it.

    One Newton step in which noise is part of the likelihood. Clients send residuals and the curvature that shows how
    classes trade probability, so the message grows with the square of the number of classes; beyond a hundred or so use
    `ResidualBinning`. Use it after a temperature.

    Parameters
    ----------
    cells
        Number of cells of the log-odds per class.
    reach
        Cells divide the log-odds from -`reach` to `reach`.
    cap
        The largest shift.
    typical_records
        A public guess at a client's number of records, from which clips for whole clients follow.
    weight
        The method's part of a pipeline's budget.
    curvature_share
        The fraction of it that is spent on the curvature.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.metrics import classwise_ece
    >>> records = (federation := fc.Federation.simulated()).records
    >>> calibrator = fc.run(fc.methods.ClassShifts(), fc.InProcess(federation), fc.SecAgg()).artifact
    >>> [round(classwise_ece(probs, records.labels), 2) for probs in (records.probs, calibrator(records.probs))]
    [0.08, 0.05]
    """

    cells: int = 2
    reach: float = 8.0
    cap: float = 1.0
    typical_records: float = 50.0
    weight: float = 1.0
    curvature_share: float = 0.2

    def __post_init__(self) -> None:
        _check_positive(self, self.curvature_share)

    def protocol(self, schema: Schema) -> Flow[Calibrator]:
        clip = max(1.0, 0.25 * sqrt(self.typical_records))
        clips = clip, 0.5 * clip
        weights = self.weight * (1 - self.curvature_share), self.weight * self.curvature_share
        answer = yield ClassCurvature(schema.classes, self.cells, self.reach, *clips, *weights)
        noise = [float(answer.variance(name).max(initial=0.0)) for name in ("residual", "curvature")]
        found = shifts(answer["residual"], answer["curvature"], noise[0], noise[1], schema.classes)
        table = np.clip(np.nan_to_num(found), -self.cap, self.cap)
        if np.abs(table).max(initial=0.0) < _MIN_SHIFT:
            return Identity("no shift is larger than sampling and noise explain")
        return LogitShifts(tuple(map(tuple, table.tolist())), self.reach)
