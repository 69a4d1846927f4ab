"""Many clients in one process: pooled records, ordered by the client that owns them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.records import Records, Schema
from fedcalib.types import Array, Ints, Words


@final
@dataclass(frozen=True, eq=False)
class Federation:
    """Many clients in one process: their records pooled, ordered by owner.

    Only the in-process runtime holds one. Client k owns the records from `offsets[k]` to `offsets[k + 1]`.

    Parameters
    ----------
    records
        All clients' records, end to end.
    offsets
        Where each client's records begin, and the end of the last, shape (clients + 1,).
    names
        One name per client, or None: a million anonymous clients need no names.

    Examples
    --------
    >>> import fedcalib as fc
    >>> north = fc.Records.of_scores([0.9, 0.2], labels=[1, 0])
    >>> south = fc.Records.of_scores([0.6], labels=[0])
    >>> federation = fc.Federation.of({"north": north, "south": south})
    >>> federation.sizes.tolist(), federation.name(1)
    ([2, 1], 'south')
    """

    records: Records
    offsets: Ints  # (clients + 1,)
    names: tuple[str, ...] | None = None  # None: a million anonymous clients need no million names

    @classmethod
    def of(cls, clients: Mapping[str, Records] | Sequence[Records]) -> Federation:
        """A federation of clients, by name or in order.

        Raises
        ------
        InputError
            If there are no clients, or they differ in classes or in the form of their scores.
        """
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
        """Pooled records, split by a column that numbers each record's owner from 0."""
        column = np.asarray(owner, dtype=np.int64)
        if len(column) != len(records):
            raise InputError(f"Expected one owner per record, found {len(column)} owners for {len(records)} records.")
        count = int(column.max(initial=-1)) + 1 if clients is None else clients
        sizes = np.bincount(column, minlength=count)
        if len(column) > 1 and (np.diff(column) < 0).any():
            records = records.take(np.argsort(column, kind="stable"))
        return cls(records, np.concatenate([[0], np.cumsum(sizes)]), None if names is None else tuple(names))

    @classmethod
    def by_site(cls, records: Records, site: Any) -> Federation:
        """Pooled records, split by a column of site names.

        Examples
        --------
        >>> import fedcalib as fc
        >>> records = fc.Records.of_scores([0.9, 0.2, 0.6], labels=[1, 0, 0])
        >>> fc.Federation.by_site(records, ["b", "a", "b"]).names
        ('a', 'b')
        """
        names, owner = np.unique(np.asarray(site), return_inverse=True)
        return cls.grouped(records, owner.reshape(-1), len(names), [str(name) for name in names])

    @classmethod
    def dirichlet(cls, records: Records, clients: int, beta: float, seed: int) -> Federation:
        """Simulate label skew: each class is dealt to clients by proportions drawn from Dirichlet(beta).

        A small `beta` yields clients that hold few classes, a large one an even split. Some clients may hold nothing.
        """
        if clients < 1 or not beta > 0:
            raise InputError(f"Expected at least one client and beta > 0, found {clients} clients and beta = {beta}.")
        rng = np.random.default_rng(seed)
        owner = np.empty(len(records), dtype=np.int64)
        for label in range(records.classes):
            rows = np.flatnonzero(records.labels == label)
            proportions = rng.dirichlet(np.full(clients, beta))
            dealt = np.repeat(np.arange(clients), rng.multinomial(len(rows), proportions / proportions.sum()))
            owner[rows] = rng.permutation(dealt)
        return cls.grouped(records, owner, clients)

    @classmethod
    def simulated(
        cls,
        *,
        classes: int = 3,
        clients: int = 10,
        records: int = 2000,
        temperature: float = 2.0,
        seed: int = 0,
    ) -> Federation:
        """Simulated records of an over-confident classifier, dealt evenly to clients; for examples and trials.

        Labels are drawn from the probabilities of the logits divided by `temperature`, so that is the temperature that
        calibrates them.

        Examples
        --------
        >>> import fedcalib as fc
        >>> federation = fc.Federation.simulated(temperature=2.0, records=20_000)
        >>> result = fc.run(fc.OneShotTemperature(refinements=2), fc.InProcess(federation), fc.SecAgg())
        >>> round(result.artifact.temperature, 1)
        2.0
        """
        rng = np.random.default_rng(seed)
        logits = 2 * rng.normal(size=(records, classes))
        labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)  # distributed as softmax(logits)
        return cls.iid(Records.of_logits(temperature * logits, labels), clients, seed)

    @classmethod
    def iid(cls, records: Records, clients: int, seed: int) -> Federation:
        """Shuffle the records and deal them out evenly."""
        owner = np.arange(len(records)) % clients
        return cls.grouped(records, np.random.default_rng(seed).permutation(owner), clients)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def schema(self) -> Schema:
        """What is public about this federation: the number of classes and of clients."""
        return Schema(self.records.classes, len(self))

    @property
    def sizes(self) -> Ints:
        """Number of records of each client, shape (clients,)."""
        return np.diff(self.offsets)

    @cached_property
    def owner(self) -> Ints:
        """The client that owns each record, shape (n,)."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def name(self, client: int) -> str:
        """A client's name; `client-k` where clients have none."""
        return self.names[client] if self.names is not None else f"client-{client}"

    def client(self, client: int) -> Records:
        """One client's records."""
        return self.records.take(slice(int(self.offsets[client]), int(self.offsets[client + 1])))

    def clients(self) -> Iterator[Records]:
        """Each client's records in turn."""
        return (self.client(client) for client in range(len(self)))

    def subset(self, members: Any) -> Federation:
        """Some clients with all their records, by mask or index."""
        chosen = np.arange(len(self))[members]
        keep = np.zeros(len(self), dtype=bool)
        keep[chosen] = True
        sizes = self.sizes[keep]
        names = None if self.names is None else tuple(np.asarray(self.names, dtype=object)[keep])
        rows = np.repeat(keep, self.sizes)
        return Federation(self.records.take(rows), np.concatenate([[0], np.cumsum(sizes)]), names)

    def where(self, rows: Any) -> Federation:
        """Some records, by mask or index; every client stays, perhaps with none."""
        mask = np.zeros(len(self.records), dtype=bool)
        mask[rows] = True
        kept = np.concatenate([[0], np.cumsum(mask)])[self.offsets]
        return Federation(self.records.take(mask), kept, self.names)

    def split(self, holdout: float, seed: int) -> tuple[Federation, Federation]:
        """Split each client's records at random into (kept, held out).

        Parameters
        ----------
        holdout
            Fraction of each client's records to hold out, between 0 and 1.
        seed
            Seed of the random choice.

        Examples
        --------
        >>> import fedcalib as fc
        >>> train, test = fc.Federation.simulated(records=1000).split(0.2, seed=0)
        >>> len(train.records), len(test.records)
        (800, 200)
        """
        if not 0 < holdout < 1:
            raise InputError(f"Expected to hold out a fraction between 0 and 1, found {holdout}.")
        rank = np.empty(len(self.records), dtype=np.int64)
        order = np.lexsort((np.random.default_rng(seed).random(len(self.records)), self.owner))
        rank[order] = np.arange(len(order)) - np.repeat(self.offsets[:-1], self.sizes)
        held_out = rank < np.round(holdout * self.sizes)[self.owner]
        return self.where(~held_out), self.where(held_out)

    def one_per_unit(self, secret: bytes | int) -> Federation:
        """One record of each unit at each client, chosen by a secret, so that a unit counts as one record.

        A unit that has records at several clients keeps one at each of them, and its epsilon is the sum over those.

        Parameters
        ----------
        secret
            The key of the choice; see `chosen_per_unit`. A whole number is the seed of a simulation.

        Examples
        --------
        >>> import fedcalib as fc
        >>> records = fc.Records.of_scores([0.9, 0.2, 0.6], labels=[1, 0, 0], unit=[7, 7, 8])
        >>> len(fc.Federation.of([records]).one_per_unit(b"a secret").records)
        2
        """
        if self.records.unit is None:
            return self
        kept = self.where(chosen_per_unit(self.records, secret, self.owner))
        return replace(kept, records=replace(kept.records, unit=None))


