"""ReviewWindow: everything that watching a classifier asks of one window of time, in one message."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

from fedcalib.artifacts.calibrator import UNCHANGED, Calibrator
from fedcalib.artifacts.review import Review
from fedcalib.flows.after import after
from fedcalib.flows.lockstep import lockstep
from fedcalib.method import Budget, Flow, Method
from fedcalib.methods.cbpe import CBPE
from fedcalib.methods.federated_metrics import FederatedMetrics
from fedcalib.records import Schema


@final
@dataclass(frozen=True)
class ReviewWindow(Method[Review]):
    """Measure a window, estimate its accuracy without labels, and with `recalibration` learn for the next window.

    `served` is the calibrator that was in use. With a method of recalibration, what was served is measured beside what
    the model said, so that harm shows. One budget covers all.
    """

    served: Calibrator = UNCHANGED
    recalibration: Method[Calibrator] | None = None

    def within(self, budget: Budget) -> ReviewWindow:
        """Leave the recalibration about a quarter, beside three measurements."""
        if self.recalibration is None:
            return self
        return replace(self, recalibration=self.recalibration.within(budget.among(4)))

    def protocol(self, schema: Schema) -> Flow[Review]:
        """Ask everything at once."""
        flows: list[Flow[Any]] = [FederatedMetrics().protocol(schema), after(self.served, CBPE().protocol(schema))]
        if self.recalibration is None:
            return Review(*(yield from lockstep(flows)))
        flows += [after(self.served, FederatedMetrics().protocol(schema)), self.recalibration.protocol(schema)]
        return Review(*(yield from lockstep(flows)))
