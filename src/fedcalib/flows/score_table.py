"""Ask for a tree of scores and read it as a table: the opening of every method for binary classifiers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedcalib.answer import Answer
from fedcalib.binning import bin_edges
from fedcalib.flows.quantile_edges import quantile_edges
from fedcalib.method import Flow
from fedcalib.metrics.score_table import ScoreTable
from fedcalib.queries.score_buckets import ScoreBuckets
from fedcalib.queries.score_tree import ScoreTree
from fedcalib.trees import consistent
from fedcalib.types import Floats


def score_table(tree: ScoreTree) -> Flow[ScoreTable]:
    """Ask for every level and fit the leaves to all of them."""
    answer = yield tree
    return table_of(tree, answer)


def recounted(tree: ScoreTree, buckets: int, recount: float) -> Flow[ScoreTable]:
    """Find equi-depth buckets with a tree, then count them again with a share `recount` of the budget.

    A direct count of few buckets carries less noise than a difference of prefixes of the tree, but the edges have to
    be paid for.
    """
    first = yield from score_table(replace(tree, share=tree.share * (1 - recount)))
    edges = quantile_edges(first, buckets)
    answer = yield ScoreBuckets(edges, 2 * buckets, tree.share * recount)
    used = len(edges) + 1
    noise = answer.variance("buckets")[:, :used]
    whole = np.concatenate([[0.0], edges, [1.0]])
    return ScoreTable(whole, answer["buckets"][:, :used], used, (_level(noise),))


def table_of(tree: ScoreTree, answer: Answer) -> ScoreTable:
    """Read an answer to a tree as a table of its leaves."""
    values, variances = list(answer.values.values()), list(answer.variances.values())
    leaves = consistent(values, variances, tree.arity)
    return ScoreTable(bin_edges(tree.leaves), leaves, tree.arity, tuple(_level(level) for level in variances))


def _level(variances: Floats) -> Floats:
    """Keep one number a label where all cells of a level carry the same noise."""
    alike = bool((variances == variances[:, :1]).all())
    return np.array(variances[:, :1] if alike else variances, dtype=np.float64)
