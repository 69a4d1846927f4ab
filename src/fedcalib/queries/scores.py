"""Labels by score of a binary classifier: in cells of an axis, in a tree of several resolutions, or in buckets.

`ScoreSums` adds the sums that make figures exact where there is no noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import InputError
from fedcalib.metrics.binning import EVEN, Axis, EvenLogOdds, bin_index_unchecked
from fedcalib.metrics.losses import SMALLEST
from fedcalib.numeric import ExactSum, finite
from fedcalib.query import Block, Bound, Query, RecordQuery, Rows, counted_on
from fedcalib.records import Records
from fedcalib.types import Array, Floats, Ints
from fedcalib.wire import ADDED

MAX_LEAVES: Final = 1 << 20
LOG_ODDS: Final = EvenLogOdds(8.0)


@final
@dataclass(frozen=True)
class ScoreTree(RecordQuery):
    """Negatives and positives by cell of the score, at every level of a tree over [0, 1].

    Level l = 1..height has arity^l cells of equal width per label and is a block of its own, named by its number. A
    record adds one to one cell of each level: every norm of a block is 1, and the levels share the budget. Blocks are
    one-hot, so local reports can randomise one level per record.

    Parameters
    ----------
    arity
        Number of children of a node.
    height
        Number of levels.
    share
        The weight of the whole tree in a method's budget.
    column
        The column of another model's scores to count instead of the classifier's own.
    axis
        Where the leaves lie: equal steps of the probability, or of its log-odds.

    Examples
    --------
    >>> import fedcalib as fc
    >>> tree = fc.methods.ScoreTree(arity=4, height=5)
    >>> tree.leaves, tree.size
    (1024, 2728)
    >>> type(fc.ScoreCurves(tree)).__name__
    'ScoreCurves'
    """

    arity: int = 4
    height: int = 5
    share: float = 1.0
    column: str = ""
    axis: Axis = field(default=EVEN, metadata=ADDED)

    def __post_init__(self) -> None:
        whole = isinstance(self.arity, int) and isinstance(self.height, int)
        if not whole or self.arity < 2 or self.height < 1 or self.height > 20 or self.leaves > MAX_LEAVES:
            raise InputError(
                f"Expected an arity of at least 2, a height of at least 1 and at most 2^20 leaves, "
                f"found arity {self.arity} and height {self.height}."
            )
        if not 0 < self.share < float("inf"):
            raise InputError(f"Expected a weight (share) above 0, found {self.share}.")

    @property
    def leaves(self) -> int:
        """Number of cells of the finest level, per label."""
        return int(self.arity**self.height)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """One block per level, from coarse to fine: negatives, then positives."""
        return {
            str(level): Block((2, self.arity**level), integral=True, one_hot=True, weight=self.share / self.height)
            for level in range(1, self.height + 1)
        }

    @property
    def sufficient(self) -> Query:
        """The leaves alone: without noise they determine all levels."""
        return ScoreLeaves(self.leaves, self.column, self.axis)

    def expand(self, exact: Array) -> Array:
        level = exact.reshape(2, self.leaves)
        levels = [level]
        for _ in range(self.height - 1):
            level = level.reshape(2, -1, self.arity).sum(axis=2)
            levels.append(level)
        return np.concatenate([level.reshape(-1) for level in reversed(levels)])

    def rows(self, records: Records) -> Rows:
        leaf = self.axis.cells(scores_of(records, self.column), self.leaves)
        cells, offset = [], 0
        for level in range(1, self.height + 1):
            width = self.arity**level
            cells.append(offset + width * records.labels + leaf // self.arity ** (self.height - level))
            offset += 2 * width
        return Rows(np.stack(cells, axis=1), None)

    def pooled(self, records: Records, scale: Floats | None = None) -> Array:
        """Count the leaves once and sum them up, which takes one cell per record whatever the height."""
        total = self.expand(_counts(records, self.leaves, self.column, self.axis))
        return counted_on(self, total, scale).astype(np.float64 if scale is None else np.int64, copy=False)


TREE: Final = ScoreTree()


@final
@dataclass(frozen=True)
class ScoreLeaves(RecordQuery):
    """Negatives and positives by cell of the score, `leaves` of equal width; one cell of one, so every norm is 1."""

    leaves: int
    column: str = ""
    axis: Axis = field(default=EVEN, metadata=ADDED)

    def __post_init__(self) -> None:
        if not 1 <= self.leaves <= MAX_LEAVES:
            raise InputError(f"Expected 1 to 2^20 leaves, found {self.leaves}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Negatives, then positives, by increasing score."""
        return {"leaves": Block((2, self.leaves), integral=True, one_hot=True)}

    def rows(self, records: Records) -> Rows:
        return Rows(_leaf(records, self.leaves, self.column, self.axis)[:, None], None)

    def pooled(self, records: Records, scale: Floats | None = None) -> Array:
        total = _counts(records, self.leaves, self.column, self.axis)
        return counted_on(self, total, scale).astype(np.float64 if scale is None else np.int64, copy=False)


