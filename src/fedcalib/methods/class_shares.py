"""ClassShares: how common each class is, for clients that correct for their own mix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import final

import numpy as np

from fedcalib.artifacts.label_shift import LabelShares
from fedcalib.method import Flow, Method
from fedcalib.query import Block, Bound, RecordQuery, Rows
from fedcalib.records import Records, Schema


@final
@dataclass(frozen=True)
class ClassCounts(RecordQuery):
    """How many records each class has: one cell of one, so every norm is 1; `clip` is for whole clients."""

    classes: int
    clip: float | None = None

    @property
    def blocks(self) -> Mapping[str, Block]:
        """One cell a class."""
        return {"labels": Block((self.classes,), Bound(1.0, 1.0, 1.0), integral=True, one_hot=True, clip=self.clip)}

    def rows(self, records: Records) -> Rows:
        """Touch the label's cell."""
        return Rows(records.labels[:, None].astype(np.int64), None)


@final
@dataclass(frozen=True)
class ClassShares(Method[LabelShares]):
    """Count each class once, over all clients."""

    typical_records: float = 50.0

    def protocol(self, schema: Schema) -> Flow[LabelShares]:
        """Ask once."""
        answer = yield ClassCounts(schema.classes, max(1.0, self.typical_records / sqrt(2)))
        return LabelShares.of_counts(answer["labels"])