def chosen_per_unit(records: Records, secret: bytes | int, owner: Ints | None = None) -> Ints:
    """The position of one record of each unit, or of each pair of an owner and a unit, shape (units,).

    Each record has a tag, a keyed hash (SipHash) of its unit and of what it holds, and of each unit the record with
    the smallest tag is chosen. A tag depends on the secret and on that one record, and the choice of a unit on its own
    records alone: neither on their position nor on any record of another unit. So adding or removing a unit, whatever
    it holds, changes no other unit's record. Equal records of a unit have equal tags, and either may be chosen. That
    holds if a unit has the same number in any data set: a hash of its name, never the order of its appearance.

    Parameters
    ----------
    records
        Records with a column of units.
    secret
        The key, known to nobody who reads a release. A whole number is the seed of a simulation.
    owner
        The client that owns each record, shape (n,), if units are chosen client by client.
    """
    unit = np.zeros(len(records), dtype=np.int64) if records.unit is None else records.unit
    owner = np.zeros(len(records), dtype=np.int64) if owner is None else owner
    order = np.lexsort((unit, owner))
    new = (np.diff(unit[order]) != 0) | (np.diff(owner[order]) != 0)
    group = np.empty(len(records), dtype=np.int64)
    group[order] = np.concatenate([[0], np.cumsum(new)])[: len(order)]
    several = np.flatnonzero(np.bincount(group)[group] > 1)  # the others need no tag
    tags = np.zeros(len(records), dtype=np.uint64)
    if several.size:
        tags[several] = _siphash(_words(records.take(several)), _key(secret))
    chosen = np.lexsort((tags, group))
    first = np.flatnonzero(np.diff(group[chosen], prepend=-1))
    return chosen[first]


