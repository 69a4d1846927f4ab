"""Labels counted by cell of the score, perhaps under noise, and how sure weighted sums of the counts are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.metrics.likely import Groups
from fedcalib.trees import covariance, rising
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
