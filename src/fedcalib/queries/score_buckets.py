"""Labels by bucket of the score, between edges of any spacing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.queries.score_tree import scores_of
from fedcalib.query import Block, RecordQuery, Rows
from fedcalib.records import Records
from fedcalib.types import Array, Floats, Ints


@final
@dataclass(frozen=True)
class ScoreBuckets(RecordQuery):
    """Negatives and positives by bucket of the score; one cell of one, so every norm is 1.

    `edges` are the inner ones, rising. A bucket holds its lower edge. The message has room for `buckets` buckets,
    however many edges there turn out to be, so that a plan can be made before edges are known; unused ones stay 0.
    """

    edges: tuple[float, ...]
    buckets: int
    share: float = 1.0

    def __post_init__(self) -> None:
        check_edges(self.edges, self.buckets)
        if not 0 < self.share < float("inf"):
            raise InputError(f"Expected a share of the budget above 0, found {self.share}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Negatives, then positives, by rising score."""
        return {"buckets": Block((2, self.buckets), integral=True, one_hot=True, weight=self.share)}

    def rows(self, records: Records) -> Rows:
        """Touch one cell."""
        return Rows(self._cells(records)[:, None], None)

    def pooled(self, records: Records, scale: Floats | None = None) -> Array:
        """Count in one pass."""
        total = np.zeros(2 * self.buckets, dtype=np.int64)
        for chunk in records.chunks():
            total += np.bincount(self._cells(chunk), minlength=2 * self.buckets)
        return total.astype(np.float64) if scale is None else total * scale.astype(np.int64)

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
        """Negatives, then positives."""
        shape = (2, self.buckets, self.buckets)
        return {"pairs": Block(shape, integral=True, one_hot=True, weight=self.share)}

    def rows(self, records: Records) -> Rows:
        """Touch one cell."""
        own = bucket_of(scores_of(records), self.edges)
        other = bucket_of(scores_of(records, self.rival), self.rival_edges)
        return Rows(((records.labels * self.buckets + own) * self.buckets + other)[:, None], None)


def bucket_of(scores: Floats, edges: tuple[float, ...]) -> Ints:
    """Number each score's bucket; a score on an inner edge belongs to the upper one."""
    return np.searchsorted(np.asarray(edges, dtype=np.float64), np.asarray(scores, dtype=np.float64), side="right")


def check_edges(edges: tuple[float, ...], buckets: int) -> None:
    """Refuse edges that are not rising within (0, 1), or more of them than buckets have room for."""
    inner = np.asarray(edges, dtype=np.float64)
    inside = not inner.size or bool(inner.min() > 0 and inner.max() < 1 and (np.diff(inner) > 0).all())
    if not inside or not len(edges) < buckets <= 1 << 20:
        raise InputError(
            f"Expected fewer than {buckets} rising edges between 0 and 1 and at most 2^20 buckets, found {len(edges)}."
        )
