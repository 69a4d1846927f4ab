"""Evaluation of a classifier over all clients.

`FederatedMetrics` estimates every metric that is a sum of binned statistics, from one message. `ScoreCurves` evaluates
a binary classifier at every threshold from one private count of its scores. `PerClientECE` averages clients' own
calibration errors without showing any single client's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import isfinite, log2, sqrt
from typing import Any, Final, final

import numpy as np

from fedcalib.artifacts.evaluation import ClientErrors, Curves
from fedcalib.artifacts.performance import BinaryPerformance, binary_performance
from fedcalib.errors import InputError
from fedcalib.estimation.paired import Pair, cut_cells, jumps
from fedcalib.estimation.score_figures import ScoreTotals
from fedcalib.estimation.score_sheet import ScoreSheet
from fedcalib.estimation.score_table import ScoreTable
from fedcalib.flows.tables import one_per_level, raw_table, recounted, score_table, two_classes
from fedcalib.method import Budget, Flow, Method
from fedcalib.methods.class_evaluation import ClassMetrics
from fedcalib.metrics.binning import Axis, CutLogOdds, EvenLogOdds, ListedScores, StretchedLogOdds
from fedcalib.metrics.intervals import Measured, normal_quantile
from fedcalib.queries import reliability
from fedcalib.queries.scores import FINE, TREE, ScoreCells, ScoreSums, ScoreTree
from fedcalib.query import Answer, Join, Unit
from fedcalib.records import Schema
from fedcalib.types import Floats
from fedcalib.wire import ADDED


@final
@dataclass(frozen=True)
class FederatedMetrics(Method[Any]):
    """Measure a classifier across clients: every metric, with its interval, from one message.

    With two classes the message is one table of scores by label on the log-odds axis, and the result a
    `BinaryPerformance`. Its resolution follows from public numbers, records and epsilon. Where sums are exact, the
    table is fine, and a few more sums make metrics equal to those of pooled records.

    Parameters
    ----------
    bins
        Number of bins of equal width of the calibration error.
    margin
        With more than two classes, the log loss of a record is clipped at ln(classes) + `margin`, a public bound.
    records
        A public guess of the number of records, which sets the resolution under noise; None for 2,000 or the number of
        clients, if that is larger.
    scores
        With two classes, the public list of the scores that the classifier gives, if they are few; ties are then known
        to be ties.
    threshold
        With two classes, the threshold of sensitivity, specificity and other metrics of decisions.
    epsilon, unit, alone
        What the run may spend, on whom, and who adds noise; filled in by the run. None for exact sums.
    class_auc, confusion
        With more than two classes, whether to count scores by class for the AUC of each class, and records by actual
        and predicted class: see `ClassMetrics`. None for where sums are exact.

    Examples
    --------
    >>> import fedcalib as fc
    >>> federation = fc.Federation.simulated(classes=2)
    >>> found = fc.run(fc.FederatedMetrics(), fc.InProcess(federation), fc.SecAgg()).artifact
    >>> round(found.accuracy.value, 2), round(found.ece.value, 2)
    (0.82, 0.09)
    >>> round(fc.metrics.accuracy(federation.records.probs, federation.records.labels), 2)
    0.82
    """

    bins: int = 15
    margin: float = 5.0
    records: int | None = field(default=None, metadata=ADDED)
    scores: tuple[float, ...] = field(default=(), metadata=ADDED)
    threshold: float = field(default=0.5, metadata=ADDED)
    epsilon: float | None = field(default=None, metadata=ADDED)
    unit: Unit | None = field(default=None, metadata=ADDED)
    alone: Unit | None = field(default=None, metadata=ADDED)
    class_auc: bool | None = field(default=None, metadata=ADDED)
    confusion: bool | None = field(default=None, metadata=ADDED)

    def __post_init__(self) -> None:
        if not 1 <= self.bins <= 1 << 12 or not 0 < self.margin < 100:
            raise InputError(f"Expected 1 to 4096 bins and a margin above 0, found {self.bins} and {self.margin}.")
        if not 0 <= self.threshold < 1:
            raise InputError(f"Expected a threshold (--threshold) from 0 to below 1, found {self.threshold}.")
        if self.records is not None and not self.records > 0:
            raise InputError(f"Expected a number of records (--records-about) above 0, found {self.records}.")
        if self.scores:
            ListedScores(self.scores)

    def with_budget(self, budget: Budget) -> FederatedMetrics:
        """Take what was not set here from the run's budget."""
        epsilon, unit, alone = self.epsilon or budget.epsilon, self.unit or budget.unit, self.alone or budget.alone
        return replace(self, epsilon=epsilon, unit=unit, alone=alone)

    @property
    def of_classes(self) -> ClassMetrics:
        """The same evaluation of more than two classes."""
        return ClassMetrics(self.bins, self.margin, self.class_auc, self.confusion, self.epsilon, self.unit, self.alone)

    def protocol(self, schema: Schema) -> Flow[Any]:
        if schema.classes != 2:
            return (yield from self.of_classes.protocol(schema))
        if self.class_auc is not None or self.confusion is not None:
            raise InputError(
                "Expected class_auc (--class-auc) and confusion (--confusion) with several classes only, found two "
                "classes, whose evaluation has both; leave them out."
            )
        resolution = Resolution.of(self, schema)
        if self.epsilon is None:
            return (yield from exact_performance(resolution, self.threshold, self.bins))
        sheet = yield from resolution.sheet()
        return binary_performance(sheet, self.threshold, self.bins, None, self.epsilon)


