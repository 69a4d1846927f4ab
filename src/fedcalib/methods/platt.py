"""Parametric calibration of binary classifiers: Platt scaling and beta calibration, from counts of labels by score.

Scores are counted on the axis of log-odds, and a line is fitted to the log-odds of the labels. What was counted as one
is mapped as one: scores beyond the cells that were fitted are read as the last of them, by the fit and by the
calibrator, so a score of exactly 0 or 1 gets the rate of its own records and not that of infinite log-odds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Final, final

import numpy as np

from fedcalib.artifacts.scaling import Beta, Platt
from fedcalib.errors import InputError
from fedcalib.estimation.noise_aware import fit_noisy_counts
from fedcalib.estimation.score_table import DETECTION_Z, Buckets, ScoreTable
from fedcalib.flows.tables import check_buckets, score_table, two_classes
from fedcalib.method import Budget, Flow, Method
from fedcalib.metrics.binning import EvenLogOdds
from fedcalib.numeric import log_odds, sigmoid
from fedcalib.queries.scores import ScoreCells, ScoreTree, scores_of
from fedcalib.query import Block, Bound, RecordQuery, Rows, Unit
from fedcalib.records import Records, Schema
from fedcalib.types import Floats
from fedcalib.wire import ADDED

_MIN_SLOPE = 1e-3  # a slope of zero would lose the ranking
_MAX_SLOPE = 1e3
_MAX_INTERCEPT = 50.0
_FLAT_DEVIATION: Final = 1e3  # of a prior that leaves the fit at maximum likelihood
_UNDETERMINED: Final = 50.0  # standard error of a weight beyond which the likelihood has no maximum
_LIMITS: Final = tuple(float(log_odds(1 - 10.0**-digits)) for digits in (2, 3, 4, 5, 6, 9))  # 99% to 1 - 1e-9

_EXACT_CELLS: Final = 1 << 13
_EXACT_AXIS: Final = EvenLogOdds(27.6)  # scores are read between 1e-12 and 1 - 1e-12
_AXIS: Final = EvenLogOdds(12.0)
_LOCAL_AXIS: Final = EvenLogOdds(8.0)
_GUESS: Final = 2000  # records of a federation of which nothing is known
_MANY: Final = 50_000  # records x epsilon from which on narrower cells cost no precision


@final
@dataclass(frozen=True)
class OddsCells(RecordQuery):
    """Negatives and positives by cell of the log-odds, and where in its cell a record lies.

    It is for privacy models without noise. A record adds one to one cell of its label, and to its cell's sum of places
    a number between -1/2 and 1/2: the distance of its log-odds from the middle of the cell, in widths of a cell.

    Parameters
    ----------
    cells
        Number of cells.
    axis
        Where the cells lie.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.methods.platt import OddsCells
    >>> from fedcalib.metrics.binning import EvenLogOdds
    >>> query = OddsCells(4, EvenLogOdds(2.0))
    >>> total = query.split(query.pooled(fc.Records.of_scores([0.5, 0.6], [0, 1])))
    >>> total["cells"].tolist(), total["places"].round(2).tolist()
    ([[0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 1.0, 0.0]], [0.0, 0.0, -0.59, 0.0])
    """

    cells: int
    axis: EvenLogOdds

    def __post_init__(self) -> None:
        _check_cells(self.cells)

    @property
    def blocks(self) -> Mapping[str, Block]:
        place = Bound(0.5, 0.5, 0.5)
        return {
            "cells": Block((2, self.cells), integral=True, one_hot=True),
            "places": Block((self.cells,), place),
        }

    def rows(self, records: Records) -> Rows:
        odds = log_odds(scores_of(records))
        cell = self.axis.cells(scores_of(records), self.cells)
        place = np.clip((odds + self.axis.reach) * self.cells / (2 * self.axis.reach) - cell - 0.5, -0.5, 0.5)
        cells = np.stack([cell + self.cells * records.labels, cell + 2 * self.cells], axis=1)
        return Rows(cells, np.stack([np.ones(len(place)), place], axis=1))


@final
@dataclass(frozen=True, eq=False)
class Cells:
    """Counts by cell of the score, at the log-odds that each cell stands for."""

    odds: Floats  # (cells,)
    positive: Floats  # (cells,): signed
    negative: Floats  # (cells,): signed
    noise: Floats  # (cells,): variance of each count
    span: tuple[float, float]  # least and greatest log-odds that are told apart
    whole: tuple[bool, bool] = (True, True)  # whether nothing was cut off at the lower and at the upper end

    @classmethod
    def of(cls, odds: Floats, positive: Floats, negative: Floats, noise: Floats) -> Cells:
        """Cells from the first to the last, read where they lie."""
        return cls(odds, positive, negative, np.broadcast_to(noise, odds.shape), (float(odds[0]), float(odds[-1])))

    @classmethod
    def of_table(cls, table: ScoreTable, buckets: int, odds: Floats | None = None) -> Cells:
        """The cells of a flat table, or buckets of a tree, whose sums carry less noise than its leaves."""
        if len(table.noise) > 1:
            even = Buckets.even(table, buckets)
            return cls.of(log_odds(even.score, 1e-6), even.positive, even.negative, even.noise.mean(axis=0))
        inner = log_odds(table.edges[1:-1])
        ends = np.concatenate([2 * inner[:1] - inner[1:2], inner, 2 * inner[-1:] - inner[-2:-1]])
        middle = (ends[1:] + ends[:-1]) / 2 if table.cells > 2 else log_odds(table.middle)
        negative, positive = table.counts
        return cls.of(middle if odds is None else odds, positive, negative, table.noise[0].mean(axis=0))

    @property
    def exact(self) -> bool:
        return not self.noise.any()

    def trimmed(self) -> Cells | None:
        """Without the cells at either end whose sum does not stand out from its noise; None if nothing does.

        An empty cell far out costs more than one in the middle, since its noise counts with its log-odds.
        """
        if self.exact:
            return self if (self.positive + self.negative).sum() > 0 else None
        first = _stands_out((self.positive + self.negative)[::-1], self.noise[::-1])
        last = _stands_out(self.positive + self.negative, self.noise)
        if first is None or last is None or last < (start := len(self.odds) - 1 - first):
            return None
        kept, unchanged = slice(start, last + 1), (start == 0, last == len(self.odds) - 1)
        inside = Cells.of(self.odds[kept], self.positive[kept], self.negative[kept], self.noise[kept])
        return replace(inside, span=self.span, whole=unchanged)

    def limited(self, low: float, high: float) -> Cells:
        """The same counts, read at most that far out."""
        return replace(self, odds=np.clip(self.odds, low, high), span=(low, high))

    def choices(self) -> list[Cells]:
        """The cells as they are, and read less far out on a side where the last one holds records.

        The last cell is open: its records may have any log-odds beyond, and scores of exactly 0 or 1 have no finite
        ones. How far out they are best read is decided by the likelihood.
        """
        total = self.positive + self.negative
        filled = self.whole & (total[[0, -1]] > DETECTION_Z * np.sqrt(2 * self.noise[[0, -1]]))
        low, high = self.span
        lows = [low, *(-limit for limit in _LIMITS if filled[0] and -limit > low)]
        highs = [high, *(limit for limit in _LIMITS if filled[1] and limit < high)]
        return [self.limited(*ends) for ends in product(lows, highs) if ends[0] < ends[1]]

    def likelihood(self, line: Floats) -> float:
        """Log-likelihood of log-odds, one per cell."""
        return float(-self.positive @ np.logaddexp(0.0, -line) - self.negative @ np.logaddexp(0.0, line))

    def fitted(self, features: Floats, start: Floats) -> Floats:
        """Weights of features, (cells, k): of maximum likelihood, or under noise with a normal prior around `start`."""

        def fit(deviation: float) -> Floats:
            counts = self.positive, self.negative
            return fit_noisy_counts(features, *counts, noise=self.noise, prior_mean=start, prior_deviation=deviation)

        if not self.exact:
            return fit(1.0)
        weights = fit(_FLAT_DEVIATION)
        rate = sigmoid(features @ weights)
        hessian = (features.T * ((self.positive + self.negative) * rate * (1 - rate))) @ features
        variances = np.diag(np.linalg.inv(hessian + np.eye(len(start)) / _FLAT_DEVIATION**2))
        return weights if variances.max() < _UNDETERMINED**2 else fit(1.0)


def _stands_out(total: Floats, noise: Floats) -> int | None:
    """The last cell from which on the sum of all that follow stands out from its noise."""
    tail, variance = np.cumsum(total[::-1])[::-1], np.cumsum(2 * noise[::-1])[::-1]
    found = np.flatnonzero(tail > DETECTION_Z * np.sqrt(variance))
    return int(found[-1]) if found.size else None


Line = Callable[[Cells], tuple[Floats, Floats]]  # weights, and the log-odds that they give to each cell


def _best(cells: Cells | None, line: Line) -> tuple[Floats, Cells] | None:
    """The fit with the greatest likelihood over how far out the end cells are read."""
    if cells is None:
        return None
    found = [(*line(choice), choice) for choice in cells.choices()]
    weights, _, chosen = max(found, key=lambda one: one[2].likelihood(one[1]))
    return weights, chosen


def counted(schema: Schema, cells: int | None, epsilon: float | None, alone: Unit | None) -> Flow[Cells]:
    """Request counts by cell of the log-odds, as fine as public facts allow."""
    two_classes(schema)
    if epsilon is None:
        return (yield from _exact_cells(cells or _EXACT_CELLS))
    axis = _LOCAL_AXIS if alone == "record" else _AXIS
    many = alone is None and max(_GUESS, schema.clients) * epsilon >= _MANY
    query = ScoreCells(cells or (32 if alone == "record" else 128 if many else 64), axis)
    answer = yield query
    negative, positive = answer["cells"]
    return Cells.of(axis.odds(query.cells), positive, negative, answer.variance("cells").mean(axis=0))


def _exact_cells(cells: int) -> Flow[Cells]:
    """Counts by cell, each at the mean log-odds of its records."""
    answer = yield OddsCells(cells, _EXACT_AXIS)
    negative, positive = answer["cells"]
    noise = answer.variance("cells").mean(axis=0)
    total = np.where(noise > 0, 0.0, negative + positive)  # where noise came after all, cells are read at their middles
    place = np.divide(answer["places"], total, out=np.zeros(cells), where=total > 0.5)
    width = 2 * _EXACT_AXIS.reach / cells
    return Cells.of(_EXACT_AXIS.odds(cells) + width * np.clip(place, -0.5, 0.5), positive, negative, noise)


def _check_cells(cells: int | None) -> None:
    if cells is not None and not 2 <= cells <= 1 << 20:
        raise InputError(f"Expected 2 to 2^20 cells, found {cells}.")


@final
@dataclass(frozen=True)
class PlattScaling(Method[Platt]):
    """Fit slope and intercept on the log-odds of a binary classifier, from one count of labels by log-odds.

    With exact sums the result is the maximum-likelihood fit of pooled records. Under noise one record touches one
    count, and two parameters average the noise over all cells.

    Parameters
    ----------
    cells
        Number of cells of equal width in log-odds; None for 8,192 where sums are exact, 64 under noise (128 from 50,000
        records x epsilon on), and 32 where every record is randomised.
    epsilon, alone
        What the run may spend and who adds noise; filled in by the run. None for exact sums.

    Examples
    --------
    >>> import fedcalib as fc
    >>> federation = fc.Federation.simulated(classes=2, temperature=2.0, records=20_000)
    >>> platt = fc.run(fc.PlattScaling(), fc.InProcess(federation), fc.SecAgg()).artifact
    >>> round(platt.slope, 1), abs(round(platt.intercept, 1))
    (0.5, 0.0)
    """

    cells: int | None = None
    epsilon: float | None = field(default=None, metadata=ADDED)
    alone: Unit | None = field(default=None, metadata=ADDED)

    def __post_init__(self) -> None:
        _check_cells(self.cells)

    def with_budget(self, budget: Budget) -> PlattScaling:
        return replace(self, epsilon=self.epsilon or budget.epsilon, alone=self.alone or budget.alone)

    def protocol(self, schema: Schema) -> Flow[Platt]:
        return fit_platt((yield from counted(schema, self.cells, self.epsilon, self.alone)))

    def fit(self, table: ScoreTable, odds: Floats | None = None) -> Platt:
        """Fit to the table of an evaluation that was made already, which costs no further privacy.

        Parameters
        ----------
        table
            Counts by score.
        odds
            The log-odds that each cell of a flat table stands for; by default the middle of the cell.
        """
        return fit_platt(Cells.of_table(table, self.cells or 64, odds))


def fit_platt(cells: Cells) -> Platt:
    """Fit a line through the log-odds of cells; without records, the line is the identity."""

    def line(choice: Cells) -> tuple[Floats, Floats]:
        features = np.stack([np.ones_like(choice.odds), choice.odds], axis=1)
        weights = choice.fitted(features, np.array([0.0, 1.0]))
        return weights, features @ weights

    best = _best(cells.trimmed(), line)
    if best is None:
        return Platt(1.0, 0.0)
    (intercept, slope), chosen = best
    limited = np.clip([slope, intercept], [_MIN_SLOPE, -_MAX_INTERCEPT], [_MAX_SLOPE, _MAX_INTERCEPT])
    return Platt(float(limited[0]), float(limited[1]), chosen.span)


@final
@dataclass(frozen=True)
class BetaScaling(Method[Beta]):
    """Fit log-odds of a binary classifier that are linear in ln p and -ln(1 - p); negative weights become zero.

    Parameters
    ----------
    buckets
        Number of equi-depth buckets that are fitted where a tree is counted.
    tree
        A tree of scores to count; by default cells of equal width in log-odds, as in `PlattScaling`.
    epsilon, alone
        What the run may spend and who adds noise; filled in by the run. None for exact sums.

    Examples
    --------
    >>> import fedcalib as fc
    >>> import numpy as np
    >>> federation = fc.Federation.simulated(classes=2, temperature=2.0, records=20_000)
    >>> beta = fc.run(fc.methods.BetaScaling(), fc.InProcess(federation), fc.SecAgg()).artifact
    >>> beta(np.array([0.1, 0.9])).round(1)  # scores were over-confident
    array([0.3, 0.8])
    """

    buckets: int = 64
    tree: ScoreTree | None = None
    epsilon: float | None = field(default=None, metadata=ADDED)
    alone: Unit | None = field(default=None, metadata=ADDED)

    def __post_init__(self) -> None:
        check_buckets(self.buckets)

    def with_budget(self, budget: Budget) -> BetaScaling:
        return replace(self, epsilon=self.epsilon or budget.epsilon, alone=self.alone or budget.alone)

    def protocol(self, schema: Schema) -> Flow[Beta]:
        two_classes(schema)
        if self.tree is not None:
            return self.fit((yield from score_table(self.tree)))
        return fit_beta((yield from counted(schema, None, self.epsilon, self.alone)))

    def fit(self, table: ScoreTable, odds: Floats | None = None) -> Beta:
        """Fit to the table of an evaluation that was made already, which costs no further privacy.

        Parameters
        ----------
        table
            Counts by score.
        odds
            The log-odds that each cell of a flat table stands for; by default the middle of the cell.
        """
        return fit_beta(Cells.of_table(table, self.buckets, odds))


def fit_beta(cells: Cells) -> Beta:
    """Fit both weights and the intercept; without records, the curve is the identity."""
    best = _best(cells.trimmed(), _beta_line)
    if best is None:
        return Beta(1.0, 1.0, 0.0)
    weights, chosen = best
    low, high = np.clip(weights[1:], 0.0, _MAX_SLOPE).tolist()
    intercept = float(np.clip(weights[0], -_MAX_INTERCEPT, _MAX_INTERCEPT))
    return Beta(low, high if low + high > 0 else _MIN_SLOPE, intercept, chosen.span)


def _beta_line(cells: Cells) -> tuple[Floats, Floats]:
    """Weights that are not negative: the lowest is left out as long as it is."""
    features = np.stack([np.ones_like(cells.odds), -np.logaddexp(0, -cells.odds), np.logaddexp(0, cells.odds)], axis=1)
    kept, weights = [0, 1, 2], cells.fitted(features, np.array([0.0, 1.0, 1.0]))
    while len(kept) > 2 and (lowest := min(kept[1:], key=lambda column: float(weights[column]))):
        if weights[lowest] >= 0:
            break
        kept.remove(lowest)
        weights = np.zeros(3)
        weights[kept] = cells.fitted(features[:, kept], np.array([0.0, 1.0, 1.0])[kept])
    return weights, features @ weights
