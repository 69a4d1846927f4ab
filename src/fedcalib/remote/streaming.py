"""A site whose records are read batch by batch for every answer, so that any number of them needs little memory.

Sums over records add up over batches. What needs all records of a client at once, such as training, is refused while a
run is proposed: before anything is read, and before anybody has paid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast, final

import numpy as np

from fedcalib.data.streaming import RecordStream
from fedcalib.errors import RefusedError
from fedcalib.federation import Federation
from fedcalib.numeric import MAX_STEPS, ExactSum
from fedcalib.privacy import Mechanism
from fedcalib.queries.wrapped import Clipped, NormHistogram
from fedcalib.query import Block, ClientTerms, Join, Query, RecordQuery, Rows, single_client
from fedcalib.randomness import Randomness
from fedcalib.records import Records, Schema
from fedcalib.types import Array, Floats, Ints


@final
@dataclass(frozen=True, eq=False)
class StreamedRecords:
    """As much of `Records` as batches can offer; everything else is refused."""

    site: StreamedFederation

    def __len__(self) -> int:
        return self.site.stream.found.records

    def chunks(self) -> Iterator[Records]:
        """All records in one pass, some at a time."""
        for batch in self.site.batches():
            yield from batch.chunks()

    def __getattr__(self, name: str) -> object:
        raise RefusedError(_reason("This privacy model"))


@final
@dataclass(frozen=True, eq=False)
class StreamedFederation:
    """The federation of a site with one client, itself, whose records are read batch by batch.

    Parameters
    ----------
    stream
        Where the records are.
    rehearsal
        Whether there are no records, so that a query can be tried without reading any.
    """

    stream: RecordStream
    rehearsal: bool = False

    def __len__(self) -> int:
        return 1

    @property
    def records(self) -> StreamedRecords:
        """The records, which are not in memory."""
        return StreamedRecords(self)

    def batches(self) -> Iterator[Records]:
        """All records in one pass, batch by batch."""
        return iter(()) if self.rehearsal else self.stream.batches()

    @property
    def schema(self) -> Schema:
        """What is public: the number of classes, and one client."""
        return Schema(self.stream.classes, 1)

    @property
    def fingerprint(self) -> str:
        """A hash of the records that the last pass has read, whatever their order."""
        return self.stream.found.fingerprint

    def without_records(self) -> Federation:
        """The same columns without any record."""
        return Federation.of([self.stream.empty])

    def subset(self, members: Array) -> StreamedFederation | Federation:
        """This site, or nobody."""
        return self if len(members) else self.without_records().subset(members)

    def clients(self) -> Iterator[Records]:
        """Refused: a client's records are never together."""
        raise RefusedError(_reason("This privacy model"))

    def gather(self, mechanism: Mechanism, query: Query, randomness: Randomness) -> Array:
        """What `mechanism.gather` returns for these records, in one pass."""
        return mechanism.gather(over_batches(query, self), cast(Federation, self), randomness)

    def rehearse(self, mechanism: Mechanism, query: Query, randomness: Randomness) -> None:
        """Refuse what batches cannot answer, without reading any record."""
        replace(self, rehearsal=True).gather(mechanism, query, randomness)


@final
@dataclass(frozen=True, eq=False)
class OverBatches(Query):
    """A query about records, answered for the one client whose records a stream has."""

    query: Query
    site: StreamedFederation

    @property
    def blocks(self) -> Mapping[str, Block]:
        return self.query.blocks

    @property
    def sufficient(self) -> Query:
        return over_batches(self.query.sufficient, self.site)

    def expand(self, exact: Array) -> Array:
        return self.query.expand(exact)

    def rows(self, records: Records) -> Rows:
        return self.query.rows(records)

    def total(self, federation: Federation, randomness: Randomness, scale: Floats | None = None) -> Array:
        """The sum over all batches; integers are summed exactly, as for records in memory."""
        parts = (self.query.total(Federation.of([batch]), randomness, scale) for batch in self.site.batches())
        return sum(parts, np.zeros(self.size)) if scale is None else self._exact(parts)

    def rounded(self, federation: Federation, randomness: Randomness, scale: Floats) -> Array:
        """As `total`; what is cut to the grid as a whole is cut once per batch."""
        return self._exact(self.query.rounded(Federation.of([one]), randomness, scale) for one in self.site.batches())

    def _exact(self, parts: Iterable[Array]) -> Array:
        total = ExactSum(self.size)
        for part in parts:
            total.add(_whole(part), MAX_STEPS)
        return total.value()

    def by_client(self, federation: Federation, randomness: Randomness) -> Iterator[ClientTerms]:
        yield single_client(self.total(federation, randomness))


def over_batches(query: Query, site: StreamedFederation) -> Query:
    """The same query, summed batch by batch; refused where it needs all records of a client at once."""
    if isinstance(query, Clipped | NormHistogram):  # about the sum of a client, which is a sum over batches
        return replace(query, query=over_batches(query.query, site))
    if not all(isinstance(part, RecordQuery) for part in _parts(query)):
        raise RefusedError(_reason(type(query).__name__))
    return OverBatches(query, site)


def _whole(part: Array) -> Ints:
    """A sum on the grid in integers, also where a query sums in floats."""
    if part.dtype == np.int64:
        return part
    whole: Ints = np.clip(np.nan_to_num(part), -float(MAX_STEPS), float(MAX_STEPS)).astype(np.int64)
    return whole


def _parts(query: Query) -> Iterator[Query]:
    if isinstance(query, Join):
        for part in query.parts:
            yield from _parts(part)
    else:
        yield query


def _reason(what: str) -> str:
    return (
        f"{what} needs all records of a client at once, and this site reads them in batches; start it with --no-stream "
        "where they fit into memory."
    )
