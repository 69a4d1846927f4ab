"""What a classifier says of itself: questions that need no label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.query import Block, RecordQuery, Rows
from fedcalib.records import Records


@final
@dataclass(frozen=True)
class Confidence(RecordQuery):
    """Summed top probability, and what it leaves to one; labels are not looked at.

    A record adds p to one cell and 1 - p to the other: L1 = 1, Linf <= 1 and L2 <= 1, attained by a certain record.
    Both cells together count the records, which therefore costs nothing extra.
    """

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Said to be right, said to be wrong."""
        return {"confidence": Block((2,), weight=0.25)}

    def rows(self, records: Records) -> Rows:
        """Touch both cells."""
        top = np.asarray(records.probs.max(axis=1, initial=0.0), dtype=np.float64)
        return Rows(None, np.stack([top, 1 - top], axis=1))


@final
@dataclass(frozen=True)
class Predictions(RecordQuery):
    """How often each class is predicted: one cell of one, so every norm is 1; labels are not looked at."""

    classes: int

    def __post_init__(self) -> None:
        _check_classes(self.classes)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """One cell a class."""
        return {"predictions": Block((self.classes,), integral=True, one_hot=True)}

    def rows(self, records: Records) -> Rows:
        """Touch the top class's cell."""
        return Rows(records.probs.argmax(axis=1)[:, None], None)


@final
@dataclass(frozen=True)
class ConfusionCounts(RecordQuery):
    """How often each class is predicted for each true class: one of classes^2 cells of one, so every norm is 1."""

    classes: int

    def __post_init__(self) -> None:
        _check_classes(self.classes)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Predicted class by true class."""
        return {"confusion": Block((self.classes, self.classes), integral=True, one_hot=True)}

    def rows(self, records: Records) -> Rows:
        """Touch one cell."""
        return Rows((records.probs.argmax(axis=1) * self.classes + records.labels)[:, None], None)


def _check_classes(classes: int) -> None:
    if not 2 <= classes <= 1 << 12:
        raise InputError(f"Expected 2 to 4096 classes, found {classes}.")
