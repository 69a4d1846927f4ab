"""Figures of a binary classifier as functions of one table of counts by label and cell of the score.

A figure is a `Functional`: its value at nonnegative counts and its influence, the change per record added to each cell.
From these two follow the estimate and its variance. The estimate is one step from the nonnegative counts nearest to the
noisy ones: value + influence x (noisy - nonnegative), which is unbiased to first order although no count is negative
where the value is computed. Its variance is that of sampling, the sum of counts x influence^2, plus that of the noise.

Cells have a width. Losses are corrected for it as Sheppard corrects moments of grouped data, f - f'' h^2 / 24, and the
AUC by counting pairs in neighbouring cells 1/12 more or less; both assume a smooth density of the log-odds, and neither
is done where every cell is known to hold one distinct score.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

import numpy as np

from fedcalib.estimation.estimates import TINY, Estimate, Ratios, doubt_of
from fedcalib.estimation.score_table import DETECTION_Z, MIN_RECORDS, ScoreTable
from fedcalib.numeric import log_odds, sigmoid
from fedcalib.types import Bools, Floats

_PARTS: Final = 8  # of a cell, for quantiles
_COARSE: Final = 128  # cells up to which one is looked at in parts


@final
@dataclass(frozen=True, eq=False)
class Functional:
    """A figure at nonnegative counts, and its change per record added to each cell."""

    value: float
    influence: Floats  # (2, cells)
    reading: float = 0.0  # how far the value may be off because cells have a width


@final
@dataclass(frozen=True, eq=False)
class ScoreSheet:
    """A table of counts with the log-odds that each cell stands for."""

    table: ScoreTable
    odds: Floats  # (cells,)
    tied: bool = False  # whether each cell holds one distinct score

    @cached_property
    def counts(self) -> Floats:
        """Nonnegative counts with the totals of the noisy ones, shape (2, cells)."""
        return self.table.nonnegative

    @cached_property
    def score(self) -> Floats:
        """The probability that each cell stands for, shape (cells,)."""
        return sigmoid(self.odds)

    @property
    def records(self) -> float:
        return float(self.table.totals.sum())

    @cached_property
    def edges(self) -> Floats:
        """Log-odds between the cells; the outer cells are taken to be as wide on either side, shape (cells + 1,)."""
        inner = log_odds(self.table.edges[1:-1], TINY)
        if not len(inner):
            return np.array([self.odds[0] - 1, self.odds[0] + 1])
        return np.concatenate([[2 * self.odds[0] - inner[0]], inner, [2 * self.odds[-1] - inner[-1]]])

    @cached_property
    def open_ends(self) -> Floats:
        """1 where many scores lie beyond the lowest or the highest cell, which is open, otherwise 0, shape (2,).

        A density falls off towards its ends, so a last cell with clearly more than twice the records of the next one
        holds others.
        """
        if self.tied or len(self.odds) < 4:
            return np.zeros(2)
        records = self.table.counts.sum(axis=0)
        noise = 10 * self.table.noise[-1].mean()  # of both labels of a cell, and four times that of the other
        last, next_ = records[[0, -1]], records[[1, -2]]
        margin = 3 * np.sqrt(np.maximum(last + 4 * next_, 1.0) + noise)
        return np.asarray(last - 2 * next_ > margin, dtype=np.float64)

    @cached_property
    def quadrature(self) -> tuple[Floats, Floats]:
        """Log-odds in each cell, and weights with which a function there stands for the cell, each (places, cells).

        Sheppard's correction is a 24th of the second difference over whole cells. It is taken from the ends of each
        cell, which are half as far apart, along the axis on which cells are equally wide. Open cells, cells that hold
        ties and those of a fine table stand for their middle.
        """
        if self.tied or self.table.exact or len(self.odds) < 3:
            return self.odds[None], np.ones((1, len(self.odds)))
        weights = np.zeros((3, len(self.odds)))
        weights[0], weights[:, 1:-1] = 1.0, np.array([[4 / 3], [-1 / 6], [-1 / 6]])
        return np.stack([self.odds, self.edges[:-1], self.edges[1:]]), weights

    @cached_property
    def parts(self) -> tuple[Floats, Floats]:
        """Log-odds inside each cell and the share of its records there, shape (places, cells) each: for quantiles."""
        if self.tied or self.table.exact or not 3 <= len(self.odds) <= _COARSE:
            return self.odds[None], np.ones((1, len(self.odds)))
        places = (np.arange(_PARTS)[:, None] + 0.5) / _PARTS
        inside = self.edges[:-1] + places * np.diff(self.edges)
        inside[:, [0, -1]] = self.odds[[0, -1]]
        return inside, np.full(inside.shape, 1 / _PARTS)

    def grouped(self, function: Callable[[Floats], Floats]) -> Floats:
        """A function of the log-odds at the cells, corrected for their width but where cells are open or hold ties."""
        places, weights = self.quadrature
        return np.asarray((weights * function(places)).sum(axis=0))

    @cached_property
    def known(self) -> Bools:
        """Whether the numbers of negatives, of positives and of records stand out from their noise, shape (3,)."""
        totals = np.append(self.table.totals, self.records)
        return np.asarray(totals > np.maximum(DETECTION_Z * self.table.total_deviations, MIN_RECORDS))

    @cached_property
    def doubt(self) -> Floats:
        """How much wider intervals would be if negatives, positives or records were two deviations fewer, shape (3,).

        Whether a figure is stated must not hang on noise that makes a total look large.
        """
        totals = np.append(self.table.totals, self.records)
        return np.array([doubt_of(ratio) for ratio in self.table.total_deviations / np.maximum(totals, 1e-9)])

    def stands_out(self, weights: Floats) -> bool:
        """Whether a weighted sum of the counts, (2, cells), stands out from its noise."""
        noise = max(float(self.table.variance(weights[None])[0]), 0.0)
        return bool((weights * self.table.counts).sum() > DETECTION_Z * np.sqrt(noise))

    def estimate(self, figure: Functional) -> Estimate:
        """One step from the nonnegative counts, with the variances of sampling and noise."""
        moved = figure.value + float((figure.influence * (self.table.counts - self.counts)).sum())
        sampling, third = (float((self.counts * figure.influence**power).sum()) for power in (2, 3))
        noise = float(self.table.variance(figure.influence[None])[0])
        skewness = third / max(sampling + noise, TINY ** (2 / 3)) ** 1.5
        return Estimate(moved, sampling, noise, figure.reading, skewness)

    def ratios(self, part: Floats, whole: Floats, undecided: Floats | None = None) -> Ratios:
        """Ratios of weighted sums; weights are (k, 2, cells), and `whole` may have one row for all."""
        counts = self.table.counts.reshape(-1)
        sums, records = part.reshape(len(part), -1) @ counts, whole.reshape(len(whole), -1) @ counts
        least = np.maximum(DETECTION_Z * np.sqrt(np.maximum(self.table.variance(whole), 0.0)), MIN_RECORDS)
        known = np.broadcast_to(records > least, sums.shape)
        records = np.broadcast_to(np.where(records > least, records, 1.0), sums.shape)
        value = np.where(known, sums / records, np.nan)
        centred = part - np.where(known, np.clip(value, 0.0, 1.0), 0.5)[:, None, None] * whole
        noise = np.maximum(self.table.variance(centred), 0.0) / records**2
        bound = np.zeros(len(part))
        if undecided is not None:
            bound = undecided.reshape(len(part), -1) @ self.counts.reshape(-1) / records
        alike = records / np.maximum(self._spread(centred, value, records), 1e-3)
        return Ratios(value, alike, noise, bound)

    def _spread(self, centred: Floats, value: Floats, records: Floats) -> Floats:
        """Sampling variance of ratios over that of a proportion, which is one; of F1, for instance, it is more."""
        own = np.square(centred).reshape(len(centred), -1) @ self.counts.reshape(-1) / records
        binomial = np.clip(value, 0.0, 1.0) * (1 - np.clip(value, 0.0, 1.0))
        some = np.isfinite(value) & (binomial > 1e-6)
        return np.where(some, np.divide(own, binomial, out=np.ones_like(own), where=some), 1.0)

    def above(self, thresholds: Floats) -> tuple[Floats, Floats]:
        """Fraction of each cell that scores at least each threshold, and how much of it may not, (k, cells)."""
        if self.tied:
            called = (self.score >= thresholds[:, None] - 1e-12).astype(np.float64)
            return called, np.zeros_like(called)
        at = log_odds(thresholds, 1e-15)[:, None]
        left, right = self.edges[:-1], self.edges[1:]
        fraction = np.clip((right - at) / (right - left), 0.0, 1.0)
        fraction = np.where(np.abs(fraction - np.round(fraction)) < 1e-9, np.round(fraction), fraction)
        cut = (fraction > 0) & (fraction < 1)
        width = np.maximum(fraction, 1 - fraction) if self.table.exact else fraction * (1 - fraction) / 2
        return fraction, np.where(cut, width, 0.0)
