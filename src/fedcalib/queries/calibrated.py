"""A question about calibrated records: what a later stage of a pipeline asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.federation import Federation
from fedcalib.query import Block, Query, RecordQuery, Rows
from fedcalib.randomness import Randomness
from fedcalib.records import Records
from fedcalib.types import Array, Floats


@final
@dataclass(frozen=True)
class Calibrated(RecordQuery):
    """The same question, asked after each client has applied a calibrator to its own records.

    A calibrator changes probabilities and nothing else, and the question's bounds hold for any probabilities; so they
    hold here.
    """

    query: Query
    before: Calibrator

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Name the same parts."""
        return self.query.blocks

    def rows(self, records: Records) -> Rows:
        """Calibrate, then say what each record adds."""
        return self.query.rows(self.before.over(records))

    def total(self, federation: Federation, randomness: Randomness, scale: Floats | None = None) -> Array:
        """Calibrate a slice of records at a time, and let the question sum them in its own way."""
        total = np.zeros(self.size, dtype=np.float64 if scale is None else np.int64)
        for chunk in federation.records.chunks():
            total += self.query.total(Federation.of([self.before.over(chunk)]), randomness, scale)
        return total

    @property
    def sufficient(self) -> Query:
        """Shorten the question, still after calibration."""
        shorter = self.query.sufficient
        return self if shorter is self.query else Calibrated(shorter, self.before)

    def expand(self, exact: Array) -> Array:
        """Work the answer out as the question itself would."""
        return self.query.expand(exact)
