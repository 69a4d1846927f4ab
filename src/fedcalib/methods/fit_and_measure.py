"""FitAndMeasure: a calibrator and its report from one conversation, where nobody can be asked to hold records out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.fitted import Fitted
from fedcalib.flows.after import after
from fedcalib.flows.lockstep import lockstep
from fedcalib.method import Budget, Flow, Method
from fedcalib.methods.federated_metrics import FederatedMetrics
from fedcalib.records import Schema


@final
@dataclass(frozen=True)
class FitAndMeasure(Method[Fitted]):
    """Fit a calibrator, then measure before and after in one message; one budget covers both.

    The records that are measured are the fitted ones, so the measurement flatters a little: by about as many
    parameters as the calibrator has, divided by the number of records.
    """

    fit: Method[Calibrator]

    def within(self, budget: Budget) -> FitAndMeasure:
        """Leave the fit about half, beside two measurements."""
        return FitAndMeasure(self.fit.within(budget.among(2)))

    def protocol(self, schema: Schema) -> Flow[Fitted]:
        """Fit, then ask everything else at once."""
        calibrator = yield from self.fit.protocol(schema)
        measure = FederatedMetrics()
        found = yield from lockstep([measure.protocol(schema), after(calibrator, measure.protocol(schema))])
        return Fitted(calibrator, *found)
