"""Tables into a federation, in one pass and in memory for the needed columns only."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np

from fedcalib.data.cleaning import Batch
from fedcalib.data.columns import Columns, Layout
from fedcalib.data.tables import FrameTable, Table, expand, open_table
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.records import Records
from fedcalib.types import Array, Bools, Ints

Watch = Callable[[int], None]  # told how many rows have been read so far


class RejectedRecords(UserWarning):
    """Some records were left out, because a score or a label was missing, NaN or infinite."""


@final
@dataclass(frozen=True)
class Rejected:
    """How many records of one file were left out, and where the first one stands."""

    file: str
    count: int
    records: int
    first: str

    def __str__(self) -> str:
        return (
            f"{self.count} of {self.records} records in {self.file} were left out because a number is missing, NaN or "
            f"infinite, first in {self.first}."
        )


@final
@dataclass(frozen=True, eq=False)
class Reading:
    """A federation, and what had to be left out of it."""

    federation: Federation
    rejected: tuple[Rejected, ...]


def read(
    paths: str | Path | Iterable[str | Path],
    *,
    site: str | None = None,
    label: str = "label",
    unit: str | None = None,
    score: str | None = None,
    logits: str | Sequence[str] | None = None,
    probs: str | Sequence[str] | None = None,
    seed: int | None = None,
) -> Federation:
    """Read scored, labelled records from CSV, Parquet and NPZ files.

    Sites come from the column `site` (one called 'site' is found by itself), or else each file is a site named after
    it. State `score` (the probability of class 1), `logits` or `probs` unless the usual names leave no doubt:
    'score', 'logit_*', 'p_*'. With a `unit`, such as a patient's number, one record of each unit at each site is
    kept, drawn at random (by `seed` where a simulation must repeat itself). Records that hold NaN or infinity are left
    out, with a `RejectedRecords` warning that counts them.
    """
    columns = Columns(score=score, logits=logits, probs=probs, label=label, site=site, unit=unit)
    return _warned(read_checked(paths, columns, seed=seed))


def from_frame(
    frame: Any, *, site: str = "site", label: str = "label", unit: str | None = None, **scores: str | Sequence[str]
) -> Federation:
    """Take the records of a pandas or Arrow frame; say `score=`, `logits=` or `probs=` as for `read`."""
    unknown = sorted(set(scores) - {"score", "logits", "probs"})
    if unknown:
        raise InputError(f"Expected score, logits or probs, found {', '.join(unknown)}.")
    stated: dict[str, Any] = dict(scores)
    columns = Columns(label=label, site=site, unit=unit, **stated)
    return _warned(_gather([(FrameTable.of(frame), "")], columns, None, None))


def read_checked(
    paths: str | Path | Iterable[str | Path],
    columns: Columns,
    *,
    seed: int | None = None,
    watch: Watch | None = None,
) -> Reading:
    """Read as `read` does, and say what was left out instead of warning."""
    files = expand(paths)
    return _gather([(open_table(path), path.name.split(".")[0]) for path in files], columns, seed, watch)


def _warned(reading: Reading) -> Federation:
    for rejected in reading.rejected:
        warnings.warn(RejectedRecords(str(rejected)), stacklevel=3)
    return reading.federation


def _gather(tables: Sequence[tuple[Table, str]], columns: Columns, seed: int | None, watch: Watch | None) -> Reading:
    layouts = _matching(tables, columns)
    heap = _Heap()
    rejected = []
    for (table, stem), layout in zip(tables, layouts, strict=True):
        rejected += _read_table(table, layout, stem, heap, watch)
    federation = heap.federation(layouts[0])
    _check_labels(federation, tables, layouts[0])
    if columns.unit is not None:
        federation = federation.one_per_unit(secrets.randbits(64) if seed is None else seed)
    return Reading(federation, tuple(rejected))


def _matching(tables: Sequence[tuple[Table, str]], columns: Columns) -> list[Layout]:
    """Lay out every file before reading any, and refuse files that do not fit together."""
    layouts = [columns.layout(table.names, table.file) for table, _ in tables]
    first, file = layouts[0], tables[0][0].file
    for layout, (table, _) in zip(layouts, tables, strict=True):
        if (layout.classes, layout.are_logits) != (first.classes, first.are_logits):
            raise InputError(
                f"Expected the same classes and kind of scores in all files, found {_wording(first)} in {file} and "
                f"{_wording(layout)} in {table.file}."
            )
        if (layout.site is None) != (first.site is None):
            raise InputError(
                f"Expected a site column in all files or in none, found one in only one of {file} and {table.file}."
            )
    stems = [stem for _, stem in tables]
    twice = next((stem for stem in stems if stems.count(stem) > 1), None) if len(set(stems)) < len(stems) else None
    if first.site is None and twice is not None:
        raise InputError(f"Expected files with different names, one a site, found '{twice}' twice; add a site column.")
    return layouts


def _wording(layout: Layout) -> str:
    return f"{'logits' if layout.are_logits else 'probabilities'} of {layout.classes} classes"


@final
@dataclass
class _Heap:
    """What has been read so far, piece by piece."""

    given: list[Array] = field(default_factory=list)
    labels: list[Array] = field(default_factory=list)
    owner: list[Array] = field(default_factory=list)
    units: list[Any] = field(default_factory=list)  # Arrow arrays of text
    days: list[Array] = field(default_factory=list)
    sites: dict[str, int] = field(default_factory=dict)
    rows: int = 0

    def number(self, words: Any) -> Ints:
        """Number sites in the order in which they are met."""
        encoded = words.dictionary_encode()
        met = [self.sites.setdefault(name, len(self.sites)) for name in encoded.dictionary.to_pylist()]
        numbers: Ints = np.array(met, dtype=np.int64)[encoded.indices.to_numpy()]
        return numbers

    def federation(self, layout: Layout) -> Federation:
        """Put the pieces together, sites in the order of their names."""
        names = sorted(self.sites)
        rank = np.empty(len(names), dtype=np.int64)
        rank[[self.sites[name] for name in names]] = np.arange(len(names))
        unit = self._units() if layout.unit is not None else None
        extra = {} if layout.time is None else {"time": _joined(self.days)}
        records = Records(_joined(self.given), _joined(self.labels), layout.are_logits, unit, extra)
        return Federation.grouped(records, rank[_joined(self.owner)], len(names), names)

    def _units(self) -> Ints:
        import pyarrow as pa

        whole = pa.chunked_array(self.units, pa.string()).combine_chunks().dictionary_encode()
        codes: Ints = whole.indices.to_numpy().astype(np.int64)
        return codes


def _read_table(table: Table, layout: Layout, stem: str, heap: _Heap, watch: Watch | None) -> list[Rejected]:
    """Add one file to the heap, and say what was left out of it."""
    rows = kept = 0
    first = ""
    if layout.site is None:
        heap.sites.setdefault(stem, len(heap.sites))
    for columns in table.batches(layout.needed):
        batch = Batch(table.file, rows, columns)
        good = _add(batch, layout, stem, heap)
        if not first and not good.all():
            first = _culprit(batch, layout, int((~good).argmax()))
        rows, kept = rows + len(good), kept + int(good.sum())
        heap.rows += len(good)
        if watch is not None:
            watch(heap.rows)
    if not rows:
        raise InputError(f"Expected records in {table.file}, found a header and no rows.")
    if not kept:
        raise InputError(
            f"Expected numbers in {table.file}, found that all {rows} records hold a missing number, NaN or infinity, "
            f"first in {first}."
        )
    return [Rejected(table.file, rows - kept, rows, first)] if kept < rows else []


def _add(batch: Batch, layout: Layout, stem: str, heap: _Heap) -> Bools:
    """Add the good rows of a batch, and say which they are."""
    given, finite = batch.scores(layout)
    labels, known = batch.labels(str(layout.label), layout.classes)
    good: Bools = finite & known
    if layout.time is not None:
        days, dated = batch.days(layout.time)
        good &= dated
        heap.days.append(days[good])
    if layout.site is None:
        owner = np.full(len(good), heap.sites[stem], dtype=np.int64)
    else:
        owner = heap.number(batch.words(layout.site, "site"))
    pieces = (given, labels, owner) if good.all() else (given[good], labels[good], owner[good])
    for pile, piece in zip((heap.given, heap.labels, heap.owner), pieces, strict=True):
        pile.append(piece)
    if layout.unit is not None:
        heap.units.append(batch.words(layout.unit, "unit").filter(good))
    return good


def _culprit(batch: Batch, layout: Layout, row: int) -> str:
    """Name the first cell of a row that holds no finite number."""
    for name in layout.scores:
        if not np.isfinite(batch.numbers(name)[row]):
            return batch.place(name, row)
    if layout.time is not None and batch.labels(str(layout.label), layout.classes)[1][row]:
        return batch.place(layout.time, row)
    return batch.place(str(layout.label), row)


def _joined(pieces: list[Array]) -> Array:
    """Join arrays, letting go of each as soon as it is copied, so that hardly more than the whole is held."""
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


def _check_labels(federation: Federation, tables: Sequence[tuple[Table, str]], layout: Layout) -> None:
    labels = federation.records.labels
    if labels.min() == labels.max():
        others = f" and {len(tables) - 1} more" if len(tables) > 1 else ""
        raise InputError(
            f"Expected at least two classes in column '{layout.label}' of {tables[0][0].file}{others}, "
            f"found class {labels[0]} only; one class says nothing about calibration."
        )
