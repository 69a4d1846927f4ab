"""Counts of labels by cell of the score, with privacy noise or without, and the variance of their weighted sums.

`ScoreTable` is what every binary metric is computed from. `even_edges` finds edges between which equally many records
lie, and `Buckets` holds the table's counts between chosen edges, with the variance of their noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

import numpy as np

from fedcalib.display import brief
from fedcalib.errors import InputError
from fedcalib.estimation.smooth_density import Groups
from fedcalib.estimation.trees import covariance, nonnegative_leaves
from fedcalib.metrics.binning import merged_cells, small_cells
from fedcalib.types import Floats, Ints

NEGATIVE, POSITIVE = LABELS = 0, 1
DETECTION_Z: Final = 3.0  # a sum below this many standard deviations of its noise does not differ from zero clearly
MIN_RECORDS: Final = 0.5  # less is no record at all, but for rounding


@final
@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Counts of negatives and positives by cell of the score: what every binary metric is computed from.

    Counts stay signed, so that sums of them stay unbiased. Counts that were queried directly are a tree of one level.

    Parameters
    ----------
    edges
        Edges of the cells from 0 to 1, shape (cells + 1,). A cell includes its lower edge, the last one both.
    counts
        Negatives, then positives, shape (2, cells).
    arity
        Arity of the tree that the counts were fitted to.
    noise
        Noise variances of that tree, one array per level and the leaves last, each of shape (2, cells of the level) or
        (2, 1).

    Raises
    ------
    InputError
        If the edges do not increase from 0 to 1, or shapes do not match.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcalib.estimation.score_table import ScoreTable
    >>> table = ScoreTable(np.array([0.0, 0.5, 1.0]), np.array([[8.0, 2.0], [1.0, 9.0]]), 2, (np.zeros((2, 1)),))
    >>> table.totals
    array([10., 10.])
    >>> table.exact
    True
    """

    edges: Floats
    counts: Floats
    arity: int
    noise: tuple[Floats, ...]

    def __repr__(self) -> str:
        return brief(self)

    def __post_init__(self) -> None:
        cells = len(self.edges) - 1
        rising_edges = cells >= 1 and bool((np.diff(self.edges) > 0).all())
        if not rising_edges or self.edges[0] != 0 or self.edges[-1] != 1 or self.counts.shape != (2, cells):
            raise InputError("Expected rising edges from 0 to 1 and two counts per cell, found others.")
        sizes = [self.arity ** (depth + 1) for depth in range(len(self.noise))]
        sizes = [*sizes[:-1], cells]
        if not self.noise or any(v.shape not in {(2, 1), (2, n)} for v, n in zip(self.noise, sizes, strict=True)):
            raise InputError("Expected the noise variances of every level of the tree, found others.")
        if len(self.noise) > 1 and cells != self.arity ** len(self.noise):
            raise InputError(f"Expected {self.arity ** len(self.noise)} leaves, found {cells}.")

    @property
    def cells(self) -> int:
        return len(self.edges) - 1

    @property
    def middle(self) -> Floats:
        return (self.edges[:-1] + self.edges[1:]) / 2

    @cached_property
    def exact(self) -> bool:
        return not any(level.any() for level in self.noise)

    @cached_property
    def nonnegative(self) -> Floats:
        """Counts of at least zero whose running sums are nearest to those of the counts, shape (2, cells)."""
        return nonnegative_leaves(self.counts)

    @cached_property
    def noise_dominates(self) -> bool:
        """Whether the noise variance of a cell exceeds its sampling variance, on average."""
        sampling = float(self.totals.sum()) / self.counts.size
        return not self.exact and float(self.noise[-1].mean()) > sampling

    @cached_property
    def smooth(self) -> Floats:
        """Most probable counts under smooth densities, shape (2, cells).

        Where sampling variance exceeds noise there is nothing to gain, and they are the nonnegative counts.
        """
        return self.smoothed(self.counts[None])[0] if self.noise_dominates else self.nonnegative

    def smoothed(self, counts: Floats) -> Floats:
        """Most probable counts under smooth densities for several runs with this table's noise, (runs, 2, cells)."""
        widths = np.diff(self.edges)
        return np.stack([self.groups[label].smoothed(widths, counts[:, label]) for label in LABELS], axis=1)

    @cached_property
    def groups(self) -> tuple[Groups, Groups]:
        """Neighbouring cells in groups, for negatives and for positives."""
        negative, positive = (Groups.of(self._noise_of(label), self.arity, self.cells) for label in LABELS)
        return negative, positive

    def _noise_of(self, label: int) -> list[Floats]:
        return [level[label] for level in self.noise]

    @cached_property
    def totals(self) -> Floats:
        """Number of negatives and of positives, shape (2,)."""
        totals: Floats = self.counts.sum(axis=1)
        return totals

    @cached_property
    def total_deviations(self) -> Floats:
        """Noise standard deviations of the two totals and of the number of records, shape (3,)."""
        ones = np.ones((1, self.cells))
        weights = np.stack([only(NEGATIVE, ones), only(POSITIVE, ones), np.ones((1, 2, self.cells))])[:, 0]
        return np.sqrt(np.maximum(np.diag(self.covariance(weights)), 0.0))

    @property
    def below_noise(self) -> bool:
        """Whether a class has no records, or no more than its noise alone could produce."""
        return bool((self.totals <= np.maximum(DETECTION_Z * self.total_deviations[:2], MIN_RECORDS)).any())

    def merged(self, min_count: int) -> ScoreTable | None:
        """The exact table with neighbouring cells merged until every count of a label may be shown.

        None where even one cell for all records would show a count below `min_count`.
        """
        starts = merged_cells(self.counts, min_count)
        if starts is None:
            return None
        edges, counts = np.append(self.edges[starts], 1.0), np.add.reduceat(self.counts, starts, axis=1)
        return ScoreTable(edges, counts, max(len(starts), 2), (np.zeros((2, 1)),))

    def covariance(self, weights: Floats) -> Floats:
        """Noise covariance of weighted sums of the counts; weights are (sums, 2, cells)."""
        if self.exact:
            return np.zeros((len(weights), len(weights)))
        parts = [covariance(weights[:, label], self._noise_of(label), self.arity) for label in LABELS]
        return parts[0] + parts[1]

    def variance(self, weights: Floats) -> Floats:
        """Noise variance of each weighted sum, shape (sums,); in blocks, to save memory."""
        if self.exact:
            return np.zeros(len(weights))
        steps = range(0, len(weights), 64)
        return np.concatenate([np.diag(self.covariance(weights[start : start + 64])) for start in steps])