_GUESS: Final = 2000  # records of a federation of which nothing is known
_EXACT_CELLS: Final = 1 << 13  # so fine that a reading at the middles of cells is exact to 1e-6
_EXACT_REACH: Final = 28.0  # scores are read between 1e-12 and 1 - 1e-12
_MAX_CELLS: Final = 1 << 11
_MIDDLE: Final = 48  # cells: from 32 to 64 is a long step for skewed scores


@final
@dataclass(frozen=True)
class Resolution:
    """How fine a table of scores is, from public numbers: a flat one, or a tree where every record is randomised."""

    cells: int
    axis: Axis
    tree: bool = False

    @classmethod
    def of(cls, method: FederatedMetrics, schema: Schema) -> Resolution:
        """The resolution for what is known of records and noise."""
        if method.scores:
            return cls(len(method.scores), ListedScores(method.scores))
        if method.epsilon is None:
            return cls(_EXACT_CELLS, EvenLogOdds(_EXACT_REACH))
        records = method.records or max(_GUESS, schema.clients)
        if method.alone == "record":
            cells = _power_of_two(method.epsilon ** (2 / 3) * records ** (1 / 3), 16, 1 << 8)
            return cls(cells, _axis(cells), tree=cells > 16)
        epsilon = method.epsilon / sqrt(schema.clients) if method.alone == "client" else method.epsilon
        signal = records * min(epsilon, 8.0)
        wanted = 32 * (signal / 2000) ** 0.56
        cells = _power_of_two(wanted, 32 if signal >= 500 else 16, _MAX_CELLS)
        cells = _MIDDLE if cells < _MIDDLE <= wanted else cells
        return cls(cells, _axis(cells))

    def pair(self, of_score: Callable[[Floats], Floats]) -> Flow[Pair]:
        """Request the table in parts that do not cross a jump of a function of the score, so that it is known in each.

        The largest jumps are taken, half as many as there are cells; there is room for so many parts, whether or not
        there are jumps, since what is sent must not depend on answers.
        """
        room, known = self.cells // 2, self.axis.edges(self.cells)[1:-1]
        places, sizes = jumps(of_score)
        chosen = places[np.argsort(-sizes, kind="stable")[:room]]
        edges = np.unique(np.concatenate([known, chosen]))
        answer = yield ScoreCells(self.cells + room, CutLogOdds(tuple(edges.tolist())))
        counts, noise = answer["cells"][:, : len(edges) + 1], answer.variance("cells")[:, : len(edges) + 1]
        starts = np.concatenate([[0], np.searchsorted(edges, known) + 1])
        sheet = self.sheet_of(np.add.reduceat(counts, starts, axis=1), np.add.reduceat(noise, starts, axis=1))
        return cut_cells(sheet, edges, counts, float(noise.max()), of_score)

    def sheet(self) -> Flow[ScoreSheet]:
        """Request the table."""
        if self.tree:
            tree = ScoreTree(2, self.cells.bit_length() - 1, axis=self.axis)
            return ScoreSheet((yield from score_table(tree)), self.axis.odds(self.cells))
        answer = yield ScoreCells(self.cells, self.axis)
        return self.sheet_of(answer["cells"], answer.variance("cells"))

    def sheet_of(self, counts: Floats, noise: Floats) -> ScoreSheet:
        """The sheet of counts and their noise variances, shape (2, cells)."""
        table = ScoreTable(self.axis.edges(self.cells), counts, self.cells, (one_per_level(noise),))
        return ScoreSheet(table, self.axis.odds(self.cells), self.axis.tied)


