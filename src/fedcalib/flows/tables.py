"""Tables of counts, the sub-protocols with which binning and binary methods begin.

For several classes: `label_histograms` sums label histograms, and a `Weighting` decides how far a binning method trusts
its own steps, against overfitting and noise.

For two classes: `score_table` requests a tree of scores and fits its leaves; `recounted` finds equi-depth buckets and
counts them with the rest of the budget. A `ScoreCalibration` is a calibrator that is fitted to such a table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from math import inf, pi, sqrt
from typing import Final, final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.steps import Blend, Steps, step_functions
from fedcalib.errors import InputError
from fedcalib.estimation.score_table import ScoreTable, default_buckets, even_edges
from fedcalib.estimation.trees import consistent, variances_at_fit
from fedcalib.method import Flow, Method
from fedcalib.metrics.binning import EVEN, Axis, small_cells
from fedcalib.queries.class_tables import Clips, LabelHistogram
from fedcalib.queries.scores import ScoreBuckets, ScoreLeaves, ScoreTree
from fedcalib.query import Answer
from fedcalib.records import Schema
from fedcalib.types import Bools, Floats
from fedcalib.wire import ADDED


@final
@dataclass(frozen=True, eq=False)
class LabelHistograms:
    """Positives and negatives by class and bin, summed over rounds, negative where noise made them so."""

    positives: Floats  # (step functions, bins)
    negatives: Floats  # (step functions, bins)
    variance: float  # of the noise on a cell of positives, accumulated over rounds
    seen: float  # fraction of all clients that was counted, 1 at most

    @property
    def bins(self) -> int:
        return int(self.positives.shape[1])

    @property
    def small(self) -> int | None:
        """Number of bins with 1 to 10 records of a label, over all classes; None where noise hides it."""
        return None if self.variance > 0 else small_cells(np.stack([self.positives, self.negatives]))

    def merged(self, bins: int) -> LabelHistograms:
        """Neighbouring bins summed into fewer, wider ones; noise adds up with them, and nothing is clipped before."""
        wider = self.bins // bins
        counts = np.stack([self.positives, self.negatives]).reshape(2, -1, bins, wider).sum(axis=3)
        return LabelHistograms(counts[0], counts[1], self.variance * wider, self.seen)


def label_histograms(schema: Schema, bins: int, rounds: int, clip: Clips, axis: Axis = EVEN) -> Flow[LabelHistograms]:
    """Request histograms `rounds` times and add them up."""
    counts = np.zeros((step_functions(schema.classes), 2, bins))
    variance, clients = 0.0, 0
    for _ in range(rounds):
        answer = yield LabelHistogram(schema.classes, bins, clip, axis)
        counts += np.stack(list(answer.values.values())).reshape(counts.shape)
        noise = np.stack(list(answer.variances.values())).reshape(counts.shape)
        variance += float(noise[:, 0].max(initial=0.0))
        clients += answer.clients or 0
    seen = min(1.0, clients / schema.clients) if schema.clients else 1.0
    return LabelHistograms(counts[:, 0], counts[:, 1], variance, seen)


class Weighting(ABC):
    """How step functions become the final calibrator."""

    @abstractmethod
    def apply(self, steps: Steps, counts: LabelHistograms) -> Calibrator:
        """The steps, or a mixture of them with the classifier."""


@final
@dataclass(frozen=True)
class Unweighted(Weighting):
    """Trust the steps, except those of a class that no record has, or every record: there the classifier stays.

    Parameters
    ----------
    every_class
        Trust the steps of such a class too, as published: nothing then has a class that no record had.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.FedBin(weighting=fc.methods.Unweighted()) == fc.FedBin()
    True
    """

    every_class: bool = field(default=False, metadata=ADDED)

    def apply(self, steps: Steps, counts: LabelHistograms) -> Calibrator:
        return steps if self.every_class else _with_identity(steps, _one_sided(counts))


AS_PRINTED: Final = Unweighted(every_class=True)


@final
@dataclass(frozen=True)
class Doubting(Weighting):
    """Trust the steps only where counts exceed their noise.

    A cell whose count is below `deviations` standard deviations of its noise keeps the classifier's probability.
    Without noise that leaves the steps as `Unweighted` does.

    Parameters
    ----------
    deviations
        The z-threshold of a count.

    Examples
    --------
    >>> import fedcalib as fc
    >>> method = fc.FedBin(weighting=fc.methods.Doubting(deviations=3.0))
    >>> type(fc.run(method, fc.InProcess(fc.Federation.simulated()), fc.DistributedDP(1.0)).artifact).__name__
    'Steps'
    """

    deviations: float = 3.0

    def __post_init__(self) -> None:
        if not 0 <= self.deviations < inf:
            raise InputError(f"Expected a finite number of deviations of at least 0, found {self.deviations}.")

    def apply(self, steps: Steps, counts: LabelHistograms) -> Calibrator:
        unknown = counts.positives + counts.negatives < self.deviations * sqrt(2 * counts.variance)
        return _with_identity(steps, unknown | _one_sided(counts))


def _one_sided(counts: LabelHistograms) -> Bools:
    """Classes that exact counts give no evidence about, shape (step functions, 1), if there are any records."""
    positives, negatives = counts.positives.sum(axis=1), counts.negatives.sum(axis=1)
    exact = (positives + negatives > 0) & (counts.variance == 0)
    return np.asarray(exact & (np.minimum(positives, negatives) <= 0))[:, None]


def _with_identity(steps: Steps, unknown: Bools) -> Steps:
    """The steps, with the identity in unknown cells."""
    if not unknown.any():
        return steps
    table = np.array(steps.table)
    middles = steps.axis.middles(table.shape[1])
    known = np.where(unknown, middles, table)
    return Steps.of_table(steps.classes, known, steps.axis, steps.normaliser, small_bins=steps.small_bins)


@final
@dataclass(frozen=True)
class Weighted(Weighting):
    """Mix the steps with the classifier by a weight per class.

    Without noise a class's weight is the fraction of clients that was counted, or with `totals` the fraction of the
    class's records. With noise it is the class's count over what noise alone would show in as many cells, less `floor`
    standard deviations of the count's own noise: published with a floor of 0, a weight without any data averages
    1 / (2 sqrt(bins)) instead of zero.

    Parameters
    ----------
    changed_only
        Mix only records whose top class would change.
    floor
        Standard deviations that are subtracted from a class's count.
    totals
        Number of records of each class in the whole federation. The rounds do not reveal it, so it takes one more
        secure sum or public knowledge; where there is noise it is not used.

    Examples
    --------
    >>> import fedcalib as fc
    >>> method = fc.FedBin(weighting=fc.methods.Weighted())
    >>> fc.run(method, fc.InProcess(fc.Federation.simulated(classes=3)), fc.SecAgg()).artifact.weights
    (1.0, 1.0, 1.0)
    """

    changed_only: bool = False
    floor: float = 2.0
    totals: tuple[float, ...] = field(default=(), metadata=ADDED)

    def __post_init__(self) -> None:
        if not all(0 <= total < inf for total in self.totals):
            raise InputError(f"Expected numbers of records of at least 0, found {self.totals!r:.80}.")

    @classmethod
    def as_published(cls, totals: tuple[float, ...] = (), *, changed_only: bool = False) -> Weighted:
        """The weights of "Private Federated Multiclass Post-hoc Calibration", section 4.1 and appendix B.5.

        Parameters
        ----------
        totals
            Number of records of each class in the whole federation: needed without privacy, where a class's weight is
            the part of them that was counted, at most 1; with noise the weight has a floor of 0 and needs none.
        changed_only
            Take the variant "changed weight" instead of "all weight".
        """
        return cls(changed_only, 0.0, totals)

    def apply(self, steps: Steps, counts: LabelHistograms) -> Calibrator:
        weights = class_weights(counts, steps.classes, self.floor, self.totals)
        return Blend(steps, weights, self.changed_only)


def class_weights(
    counts: LabelHistograms, classes: int, floor: float, totals: tuple[float, ...] = ()
) -> tuple[float, ...]:
    """A weight per class between 0 and 1."""
    positives = counts.positives.sum(axis=1)
    if counts.variance > 0:
        noise = sqrt(counts.variance)
        noise_alone = sqrt(2 / pi) * noise * counts.bins
        weights = np.clip((positives - floor * noise * sqrt(counts.bins)) / noise_alone, 0.0, 1.0)
    elif totals:
        weights = _counted_fraction(positives, totals, classes)
    else:
        weights = np.where(positives > 0, counts.seen, 0.0)
    return tuple(np.broadcast_to(weights, (classes,)).tolist())


def _counted_fraction(positives: Floats, totals: tuple[float, ...], classes: int) -> Floats:
    """Which part of each class's records was counted, at most 1; with two classes, of the one that has a step."""
    if len(totals) != classes:
        raise InputError(f"Expected the number of records of {classes} classes, found {len(totals)} numbers.")
    known = np.array(totals[-len(positives) :])
    fraction: Floats = np.divide(positives, known, out=np.zeros(len(known)), where=known > 0)
    return np.minimum(fraction, 1.0)