def only(label: int, weights: Floats) -> Floats:
    """Weights of one label's cells, (sums, cells), with zeros for the other label, shape (sums, 2, cells)."""
    both = np.zeros((len(weights), 2, weights.shape[-1]))
    both[:, label] = weights
    return both


def even_edges(table: ScoreTable, buckets: int, *, capped: bool = True) -> tuple[float, ...]:
    """Inner edges of buckets with equally many records each, fewer than 2 x buckets of them.

    Edges that coincide, where many records share a score, are merged, so no bucket is empty by construction. With
    `capped`, buckets wider than 1/buckets are split, so that scores within one bucket are alike.
    """
    if not 1 <= buckets <= 1 << 19:
        raise InputError(f"Expected 1 to 2^19 buckets, found {buckets}.")
    inner = quantiles(table, np.arange(1, buckets) / buckets)
    if capped:
        inner = _capped(inner, buckets)
    return tuple(float(edge) for edge in inner)


def quantiles(table: ScoreTable, probabilities: Floats) -> Floats:
    """Distinct quantiles of the score inside (0, 1), by interpolating the running sums of the nonnegative counts."""
    sums = np.concatenate([[0.0], np.cumsum(table.nonnegative.sum(axis=0))])
    if not sums[-1] > 0:
        return np.zeros(0)
    # interpolation needs strictly increasing sums: of a plateau only the left end is kept
    kept = np.concatenate([[True], np.diff(sums) > 0])
    found = np.interp(np.asarray(probabilities) * sums[-1], sums[kept], table.edges[kept])
    found = np.unique(found)
    return found[(found > 1e-9) & (found < 1 - 1e-9)]


def _capped(inner: Floats, buckets: int) -> Floats:
    """Split buckets wider than 1/buckets into equal parts; at most as many edges are added as there are buckets."""
    outer = np.concatenate([[0.0], inner, [1.0]])
    parts = np.maximum(np.ceil(np.diff(outer) * buckets - 1e-9), 1).astype(np.int64)
    step = np.repeat(np.diff(outer) / parts, parts)
    first = np.repeat(np.cumsum(parts) - parts, parts)
    edges = np.repeat(outer[:-1], parts) + step * (np.arange(len(step)) - first)
    return np.unique(edges[1:])


