"""Labels by score of a binary classifier: in a tree of several resolutions, or in buckets between given edges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.metrics.binning import bin_index_unchecked
from fedcalib.query import Block, Query, RecordQuery, Rows, counted_on
from fedcalib.records import Records
from fedcalib.types import Array, Floats, Ints

MAX_LEAVES: Final = 1 << 20


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
        return ScoreLeaves(self.leaves, self.column)

    def expand(self, exact: Array) -> Array:
        level = exact.reshape(2, self.leaves)
        levels = [level]
        for _ in range(self.height - 1):
            level = level.reshape(2, -1, self.arity).sum(axis=2)
            levels.append(level)
        return np.concatenate([level.reshape(-1) for level in reversed(levels)])

    def rows(self, records: Records) -> Rows:
        leaf = bin_index_unchecked(scores_of(records, self.column), self.leaves)
        cells, offset = [], 0
        for level in range(1, self.height + 1):
            width = self.arity**level
            cells.append(offset + width * records.labels + leaf // self.arity ** (self.height - level))
            offset += 2 * width
        return Rows(np.stack(cells, axis=1), None)

    def pooled(self, records: Records, scale: Floats | None = None) -> Array:
        """Count the leaves once and sum them up, which takes one cell per record whatever the height."""
        total = self.expand(_counts(records, self.leaves, self.column))
        return counted_on(self, total, scale).astype(np.float64 if scale is None else np.int64, copy=False)


TREE: Final = ScoreTree()


@final
@dataclass(frozen=True)
class ScoreLeaves(RecordQuery):
    """Negatives and positives by cell of the score, `leaves` of equal width; one cell of one, so every norm is 1."""

    leaves: int
    column: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.leaves <= MAX_LEAVES:
            raise InputError(f"Expected 1 to 2^20 leaves, found {self.leaves}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Negatives, then positives, by increasing score."""
        return {"leaves": Block((2, self.leaves), integral=True, one_hot=True)}

    def rows(self, records: Records) -> Rows:
        return Rows(_leaf(records, self.leaves, self.column)[:, None], None)

    def pooled(self, records: Records, scale: Floats | None = None) -> Array:
        total = _counts(records, self.leaves, self.column)
        return counted_on(self, total, scale).astype(np.float64 if scale is None else np.int64, copy=False)


def scores_of(records: Records, column: str = "") -> Floats:
    """The classifier's own scores, or those of another model in a further column, shape (n,).

    A value of a further column that is outside [0, 1] counts as the nearer end, and NaN as 0. A refusal would reveal
    that such a record exists.
    """
    if not column:
        return records.score
    if column not in records.extra:
        raise InputError(f"Expected a column '{column}' of scores, found {sorted(records.extra) or 'none'}.")
    scores = np.asarray(records.extra[column], dtype=np.float64)
    if scores.ndim != 1:
        raise InputError(f"Expected one score per record in the column '{column}', found shape {scores.shape}.")
    return np.minimum(np.fmax(scores, 0.0), 1.0)


def _leaf(records: Records, leaves: int, column: str) -> Ints:
    return bin_index_unchecked(scores_of(records, column), leaves) + leaves * records.labels


def _counts(records: Records, leaves: int, column: str) -> Ints:
    total = np.zeros(2 * leaves, dtype=np.int64)
    for chunk in records.chunks():
        total += np.bincount(_leaf(chunk, leaves, column), minlength=2 * leaves)
    return total


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