def score_table(tree: ScoreTree) -> Flow[ScoreTable]:
    """Request every level of a tree and fit the leaves to all of them."""
    answer = yield tree
    return table_of(tree, answer)


def table_of(tree: ScoreTree, answer: Answer) -> ScoreTable:
    """The table of a tree's leaves, fitted twice where noise grows with the counts."""
    values, variances = list(answer.values.values()), list(answer.variances.values())
    first = consistent(values, variances, tree.arity)
    variances = variances_at_fit(first, values, variances, tree.arity)
    leaves = consistent(values, variances, tree.arity)
    return ScoreTable(
        tree.axis.edges(tree.leaves), leaves, tree.arity, tuple(one_per_level(level) for level in variances)
    )


def raw_table(tree: ScoreTree, buckets: int, batches_of: int | None = None) -> Flow[ScoreTable]:
    """Request every level of a binary tree and read it as published, with nothing made consistent.

    A prefix of the scores is the sum of at most one cell per level, a quantile is found by descent, and buckets are
    differences of prefixes. The table counts as exact: its noise is not known to what reads it.

    Parameters
    ----------
    tree
        A tree of arity 2.
    buckets
        Number of equi-depth buckets; as many as leaves for the leaves themselves.
    batches_of
        The number of all clients, if they are dealt to levels: one query per level then has all of the budget.
    """
    if batches_of is None:
        answer = yield tree
        levels = list(answer.values.values())
    else:
        levels = yield from _levels_in_batches(tree, batches_of)
    inner = np.arange(1, tree.leaves)
    if buckets < tree.leaves:
        inner = np.unique([_descended(levels, place / buckets) for place in range(1, buckets)])
        inner = inner[(inner > 0) & (inner < tree.leaves)]
    edges = np.concatenate([[0], inner, [tree.leaves]]).astype(np.int64)
    counts = np.diff(_prefixes(levels)[:, edges], axis=1)
    return ScoreTable(edges / tree.leaves, counts, len(edges) - 1, (np.zeros((2, 1)),))


