"""Records that are never in memory at once: a pass reads them batch by batch, as often as they are needed.

What is read is cleaned exactly as `read` does it. Each pass also computes a fingerprint of the records that does not
depend on their order, since a database may return rows in any; so a change between two passes is noticed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, final

import numpy as np

from fedcalib.data.checks import match_layouts
from fedcalib.data.collecting import batch_records
from fedcalib.data.columns import ColumnLayout, Columns
from fedcalib.data.reading import Rejected
from fedcalib.data.tables import Table
from fedcalib.errors import InputError
from fedcalib.federation import chosen_per_unit, record_tags
from fedcalib.records import Records


@final
@dataclass(frozen=True)
class Pass:
    """What one pass over the records found.

    Parameters
    ----------
    records
        How many records there are.
    fingerprint
        A hash of them, whatever their order.
    rejected
        One entry per table from which rows were left out.
    """

    records: int
    fingerprint: str
    rejected: tuple[Rejected, ...]


@final
@dataclass(eq=False)
class RecordStream:
    """The records of one site, read again in each pass; needs the memory of a few batches.

    With a unit, one record of each unit is kept, the same one that `read_checked` keeps for the same secret. That needs
    the records of a unit side by side: databases are asked for rows in the order of units, and files whose rows are in
    another order are refused.

    Parameters
    ----------
    tables
        Where the records are, as `tables_at` finds them.
    columns
        Which columns hold what. A site column is not looked at: all records belong to one site.
    secret
        The key of the choice of a unit's record, and of the fingerprint.
    """

    tables: Sequence[tuple[Table, str]]
    columns: Columns
    secret: bytes
    last: Pass | None = field(default=None, init=False)  # the last pass that came to its end
    _layouts: list[ColumnLayout] = field(init=False)

    def __post_init__(self) -> None:
        found = match_layouts(self.tables, self.columns)
        self._layouts = [replace(layout, site=None, person=None) for layout in found]
        if self.columns.unit is not None and len(self.tables) > 1:
            raise InputError(
                f"Expected one table with the unit '{self.columns.unit}', since its records may be in several, found "
                f"{len(self.tables)} files; read them with one query (--data duckdb: --query ...) or without --stream."
            )

    @property
    def classes(self) -> int:
        """Number of classes that a record is scored for."""
        return self._layouts[0].classes

    @property
    def empty(self) -> Records:
        """The same columns without any record."""
        layout = self._layouts[0]
        nothing, extra = np.zeros((0, self.classes)), layout.empty_columns()
        return Records(nothing, np.zeros(0, dtype=np.int64), layout.are_logits, extra=extra)

    @property
    def found(self) -> Pass:
        """What the last pass found; without one, a pass is made."""
        return self.read_once() if self.last is None else self.last

    def read_once(self) -> Pass:
        """One pass for its own sake: what is wrong with a row is raised here."""
        for _ in self.batches():
            pass
        return self.found

    def batches(self) -> Iterator[Records]:
        """One pass over the records, batch by batch."""
        count, tags, rejected = 0, np.zeros(2, dtype=np.uint64), []
        for (table, _), layout in zip(self.tables, self._layouts, strict=True):
            rows = _Rows(table, layout)
            chosen = rows if layout.unit is None else _one_per_unit(rows, self.secret, table.file, layout.unit)
            for records in filter(len, chosen):
                count += len(records)
                tags += [record_tags(records, self.secret + bytes([key])).sum(dtype=np.uint64) for key in range(2)]
                yield records
            rejected += rows.rejected
        digest = sha256(f"{count} {self.classes} {tags.tolist()}".encode()).hexdigest()
        self.last = Pass(count, digest, tuple(rejected))


@final
@dataclass(eq=False)
class _Rows:
    """The good rows of one table in batches, with the column of units as it is written; counts what it leaves out."""

    table: Table
    layout: ColumnLayout
    rejected: list[Rejected] = field(default_factory=list)
    others: dict[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Records]:
        return (records for records, _ in self.keyed())

    def keyed(self) -> Iterator[tuple[Records, Any]]:
        from fedcalib.data.cleaning import Batch

        table = self.table if self.layout.unit is None else self.table.ordered(self.layout.unit)
        seen = kept = 0
        first = ""
        for columns in table.batches(self.layout.needed):
            batch = Batch(table.file, seen, columns, table.decimal)
            records, good = batch_records(batch, self.layout, self.others)
            if not first and not good.all():
                first = batch.bad_cell(self.layout, int((~good).argmax()))
            seen, kept = seen + len(good), kept + len(records)
            yield records, None if self.layout.unit is None else batch.names(self.layout.unit).filter(good)
        if kept < seen:
            self.rejected.append(Rejected(table.file, seen - kept, seen, first))


def _one_per_unit(rows: _Rows, secret: bytes, file: str, unit: str) -> Iterator[Records]:
    """One record of each unit; the last unit of a batch waits, since the next batch may go on with it."""
    waiting: Records | None = None
    last = ""
    for records, names in rows.keyed():
        if not len(records):
            continue
        last = _checked_order(names, last, file, unit)
        whole = records if waiting is None else Records.concatenate([waiting, records])
        ended = whole.unit != whole.unit[-1]  # type: ignore[index]
        waiting = whole.take(~ended)
        yield _chosen(whole.take(ended), secret)
    if waiting is not None:
        yield _chosen(waiting, secret)


def _chosen(records: Records, secret: bytes) -> Records:
    kept = records.take(np.sort(chosen_per_unit(records, secret)))
    return replace(kept, unit=None)


def _checked_order(names: Any, last: str, file: str, unit: str) -> str:
    """The last of some units, none of which may come before the one before it, in the order of their bytes."""
    import pyarrow as pa
    from pyarrow import compute

    whole = pa.concat_arrays([pa.array([last]), names])
    if compute.any(compute.less(whole[1:], whole[:-1])).as_py():
        raise InputError(
            f"Expected rows in the order of '{unit}' in {file}, found another: records of a unit must be side by side "
            "to be read in batches. Sort the file by the text of that column, use a database, or leave out --stream."
        )
    return str(whole[-1].as_py())
