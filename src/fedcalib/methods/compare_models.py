"""Comparing two models on the same clients, and reviewing one model in a window of time.

`CompareModels` decides which of two models is better from one paired count. `ReviewWindow` combines everything that
monitoring needs from one window in one message.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final, final

import numpy as np

from fedcalib.artifacts.calibrator import UNCHANGED, Calibrator, Identity
from fedcalib.artifacts.evaluation import Comparison, Review
from fedcalib.artifacts.performance import BinaryPerformance
from fedcalib.errors import InputError
from fedcalib.estimation.score_functionals import mean
from fedcalib.estimation.score_rates import area_influence
from fedcalib.estimation.score_sheet import ScoreSheet
from fedcalib.estimation.score_table import DETECTION_Z, MIN_RECORDS, even_edges
from fedcalib.flows.tables import ScoreCalibration, table_of, two_classes
from fedcalib.flows.wrapped import after, lockstep
from fedcalib.method import Budget, Flow, Method
from fedcalib.methods.bbse import CBPE
from fedcalib.methods.evaluation import FederatedMetrics
from fedcalib.methods.paired_evaluation import PairedMetrics
from fedcalib.methods.platt import BetaScaling, PlattScaling
from fedcalib.metrics.intervals import Measured, normal_quantile
from fedcalib.metrics.ranking import auc_of_counts
from fedcalib.queries.scores import PairedBuckets, ScoreTree
from fedcalib.query import Answer, Join
from fedcalib.records import Schema
from fedcalib.types import Floats
from fedcalib.wire import ADDED

_MEASURE: Final = FederatedMetrics()


@final
@dataclass(frozen=True)
class CompareModels(Method[Comparison]):
    """Compare two binary models on the same records, from one paired count.

    A first message finds equi-depth buckets of both models' scores, a second counts labels by pair of buckets. Since
    each record is counted once, in both its buckets, sampling and noise cancel where the models agree.

    Parameters
    ----------
    rival
        The column of the records that holds the other model's scores.
    buckets
        Number of buckets per model.
    threshold
        Threshold at which accuracy is compared.
    edges
        Fraction of the budget for the trees that find the buckets.
    height
        Height of these trees.

    Examples
    --------
    >>> import numpy as np
    >>> import fedcalib as fc
    >>> federation = fc.Federation.simulated(classes=2)
    >>> records, noise = federation.records, np.random.default_rng(0).normal(size=2000)
    >>> rival = 1 / (1 + np.exp(np.diff(records.logits[:, ::-1])[:, 0] + 5 * noise))  # the same scores, with noise
    >>> records = fc.Records.of_scores(records.score, records.labels, rival=rival)
    >>> federation = fc.Federation.grouped(records, federation.owner)
    >>> comparison = fc.run(fc.CompareModels(), fc.InProcess(federation), fc.SecAgg()).artifact
    >>> comparison.auc_difference.low > 0  # the first model is better
    True
    """

    rival: str = "rival"
    buckets: int = 24
    threshold: float = 0.5
    edges: float = 0.2
    height: int = 4

    def __post_init__(self) -> None:
        if not 2 <= self.buckets <= 512 or not 0 < self.threshold < 1 or not 0 < self.edges < 1:
            raise InputError(
                "Expected 2 to 512 buckets, a threshold inside (0, 1) and a fraction of the budget inside (0, 1) for "
                f"edges, found {self.buckets}, {self.threshold} and {self.edges}."
            )
        if not self.rival:
            raise InputError("Expected the name of the column with the rival's scores, found nothing.")

    def protocol(self, schema: Schema) -> Flow[Comparison]:
        two_classes(schema)
        trees = tuple(ScoreTree(4, self.height, self.edges / 2, column) for column in ("", self.rival))
        join = Join(trees)
        answer = yield join
        own, other = (self._inner(tree, answer.part(join, index)) for index, tree in enumerate(trees))
        room = 2 * self.buckets + 1
        pairs = yield PairedBuckets(own, other, room, self.rival, 1 - self.edges)
        first, second = (int(np.searchsorted(inner, self.threshold, side="right")) for inner in (own, other))
        return _compare(pairs["pairs"], float(pairs.variance("pairs").mean()), first, second, self.threshold)

    def _inner(self, tree: ScoreTree, answer: Answer) -> tuple[float, ...]:
        """Equi-depth edges, and one at the threshold so that accuracy is exact."""
        inner = np.array(even_edges(table_of(tree, answer), self.buckets))
        apart = inner[np.abs(inner - self.threshold) > 1e-9]
        return tuple(np.sort(np.append(apart, self.threshold)).tolist())


def _compare(pairs: Floats, noise: float, own: int, other: int, threshold: float) -> Comparison:
    """Both models' metrics from counts by (label, own bucket, rival's bucket)."""
    totals = pairs.sum(axis=(1, 2))
    if (totals <= DETECTION_Z * np.sqrt(noise * pairs[0].size)).any() or (totals <= MIN_RECORDS).any():
        unknown = Measured(float("nan"), 0.0, 1.0)
        apart = Measured(float("nan"), -1.0, 1.0)
        why = "A class has too few records, or its count is within its noise: nothing can be compared."
        return Comparison(unknown, unknown, apart, unknown, unknown, apart, threshold, (why,))
    positive = np.maximum(pairs, 0.0)
    counts = positive * (totals / np.maximum(positive.sum(axis=(1, 2)), 1e-300))[:, None, None]
    sides = [(pairs.sum(axis=2), counts.sum(axis=2)), (pairs.sum(axis=1), counts.sum(axis=1))]
    areas = [auc_of_counts(signed[1], signed[0]) for signed, _ in sides]
    own_auc = area_influence(sides[0][1])[:, :, None] + np.zeros_like(counts)
    rival_auc = area_influence(sides[1][1])[:, None, :] + np.zeros_like(counts)
    right = [_right(pairs.shape[1], own)[:, :, None], _right(pairs.shape[1], other)[:, None, :]]
    records = float(totals.sum())
    accuracies = [float((pairs * side).sum()) / records for side in right]
    hits = [(side - mean) / records + np.zeros_like(counts) for side, mean in zip(right, accuracies, strict=True)]

    def measured(value: float, influence: Floats, low: float) -> Measured:
        variance = (counts * influence**2).sum() + noise * (influence**2).sum()
        half_width = normal_quantile(0.95) * float(np.sqrt(variance))
        return Measured(value, max(value - half_width, low), min(value + half_width, 1.0))

    return Comparison(
        measured(areas[0], own_auc, 0.0),
        measured(areas[1], rival_auc, 0.0),
        measured(areas[0] - areas[1], own_auc - rival_auc, -1.0),
        measured(accuracies[0], hits[0], 0.0),
        measured(accuracies[1], hits[1], 0.0),
        measured(accuracies[0] - accuracies[1], hits[0] - hits[1], -1.0),
        threshold,
    )


def _right(buckets: int, first: int) -> Floats:
    """Whether a label is classified correctly if buckets from `first` up are called positive, shape (2, buckets)."""
    called = np.arange(buckets) >= first
    return np.stack([~called, called]).astype(np.float64)


@final
@dataclass(frozen=True)
class ReviewWindow(Method[Review]):
    """Measure a window, estimate its accuracy without labels, and optionally recalibrate for the next window.

    One budget covers all of it. With two classes one table of scores serves everything: the measurement, what was
    served, the estimate without labels, and a recalibration that fits such a table, such as `PlattScaling`.

    Parameters
    ----------
    served
        The calibrator that was in use.
    recalibration
        A method that fits the next calibrator. With one, served probabilities are measured beside the classifier's own,
        so that harm shows.
    measure
        Settings of the evaluation.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.methods.compare_models import ReviewWindow
    >>> method = ReviewWindow(recalibration=fc.OneShotTemperature())
    >>> review = fc.run(method, fc.InProcess(fc.Federation.simulated()), fc.SecAgg()).artifact
    >>> type(review.calibrator).__name__
    'Temperature'
    """

    served: Calibrator = UNCHANGED
    recalibration: Method[Calibrator] | None = None
    measure: FederatedMetrics = field(default=_MEASURE, metadata=ADDED)

    def with_budget(self, budget: Budget) -> ReviewWindow:
        """Divide the budget between the measurement and a recalibration that has a message of its own."""
        if self.recalibration is None or _fits_tables(self.recalibration):
            return replace(self, measure=self.measure.with_budget(budget))
        own = self.recalibration.with_budget(budget.split(4))
        return replace(self, recalibration=own, measure=self.measure.with_budget(budget.split(2)))

    def protocol(self, schema: Schema) -> Flow[Review]:
        if schema.classes == 2:
            return (yield from self._binary(schema))
        flows: list[Flow[Any]] = [self.measure.protocol(schema), after(self.served, CBPE().protocol(schema))]
        if self.recalibration is None:
            return Review(*(yield from lockstep(flows)))
        flows += [after(self.served, self.measure.protocol(schema)), self.recalibration.protocol(schema)]
        return Review(*(yield from lockstep(flows)))

    def _binary(self, schema: Schema) -> Flow[Review]:
        unchanged, method = isinstance(self.served, Identity), self.recalibration
        measure = self.measure if unchanged else PairedMetrics(self.served, measure=self.measure)
        own = method if method is not None and not _fits_tables(method) else None
        found = yield from lockstep([one.protocol(schema) for one in (measure, own) if one is not None])
        before, later = (found[0], found[0]) if unchanged else (found[0].before, found[0].after)
        estimate = _without_labels(later.sheet)
        if method is None:
            return Review(before, estimate)
        return Review(before, estimate, later, _fitted(method, before) if own is None else found[1])


def _fits_tables(method: Method[Calibrator]) -> bool:
    return isinstance(method, PlattScaling | BetaScaling | ScoreCalibration)


def _fitted(method: Method[Calibrator], found: BinaryPerformance) -> Calibrator | None:
    """The calibrator that a method fits to the table of an evaluation."""
    if isinstance(method, PlattScaling | BetaScaling):
        return method.fit(found.table, found.odds)
    return method.fit(found.table) if isinstance(method, ScoreCalibration) else None


def _without_labels(sheet: ScoreSheet) -> Measured:
    """The accuracy to expect where scores are calibrated, which is the mean confidence; labels are not looked at."""
    if not sheet.known[2]:
        return Measured(float("nan"), 0.0, 1.0)
    confidence = np.maximum(sheet.score, 1 - sheet.score)
    found = sheet.estimate(mean(sheet, np.stack([confidence, confidence])))
    sampling = max(found.value * (1 - found.value), 0.0) / sheet.records
    return replace(found, sampling=sampling).normal(0.0, 1.0)
