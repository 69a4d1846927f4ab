"""Batches of tables into the columns of a federation, cleaned and joined as they come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, final

import numpy as np

from fedcalib.data.columns import ColumnLayout
from fedcalib.data.tables import Table
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.records import Records, clip_logits
from fedcalib.types import Array, Bools, Ints

if TYPE_CHECKING:
    from fedcalib.data.cleaning import Batch

Watch = Callable[[int], None]  # called with the number of rows read so far


@final
@dataclass
class Collected:
    """What has been read so far, batch by batch."""

    given: list[Array] = field(default_factory=list)
    labels: list[Array] = field(default_factory=list)
    owner: list[Array] = field(default_factory=list)
    units: list[Any] = field(default_factory=list)  # Arrow arrays of text
    days: list[Array] = field(default_factory=list)
    extra: dict[str, list[Array]] = field(default_factory=dict)  # the rival's scores and groups, by column
    dated: set[bool] = field(default_factory=set)  # whether days are dates
    sites: dict[str, int] = field(default_factory=dict)
    listed: bool = False  # whether there are no other sites
    people: list[Any] = field(default_factory=list)  # Arrow arrays of text, where a column seems to name people
    others: dict[str, str] = field(default_factory=dict)  # labels besides the positive one, and the file of each
    rows: int = 0
    kept: int = 0

    @classmethod
    def of(cls, sites: Sequence[str] | None) -> Collected:
        """Nothing yet, of these sites or of any."""
        places = {name: place for place, name in enumerate(dict.fromkeys(sites or ()))}
        return cls(sites=places, listed=sites is not None)

    def number(self, batch: Batch, column: str) -> Ints:
        """Number sites in the order of the list, or in which they first appear; -1 where the site is missing."""
        words = batch.names(column)
        encoded = words.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        if self.listed and (others := [name for name in names if name not in self.sites]):
            place = batch.place(column, words.index(others[0]).as_py())
            raise InputError(f"Expected a site of the list in {place}, found '{others[0]}'; add it to the list.")
        codes = [self.sites.setdefault(name, len(self.sites)) for name in names]
        numbers: Ints = np.array([*codes, -1], dtype=np.int64)[encoded.indices.fill_null(-1).to_numpy()]
        return numbers

    def hear(self, batch: Batch, layout: ColumnLayout) -> None:
        """Note which labels there are besides the positive one; there may be one."""
        self.others.update((word, batch.file) for word in batch.other_labels(layout))
        if len(self.others) > 1:
            raise InputError(
                f"Expected one label besides '{layout.positive}' in column '{layout.label}' of {batch.file}, found "
                f"{', '.join(repr(word[:40]) for word in [*self.others][:4])}; state both labels in order with classes "
                "(--classes)."
            )

    def noticed(self, layout: ColumnLayout, private: bool) -> list[str]:
        """What is said about people who seem to have several records, though no unit was stated."""
        if layout.person is None:
            return []
        if private:  # the name of the column is public, what it holds is not
            return [f"There is a column '{layout.person}'. If a person may have several records, {_as_unit(layout)}."]
        import pyarrow as pa
        from pyarrow import compute

        people = pa.chunked_array(self.people, pa.string())
        named, different = len(people) - people.null_count, compute.count_distinct(people).as_py()
        if different == named:
            return []
        return [
            f"{named:,} records hold {different:,} different values of '{layout.person}'. If a person must count once, "
            f"{_as_unit(layout)}."
        ]

    def federation(self, layout: ColumnLayout) -> Federation:
        """Join the batches, with sites in the order of their names."""
        if not self.given:
            self._add_nothing(layout)
        names = sorted(self.sites)
        rank = np.empty(len(names), dtype=np.int64)
        rank[[self.sites[name] for name in names]] = np.arange(len(names))
        unit = self._units() if layout.unit is not None else None
        extra = {name: _joined(pieces) for name, pieces in self.extra.items()}
        extra |= {} if layout.time is None else {"time": _joined(self.days)}
        given = clip_logits(_joined(self.given)) if layout.are_logits else _joined(self.given)
        records = Records(given, _joined(self.labels), layout.are_logits, unit, extra)
        return Federation.grouped(records, rank[_joined(self.owner)], len(names), names)

    def _add_nothing(self, layout: ColumnLayout) -> None:
        """A batch without rows, so that there is something to join."""
        self.given.append(np.zeros((0, layout.classes)))
        for pile in (self.labels, self.owner, self.days):
            pile.append(np.zeros(0, dtype=np.int64))
        self.extra |= {name: [column] for name, column in layout.empty_columns().items()}

    def timed(self, federation: Federation, column: str | None) -> Federation:
        """The same records; days that were dates become dates again."""
        if len(self.dated) > 1:
            raise InputError(f"Expected dates or numbered days in column '{column}', found both; use one of them.")
        if self.dated != {True}:
            return federation
        days = federation.records.extra["time"].astype("datetime64[D]")
        extra = {**federation.records.extra, "time": days}
        return replace(federation, records=replace(federation.records, extra=extra))

    def _units(self) -> Ints:
        import pyarrow as pa

        whole = pa.chunked_array(self.units, pa.string()).combine_chunks().dictionary_encode()
        # a hash of its name, so that a unit's number does not depend on which others there are
        hashes = [blake2b(word.encode(), digest_size=8).digest() for word in whole.dictionary.to_pylist()]
        codes: Ints = np.frombuffer(b"".join(hashes), dtype=np.int64)[whole.indices.to_numpy()]
        return codes


def read_table(
    table: Table, layout: ColumnLayout, stem: str, collected: Collected, watch: Watch | None
) -> tuple[int, int, str]:
    """Add one file to what has been read; returns its rows, how many were kept, and the first cell that was bad."""
    from fedcalib.data.cleaning import Batch

    rows = kept = 0
    first = ""
    if layout.site is None:
        collected.sites.setdefault(stem, len(collected.sites))
    for columns in table.batches(layout.needed):
        batch = Batch(table.file, rows, columns, table.decimal)
        good = _add(batch, layout, stem, collected)
        if not first and not good.all():
            first = batch.bad_cell(layout, int((~good).argmax()))
        rows, kept = rows + len(good), kept + int(good.sum())
        collected.rows += len(good)
        if watch is not None:
            watch(collected.rows)
    return rows, kept, first


def batch_records(batch: Batch, layout: ColumnLayout, others: dict[str, str]) -> tuple[Records, Bools]:
    """The records of one batch that all belong to one site, and which rows were good.

    `others` keeps the labels besides the positive one from batch to batch.
    """
    collected = Collected(sites={"": 0}, others=others)
    good = _add(batch, layout, "", collected)
    return collected.federation(layout).records, good


def _add(batch: Batch, layout: ColumnLayout, stem: str, collected: Collected) -> Bools:
    """Add the good rows of a batch; returns which they are."""
    given, finite = batch.scores(layout)
    labels, known = batch.labels(layout)
    good: Bools = finite & known
    if layout.positive is not None:
        collected.hear(batch, layout)
    if layout.site is None:
        owner = np.full(len(good), collected.sites[stem], dtype=np.int64)
    else:
        owner = collected.number(batch, layout.site)
        good &= owner >= 0
    extra = {name: batch.groups(name) for name in layout.groups}
    if layout.rival is not None:
        extra[layout.rival], known = batch.rival(layout.rival)
        good &= known
    if layout.time is not None:
        days, known, dated = batch.days(layout.time)
        good &= known
        collected.days.append(days[good])
        if known.any():
            collected.dated.add(dated)
    for name, column in extra.items():
        collected.extra.setdefault(name, []).append(column[good])
    pieces = (given, labels, owner) if good.all() else (given[good], labels[good], owner[good])
    for pile, piece in zip((collected.given, collected.labels, collected.owner), pieces, strict=True):
        pile.append(piece)
    if layout.unit is not None:
        collected.units.append(batch.words(layout.unit, "unit").filter(good))
    if layout.person is not None:
        with suppress(InputError):  # nobody asked for this column, so it may hold anything
            collected.people.append(batch.names(layout.person).filter(good))
    collected.kept += int(good.sum())
    return good


def _joined(pieces: list[Array]) -> Array:
    """Join arrays, and free each as soon as it is copied, so that memory holds little more than the result."""
    if len(pieces) == 1:
        return pieces.pop()
    kind = np.result_type(*{piece.dtype for piece in pieces})
    whole = np.empty((sum(map(len, pieces)), *pieces[0].shape[1:]), dtype=kind)
    start = 0
    pieces.reverse()
    while pieces:
        piece = pieces.pop()
        whole[start : start + len(piece)] = piece
        start += len(piece)
    return whole


def _as_unit(layout: ColumnLayout) -> str:
    return f"state unit='{layout.person}' (--unit {layout.person})"
