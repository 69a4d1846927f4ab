"""The evaluation of a classifier with several classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import isnan
from typing import Any, final

import numpy as np

from fedcalib.artifacts.evaluation import withheld
from fedcalib.artifacts.performance import Performance
from fedcalib.cohort import MIN_RECORDS
from fedcalib.errors import InputError
from fedcalib.estimation.class_sums import proportion
from fedcalib.estimation.score_rates import Bins, Estimates
from fedcalib.metrics.binning import bin_edges, bin_index_unchecked, check_bins, is_small, shown_cells
from fedcalib.metrics.intervals import Measured, ratio
from fedcalib.metrics.reliability import Reliability
from fedcalib.types import Bools, Floats
from fedcalib.wire import ADDED


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
    table
        Records by bin of the probability of the class: their number, summed probability and how many are of the class;
        None where they were not counted or may not be shown. Under noise no count is negative.

    Examples
    --------
    >>> import fedcalib as fc
    >>> found = fc.run(fc.methods.ClassMetrics(), fc.InProcess(fc.Federation.simulated()), fc.SecAgg()).artifact
    >>> [round(row.f1.value, 2) for row in found.classes]
    [0.74, 0.75, 0.74]
    >>> [int(row.table.correct.sum()) == row.records for row in found.classes]
    [True, True, True]
    """

    label: int
    records: float
    precision: Measured
    recall: Measured
    f1: Measured
    auc: Measured | None = None
    table: Reliability | None = field(default=None, metadata=ADDED)

    def to_json(self) -> dict[str, Any]:
        """The row as plain data, without its table; None for what is not known."""
        count = None if isnan(self.records) else self.records
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        figures = {name: value.to_json() for name, value in found.items() if isinstance(value, Measured)}
        return {"label": self.label, "records": count, **figures}

    def hidden(self) -> ClassRow:
        """The row of a class whose outcomes may not be shown."""
        nothing = Measured(float("nan"), 0.0, 1.0)
        area = None if self.auc is None else nothing
        return ClassRow(self.label, float("nan"), nothing, nothing, nothing, area, self.table)

    def published(self, min_count: int, *, shown: bool) -> ClassRow:
        """The row with an exact table as it may be published, and without its figures where these may not be shown."""
        row = self if shown else self.hidden()
        return row if row.table is None else replace(row, table=row.table.merged(min_count))


@final
@dataclass(frozen=True, eq=False)
class ClassPerformance(Performance):
    """The evaluation of a classifier with several classes: every metric, tables by class and a reliability diagram.

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
    confusion
        Records by actual class (rows) and predicted class (columns), shape (classes, classes), as scikit-learn's
        `confusion_matrix` has them; None where they were not counted, NaN in a cell that may not be shown. Under noise
        no count is negative.
    confusion_noise, class_noise
        Variance of the noise on a cell of `confusion`, and on a count in the table of a class.

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
    >>> found.confusion.shape, int(found.confusion.sum()) == len(records)
    ((4, 4), True)
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
    confusion: Floats | None = field(default=None, metadata=ADDED)
    confusion_noise: float = field(default=0.0, metadata=ADDED)
    class_noise: float = field(default=0.0, metadata=ADDED)

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
        return _diagram(self.table, bins, self.noise)

    def class_reliability(self, label: int, bins: int = 15) -> Bins | None:
        """Reliability diagram of one class: its probability against the share of records that are of it.

        Parameters
        ----------
        label
            Number of the class.
        bins
            Number of bins of equal width. A cell that crosses an edge belongs to the bin of its mean probability; with
            the bins of an exact evaluation none does.

        Returns
        -------
        Bins or None
            None where probabilities by class were not counted or may not be shown.
        """
        check_bins(bins)
        if not 0 <= label < len(self.classes):
            raise InputError(f"Expected a class from 0 to {len(self.classes) - 1}, found {label}.")
        table = self.classes[label].table
        return None if table is None else _diagram(table, bins, self.class_noise)

    def published(self, min_count: int = MIN_RECORDS) -> ClassPerformance:
        """The same metrics; cells of exact tables are merged or withheld, and so are rows of classes with few records.

        Cells of the confusion table have no order in which they could be merged. Those that may not be shown are NaN,
        with as many others as it takes that no row or column tells what they hold.
        """
        if self.noise > 0 or min_count <= 1 or self.min_count >= min_count:
            return self
        shown = _shown(self.classes, min_count)
        classes = tuple(row.published(min_count, shown=bool(ok)) for row, ok in zip(self.classes, shown, strict=True))
        confusion = self.confusion
        if confusion is not None:
            confusion = np.where(shown_cells(confusion, min_count), confusion, np.nan)
        found = replace(self, classes=classes, confusion=confusion, min_count=min_count)
        table = self.table.merged(min_count)
        if table is not None:
            return replace(found, table=table)
        unknown = np.full((1, 1), np.nan)
        told = tuple(dict.fromkeys((*self.warnings, withheld(min_count))))
        return replace(found, table=Reliability(unknown, unknown, unknown), warnings=told)


def _shown(rows: Sequence[ClassRow], min_count: int) -> Bools:
    """Which rows may be shown: those whose counts are 0 or large enough, but for some whose sum would tell the others.

    The totals over all classes are published, so what is withheld can be computed up to its sum.
    """
    counts = np.array([_outcomes(row) for row in rows]).reshape(-1, 3)
    shown = np.asarray(~is_small(counts, min_count).any(axis=1))
    for row in np.argsort(counts.sum(axis=1), kind="stable"):
        if not is_small(counts[~shown].sum(axis=0), min_count).any():
            break
        shown[row] = False
    return shown


def _outcomes(row: ClassRow) -> tuple[float, float, float]:
    """Right and missed records of a class, and records that are wrongly predicted to be of it."""
    right = row.records * (0.0 if isnan(row.recall.value) else row.recall.value)
    wrong = 0.0 if isnan(row.precision.value) or right < 0.5 else right / row.precision.value - right
    return float(np.round(right)), float(np.round(row.records - right)), float(np.round(wrong))


def _diagram(table: Reliability, bins: int, level: float) -> Bins:
    """Cells of a table of one group, put together in bins of equal width."""
    mean = np.where(table.count[0] > 0, table.mean_confidence[0], table.edges[:-1])
    place = bin_index_unchecked(mean, bins)
    count, right, summed = (
        np.bincount(place, side[0], bins).astype(np.float64) for side in (table.count, table.correct, table.confidence)
    )
    noise = level * np.bincount(place, minlength=bins)
    rates = _rates(right, count - right, noise)
    below = (count <= 3 * np.sqrt(2 * noise)).astype(np.float64)
    return Bins(bin_edges(bins), count, ratio(summed, count), rates, below)


def _rates(right: Floats, wrong: Floats, noise: Floats) -> Estimates:
    """Share of right records in each bin, with its interval inside [0, 1]."""
    numbers = zip(right.tolist(), wrong.tolist(), noise.tolist(), strict=True)
    found = [
        proportion(hits, misses, level, level).measured(0.0, 1.0, hits + misses) for hits, misses, level in numbers
    ]
    return Estimates(*(np.array([getattr(one, name) for one in found]) for name in ("value", "low", "high")))
