"""Counts of labels by class and probability bin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import TypeAlias, final

import numpy as np

from fedcalib.artifacts.steps import asked_classes
from fedcalib.axes import EVEN, Axis
from fedcalib.errors import InputError
from fedcalib.query import Block, RecordQuery, Rows
from fedcalib.records import Records
from fedcalib.types import Array, Floats

Clips: TypeAlias = float | tuple[float, float] | None


@final
@dataclass(frozen=True)
class LabelHistogram(RecordQuery):
    """For each class: how many records with the class's probability in each bin are of the class, and how many not.

    A record adds one to exactly one of the 2 x bins cells of each class's block: (of the class, bin) or (not, bin). So
    every block is one-hot with L1 = L2 = Linf = 1, attained by every record; all blocks together have L1 = classes and
    L2 = sqrt(classes). With two classes the second class's block tells everything and is the only one asked for.
    `clip` is the L2 norm to which a client's counts in a block are cut when the client is the unit, `axis` says where
    the bins lie. Two clips, as published, make two blocks of each class, of it and not, with a clip each: noise is then
    paid for both, though a record is in one.
    """

    classes: int
    bins: int
    clip: Clips = None
    axis: Axis = EVEN

    def __post_init__(self) -> None:
        if self.classes < 2 or self.bins < 1 or self.classes * self.bins > 1 << 26:
            raise InputError(f"Expected at least 2 classes and 1 bin, found {self.classes} and {self.bins}.")
        if isinstance(self.clip, tuple) and not (len(self.clip) == 2 and all(map(_is_clip, self.clip))):
            raise InputError(f"Expected one clip, or one for positives and one for negatives, found {self.clip!r:.80}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        """One block a class asked for: (of the class or not, bin); or two, where there are two clips."""
        asked = range(self.classes - asked_classes(self.classes), self.classes)
        if isinstance(self.clip, tuple):
            signs = zip("+-", self.clip, strict=True)
            halves = {sign: Block((self.bins,), integral=True, one_hot=True, clip=clip) for sign, clip in signs}
            return {f"{label}{sign}": half for label in asked for sign, half in halves.items()}
        block = Block((2, self.bins), integral=True, one_hot=True, clip=self.clip)
        return {str(label): block for label in asked}

    def rows(self, records: Records) -> Rows:
        """Touch one cell a class."""
        asked = np.arange(self.classes - asked_classes(self.classes), self.classes)
        cells = self.axis.cells(records.probs[:, asked[0] :], self.bins)
        cells += 2 * self.bins * np.arange(len(asked))
        cells[records.labels[:, None] != asked] += self.bins
        return Rows(cells, None)

    def pooled(self, records: Records, scale: Floats | None = None) -> Array:
        """Count how many records each bin holds and how many of them are of the class; the rest is not."""
        first = self.classes - asked_classes(self.classes)
        probs = records.probs[:, first:]
        held = self.axis.counted(probs, self.bins)
        mine = np.flatnonzero(records.labels >= first)  # with two classes, only class 1 has a block
        label = records.labels[mine] - first
        own = self.axis.cells(probs[mine, label], self.bins) + self.bins * label
        hits = np.bincount(own, minlength=held.size).reshape(held.shape)
        counts: Array = np.stack([hits, held - hits], axis=1).reshape(-1)
        return counts if scale is None else counts * scale.astype(np.int64)


def _is_clip(value: object) -> bool:
    """Say whether a number that came from afar can be a norm."""
    return isinstance(value, int | float) and 0 < value < inf


@final
@dataclass(frozen=True)
class LabelCounts(RecordQuery):
    """How many records each class has: one cell of one, so every norm is 1."""

    classes: int

    @property
    def blocks(self) -> Mapping[str, Block]:
        """One cell a class."""
        return {"labels": Block((self.classes,), integral=True, one_hot=True)}

    def rows(self, records: Records) -> Rows:
        """Touch the label's cell."""
        return Rows(records.labels[:, None], None)
