"""CompareModels: which of two models is better on the same clients, from one paired count.

ReviewWindow: everything that watching a classifier asks of one window of time, in one message.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from fedcalib.artifacts.calibrator import UNCHANGED, Calibrator
from fedcalib.artifacts.evaluation import Comparison, Review
from fedcalib.errors import InputError
from fedcalib.estimation.score_rates import area_influence
from fedcalib.estimation.score_table import DETECTION_Z, MIN_RECORDS, even_edges
from fedcalib.flows.score_table import table_of, two_classes
from fedcalib.flows.wrapped import after, lockstep
from fedcalib.method import Budget, Flow, Method
from fedcalib.methods.bbse import CBPE
from fedcalib.methods.evaluation import FederatedMetrics
from fedcalib.metrics.intervals import Measured, normal_quantile
from fedcalib.metrics.ranking import auc_of_counts
from fedcalib.queries.scores import PairedBuckets, ScoreTree
from fedcalib.query import Answer, Join
from fedcalib.records import Schema
from fedcalib.types import Floats


@final
@dataclass(frozen=True)
class CompareModels(Method[Comparison]):
    """Find equi-depth buckets of both models' scores, then count labels by pair of buckets.

    The rival's scores are a further column of the records, `rival`. Trees that find the buckets get a share `edges` of
    the budget. Since each record is counted once, in both its buckets, sampling and noise cancel where models agree.
    """

    rival: str = "rival"
    buckets: int = 24
    threshold: float = 0.5
    edges: float = 0.2
    height: int = 4

    def __post_init__(self) -> None:
        if not 2 <= self.buckets <= 512 or not 0 < self.threshold < 1 or not 0 < self.edges < 1:
            raise InputError(
                "Expected 2 to 512 buckets, a threshold inside (0, 1) and a share of the budget inside (0, 1) for "
                f"edges, found {self.buckets}, {self.threshold} and {self.edges}."
            )
        if not self.rival:
            raise InputError("Expected the name of the column with the rival's scores, found nothing.")

    def protocol(self, schema: Schema) -> Flow[Comparison]:
        """Ask for edges of both, then for pairs."""
        two_classes(schema)
        trees = tuple(ScoreTree(4, self.height, self.edges / 2, column) for column in ("", self.rival))
        join = Join(trees)
        answer = yield join
        own, other = (self._inner(tree, answer.part(join, index)) for index, tree in enumerate(trees))
        room = 2 * self.buckets + 1
        pairs = yield PairedBuckets(own, other, room, self.rival, 1 - self.edges)
        sides = [np.searchsorted(inner, self.threshold, side="right") for inner in (own, other)]
        return _compare(
            pairs["pairs"], float(pairs.variance("pairs").mean()), int(sides[0]), int(sides[1]), self.threshold
        )

    def _inner(self, tree: ScoreTree, answer: Answer) -> tuple[float, ...]:
        """Part the records evenly, with an edge at the threshold so that accuracy is exact."""
        inner = np.array(even_edges(table_of(tree, answer), self.buckets))
        apart = inner[np.abs(inner - self.threshold) > 1e-9]
        return tuple(np.sort(np.append(apart, self.threshold)).tolist())


def _compare(pairs: Floats, noise: float, own: int, other: int, threshold: float) -> Comparison:
    """Read both models off counts by (label, own bucket, rival's bucket)."""
    totals = pairs.sum(axis=(1, 2))
    if (totals <= DETECTION_Z * np.sqrt(noise * pairs[0].size)).any() or (totals <= MIN_RECORDS).any():
        unknown = Measured(float("nan"), 0.0, 1.0)
        apart = Measured(float("nan"), -1.0, 1.0)
        why = "A class has too few records, or drowns in noise: nothing can be compared."
        return Comparison(unknown, unknown, apart, unknown, unknown, apart, threshold, (why,))
    held = (
        np.maximum(pairs, 0.0) * (totals / np.maximum(np.maximum(pairs, 0.0).sum(axis=(1, 2)), 1e-300))[:, None, None]
    )
    sides = [(pairs.sum(axis=2), held.sum(axis=2)), (pairs.sum(axis=1), held.sum(axis=1))]
    areas = [auc_of_counts(counts[1], counts[0]) for counts, _ in sides]
    pulls = [area_influence(soft) for _, soft in sides]
    own_pull, rival_pull = pulls[0][:, :, None] + np.zeros_like(held), pulls[1][:, None, :] + np.zeros_like(held)
    right = [_right(pairs.shape[1], own)[:, :, None], _right(pairs.shape[1], other)[:, None, :]]
    records = float(totals.sum())
    shares = [float((pairs * side).sum()) / records for side in right]
    hits = [(side - share) / records + np.zeros_like(held) for side, share in zip(right, shares, strict=True)]

    def measured(value: float, pull: Floats, low: float) -> Measured:
        half = normal_quantile(0.95) * float(np.sqrt((held * pull**2).sum() + noise * (pull**2).sum()))
        return Measured(value, max(value - half, low), min(value + half, 1.0))

    return Comparison(
        measured(areas[0], own_pull, 0.0),
        measured(areas[1], rival_pull, 0.0),
        measured(areas[0] - areas[1], own_pull - rival_pull, -1.0),
        measured(shares[0], hits[0], 0.0),
        measured(shares[1], hits[1], 0.0),
        measured(shares[0] - shares[1], hits[0] - hits[1], -1.0),
        threshold,
    )


def _right(buckets: int, first: int) -> Floats:
    """Say which (label, bucket) is called rightly if buckets from `first` up are called positive, (2, buckets)."""
    called = np.arange(buckets) >= first
    return np.stack([~called, called]).astype(np.float64)


@final
@dataclass(frozen=True)
class ReviewWindow(Method[Review]):
    """Measure a window, estimate its accuracy without labels, and with `recalibration` learn for the next window.

    `served` is the calibrator that was in use. With a method of recalibration, what was served is measured beside what
    the model said, so that harm shows. One budget covers all.
    """

    served: Calibrator = UNCHANGED
    recalibration: Method[Calibrator] | None = None

    def with_budget(self, budget: Budget) -> ReviewWindow:
        """Leave the recalibration about a quarter, beside three measurements."""
        if self.recalibration is None:
            return self
        return replace(self, recalibration=self.recalibration.with_budget(budget.split(4)))

    def protocol(self, schema: Schema) -> Flow[Review]:
        """Ask everything at once."""
        flows: list[Flow[Any]] = [FederatedMetrics().protocol(schema), after(self.served, CBPE().protocol(schema))]
        if self.recalibration is None:
            return Review(*(yield from lockstep(flows)))
        flows += [after(self.served, FederatedMetrics().protocol(schema)), self.recalibration.protocol(schema)]
        return Review(*(yield from lockstep(flows)))
