"""The evaluation of a classifier with several classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import isnan
from typing import Any, final

import numpy as np

from fedcalib.artifacts.evaluation import withheld
from fedcalib.artifacts.performance import Performance
from fedcalib.cohort import MIN_RECORDS
from fedcalib.errors import InputError
from fedcalib.estimation.class_sums import proportion
from fedcalib.estimation.score_rates import Bins, Estimates
from fedcalib.metrics.binning import bin_edges, bin_index_unchecked, check_bins
from fedcalib.metrics.intervals import Measured, ratio
from fedcalib.metrics.reliability import Reliability
from fedcalib.types import Floats


@final
@dataclass(frozen=True)
class ClassRow:
    """One class of an evaluation: a row of the table by class.

    A figure is NaN with the widest interval where the class has too few records, or no more than noise could produce.

    Parameters
    ----------
    label
        Number of the class.
    records
        Records of the class; noisy under differential privacy, NaN where the number may not be shown.
    precision
        Share of records of the class among those that are predicted to be of it.
    recall
        Share of the class's records that are predicted to be of it.
    f1
        Harmonic mean of precision and recall.
    auc
        Chance that a record of the class has a higher probability of it than a record of another class; None where
        scores by class were not counted.

    Examples
    --------
    >>> import fedcalib as fc
    >>> found = fc.run(fc.methods.ClassMetrics(), fc.InProcess(fc.Federation.simulated()), fc.SecAgg()).artifact
    >>> [round(row.f1.value, 2) for row in found.classes]
    [0.74, 0.75, 0.74]
    """

    label: int
    records: float
    precision: Measured
    recall: Measured
    f1: Measured
    auc: Measured | None = None

    def to_json(self) -> dict[str, Any]:
        """The row as plain data; None for what is not known."""
        count = None if isnan(self.records) else self.records
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        figures = {name: value.to_json() for name, value in found.items() if isinstance(value, Measured)}
        return {"label": self.label, "records": count, **figures}

    def hidden(self) -> ClassRow:
        """The row of a class of which nothing may be shown."""
        nothing = Measured(float("nan"), 0.0, 1.0)
        return ClassRow(self.label, float("nan"), nothing, nothing, nothing, None if self.auc is None else nothing)


@final
@dataclass(frozen=True, eq=False)
class ClassPerformance(Performance):
    """The evaluation of a classifier with several classes: every metric, a table by class and a reliability diagram.

    Parameters
    ----------
    figures
        Every metric by name, with its interval.
    reasons
        Why metrics are not stated, by name.
    count
        Number of records; noisy under differential privacy.
    table
        Records by confidence of the top label: their number, summed confidence and the number that are right. Under
        noise none is negative.
    noise
        Variance of the noise on a count of right or wrong records in a cell of the table.
    classes
        One row per class.
    cut
        The public bound at which each record's log loss was cut; None where it was not.
    warnings
        What a reader has to know.
    min_count
        Cells of an exact table were merged until no count was from 1 to `min_count` - 1; 0 where none were.

    Examples
    --------
    >>> import fedcalib as fc
    >>> federation = fc.Federation.simulated(classes=4)
    >>> found = fc.run(fc.methods.ClassMetrics(), fc.InProcess(federation), fc.SecAgg()).artifact
    >>> records = federation.records
    >>> round(found.brier.value, 4) == round(fc.metrics.brier(records.probs, records.labels), 4)
    True
    >>> found.accuracy.low < found.accuracy.value < found.accuracy.high
    True
    """

    figures: Mapping[str, Measured]
    reasons: Mapping[str, str]
    count: float
    table: Reliability
    noise: float
    classes: tuple[ClassRow, ...] = ()
    cut: float | None = None
    warnings: tuple[str, ...] = ()
    min_count: int = 0

    @property
    def records(self) -> float:
        return self.count

    @property
    def exact(self) -> bool:
        return self.noise == 0

    def estimates(self) -> Mapping[str, Measured]:
        return self.figures

    def unmeasurable(self) -> Mapping[str, str]:
        return self.reasons

    def reliability(self, bins: int = 15) -> Bins:
        """Reliability diagram of the top label: cells of the table, put together in bins of equal width.

        Parameters
        ----------
        bins
            Number of bins. A cell that crosses an edge belongs to the bin of its mean confidence; with the bins of the
            evaluation none does.
        """
        check_bins(bins)
        if not np.isfinite(self.table.count).all():
            raise InputError(withheld(self.min_count))
        mean = np.where(self.table.count[0] > 0, self.table.mean_confidence[0], self.table.edges[:-1])
        place = bin_index_unchecked(mean, bins)
        count, right, summed = (
            np.bincount(place, side[0], bins).astype(np.float64)
            for side in (self.table.count, self.table.correct, self.table.confidence)
        )
        noise = self.noise * np.bincount(place, minlength=bins)
        rates = _rates(right, count - right, noise)
        below = (count <= 3 * np.sqrt(2 * noise)).astype(np.float64)
        return Bins(bin_edges(bins), count, ratio(summed, count), rates, below)

    def published(self, min_count: int = MIN_RECORDS) -> ClassPerformance:
        """The same metrics; cells of an exact table are merged, and rows of classes with few records are withheld."""
        if self.noise > 0 or min_count <= 1 or self.min_count >= min_count:
            return self
        classes = tuple(row if _shown(row, min_count) else row.hidden() for row in self.classes)
        table = self.table.merged(min_count)
        if table is not None:
            return replace(self, table=table, classes=classes, min_count=min_count)
        unknown = np.full((1, 1), np.nan)
        told = tuple(dict.fromkeys((*self.warnings, withheld(min_count))))
        hidden = Reliability(unknown, unknown, unknown)
        return replace(self, table=hidden, classes=classes, min_count=min_count, warnings=told)


def _shown(row: ClassRow, min_count: int) -> bool:
    """Whether the counts behind a row are 0 or large enough: right and missed records, right and wrong predictions."""
    right = row.records * (0.0 if isnan(row.recall.value) else row.recall.value)
    wrong = 0.0 if isnan(row.precision.value) or right < 0.5 else right / row.precision.value - right
    counts = np.round([right, row.records - right, wrong])
    return not bool(((counts >= 1) & (counts < min_count)).any())


def _rates(right: Floats, wrong: Floats, noise: Floats) -> Estimates:
    """Share of right records in each bin, with its interval inside [0, 1]."""
    numbers = zip(right.tolist(), wrong.tolist(), noise.tolist(), strict=True)
    found = [
        proportion(hits, misses, level, level).measured(0.0, 1.0, hits + misses) for hits, misses, level in numbers
    ]
    return Estimates(*(np.array([getattr(one, name) for one in found]) for name in ("value", "low", "high")))
