"""Buckets of a score table: coarser counts between chosen edges, with the noise that is left in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.metrics.quantiles import even_edges
from fedcalib.metrics.score_table import ScoreTable
from fedcalib.types import Floats


@final
@dataclass(frozen=True, eq=False)
class Buckets:
    """Negatives and positives between edges; where an edge cuts a cell, the cell's records are shared by width."""

    edges: Floats  # (buckets + 1,)
    negative: Floats  # (buckets,): signed
    positive: Floats  # (buckets,): signed
    noise: Floats  # (2, buckets): variances of the two counts
    score: Floats  # (buckets,): the mean score, or the middle of an empty bucket

    @classmethod
    def of(cls, table: ScoreTable, inner: tuple[float, ...]) -> Buckets:
        """Sum the table between edges."""
        edges = np.concatenate([[0.0], inner, [1.0]])
        cuts = np.unique(np.concatenate([table.edges, edges]))
        place = (cuts[:-1] + cuts[1:]) / 2
        cell = np.searchsorted(table.edges, place, side="right") - 1
        bucket = np.searchsorted(edges, place, side="right") - 1
        share = np.diff(cuts) / np.diff(table.edges)[cell]
        count = len(edges) - 1
        counts = [
            np.bincount(bucket, share * label[cell], minlength=count).astype(np.float64) for label in table.counts
        ]
        held = np.bincount(bucket, share * table.held.sum(axis=0)[cell], minlength=count)
        scores = np.bincount(bucket, place * share * table.held.sum(axis=0)[cell], minlength=count)
        mean = np.divide(scores, held, out=(edges[:-1] + edges[1:]) / 2, where=held > 0)
        noise = np.zeros((2, count)) if table.exact else _noise(table, edges)
        return cls(edges, counts[0], counts[1], noise, np.clip(mean, edges[:-1], edges[1:]))

    @classmethod
    def even(cls, table: ScoreTable, buckets: int) -> Buckets:
        """Part the records of a table evenly."""
        return cls.of(table, even_edges(table, buckets, capped=False))

    @property
    def held(self) -> Floats:
        """Count the records, none below zero, (buckets,)."""
        return np.maximum(self.positive, 0.0) + np.maximum(self.negative, 0.0)

    def worth(self, share: Floats) -> Floats:
        """Say which part of each bucket's records is left when noise is traded for records, from 0 to 1.

        A share of positives estimated from n exact records spreads by share (1 - share) / n. Noise on the counts
        spreads it further, as fewer exact records would.
        """
        own = self.held * share * (1 - share)
        shaken = (1 - share) ** 2 * self.noise[1] + share**2 * self.noise[0]
        whole = own + shaken
        left: Floats = np.divide(own, whole, out=np.ones_like(whole), where=whole > 0)
        return left


def default_buckets(table: ScoreTable) -> int:
    """Balance the width of buckets against chance and noise: M^(1/3), and fewer where noise asks for it.

    With noise of standard deviation s on a count, the share of positives in one of B buckets is off by about B s / M,
    and a bucket is 1/B wide: sqrt(M / s) balances both. For local reports s is about sqrt(M) / epsilon, which makes
    sqrt(epsilon) M^(1/4).
    """
    records = max(float(table.totals.sum()), 8.0)
    even = Buckets.even(table, 8)
    spread = float(np.sqrt(even.noise.mean()))
    return int(max(min(records ** (1 / 3), np.sqrt(records / max(spread, 1e-9))), 2))


def _noise(table: ScoreTable, edges: Floats) -> Floats:
    """Give the noise variance of each label's count in each bucket, (2, buckets)."""
    low = np.maximum(table.edges[None, :-1], edges[:-1, None])
    high = np.minimum(table.edges[None, 1:], edges[1:, None])
    shares = np.maximum(high - low, 0.0) / np.diff(table.edges)  # of each cell in each bucket
    both = np.zeros((2, len(shares), 2, table.cells))
    both[0, :, 0], both[1, :, 1] = shares, shares
    return np.stack([np.maximum(table.variance(weights), 0.0) for weights in both])
