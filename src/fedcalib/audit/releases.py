"""Many independent releases of one answer, as fast as the mechanism allows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from fedcalib.audit.copies import Copies
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.privacy.local import RandomisedReports
from fedcalib.privacy.model import Mechanism
from fedcalib.query import Query
from fedcalib.randomness import Randomness
from fedcalib.types import Array, Floats, Ints

_CHUNK: Final = 1 << 17  # cells at a time
_REPORTS: Final = 1 << 22  # more where draws that look alike are read once


class Releases(ABC):
    """A way to release the answer to a query again and again."""

    @abstractmethod
    def some(self, federation: Federation, draws: int, randomness: Randomness) -> Iterator[tuple[Floats, Floats]]:
        """Give so many estimates and their variances, (n, size) each, some at a time."""


@final
@dataclass(frozen=True)
class Stacked(Releases):
    """Ask for many copies in one message: for mechanisms that draw the noise of each cell on its own.

    `faithful` draws each client's share on its own too, where the law of the sum is drawn otherwise.
    """

    mechanism: Mechanism
    query: Query
    faithful: bool = False

    def some(self, federation: Federation, draws: int, randomness: Randomness) -> Iterator[tuple[Floats, Floats]]:
        """Release as many copies at a time as fit in cache."""
        most = max(_CHUNK // self.query.size, 1)
        for start in range(0, draws, most):
            copies = Copies(self.query, min(most, draws - start))
            stream = randomness.derive(start)
            total = self._gathered(copies, federation, stream)
            values, variances = self.mechanism.decode(copies, total, len(federation), stream.derive("server"))
            yield copies.apart(values), copies.apart(variances)

    def _gathered(self, copies: Copies, federation: Federation, randomness: Randomness) -> Array:
        gather = Mechanism.gather if self.faithful else type(self.mechanism).gather
        many = gather(self.mechanism, copies, federation, randomness)
        apart = copies.apart(many)
        if (apart != apart[0]).any():
            return many
        # no noise yet, so it comes with decoding; a client that cuts its sum must then see one copy of it, not all
        return copies.repeat(gather(self.mechanism, self.query, federation, randomness))


@final
@dataclass(frozen=True)
class Reported(Releases):
    """Let the first client's record report again and again: for a mechanism that hides each record by itself."""

    mechanism: RandomisedReports
    query: Query

    def some(self, federation: Federation, draws: int, randomness: Randomness) -> Iterator[tuple[Floats, Floats]]:
        """Report many times at once, and decode each different report once."""
        records, most = federation.client(0), max(_REPORTS // self.query.size, 1)
        if len(records) != 1:
            raise InputError(f"Expected a first client with one record to report, found {len(records)}.")
        for start in range(0, draws, most):
            same = records.take(np.zeros(min(most, draws - start), dtype=np.int64))
            shares = self.mechanism.reports(self.query, same, randomness.derive(start))
            reports, which = _distinct(shares)
            decoded = [self.mechanism.decode(self.query, report, 1, randomness) for report in reports]
            values, variances = (np.stack(part)[which] for part in zip(*decoded, strict=True))
            yield values, variances


def _distinct(rows: Ints) -> tuple[Ints, Ints]:
    """Give the different rows of small counts, and say of each row which it is; sorting numbers beats sorting rows."""
    keys, span = np.zeros(len(rows), dtype=np.int64), 1
    for column in rows.T:
        base = int(column.max(initial=0)) + 1
        if span * base >= 1 << 62:
            keys = np.unique(keys, return_inverse=True)[1]
            span = len(rows)
        keys, span = keys * base + column, span * base
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    return rows[first], which
