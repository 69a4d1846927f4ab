"""Find equi-depth buckets with one part of the budget and count them with the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedcalib.flows.quantile_edges import quantile_edges
from fedcalib.flows.score_table import one_a_level
from fedcalib.method import Flow
from fedcalib.metrics.score_table import ScoreTable
from fedcalib.queries.score_buckets import ScoreBuckets
from fedcalib.queries.score_tree import ScoreTree


def recounted(tree: ScoreTree, buckets: int, recount: float) -> Flow[ScoreTable]:
    """Find equi-depth buckets with a tree, then count them again with a share `recount` of the budget.

    A direct count of few buckets carries less noise than a difference of prefixes of the tree, but the edges have to
    be paid for.
    """
    edges = yield from quantile_edges(replace(tree, share=tree.share * (1 - recount)), buckets)
    answer = yield ScoreBuckets(edges, 2 * buckets, tree.share * recount)
    used = len(edges) + 1
    noise = answer.variance("buckets")[:, :used]
    whole = np.concatenate([[0.0], edges, [1.0]])
    return ScoreTable(whole, answer["buckets"][:, :used], used, (one_a_level(noise),))
