"""Equi-depth buckets: edges of the score that part the records evenly."""

from __future__ import annotations

import numpy as np

from fedcalib.errors import InputError
from fedcalib.metrics.score_table import ScoreTable
from fedcalib.types import Floats


def even_edges(table: ScoreTable, buckets: int, *, capped: bool = True) -> tuple[float, ...]:
    """Give the inner edges of buckets that hold equally many records each, (fewer than 2 x buckets).

    Edges that coincide, where many records share a score, are merged, so no bucket is empty by construction. With
    `capped`, edges of a uniform grid are added so that no bucket is wider than 1/buckets, which smooth bounds need.
    """
    if not 1 <= buckets <= 1 << 19:
        raise InputError(f"Expected 1 to 2^19 buckets, found {buckets}.")
    inner = quantiles(table, np.arange(1, buckets) / buckets)
    if capped:
        inner = _capped(inner, buckets)
    return tuple(float(edge) for edge in inner)


def quantiles(table: ScoreTable, shares: Floats) -> Floats:
    """Give the distinct inner scores below which these shares of the records lie, by rising prefixes of the table."""
    sums = np.concatenate([[0.0], np.cumsum(table.held.sum(axis=0))])
    if not sums[-1] > 0:
        return np.zeros(0)
    # a plateau of the running sum has no inside: keep its left end only, so that interpolation is defined
    kept = np.concatenate([[True], np.diff(sums) > 0])
    found = np.interp(np.asarray(shares) * sums[-1], sums[kept], table.edges[kept])
    found = np.unique(found)
    return found[(found > 1e-9) & (found < 1 - 1e-9)]


def _capped(inner: Floats, buckets: int) -> Floats:
    """Split buckets wider than 1/buckets into equal parts; at most as many edges come in as there are buckets."""
    whole = np.concatenate([[0.0], inner, [1.0]])
    parts = np.maximum(np.ceil(np.diff(whole) * buckets - 1e-9), 1).astype(np.int64)
    step = np.repeat(np.diff(whole) / parts, parts)
    first = np.repeat(np.cumsum(parts) - parts, parts)
    edges = np.repeat(whole[:-1], parts) + step * (np.arange(len(step)) - first)
    return np.unique(edges[1:])