@final
@dataclass(frozen=True, eq=False)
class Pieces:
    """The pieces between any two neighbouring edges of a table's cells or of bins."""

    cells: int
    bins: int
    cell: Ints
    bin: Ints
    fraction: Floats  # of its cell
    middle: Floats

    @classmethod
    def of(cls, table: ScoreTable, edges: Floats) -> Pieces:
        cuts = np.unique(np.concatenate([table.edges, edges]))
        middle = (cuts[:-1] + cuts[1:]) / 2
        cell = np.searchsorted(table.edges, middle, side="right") - 1
        fraction = np.diff(cuts) / np.diff(table.edges)[cell]
        bins = np.searchsorted(edges, middle, side="right") - 1
        return cls(table.cells, len(edges) - 1, cell, bins, fraction, middle)

    def sums(self, values: Floats) -> Floats:
        """One value per piece, summed by bin, shape (bins,)."""
        return np.bincount(self.bin, values, minlength=self.bins).astype(np.float64)

    def weights(self, values: Floats) -> Floats:
        """One value per piece, summed by bin and cell with the pieces' fractions as weights, shape (bins, cells)."""
        flat = np.bincount(self.bin * self.cells + self.cell, self.fraction * values, self.bins * self.cells)
        return flat.astype(np.float64).reshape(self.bins, self.cells)


@final
@dataclass(frozen=True, eq=False)
class Buckets:
    """Negatives and positives between edges; where an edge cuts a cell, its records are divided by width."""

    edges: Floats  # (buckets + 1,)
    negative: Floats  # (buckets,): signed
    positive: Floats  # (buckets,): signed
    noise: Floats  # (2, buckets): variances of the two counts
    score: Floats  # (buckets,): the mean score, or the middle of an empty bucket

    @classmethod
    def of(cls, table: ScoreTable, inner: tuple[float, ...]) -> Buckets:
        """Sums of a table's counts between the given inner edges."""
        edges = np.concatenate([[0.0], inner, [1.0]])
        pieces = Pieces.of(table, edges)
        counts = [pieces.sums(pieces.fraction * label[pieces.cell]) for label in table.counts]
        totals = table.nonnegative.sum(axis=0)[pieces.cell]
        records = pieces.sums(pieces.fraction * totals)
        scores = pieces.sums(pieces.middle * pieces.fraction * totals)
        mean = np.divide(scores, records, out=(edges[:-1] + edges[1:]) / 2, where=records > 0)
        noise = np.zeros((2, pieces.bins)) if table.exact else _noise(table, edges)
        return cls(edges, counts[0], counts[1], noise, np.clip(mean, edges[:-1], edges[1:]))

    @classmethod
    def even(cls, table: ScoreTable, buckets: int) -> Buckets:
        """Buckets with equally many of a table's records each."""
        return cls.of(table, even_edges(table, buckets, capped=False))

    @property
    def small(self) -> int | None:
        """Number of buckets with 1 to 10 records of a label; None where noise hides it."""
        return None if self.noise.any() else small_cells(np.stack([self.negative, self.positive]))

    @property
    def records(self) -> Floats:
        """Number of records, with counts below zero taken as zero, shape (buckets,)."""
        return np.maximum(self.positive, 0.0) + np.maximum(self.negative, 0.0)

    def effective_fraction(self, rate: Floats) -> Floats:
        """Effective sample size of each bucket, as a fraction of its records, at this rate of positives.

        A rate estimated from n exact records has variance rate (1 - rate) / n. Noise on the counts adds to it, as if
        there were fewer exact records.
        """
        sampling = self.records * rate * (1 - rate)
        privacy = (1 - rate) ** 2 * self.noise[1] + rate**2 * self.noise[0]
        total = sampling + privacy
        fraction: Floats = np.divide(sampling, total, out=np.ones_like(total), where=total > 0)
        return fraction


def default_buckets(table: ScoreTable) -> int:
    """Number of buckets that balances their width against sampling and noise: M^(1/3), or fewer where noise is large.

    With noise of standard deviation s on a count, the rate of positives in one of B buckets is off by about B s / M,
    and a bucket is 1/B wide: sqrt(M / s) balances both. For local reports s is about sqrt(M) / epsilon, which gives
    sqrt(epsilon) M^(1/4).
    """
    records = max(float(table.totals.sum()), 8.0)
    even = Buckets.even(table, 8)
    deviation = float(np.sqrt(even.noise.mean()))
    return int(max(min(records ** (1 / 3), np.sqrt(records / max(deviation, 1e-9))), 2))


def _noise(table: ScoreTable, edges: Floats) -> Floats:
    """Noise variance of each label's count in each bucket, shape (2, buckets)."""
    low = np.maximum(table.edges[None, :-1], edges[:-1, None])
    high = np.minimum(table.edges[None, 1:], edges[1:, None])
    fractions = np.maximum(high - low, 0.0) / np.diff(table.edges)  # of each cell in each bucket
    both = np.zeros((2, len(fractions), 2, table.cells))
    both[0, :, 0], both[1, :, 1] = fractions, fractions
    return np.stack([np.maximum(table.variance(weights), 0.0) for weights in both])
