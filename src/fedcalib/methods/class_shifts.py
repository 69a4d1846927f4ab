"""ClassShifts: a shift of each class's logit where it is likely and where it is not, from a single message."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator, Identity
from fedcalib.artifacts.logit_shifts import LogitShifts
from fedcalib.errors import InputError
from fedcalib.flows.coupled_evidence import shifts
from fedcalib.method import Flow, Method
from fedcalib.queries.class_curvature import ClassCurvature
from fedcalib.records import Schema

_WORTH = 1e-3  # a shift below a thousandth of a logit changes nothing that anybody could measure


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
        if np.abs(table).max(initial=0.0) < _WORTH:
            return Identity("no shift stands out from chance and noise")
        return LogitShifts(tuple(map(tuple, table.tolist())), self.reach)
