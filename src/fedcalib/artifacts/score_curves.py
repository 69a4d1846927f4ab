"""What one private count of scores tells about a binary classifier: every metric, every threshold, any time later."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from fedcalib.artifacts.saving import Artifact
from fedcalib.measured import Measured
from fedcalib.metrics import table_bins, table_rates
from fedcalib.metrics.score_table import CERTAIN, NEGATIVE, POSITIVE, SOMETHING, ScoreTable
from fedcalib.metrics.table_bins import Bins
from fedcalib.metrics.table_rates import Estimates, checked_thresholds
from fedcalib.types import Floats

_POINTS = 101  # of a curve with a band; more would cost time and show nothing


@final
@dataclass(frozen=True, eq=False)
class Curve:
    """A ROC or precision-recall curve: one point a threshold, from 1 down to 0, with the band of each rate."""

    threshold: Floats  # (points,)
    x: Estimates  # (points,): false positive rate, or recall
    y: Estimates  # (points,): true positive rate, or precision


@final
@dataclass(frozen=True, eq=False)
class Curves(Artifact):
    """A binary classifier's evaluation. Everything is read off one table, so nothing asked later costs privacy.

    Figures come with an interval (95%) that covers sampling, privacy noise and the width of the table's cells. A
    figure whose denominator drowns in noise is NaN with an interval of everything, and `warnings` says so.
    """

    table: ScoreTable

    def precision(self, threshold: float) -> Measured:
        """Give the share of positives among records that score at least the threshold."""
        return _one(table_rates.precision(self.table, checked_thresholds(threshold)))

    def recall(self, threshold: float) -> Measured:
        """Give the share of positives that score at least the threshold."""
        return _one(table_rates.recall(self.table, checked_thresholds(threshold)))

    def accuracy(self, threshold: float) -> Measured:
        """Give the share of records on the right side of the threshold."""
        return _one(table_rates.accuracy(self.table, checked_thresholds(threshold)))

    @cached_property
    def auc(self) -> Measured:
        """Give the chance that a positive outscores a negative."""
        return _one(table_rates.area(self.table))

    def ece(self, bins: int = 15) -> Measured:
        """Give the expected calibration error of the score, in bins of equal width."""
        return _one(table_bins.expected_calibration_error(self.table, bins))

    def reliability(self, bins: int = 15) -> Bins:
        """Give the reliability diagram of the score."""
        return table_bins.reliability(self.table, bins)

    def roc(self, thresholds: Any = None) -> Curve:
        """Trace the true against the false positive rate."""
        chosen = self._thresholds(thresholds)
        across = table_rates.false_positive_rate(self.table, chosen)
        return Curve(chosen, across, table_rates.recall(self.table, chosen))

    def pr(self, thresholds: Any = None) -> Curve:
        """Trace precision against recall."""
        chosen = self._thresholds(thresholds)
        return Curve(chosen, table_rates.recall(self.table, chosen), table_rates.precision(self.table, chosen))

    def _thresholds(self, thresholds: Any) -> Floats:
        """Take the given thresholds, or edges of cells that part the records about evenly, from 1 down to 0."""
        if thresholds is not None:
            return checked_thresholds(thresholds)
        sums = np.concatenate([[0.0], np.cumsum(self.table.held.sum(axis=0))])
        places = np.searchsorted(sums, np.linspace(0, 1, _POINTS) * sums[-1])
        return np.unique(self.table.edges[np.concatenate([[0], places, [self.table.cells]])])[::-1]

    @property
    def records(self) -> float:
        """Count the records, as well as noise allows."""
        return float(self.table.totals.sum())

    @property
    def positive_rate(self) -> Measured:
        """Give the share of positives."""
        found = table_rates.precision(self.table, np.zeros(1))
        return _one(found) if self.records > 0 else Measured(float("nan"), 0.0, 1.0)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Say what the table cannot tell."""
        said = [
            f"There are too few {name}, or they drown in noise ({total:.0f}, give or take {doubt:.0f}): "
            "AUC and all that divides by their number is left out."
            for name, label in (("negatives", NEGATIVE), ("positives", POSITIVE))
            if (total := float(self.table.totals[label]))
            <= max(CERTAIN * (doubt := float(self.table.doubts[label])), SOMETHING)
        ]
        if np.count_nonzero(self.table.held.sum(axis=0)) == 1 and self.table.exact:
            said.append("All scores lie in one cell: the model does not rank, or the cells are too wide for it.")
        return tuple(said)

    def to_json(self) -> dict[str, Any]:
        """Give the headline figures by name, with null for what is missing."""
        figures = {"auc": self.auc, "accuracy": self.accuracy(0.5), "precision": self.precision(0.5)}
        figures |= {"recall": self.recall(0.5), "ece": self.ece(), "positive_rate": self.positive_rate}
        return {name: None if np.isnan(found.value) else found.to_json() for name, found in figures.items()}


def _one(found: Estimates) -> Measured:
    return Measured(float(found.value[0]), float(found.low[0]), float(found.high[0]))
