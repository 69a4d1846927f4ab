"""The change of a figure between two scores of the same records, with a paired interval.

Both scores are counted in one table, so sampling and noise cancel where they agree: the variance of the change is that
of the difference of the two influences, cell by cell. Figures made of absolute values have no influence near zero;
their change has an interval from both single ones, as if these were independent, which is wider.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import isnan
from typing import Final, final

import numpy as np

from fedcalib.estimation import logistic, score_functionals
from fedcalib.estimation.estimates import Estimate
from fedcalib.estimation.score_sheet import Functional, ScoreSheet
from fedcalib.estimation.score_table import ScoreTable
from fedcalib.metrics import table
from fedcalib.metrics.intervals import Measured
from fedcalib.numeric import log_odds, sigmoid
from fedcalib.types import Floats, Ints

_GRID: Final = 4097  # places between which a function of the score is searched for jumps
_GRID_REACH: Final = 16.0  # their largest log-odds
_LEAST_JUMP: Final = 1e-4
_BISECTIONS: Final = 54  # until two places are neighbouring floating-point numbers
_PLACES: Final = 16  # of a cell, at which a step function is read


@final
@dataclass(frozen=True, eq=False)
class Pair:
    """Two sheets of the same records, and how a cell of the joint table lies in each; influences meet there."""

    before: ScoreSheet
    after: ScoreSheet
    counts: Floats  # (2, joint cells): nonnegative
    in_before: Ints  # (joint cells,)
    in_after: Ints  # (joint cells,)
    noise: Callable[[Floats], float]  # the noise variance of a weighted sum of joint cells, weights (2, joint cells)

    def change(self, first: Functional, second: Functional, values: tuple[float, float]) -> Estimate:
        """The change of a figure with the variances of sampling and noise; values are of before and after."""
        influence = second.influence[:, self.in_after] - first.influence[:, self.in_before]
        sampling = float((self.counts * np.square(influence)).sum())
        reading = abs(second.reading - first.reading)
        return Estimate(values[1] - values[0], sampling, self.noise(influence), reading)


def rescored(sheet: ScoreSheet, of_score: Callable[[Floats], Floats]) -> Pair:
    """The same records with other scores, which are a function of their own.

    Cells with the same new score become one. An increasing function leaves the order of cells as it is, and what is
    known about records inside them.
    """
    score = of_score(sheet.score)
    increasing = bool((np.diff(np.round(score, 12)) > 0).all())
    if not increasing and not sheet.tied:
        score = _averaged(sheet, of_score)
    distinct, place = np.unique(np.round(score, 12), return_inverse=True)
    place = place.reshape(-1)
    if len(distinct) < 2:
        distinct = np.concatenate([[0.0], distinct]) if distinct[0] > 0 else np.array([0.0, 1.0])
        place = place + int(distinct[1] < 1 or score[0] > 0)
    noise = np.broadcast_to(sheet.table.noise[-1], sheet.table.counts.shape)
    counts, variances = (_by_place(part, place, len(distinct)) for part in (sheet.table.counts, noise))
    between = of_score(sheet.table.edges[1:-1]) if increasing else distinct[:-1]
    if not ((distinct[:-1] < between) & (between < distinct[1:])).all():
        between = (distinct[1:] + distinct[:-1]) / 2
    edges = np.concatenate([[0.0], between, [1.0]])
    after = ScoreSheet(
        ScoreTable(edges, counts, len(distinct), (variances,)),
        log_odds(distinct, 1e-15),
        tied=sheet.tied or not increasing,
    )
    every = np.arange(len(place))
    return Pair(sheet, after, sheet.counts, every, place, lambda w: float(sheet.table.variance(w[None])[0]))


def jumps(of_score: Callable[[Floats], Floats]) -> tuple[Floats, Floats]:
    """Where a function of the score jumps, as probabilities from which on it has the new value, and by how much.

    Between two places of a fine grid, the half with the larger change is taken again and again: the change of a
    continuous function vanishes there, that of a jump stays.
    """
    grid = sigmoid(np.linspace(-_GRID_REACH, _GRID_REACH, _GRID))
    value = of_score(grid)
    some = np.abs(np.diff(value)) > _LEAST_JUMP
    low, high, before, after = grid[:-1][some], grid[1:][some], value[:-1][some], value[1:][some]
    size = np.abs(after - before)
    for _ in range(_BISECTIONS if some.any() else 0):
        middle = (low + high) / 2
        here = of_score(middle)
        left = np.abs(here - before) >= np.abs(after - here)
        low, high = np.where(left, low, middle), np.where(left, middle, high)
        before, after = np.where(left, before, here), np.where(left, here, after)
        real = np.abs(after - before) > size / 4
        low, high, before, after, size = (part[real] for part in (low, high, before, after, size))
    return high, size


def cut_cells(
    sheet: ScoreSheet, edges: Floats, counts: Floats, noise: float, of_score: Callable[[Floats], Floats]
) -> Pair:
    """The records of a sheet with other scores, from counts in parts of its cells, none of which crosses a jump.

    `edges` are the inner ones of the parts, those of the sheet among them, and `counts` is (2, parts).
    """
    owner = np.searchsorted(edges, sheet.table.edges[1:-1], side="left")  # the last part of each cell but the last
    cell = np.zeros(len(edges) + 1, dtype=np.int64)
    np.add.at(cell, owner + 1, 1)
    place = np.cumsum(cell)
    ends = np.concatenate([sheet.edges[:1], log_odds(edges, 1e-300), sheet.edges[-1:]])
    table = ScoreTable(np.concatenate([[0.0], edges, [1.0]]), counts, len(edges) + 1, (np.full((2, 1), noise),))
    whole = np.bincount(place, minlength=len(sheet.odds))[place] == 1
    parts = ScoreSheet(table, np.where(whole, sheet.odds[place], (ends[1:] + ends[:-1]) / 2), sheet.tied)
    found = rescored(parts, of_score)
    return replace(found, before=sheet, in_before=place)


def _averaged(sheet: ScoreSheet, of_score: Callable[[Floats], Floats]) -> Floats:
    """The mean new score of each cell: a step function may jump inside it, shape (cells,)."""
    left, right = sheet.edges[:-1, None], sheet.edges[1:, None]
    odds = left + (np.arange(_PLACES) + 0.5) / _PLACES * (right - left)
    return np.asarray(of_score(sigmoid(odds).reshape(-1)).reshape(odds.shape).mean(axis=1))


def _by_place(counts: Floats, place: Ints, cells: int) -> Floats:
    return np.stack([np.bincount(place, row, cells) for row in counts]).astype(np.float64)


def crossed(before: ScoreSheet, after: ScoreSheet, counts: Floats, noise: float) -> Pair:
    """Two scores of the same records from counts by label and both cells, shape (2, cells before, cells after)."""
    clipped = np.maximum(counts, 0.0)
    totals = np.maximum(counts.sum(axis=(1, 2)), 0.0) / np.maximum(clipped.sum(axis=(1, 2)), 1e-300)
    scaled = (clipped * totals[:, None, None]).reshape(2, -1)
    first, second = np.divmod(np.arange(scaled.shape[1]), counts.shape[2])
    return Pair(before, after, scaled, first, second, lambda weights: noise * float(np.square(weights).sum()))


def coarse(pair: Pair, before: ScoreSheet, after: ScoreSheet) -> Pair:
    """The same joint table, with finer sheets of its own cells: places follow from log-odds."""
    first = np.searchsorted(before.edges[1:-1], pair.before.odds[pair.in_before], side="right")
    second = np.searchsorted(after.edges[1:-1], pair.after.odds[pair.in_after], side="right")
    return replace(pair, before=before, after=after, in_before=first, in_after=second)


_Make = Callable[[ScoreSheet, float], Functional | None]


def functionals(sheet: ScoreSheet, threshold: float) -> dict[str, Functional]:
    """The figures that have an influence, by name."""
    if not sheet.known.all():
        return {}
    found = {name: make(sheet, threshold) for name, make in _FIGURES.items()}
    return {name: figure for name, figure in found.items() if figure is not None}


def _ratio(sheet: ScoreSheet, part: Floats, whole: Floats) -> Functional | None:
    records = float((whole * sheet.counts).sum())
    if records <= 0:
        return None
    value = float((part * sheet.counts).sum()) / records
    return Functional(value, (part - value * whole) / records)


def _above(sheet: ScoreSheet, threshold: float) -> Floats:
    return np.asarray(sheet.above(np.array([threshold]))[0][0])


def _at(negative: tuple[float, float], positive: tuple[float, float], base: tuple[float, float, float, float]) -> _Make:
    """A ratio of sums: weights (of the part, of the whole) of records above the threshold, and of all, by label."""

    def make(sheet: ScoreSheet, threshold: float) -> Functional | None:
        above = _above(sheet, threshold)
        part = np.stack([negative[0] * above + base[0], positive[0] * above + base[1]])
        whole = np.stack([negative[1] * above + base[2], positive[1] * above + base[3]])
        return _ratio(sheet, part, whole)

    return make


def _youden(sheet: ScoreSheet, threshold: float) -> Functional | None:
    parts = _FIGURES[table.SENSITIVITY.name](sheet, threshold), _FIGURES[table.SPECIFICITY.name](sheet, threshold)
    if parts[0] is None or parts[1] is None:
        return None
    return Functional(parts[0].value + parts[1].value - 1, parts[0].influence + parts[1].influence)


def _balanced(sheet: ScoreSheet, threshold: float) -> Functional | None:
    youden = _youden(sheet, threshold)
    return None if youden is None else Functional((youden.value + 1) / 2, youden.influence / 2)


def _benefit(sheet: ScoreSheet, threshold: float) -> Functional:
    above = _above(sheet, threshold)
    return score_functionals.mean(sheet, np.stack([-threshold / (1 - threshold) * above, above]))


def _weight(fit: logistic.LogisticFit | None, index: int) -> Functional | None:
    return None if fit is None else fit.weight(index)


_FIGURES: Final[Mapping[str, _Make]] = {
    table.AUC.name: lambda sheet, at: score_functionals.area(sheet),
    table.AVERAGE_PRECISION.name: lambda sheet, at: score_functionals.average_precision(sheet),
    table.ACCURACY.name: lambda sheet, at: _at((-1, 0), (1, 0), (1, 0, 1, 1))(sheet, 0.5),
    table.NLL.name: lambda sheet, at: score_functionals.log_loss(sheet),
    table.BRIER.name: lambda sheet, at: score_functionals.brier(sheet),
    table.SCALED_BRIER.name: lambda sheet, at: score_functionals.scaled_brier(sheet),
    table.OBSERVED_EXPECTED.name: lambda sheet, at: score_functionals.observed_expected(sheet),
    table.SLOPE.name: lambda sheet, at: _weight(logistic.calibration_line(sheet), 1),
    table.INTERCEPT.name: lambda sheet, at: _weight(logistic.calibration_line(sheet), 0),
    table.CALIBRATION_IN_THE_LARGE.name: lambda sheet, at: _weight(logistic.in_the_large(sheet), 0),
    table.SENSITIVITY.name: _at((0, 0), (1, 0), (0, 0, 0, 1)),
    table.SPECIFICITY.name: _at((-1, 0), (0, 0), (1, 0, 1, 0)),
    table.PPV.name: _at((0, 1), (1, 1), (0, 0, 0, 0)),
    table.NPV.name: _at((-1, -1), (0, -1), (1, 0, 1, 1)),
    table.F1.name: _at((0, 1), (2, 1), (0, 0, 0, 1)),
    table.BALANCED_ACCURACY.name: _balanced,
    table.YOUDEN.name: _youden,
    table.NET_BENEFIT.name: _benefit,
    table.ALERT_RATE.name: _at((1, 0), (1, 0), (0, 0, 1, 1)),
}


def changes(
    pair: Pair, threshold: float, before: Mapping[str, Measured], after: Mapping[str, Measured]
) -> dict[str, Measured]:
    """After less before, by name, for the figures that both state."""
    first, second = functionals(pair.before, threshold), functionals(pair.after, threshold)
    found = {}
    for name in before:
        values = before[name].value, after[name].value if name in after else float("nan")
        if isnan(values[0]) or isnan(values[1]):
            continue
        if name in first and name in second:
            found[name] = pair.change(first[name], second[name], values).normal()
        else:
            found[name] = difference(after[name], before[name])
    return found


def difference(first: Measured, second: Measured) -> Measured:
    """The first less the second, with an interval from those of both, as if they were independent."""
    value = first.value - second.value
    below = np.hypot(first.value - first.low, second.high - second.value)
    beyond = np.hypot(first.high - first.value, second.value - second.low)
    return Measured(value, value - float(below), value + float(beyond))