def _power_of_two(number: float, least: int, most: int) -> int:
    """The largest power of two up to a number, within limits."""
    return int(min(max(1 << int(log2(max(number, 1.0))), least), most))


def _axis(cells: int) -> Axis:
    """Few cells cover less: noise on a cell far out weighs as much in the log loss as its log-odds are large."""
    if cells > _MIDDLE:
        return StretchedLogOdds(16.0, 0.5)
    return StretchedLogOdds(11.0 if cells < _MIDDLE else 14.0, 0.25)


def exact_performance(resolution: Resolution, threshold: float, bins: int) -> Flow[BinaryPerformance]:
    """Request the table and the sums that make metrics exact."""
    join = Join((ScoreCells(resolution.cells, resolution.axis), ScoreSums(bins, threshold)))
    answer = yield join
    cells, sums = answer.part(join, 0), answer.part(join, 1)
    sheet = resolution.sheet_of(cells["cells"], cells.variance("cells"))
    if not sheet.table.exact:  # exact sums were expected, and noise came
        return binary_performance(sheet, threshold, bins, None, None)
    return binary_performance(sheet, threshold, bins, totals_of(sums, 0), None)


def totals_of(sums: Answer, group: int) -> ScoreTotals:
    """The exact sums of one group."""
    means, confidence = sums["means"][:, group] / FINE, sums["confidence"][group] / FINE[2]
    squares, decisions = sums["squares"][:, group], sums["decisions"][:, group]
    return ScoreTotals(means, squares, decisions, sums["bins"][group], confidence)