def _key(secret: bytes | int) -> Words:
    """Two words from a secret of any length."""
    text = secret if isinstance(secret, bytes) else str(secret).encode()
    kind = b"secret" if isinstance(secret, bytes) else b"seed"
    return np.frombuffer(blake2b(text, digest_size=16, person=kind).digest(), dtype=np.uint64)


def _words(records: Records) -> Words:
    """Unit, label, scores and further columns of each record as words, shape (n, words)."""
    extra = [records.extra[name] for name in sorted(records.extra)]
    columns = [records.unit, records.labels, records.given, *extra]
    return np.concatenate([_column_words(column, len(records)) for column in columns if column is not None], axis=1)


def _column_words(column: Array, rows: int) -> Words:
    """The words of each row of a column, in a type that does not depend on the other rows."""
    if column.dtype.kind not in "fiub":  # arrays of texts have the length of the longest
        texts = [blake2b(repr(row).encode(), digest_size=16).digest() for row in column.tolist()]
        return np.frombuffer(b"".join(texts), dtype=np.uint64).reshape(rows, -1)
    wide = column.astype(np.float64 if column.dtype.kind == "f" else np.int64)
    return np.ascontiguousarray(wide).reshape(rows, -1).view(np.uint64)


def _siphash(words: Words, key: Words) -> Words:
    """SipHash-2-4 (Aumasson and Bernstein 2012) of each row, shape (n,): a keyed hash of 64 bits, on all rows at once.

    Rows have the same number of words, so their length is left out.
    """
    start = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
    v = [np.full(len(words), np.uint64(constant) ^ key[i % 2]) for i, constant in enumerate(start)]
    for word in words.T:
        v[3] ^= word
        _rounds(v, 2)
        v[0] ^= word
    v[2] ^= np.uint64(0xFF)
    _rounds(v, 4)
    tags: Words = v[0] ^ v[1] ^ v[2] ^ v[3]
    return tags


def _rounds(v: list[Words], count: int) -> None:
    """The round function of SipHash, in place."""
    for _ in range(count):
        for a, b, c, d, first, second in ((0, 1, 2, 3, 13, 16), (2, 1, 0, 3, 17, 21)):
            v[a] += v[b]
            v[b] = _rotated(v[b], first) ^ v[a]
            if a == 0:
                v[a] = _rotated(v[a], 32)
            v[c] += v[d]
            v[d] = _rotated(v[d], second) ^ v[c]
            if a == 2:
                v[a] = _rotated(v[a], 32)


def _rotated(words: Words, bits: int) -> Words:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))
