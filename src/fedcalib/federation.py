"""Many clients in one process: pooled records, ordered by the client that owns them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.records import CHUNK, Records, Schema
from fedcalib.types import Array, Bools, Ints, Words


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

    def __repr__(self) -> str:
        """How many clients there are, and what their records are, without any record."""
        return f"Federation({len(self.offsets) - 1:,} clients, {self.records!r})"

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

    def held_out_clients(self, holdout: float, seed: bytes | int) -> Bools:
        """Which clients are held out, shape (clients,): those with the smallest keyed hashes of their names.

        The list of clients is public, so the number of those that are held out may depend on it.
        """
        tags = _mixed(_sums(self._sites[:, None], _key(seed)))
        count = min(max(round(holdout * len(self)), 1), len(self) - 1)
        return np.argsort(np.argsort(tags, kind="stable")) < count

    @cached_property
    def _sites(self) -> Words:
        """A number for each client that does not depend on the others if they have names, shape (clients,)."""
        if self.names is None:
            return np.arange(len(self), dtype=np.uint64)
        hashes = [blake2b(name.encode(), digest_size=8).digest() for name in self.names]
        return np.array([int.from_bytes(one, "big") for one in hashes], dtype=np.uint64)

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

    def without_records(self) -> Federation:
        """The same columns and clients, without any record."""
        return self.where(slice(0, 0))

    def split(self, holdout: float, seed: bytes | int) -> tuple[Federation, Federation]:
        """Split records at random into (kept, held out), so that removing one record moves no other.

        Parameters
        ----------
        holdout
            Probability that a record is held out, between 0 and 1.
        seed
            Key of the choice; see `held_out_rows`. It may be public. A second split of the same records needs another.

        Examples
        --------
        >>> import fedcalib as fc
        >>> train, test = fc.Federation.simulated(records=1000).split(0.2, seed=0)
        >>> len(train.records), len(test.records)
        (806, 194)
        """
        if not 0 < holdout < 1:
            raise InputError(f"Expected to hold out a fraction between 0 and 1, found {holdout}.")
        held_out = held_out_rows(self.records, holdout, seed, self._sites[self.owner])
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


def record_tags(records: Records, secret: bytes | int) -> Words:
    """A number for each record, shape (n,), that follows from the secret and what the record holds, and nothing else.

    Sums of them modulo 2^64 tell sets of records apart whatever their order, for those who do not choose the records.
    """
    return _mixed(_sums(_words(records), _key(secret)))


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


def held_out_rows(records: Records, holdout: float, secret: bytes | int, site: Words) -> Bools:
    """Which records are held out: a coin per record, shape (n,).

    The side of a record follows from a keyed hash of its unit, so that a unit is on one side; or, without units, of its
    site, of what it holds and of its number among equal records of that site, so that equal records are not all on
    one side. Position, file and order do not enter. Take any key, and remove one of k equal records: the others have
    the numbers 0 to k - 2, so one side loses one of them and the other side none; all other records have the hash that
    they had. Equal records are interchangeable, so nothing else changes. That holds for every key, so the key may be
    public, and a hash of 64 bits that mixes well is enough.

    Parameters
    ----------
    records
        The records.
    holdout
        Probability that a record is held out, between 0 and 1.
    secret
        The key.
    site
        A number for each record's site that does not depend on other sites, shape (n,).
    """
    key = _key(secret)
    if records.unit is not None:
        return _below(_mixed(_sums(_column_words(records.unit, len(records)), key)), holdout)
    tags = np.empty(len(records), dtype=np.uint64)
    for start in range(0, len(records), CHUNK):
        rows = slice(start, start + CHUNK)
        tags[rows] = _mixed(_sums(_words_at(records, site, rows), key))
    numbers = _occurrences(records, site, tags)
    return _below(_mixed(tags + numbers * (key[0] | np.uint64(1))), holdout)


def _words_at(records: Records, site: Words, rows: Any) -> Words:
    words = _words(records.take(rows))
    return np.concatenate([site[rows, None], words], axis=1)


def _sums(words: Words, key: Words) -> Words:
    """Sums of the words of each row, times factors that follow from the key, modulo 2^64, shape (n,)."""
    factors = np.random.Philox(key=key).random_raw(words.shape[1]) | np.uint64(1)
    folded = words >> np.uint64(32)
    folded ^= words  # else only the highest bits of round numbers would count
    sums: Words = folded @ factors
    return sums


def _mixed(words: Words) -> Words:
    """Numbers whose every bit depends on every bit of the given ones: the last step of MurmurHash3, one to one."""
    mixed = words ^ (words >> np.uint64(33))
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        mixed *= np.uint64(factor)
        mixed ^= mixed >> np.uint64(33)
    return mixed


def _below(tags: Words, share: float) -> Bools:
    below: Bools = tags < np.uint64(int(share * 2.0**64))
    return below


def _occurrences(records: Records, site: Words, tags: Words) -> Words:
    """How many equal records of the same site come before each, shape (n,); equal ones have equal tags."""
    numbers = np.zeros(len(records), dtype=np.uint64)
    order = np.argsort(tags, kind="stable")
    tied = np.diff(tags[order]) == 0
    if not tied.any():
        return numbers
    rows = order[np.concatenate([tied, [False]]) | np.concatenate([[False], tied])]
    words = _words_at(records, site, rows)
    same = (words[1:] == words[:-1]).all(axis=1)
    if (~same & (np.diff(tags[rows]) == 0)).any():  # records that differ share a tag
        order = np.lexsort(words.T)
        rows, words = rows[order], words[order]
        same = (words[1:] == words[:-1]).all(axis=1)
    first = np.flatnonzero(np.concatenate([[True], ~same]))
    numbers[rows] = np.arange(len(rows)) - np.repeat(first, np.diff(first, append=len(rows)))
    return numbers