def scores_of(records: Records, column: str = "") -> Floats:
    """The classifier's own scores, or those of another model in a further column, shape (n,).

    A value of a further column that is outside [0, 1] counts as the nearer end, and NaN as 0. A refusal would reveal
    that such a record exists.
    """
    if not column:
        return records.score
    scores = np.asarray(records.column(column, "of scores"), dtype=np.float64)
    if scores.ndim != 1:
        raise InputError(f"Expected one score per record in the column '{column}', found shape {scores.shape}.")
    return np.minimum(np.fmax(scores, 0.0), 1.0)


def _leaf(records: Records, leaves: int, column: str, axis: Axis) -> Ints:
    return axis.cells(scores_of(records, column), leaves) + leaves * records.labels


def _counts(records: Records, leaves: int, column: str, axis: Axis) -> Ints:
    total = np.zeros(2 * leaves, dtype=np.int64)
    for chunk in records.chunks():
        total += np.bincount(_leaf(chunk, leaves, column, axis), minlength=2 * leaves)
    return total


Values = tuple[str | int | float, ...]  # the public values of a column that define groups


@final
@dataclass(frozen=True)
class ScoreCells(RecordQuery):
    """Negatives and positives by cell of the score, by group where a column has groups: one cell of one.

    A record adds one to exactly one cell, so every norm is 1. With groups, the cells of the last row are for records
    whose value is on no list, so that those too add one.

    Parameters
    ----------
    cells
        Number of cells per label.
    axis
        Where the cells lie.
    column
        The column of another model's scores to count instead of the classifier's own.
    group
        The column that says to which group a record belongs; empty for no groups.
    groups
        The values of that column that define groups, a public list.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.queries.scores import ScoreCells
    >>> records = fc.Records.of_scores([0.1, 0.9, 0.8], [0, 1, 0], sex=["F", "M", "F"])
    >>> ScoreCells(2).pooled(records).tolist()
    [1.0, 1.0, 0.0, 1.0]
    >>> ScoreCells(2, group="sex", groups=("F", "M")).blocks["cells"].shape
    (3, 2, 2)
    """

    cells: int
    axis: Axis = LOG_ODDS
    column: str = ""
    group: str = ""
    groups: Values = ()

    def __post_init__(self) -> None:
        if not 2 <= self.cells <= MAX_LEAVES:
            raise InputError(f"Expected 2 to 2^20 cells, found {self.cells}.")
        check_groups(self.group, self.groups)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Negatives, then positives, by increasing score, of each group."""
        shape = (len(self.groups) + 1, 2, self.cells) if self.group else (2, self.cells)
        return {"cells": Block(shape, integral=True, one_hot=True)}

    def rows(self, records: Records) -> Rows:
        return Rows(self._cells(records)[:, None], None)

    def pooled(self, records: Records, scale: Floats | None = None) -> Array:
        total = np.zeros(self.size, dtype=np.int64)
        for chunk in records.chunks():
            total += np.bincount(self._cells(chunk), minlength=self.size)
        return counted_on(self, total, scale).astype(np.float64 if scale is None else np.int64, copy=False)

    def _cells(self, records: Records) -> Ints:
        cell = self.axis.cells(scores_of(records, self.column), self.cells) + self.cells * records.labels
        return cell + 2 * self.cells * groups_of(records, self.group, self.groups) if self.group else cell


@final
@dataclass(frozen=True)
class PairedCells(RecordQuery):
    """Labels by cell of two scores of the same record: one cell of one, so every norm is 1.

    Cells are (label, cell of the model's score, cell of the other score). The other score is that of another column,
    or of a calibrator that a client applies to its own records; neither changes what a record adds.

    Parameters
    ----------
    cells
        Number of cells per score.
    axis
        Where the cells lie.
    column
        The column of the other model's scores; empty for a calibrator.
    calibrator
        The calibrator that gives the other score.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.queries.scores import PairedCells
    >>> records = fc.Records.of_scores([0.1, 0.9], [0, 1], rival=[0.8, 0.7])
    >>> PairedCells(2, column="rival").pooled(records).tolist()
    [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    """

    cells: int
    axis: Axis = LOG_ODDS
    column: str = ""
    calibrator: Calibrator | None = None

    def __post_init__(self) -> None:
        if not 2 <= self.cells <= 1 << 10 or bool(self.column) == (self.calibrator is not None):
            raise InputError(f"Expected 2 to 1024 cells and a column or a calibrator, found {self.cells} cells.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"pairs": Block((2, self.cells, self.cells), integral=True, one_hot=True)}

    def rows(self, records: Records) -> Rows:
        other = scores_of(records, self.column) if self.calibrator is None else self.calibrator.over(records).score
        cell = [self.axis.cells(score, self.cells) for score in (scores_of(records), other)]
        return Rows(((records.labels * self.cells + cell[0]) * self.cells + cell[1])[:, None], None)


def groups_of(records: Records, column: str, values: Values) -> Ints:
    """The number of each record's group, shape (n,): the place of its value in the list, or the length of the list."""
    found = np.asarray(records.column(column, "of groups"))
    found = found if found.ndim == 1 else found.reshape(len(records), -1)[:, 0]
    place = np.full(len(records), len(values), dtype=np.int64)
    for index, value in enumerate(values):
        same = found == value if found.dtype.kind in "iufb" else np.char.equal(found.astype(str), str(value))
        place[np.asarray(same, dtype=bool)] = index
    return place


def check_groups(column: str, values: Values) -> None:
    """Refuse groups without a column, a column without groups, and repeated ones."""
    if bool(column) != bool(values) or len(set(values)) != len(values):
        raise InputError(f"Expected a column with a list of distinct groups, found '{column}' and {values!r:.80}.")


_LARGEST_LOSS: Final = -float(np.log(SMALLEST))  # 36.04
FINE: Final = np.array([2.0**8, 2.0**12, 2.0**12])  # of loss, error and score: sums on a grid of 2^-24 are that finer


@final
@dataclass(frozen=True)
class ScoreSums(RecordQuery):
    """Sums that make figures of a binary classifier exact: losses, decisions at a threshold, calibration in bins.

    It is for privacy models without noise, which need no bound; the bounds hold all the same. `means` has the log loss
    (at most 36.04), multiplied by 2^8 for the sake of rounding, and the squared error and the score (at most 1), by
    2^12; `squares` has their squares and the product of score and label; `decisions` counts records whose most likely
    class is right, and positives and negatives that score at least the threshold, so at most two ones; `bins` has one
    record in one bin of its label; `confidence` has its score, multiplied by 2^12.

    Parameters
    ----------
    bins
        Number of bins of equal width.
    threshold
        A record is called positive if its score is at least that.
    column, group, groups
        As in `ScoreCells`.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.queries.scores import ScoreSums
    >>> query = ScoreSums(15, 0.5)
    >>> total = query.split(query.pooled(fc.Records.of_scores([0.25, 0.75], [0, 1])))
    >>> (total["means"][:, 0] / [2**8, 2**12, 2**12]).round(3).tolist()
    [0.575, 0.125, 1.0]
    """

    bins: int
    threshold: float
    column: str = ""
    group: str = ""
    groups: Values = ()

    def __post_init__(self) -> None:
        if not 1 <= self.bins <= 1 << 12 or not 0 <= self.threshold <= 1:
            raise InputError(f"Expected 1 to 4096 bins and a threshold in [0, 1], found {self.bins}, {self.threshold}.")
        check_groups(self.group, self.groups)

    @property
    def blocks(self) -> Mapping[str, Block]:
        rows, loss = len(self.groups) + 1, _LARGEST_LOSS
        largest = FINE * [loss, 1.0, 1.0]
        means = Bound(float(largest.sum()), float(np.linalg.norm(largest)), float(largest.max()))
        squares = Bound(loss**2 + 2, float(np.hypot(loss**2, 2**0.5)), loss**2)
        fine = Bound(*(float(FINE[2]),) * 3)
        return {
            "means": Block((3, rows), means),
            "squares": Block((4, rows), squares),
            "decisions": Block((3, rows), Bound(2.0, 2.0**0.5, 1.0), integral=True),
            "bins": Block((rows, 2, self.bins), integral=True, one_hot=True),
            "confidence": Block((rows, self.bins), fine),
        }

    @property
    def _lanes(self) -> Ints:
        """The first cell of each of the twelve numbers that a record adds, and the number of cells."""
        rows = len(self.groups) + 1
        return np.array([*(rows * np.arange(11)), (10 + 2 * self.bins) * rows, self.size])

    def rows(self, records: Records) -> Rows:
        places, values = self._entries(records)
        cells = np.stack([np.broadcast_to(place, len(records)) for place in places], axis=1) + self._lanes[:-1]
        return Rows(cells, np.stack(values, axis=1).astype(np.float64), self._lanes)

    def pooled(self, records: Records, scale: Floats | None = None) -> Array:
        """One number after the other, without rows; each lies within its bound, so do the truncated ones."""
        lanes, exact, total = self._lanes, ExactSum(self.size), np.zeros(self.size)
        for chunk in records.chunks():
            part = np.zeros(self.size)
            for lane, (place, value) in enumerate(zip(*self._entries(chunk), strict=True)):
                own = slice(lanes[lane], lanes[lane + 1])
                steps = finite(value if scale is None else np.trunc(value * scale[own.start]))
                part[own] = np.bincount(place, steps, own.stop - own.start) if np.ndim(place) else steps.sum()
            if scale is None:
                total += part
            else:
                exact.add(part.astype(np.int64), int(np.abs(part).max(initial=0.0)))
        return total if scale is None else exact.value()

    def _entries(self, records: Records) -> tuple[list[Ints], list[Floats]]:
        """Where in its lane each number goes (0 for all where there are no groups), and the number."""
        score, label = scores_of(records, self.column).astype(np.float64), records.labels
        group = groups_of(records, self.group, self.groups) if self.group else np.zeros((), dtype=np.int64)
        loss = -np.log(np.maximum(np.where(label == 1, score, 1 - score), SMALLEST))
        error, called, right = np.square(score - label), score >= self.threshold, (score > 0.5) == (label == 1)
        values = [FINE[0] * loss, FINE[1] * error, FINE[2] * score, loss**2, error**2, score**2, score * label]
        values += [right * 1.0, called * (label == 1) * 1.0, called * (label == 0) * 1.0]
        cell = bin_index_unchecked(score, self.bins)
        places = [group] * 10 + [(2 * group + label) * self.bins + cell, group * self.bins + cell]
        return places, [*values, np.ones(len(label)), FINE[2] * score]


@final
@dataclass(frozen=True)
class ScoreBuckets(RecordQuery):
    """Negatives and positives by bucket of the score; one cell of one, so every norm is 1.

    `edges` are the inner ones, increasing. A bucket includes its lower edge. The message has room for `buckets`
    buckets, however many edges there turn out to be, so that a plan can be made before edges are known; unused ones
    stay 0.
    """

    edges: tuple[float, ...]
    buckets: int
    share: float = 1.0

    def __post_init__(self) -> None:
        check_edges(self.edges, self.buckets)
        if not 0 < self.share < float("inf"):
            raise InputError(f"Expected a weight (share) above 0, found {self.share}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Negatives, then positives, by increasing score."""
        return {"buckets": Block((2, self.buckets), integral=True, one_hot=True, weight=self.share)}

    def rows(self, records: Records) -> Rows:
        return Rows(self._cells(records)[:, None], None)

    def pooled(self, records: Records, scale: Floats | None = None) -> Array:
        total = np.zeros(2 * self.buckets, dtype=np.int64)
        for chunk in records.chunks():
            total += np.bincount(self._cells(chunk), minlength=2 * self.buckets)
        return counted_on(self, total, scale).astype(np.float64 if scale is None else np.int64, copy=False)

    def _cells(self, records: Records) -> Ints:
        return bucket_of(scores_of(records), self.edges) + self.buckets * records.labels


@final
@dataclass(frozen=True)
class PairedBuckets(RecordQuery):
    """Labels by bucket of two models' scores at once: one cell of one, so every norm is 1.

    `rival` names the column of the other model's scores. Cells are (label, own bucket, rival's bucket).
    """

    edges: tuple[float, ...]
    rival_edges: tuple[float, ...]
    buckets: int
    rival: str = "rival"
    share: float = 1.0

    def __post_init__(self) -> None:
        check_edges(self.edges, self.buckets)
        check_edges(self.rival_edges, self.buckets)

    @property
    def blocks(self) -> Mapping[str, Block]:
        shape = (2, self.buckets, self.buckets)
        return {"pairs": Block(shape, integral=True, one_hot=True, weight=self.share)}

    def rows(self, records: Records) -> Rows:
        own = bucket_of(scores_of(records), self.edges)
        other = bucket_of(scores_of(records, self.rival), self.rival_edges)
        return Rows(((records.labels * self.buckets + own) * self.buckets + other)[:, None], None)


def bucket_of(scores: Floats, edges: tuple[float, ...]) -> Ints:
    """The bucket of each score; a score on an inner edge belongs to the upper one."""
    return np.searchsorted(np.asarray(edges, dtype=np.float64), np.asarray(scores, dtype=np.float64), side="right")


def check_edges(edges: tuple[float, ...], buckets: int) -> None:
    inner = np.asarray(edges, dtype=np.float64)
    inside = not inner.size or bool(inner.min() > 0 and inner.max() < 1 and (np.diff(inner) > 0).all())
    if not inside or not len(edges) < buckets <= 1 << 20:
        raise InputError(
            f"Expected fewer than {buckets} increasing edges between 0 and 1 and at most 2^20 buckets, "
            f"found {len(edges)} edges."
        )
