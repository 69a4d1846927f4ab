"""Tables of scores, the sub-protocol of every method for binary classifiers.

`score_table` requests a tree of scores and fits its leaves; `quantile_edges` and `recounted` find equi-depth buckets
and count them with the rest of the budget. A `ScoreCalibration` is a calibrator that is fitted to such a table.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import InputError
from fedcalib.estimation.score_table import ScoreTable, default_buckets, even_edges
from fedcalib.estimation.trees import consistent, variances_at_fit
from fedcalib.method import Flow, Method
from fedcalib.metrics.binning import bin_edges
from fedcalib.queries.scores import ScoreBuckets, ScoreTree
from fedcalib.query import Answer
from fedcalib.records import Schema
from fedcalib.types import Floats


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
    return ScoreTable(bin_edges(tree.leaves), leaves, tree.arity, tuple(one_per_level(level) for level in variances))


def one_per_level(variances: Floats) -> Floats:
    """One variance per label where all cells of a level carry the same noise."""
    equal = bool((variances == variances[:, :1]).all())
    return np.array(variances[:, :1] if equal else variances, dtype=np.float64)


def two_classes(schema: Schema) -> None:
    """Refuse classifiers of more than two classes before anything is sent."""
    if schema.classes != 2:
        raise InputError(f"Expected a binary classifier, found {schema.classes} classes; use a multiclass method.")


def quantile_edges(tree: ScoreTree, buckets: int, *, capped: bool = True) -> Flow[tuple[float, ...]]:
    """The inner edges of equi-depth buckets, fewer than 2 x buckets of them."""
    table = yield from score_table(tree)
    return even_edges(table, buckets, capped=capped)


def recounted(tree: ScoreTree, buckets: int, recount: float) -> Flow[ScoreTable]:
    """Find equi-depth buckets with a tree, then count them again with a fraction `recount` of the budget.

    A direct count of few buckets carries less noise than a difference of prefixes of the tree, but the edges have to be
    paid for.
    """
    edges = yield from quantile_edges(replace(tree, share=tree.share * (1 - recount)), buckets)
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
        raise InputError(
            f"Expected 1 to 4096 buckets, or None for as many as records and noise allow, found {buckets}."
        )
