"""Equi-depth edges as a sub-protocol: ask for a tree of scores and part its records evenly."""

from __future__ import annotations

from fedcalib.flows.score_table import score_table
from fedcalib.method import Flow
from fedcalib.metrics.quantiles import even_edges
from fedcalib.queries.score_tree import ScoreTree


def quantile_edges(tree: ScoreTree, buckets: int, *, capped: bool = True) -> Flow[tuple[float, ...]]:
    """Find the inner edges of equi-depth buckets, fewer than 2 x buckets of them."""
    table = yield from score_table(tree)
    return even_edges(table, buckets, capped=capped)
