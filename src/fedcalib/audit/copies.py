"""One question, many times over in one message: as many draws of its noise for the price of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import final

import numpy as np

from fedcalib.federation import Federation
from fedcalib.query import Block, ClientTerms, Query, Rows
from fedcalib.randomness import Randomness
from fedcalib.records import Records
from fedcalib.types import Array, Floats


@final
@dataclass(frozen=True)
class Copies(Query):
    """The same question many times, with the bounds of one.

    A mechanism draws noise cell by cell, so every copy is an independent release of its own. The bounds would be wrong
    for one release of all copies together; that is the point, and why this query is for audits alone.
    """

    one: Query
    copies: int

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Stack each block's copies."""
        return {name: replace(block, shape=(self.copies, *block.shape)) for name, block in self.one.blocks.items()}

    def total(self, federation: Federation, randomness: Randomness, scale: Floats | None = None) -> Array:
        """Ask once and repeat the answer."""
        return self.repeat(self.one.total(federation, randomness, None if scale is None else self.apart(scale)[0]))

    def by_client(self, federation: Federation, randomness: Randomness) -> Iterator[ClientTerms]:
        """Ask each client once and repeat what it says."""
        places = self.places()  # (copies, size of one)
        for terms in self.one.by_client(federation, randomness):
            owner, value = np.tile(terms.owner, self.copies), np.tile(terms.value, self.copies)
            yield ClientTerms(terms.clients, owner, places[:, terms.cell].reshape(-1), value)

    def rows(self, records: Records) -> Rows:
        """Ask each record once and repeat what it says."""
        rows = self.one.rows(records)
        cells = np.broadcast_to(np.arange(self.one.size), (len(records), self.one.size))
        cells = cells if rows.cells is None else rows.cells
        places = np.concatenate([np.where(cells < 0, -1, own[cells]) for own in self.places()], axis=1)
        return Rows(places, None if rows.values is None else np.tile(rows.values, (1, self.copies)))

    def repeat(self, single: Array) -> Array:
        """Lay out the answer to one question as that to many."""
        return np.concatenate([np.tile(part.reshape(-1), self.copies) for part in self.one.split(single).values()])

    def apart(self, message: Array) -> Array:
        """Take a message apart into the copies, (copies, size of one)."""
        return message[self.places()]

    def places(self) -> Array:
        """Say where each copy's cells are in the whole message, (copies, size of one)."""
        edges = np.cumsum([0, *(block.size for block in self.one.blocks.values())])
        parts = [
            self.copies * start + np.arange(self.copies * (stop - start)).reshape(self.copies, -1)
            for start, stop in pairwise(edges)
        ]
        return np.concatenate(parts, axis=1)
