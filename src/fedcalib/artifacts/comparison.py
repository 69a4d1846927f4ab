"""What a paired comparison of two models found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from fedcalib.artifacts.saving import Artifact
from fedcalib.measured import Measured


@final
@dataclass(frozen=True)
class Comparison(Artifact):
    """Two models on the same records: each one's AUC and accuracy, and the differences with paired intervals.

    Differences are the model's minus the rival's; an interval that leaves out zero tells them apart. Where noise drowns
    a class, figures are NaN with intervals of everything, and `warnings` says so.
    """

    auc: Measured
    rival_auc: Measured
    auc_difference: Measured
    accuracy: Measured
    rival_accuracy: Measured
    accuracy_difference: Measured
    threshold: float
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Give every figure by name, with null for what is missing."""
        names = ("auc", "rival_auc", "auc_difference", "accuracy", "rival_accuracy", "accuracy_difference")
        figures: dict[str, Measured] = {name: getattr(self, name) for name in names}
        return {name: None if np.isnan(found.value) else found.to_json() for name, found in figures.items()}