def _levels_in_batches(tree: ScoreTree, clients: int) -> Flow[list[Floats]]:
    """One query per level, scaled up from the clients that answered it to all of them."""
    levels = []
    for level in range(1, tree.height + 1):
        answer = yield ScoreLeaves(tree.arity**level, tree.column)
        levels.append(answer["leaves"] * (clients / max(answer.clients or 0, 1)))
    return levels


def _prefixes(levels: list[Floats]) -> Floats:
    """Records below every edge of the leaves by label, (2, leaves + 1), each a sum of at most one cell per level."""
    total = levels[0].sum(axis=1, keepdims=True)
    prefixes = np.concatenate([np.zeros_like(total), total], axis=1)
    for level in levels:
        finer = np.zeros((2, level.shape[1] + 1))
        finer[:, ::2] = prefixes
        finer[:, 1::2] = prefixes[:, :-1] + level[:, ::2]
        prefixes = finer
    return prefixes


def _descended(levels: list[Floats], fraction: float) -> int:
    """The leaf at which a quantile lies: from the root down, past each left child that lies below it."""
    place, below = 0, 0.0
    for level in levels:
        counts = level.sum(axis=0)
        fractions = np.maximum(counts / max(float(counts.sum()), 1e-9), 0.0)
        place *= 2
        if below + fractions[place] < fraction:
            below += float(fractions[place])
            place += 1
    return place


def one_per_level(variances: Floats) -> Floats:
    """One variance per label where all cells of a level carry the same noise."""
    equal = bool((variances == variances[:, :1]).all())
    return np.array(variances[:, :1] if equal else variances, dtype=np.float64)


def two_classes(schema: Schema) -> None:
    """Refuse classifiers of more than two classes before anything is sent."""
    if schema.classes != 2:
        raise InputError(f"Expected a binary classifier, found {schema.classes} classes; use a multiclass method.")


def recounted(tree: ScoreTree, buckets: int, recount: float) -> Flow[ScoreTable]:
    """Find equi-depth buckets with a tree, then count them again with a fraction `recount` of the budget.

    A direct count of few buckets carries less noise than a difference of prefixes of the tree, but the edges have to be
    paid for.
    """
    table = yield from score_table(replace(tree, share=tree.share * (1 - recount)))
    edges = even_edges(table, buckets)
    answer = yield ScoreBuckets(edges, 2 * buckets, tree.share * recount)
    used = len(edges) + 1
    noise = answer.variance("buckets")[:, :used]
    all_edges = np.concatenate([[0.0], edges, [1.0]])
    return ScoreTable(all_edges, answer["buckets"][:, :used], used, (one_per_level(noise),))


@dataclass(frozen=True)
class ScoreCalibration(Method[Calibrator]):
    """A calibrator that is fitted to a table of scores.

    Run as a method it requests a tree of its own; `fit` uses the table of an evaluation that was made already, which
    costs no further privacy.
    """

    @property
    @abstractmethod
    def tree(self) -> ScoreTree:
        """The tree to request."""

    @abstractmethod
    def fit(self, table: ScoreTable) -> Calibrator:
        """Fit the calibrator to a table."""

    def protocol(self, schema: Schema) -> Flow[Calibrator]:
        two_classes(schema)
        return self.fit((yield from score_table(self.tree)))


def steadied(table: ScoreTable) -> ScoreTable:
    """The table with smooth counts in place of noisy ones where noise is large; what is known of the noise stays."""
    return replace(table, counts=table.smooth) if table.noise_dominates else table


def chosen_buckets(buckets: int | None, table: ScoreTable) -> int:
    """The wanted number of buckets, or what records and noise suggest."""
    return default_buckets(table) if buckets is None else buckets


def check_buckets(buckets: int | None) -> None:
    if buckets is not None and not 1 <= buckets <= 1 << 12:
        raise InputError(f"Expected 1 to 4096 buckets, or None for as many as the records allow, found {buckets}.")