@final
@dataclass(frozen=True)
class ScoreCurves(Method[Curves]):
    """Evaluate a binary classifier at every threshold from one count of labels by score, in a tree.

    Parameters
    ----------
    tree
        The tree of scores to count.
    buckets
        Number of equi-depth buckets to recount.
    recount
        With a value above 0, the tree only finds the buckets, and a second query counts them with that fraction of the
        budget.
    raw
        Read a binary tree as published, with nothing made consistent; intervals then leave privacy noise out.
    batches
        With `raw`, deal clients to levels: one query per level. Run it with `Disjoint(height)`.

    Examples
    --------
    >>> import fedcalib as fc
    >>> federation = fc.Federation.simulated(classes=2)
    >>> curves = fc.run(fc.ScoreCurves(), fc.InProcess(federation), fc.SecAgg()).artifact
    >>> round(curves.auc.value, 2), round(fc.metrics.roc_auc(federation.records.score, federation.records.labels), 2)
    (0.92, 0.92)
    """

    tree: ScoreTree = TREE
    buckets: int = 100
    recount: float = 0.0
    raw: bool = field(default=False, metadata=ADDED)
    batches: bool = field(default=False, metadata=ADDED)

    def __post_init__(self) -> None:
        if not 0 <= self.recount < 1:
            raise InputError(f"Expected a fraction from 0 to below 1 for recounting, found {self.recount}.")
        if not 2 <= self.buckets <= 1 << 20:
            raise InputError(f"Expected 2 to 2^20 buckets, found {self.buckets}.")
        if (self.raw and (self.tree.arity != 2 or self.recount)) or (self.batches and not self.raw):
            raise InputError("Expected a binary tree without recounting for raw, and raw for batches, found others.")

    @classmethod
    def as_published(cls, height: int = 10, buckets: int | None = None, *, batches: bool = False) -> ScoreCurves:
        """The tree of "Federated Calibration and Evaluation of Binary Classifiers", section 2.3: binary, read raw.

        Run it with `SecAgg()`, with `DistributedDP(1.0)`, whose budget the levels share, or with
        `LocalDP(5.0, unary=True)`, where each record reports one level by optimal unary encoding.

        Parameters
        ----------
        height
            Number of levels; the paper takes 10 with distributed noise and 8 with local reports.
        buckets
            Number of equi-depth buckets, for the AUC of section 4; None for the leaves, from which section 3 reads
            precision, recall and accuracy.
        batches
            Deal clients to levels instead, as the paper offers for distributed noise: run it with `Disjoint(height)`,
            and each level has all of epsilon.
        """
        return cls(ScoreTree(2, height), buckets or 2**height, raw=True, batches=batches)

    def protocol(self, schema: Schema) -> Flow[Curves]:
        two_classes(schema)
        if self.raw:
            clients = schema.clients if self.batches else None
            return Curves((yield from raw_table(self.tree, self.buckets, clients)))
        if self.recount == 0:
            return Curves((yield from score_table(self.tree)))
        return Curves((yield from recounted(self.tree, self.buckets, self.recount)))


_TOO_FEW = "No estimate: too few clients have enough records, or their number is within its noise."


@final
@dataclass(frozen=True)
class PerClientECE(Method[ClientErrors]):
    """Average the clients' own calibration errors of the top label.

    A classifier can be calibrated on the whole and wrong for every client. Small clients look worse than they are,
    since chance alone separates confidence from accuracy; compare the figure before and after a calibrator, or between
    models, on the same clients.

    Parameters
    ----------
    bins
        Number of bins of equal width.
    fewest
        Clients with fewer records are left out.

    Examples
    --------
    >>> import fedcalib as fc
    >>> errors = fc.run(fc.PerClientECE(), fc.InProcess(fc.Federation.simulated()), fc.SecAgg()).artifact
    >>> round(errors.mean.value, 2)
    0.13
    """

    bins: int = 15
    fewest: int = 10

    def __post_init__(self) -> None:
        if self.bins < 1 or self.fewest < 1:
            raise InputError(f"Expected at least 1 bin and 1 record per client, found {self.bins} and {self.fewest}.")

    def protocol(self, schema: Schema) -> Flow[ClientErrors]:
        answer = yield reliability.OwnErrors(self.bins, self.fewest)
        clients, errors, squares = answer["errors"].tolist()
        noise = float(answer.variance("errors").max(initial=0.0))
        if not clients > max(3 * sqrt(noise), 1.0) or not isfinite(clients + errors + squares):
            return ClientErrors(None, None, (_TOO_FEW,))
        mean = min(max(errors / clients, 0.0), 1.0)
        between = min(max(squares / clients - mean**2, 0.0), 0.25)
        variance = between / (clients - 1) + noise * (1 + mean**2) / clients**2
        half_width = normal_quantile(0.95) * sqrt(variance)
        return ClientErrors(Measured(mean, max(mean - half_width, 0.0), min(mean + half_width, 1.0)), sqrt(between))
