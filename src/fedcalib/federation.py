"""Many clients side by side: dealt out, parted and looked at one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.records import Records, Schema
from fedcalib.types import Ints


@final
@dataclass(frozen=True, eq=False)
class Federation:
    """Many clients side by side: their records pooled, ordered by owner.

    Only the in-process runtime holds one. Client k owns the records from `offsets[k]` to `offsets[k + 1]`.
    """

    records: Records
    offsets: Ints  # (clients + 1,)
    names: tuple[str, ...] | None = None  # None: a million anonymous clients need no million names

    @classmethod
    def of(cls, clients: Mapping[str, Records] | Sequence[Records]) -> Federation:
        """Put clients together, by name or in order."""
        parts = list(clients.values()) if isinstance(clients, Mapping) else list(clients)
        if not parts:
            raise InputError("Expected at least one client, found none.")
        sizes = np.array([0, *(len(part) for part in parts)], dtype=np.int64)
        names = tuple(clients) if isinstance(clients, Mapping) else None
        return cls(Records.concatenate(parts), np.cumsum(sizes), names)

    @classmethod
    def grouped(
        cls, records: Records, owner: Any, clients: int | None = None, names: Iterable[str] | None = None
    ) -> Federation:
        """Split pooled records by a column that numbers each record's owner from 0."""
        column = np.asarray(owner, dtype=np.int64)
        if len(column) != len(records):
            raise InputError(f"Expected one owner a record, found {len(column)} owners for {len(records)} records.")
        count = int(column.max(initial=-1)) + 1 if clients is None else clients
        sizes = np.bincount(column, minlength=count)
        if len(column) > 1 and (np.diff(column) < 0).any():
            records = records.take(np.argsort(column, kind="stable"))
        return cls(records, np.concatenate([[0], np.cumsum(sizes)]), None if names is None else tuple(names))

    @classmethod
    def by_site(cls, records: Records, site: Any) -> Federation:
        """Split pooled records by a column of site names."""
        names, owner = np.unique(np.asarray(site), return_inverse=True)
        return cls.grouped(records, owner.reshape(-1), len(names), [str(name) for name in names])

    @classmethod
    def dirichlet(cls, records: Records, clients: int, beta: float, seed: int) -> Federation:
        """Simulate label skew: deal each class to clients by shares drawn from Dirichlet(beta).

        `beta` near 0 gives clients of few classes, large `beta` an even split. Some clients may hold nothing.
        """
        if clients < 1 or not beta > 0:
            raise InputError(f"Expected at least one client and beta > 0, found {clients} clients and beta = {beta}.")
        rng = np.random.default_rng(seed)
        owner = np.empty(len(records), dtype=np.int64)
        for label in range(records.classes):
            rows = np.flatnonzero(records.labels == label)
            shares = rng.dirichlet(np.full(clients, beta))
            dealt = np.repeat(np.arange(clients), rng.multinomial(len(rows), shares / shares.sum()))
            owner[rows] = rng.permutation(dealt)
        return cls.grouped(records, owner, clients)

    @classmethod
    def iid(cls, records: Records, clients: int, seed: int) -> Federation:
        """Shuffle the records and deal them out evenly."""
        owner = np.arange(len(records)) % clients
        return cls.grouped(records, np.random.default_rng(seed).permutation(owner), clients)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def schema(self) -> Schema:
        """Say what is public about this federation."""
        return Schema(self.records.classes, len(self))

    @property
    def sizes(self) -> Ints:
        """Count each client's records, (clients,)."""
        return np.diff(self.offsets)

    @cached_property
    def owner(self) -> Ints:
        """Number each record's client, (n,)."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def name(self, client: int) -> str:
        """Say what a client is called."""
        return self.names[client] if self.names is not None else f"client-{client}"

    def client(self, client: int) -> Records:
        """Look at one client's records."""
        return self.records.take(slice(int(self.offsets[client]), int(self.offsets[client + 1])))

    def clients(self) -> Iterator[Records]:
        """Look at each client's records in turn."""
        return (self.client(client) for client in range(len(self)))

    def subset(self, members: Any) -> Federation:
        """Keep only some clients, by mask or index."""
        chosen = np.arange(len(self))[members]
        keep = np.zeros(len(self), dtype=bool)
        keep[chosen] = True
        sizes = self.sizes[keep]
        names = None if self.names is None else tuple(np.asarray(self.names, dtype=object)[keep])
        rows = np.repeat(keep, self.sizes)
        return Federation(self.records.take(rows), np.concatenate([[0], np.cumsum(sizes)]), names)

    def where(self, rows: Any) -> Federation:
        """Keep only some records; every client stays, perhaps with nothing."""
        mask = np.zeros(len(self.records), dtype=bool)
        mask[rows] = True
        kept = np.concatenate([[0], np.cumsum(mask)])[self.offsets]
        return Federation(self.records.take(mask), kept, self.names)

    def split(self, share: float, seed: int) -> tuple[Federation, Federation]:
        """Part each client's records at random: `share` of them held out, the rest kept."""
        if not 0 < share < 1:
            raise InputError(f"Expected a share between 0 and 1 to hold out, found {share}.")
        rank = np.empty(len(self.records), dtype=np.int64)
        order = np.lexsort((np.random.default_rng(seed).random(len(self.records)), self.owner))
        rank[order] = np.arange(len(order)) - np.repeat(self.offsets[:-1], self.sizes)
        held = rank < np.round(share * self.sizes)[self.owner]
        return self.where(~held), self.where(held)

    def one_a_unit(self, seed: int) -> Federation:
        """Keep one record of each unit at each client, drawn at random, so that a unit counts as one record."""
        if self.records.unit is None:
            return self
        order = np.random.default_rng(seed).permutation(len(self.records))
        pairs = np.stack([self.owner[order], self.records.unit[order]])
        _, first = np.unique(pairs, axis=1, return_index=True)
        kept = self.where(order[first])
        return replace(kept, records=replace(kept.records, unit=None))
