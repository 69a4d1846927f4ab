"""Labels counted by cell of the score, perhaps under noise, and how sure weighted sums of the counts are.

Equi-depth buckets: edges of the score that part the records evenly.

Buckets of a score table: coarser counts between chosen edges, with the noise that is left in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.estimation.smooth_density import Groups
from fedcalib.estimation.trees import covariance, rising
from fedcalib.types import Floats, Ints

NEGATIVE, POSITIVE = 0, 1
CERTAIN = 3.0  # a sum below this many standard deviations of its noise drowns in it
SOMETHING = 0.5  # records; less is nobody, whatever rounding left


@final
@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Negatives and positives by rising cell of the score: what every binary metric is computed from.

    Counts stay signed, so that sums of them stay unbiased. `noise` holds the noise variances of the tree that the
    counts were fitted to, one array a level and the leaves last, each (2, cells of the level) or (2, 1); counts that
    were asked for directly are a tree of one level.
    """

    edges: Floats  # (cells + 1,): from 0 to 1; a cell holds its lower edge, the last one both
    counts: Floats  # (2, cells): negatives, then positives
    arity: int
    noise: tuple[Floats, ...]

    def __post_init__(self) -> None:
        cells = len(self.edges) - 1
        rising_edges = cells >= 1 and bool((np.diff(self.edges) > 0).all())
        if not rising_edges or self.edges[0] != 0 or self.edges[-1] != 1 or self.counts.shape != (2, cells):
            raise InputError("Expected rising edges from 0 to 1 and two counts a cell, found others.")
        sizes = [self.arity ** (depth + 1) for depth in range(len(self.noise))]
        sizes = [*sizes[:-1], cells]
        if not self.noise or any(v.shape not in {(2, 1), (2, n)} for v, n in zip(self.noise, sizes, strict=True)):
            raise InputError("Expected the noise variances of every level of the tree, found others.")
        if len(self.noise) > 1 and cells != self.arity ** len(self.noise):
            raise InputError(f"Expected {self.arity ** len(self.noise)} leaves, found {cells}.")

    @property
    def cells(self) -> int:
        """Count the cells."""
        return len(self.edges) - 1

    @property
    def middle(self) -> Floats:
        """Give the middle of each cell, (cells,)."""
        return (self.edges[:-1] + self.edges[1:]) / 2

    @cached_property
    def exact(self) -> bool:
        """Say whether there is no noise at all."""
        return not any(level.any() for level in self.noise)

    @cached_property
    def held(self) -> Floats:
        """Give the counts of at least zero whose running sums are nearest, (2, cells)."""
        return rising(self.counts)

    @cached_property
    def shaken(self) -> bool:
        """Say whether noise in a cell is larger than what chance does to its records."""
        each = float(self.totals.sum()) / self.counts.size
        return not self.exact and float(self.noise[-1].mean()) > each

    @cached_property
    def likely(self) -> Floats:
        """Give the counts of at least zero that are likeliest if densities are smooth, (2, cells).

        Where noise is small beside chance there is nothing to gain, and they are the rising counts.
        """
        return self.smoothed(self.counts[None])[0] if self.shaken else self.held

    def smoothed(self, counts: Floats) -> Floats:
        """Give likely counts for several runs that share this table's noise, (runs, 2, cells)."""
        widths = np.diff(self.edges)
        return np.stack([self.groups[label].likely(widths, counts[:, label]) for label in (NEGATIVE, POSITIVE)], axis=1)

    @cached_property
    def groups(self) -> tuple[Groups, Groups]:
        """Take neighbouring cells together, negatives and positives."""
        negative, positive = (
            Groups.of([level[label] for level in self.noise], self.arity, self.cells) for label in (NEGATIVE, POSITIVE)
        )
        return negative, positive

    @cached_property
    def totals(self) -> Floats:
        """Count the negatives and the positives, (2,)."""
        totals: Floats = self.counts.sum(axis=1)
        return totals

    @cached_property
    def doubts(self) -> Floats:
        """Give the standard deviations that noise leaves to the two totals and to the number of records, (3,)."""
        ones = np.ones((1, self.cells))
        weights = np.stack([_on(NEGATIVE, ones), _on(POSITIVE, ones), np.ones((1, 2, self.cells))])[:, 0]
        return np.sqrt(np.maximum(np.diag(self.covariance(weights)), 0.0))

    @property
    def drowned(self) -> bool:
        """Say whether a class has no records, or fewer than its noise could have made up."""
        return bool((self.totals <= np.maximum(CERTAIN * self.doubts[:2], SOMETHING)).any())

    def covariance(self, weights: Floats) -> Floats:
        """Give the covariance that noise leaves to weighted sums of the counts; weights (sums, 2, cells)."""
        if self.exact:
            return np.zeros((len(weights), len(weights)))
        parts = [
            covariance(weights[:, label], [level[label] for level in self.noise], self.arity)
            for label in (NEGATIVE, POSITIVE)
        ]
        return parts[0] + parts[1]

    def variance(self, weights: Floats) -> Floats:
        """Give the variance that noise leaves to each weighted sum, a few sums at a time, (sums,)."""
        if self.exact:
            return np.zeros(len(weights))
        steps = range(0, len(weights), 64)
        return np.concatenate([np.diag(self.covariance(weights[start : start + 64])) for start in steps])

    def merged(self, first: Ints) -> Floats:
        """Sum the rising counts from each given cell up to the next, (2, groups)."""
        return np.add.reduceat(self.held, first, axis=1)


def _on(label: int, weights: Floats) -> Floats:
    both = np.zeros((len(weights), 2, weights.shape[-1]))
    both[:, label] = weights
    return both


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
