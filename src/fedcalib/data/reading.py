"""Tables into a federation, in one pass; only the needed columns are held in memory."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from fedcalib.data.columns import ColumnLayout, Columns, listing
from fedcalib.data.frames import tables_of
from fedcalib.data.tables import Table
from fedcalib.display import meant
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.records import Records, clip_logits
from fedcalib.types import Array, Bools, Ints

if TYPE_CHECKING:
    from fedcalib.data.cleaning import Batch

Watch = Callable[[int], None]  # called with the number of rows read so far


class RejectedRecords(UserWarning):
    """Some records were left out, because a score, a label, a date or a site was missing, NaN or infinite."""


class ReadingNote(UserWarning):
    """How a file was read, where that had to be found out, or what was noticed about people in it."""


@final
@dataclass(frozen=True)
class Rejected:
    """The records of one file that were left out: how many, and where the first one is."""

    file: str
    count: int
    records: int
    first: str

    def __str__(self) -> str:
        return (
            f"{self.count} of {self.records} records in {self.file} were left out because a number, a label or a site "
            f"is missing, NaN or infinite, first in {self.first}."
        )


@final
@dataclass(frozen=True, eq=False)
class Reading:
    """A federation, and what had to be left out of it.

    Parameters
    ----------
    federation
        The records that were read, by site.
    rejected
        One entry per file from which records were left out: file, count, records and the first cell that was bad.
    class_names
        The names of the classes in order, which are public: those stated, or those of the score columns. Empty where
        they have none.
    notes
        How files were read where that had to be found out, and what was noticed about units. They may hold counts of
        records, and are for whoever holds the records.
    """

    federation: Federation
    rejected: tuple[Rejected, ...]
    class_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read(
    data: Any,
    *,
    site: str | None = None,
    label: str = "label",
    unit: str | None = None,
    score: str | None = None,
    logits: str | Sequence[str] | None = None,
    probs: str | Sequence[str] | None = None,
    seed: int | None = None,
    **meaning: Any,
) -> Federation:
    r"""Read scored, labelled records from files, frames or arrays.

    State `score`, `logits` or `probs` unless the data holds the usual names of exactly one of them: 'score',
    'logit_0', 'logit_1', ... or 'p_0', 'p_1', ... Records that hold NaN or infinity are left out, with a
    `RejectedRecords` warning that counts them. Separator, decimal sign and encoding of CSV files are found in the file,
    and a `ReadingNote` warning says so where they are unusual.

    Parameters
    ----------
    data
        Paths or patterns such as 'scores/*.csv' of CSV, Parquet, NPZ or Excel files; a pandas, Polars or Arrow frame or
        a DuckDB relation; a dict of columns (lists, NumPy arrays, torch tensors; a matrix `logits` stands for the
        columns 'logits_0', 'logits_1', ...); or a list, or a dict by site, of any of these.
    site
        The column that names the site; a column called 'site' is found by itself. Without one, each file is a site
        named after it, and a single file needs `one_site`.
    label
        The column of true classes: numbers from 0, booleans, or words (see `positive` and `classes`).
    unit
        The column that identifies the privacy unit, such as a patient's number. One record per unit and site is kept,
        drawn at random.
    score
        The column with the probability of class 1, for two classes.
    logits, probs
        The columns of logits or probabilities: a pattern such as 'logit_*', whose star stands for the class number
        from 0 or the class's name, or the names in order. A single column of logits holds the log-odds of class 1.
    seed
        The seed by which records of a unit are drawn, where a simulation must be repeatable.
    **meaning
        Further fields of `fc.data.Columns`: `positive`, `classes`, `percent`, `one_site`, `max_missing`, `sites`.

    Returns
    -------
    Federation
        The records, by site in alphabetical order.

    Raises
    ------
    InputError
        If a file cannot be read or holds something else; the message names the file, the column and the row.

    Examples
    --------
    >>> from pathlib import Path
    >>> import fedcalib as fc
    >>> _ = Path("north.csv").write_text("died,risk\n1,0.9\n0,0.2\n0,0.1\n")
    >>> _ = Path("south.csv").write_text("died,risk\n1,0.7\n0,0.4\n")
    >>> federation = fc.read(["north.csv", "south.csv"], label="died", score="risk")
    >>> [federation.name(0), federation.name(1)], federation.sizes.tolist()
    (['north', 'south'], [3, 2])

    Labels that are words, in a frame:

    >>> frame = {"site": ["north", "north", "south"], "died": ["yes", "no", "no"], "risk": [0.9, 0.2, 0.4]}
    >>> fc.read(frame, label="died", score="risk", positive="yes").records.labels.tolist()
    [1, 0, 0]
    """
    unknown = sorted(set(meaning) - _MEANINGS)
    if unknown:
        hint = meant(unknown[0], (*_MEANINGS, "site", "label", "unit", "score", "logits", "probs", "seed"))
        raise InputError(f"Expected {', '.join(sorted(_MEANINGS))} besides columns, found {', '.join(unknown)}.{hint}")
    columns = Columns(score=score, logits=logits, probs=probs, label=label, site=site, unit=unit, **meaning)
    return _warned(read_checked(data, columns, seed=seed))


_MEANINGS: Final = {"positive", "classes", "percent", "one_site", "max_missing", "sites"}


def from_frame(
    frame: Any, *, site: str = "site", label: str = "label", unit: str | None = None, **scores: str | Sequence[str]
) -> Federation:
    """Take scored, labelled records from a frame, as `read` does, with a site column.

    Parameters
    ----------
    frame
        Anything that `read` takes.
    site, label, unit
        Column names, as for `read`.
    **scores
        One of `score`, `logits` and `probs`, as for `read`.

    Returns
    -------
    Federation
        The records, by site in alphabetical order.

    Raises
    ------
    InputError
        If a column is absent or holds something else; the message names the column and the row.

    Examples
    --------
    >>> import fedcalib as fc
    >>> frame = {"hospital": ["north", "north", "south"], "died": [1, 0, 0], "risk": [0.9, 0.2, 0.4]}
    >>> federation = fc.data.from_frame(frame, site="hospital", label="died", score="risk")
    >>> federation.sizes.tolist()
    [2, 1]
    """
    unknown = sorted(set(scores) - {"score", "logits", "probs"})
    if unknown:
        raise InputError(f"Expected score, logits or probs, found {', '.join(unknown)}.")
    stated: dict[str, Any] = dict(scores)
    columns = Columns(label=label, site=site, unit=unit, **stated)
    return _warned(read_checked(frame, columns))


def read_checked(
    data: Any,
    columns: Columns,
    *,
    seed: int | bytes | None = None,
    watch: Watch | None = None,
    private: bool = False,
) -> Reading:
    r"""Read as `read` does, and return what was left out instead of warning.

    Parameters
    ----------
    data
        As for `read`.
    columns
        Which columns hold what.
    seed
        As for `read`; or a secret, where the same records shall be drawn again.
    watch
        Called after each batch with the number of rows read so far.
    private
        Accept files without records, and records of one class only. Under an epsilon, whether there are others is a
        fact about the records, and must not decide whether there is a release.

    Returns
    -------
    Reading
        The federation, and what was left out of each file.

    Raises
    ------
    InputError
        As for `read`.

    Examples
    --------
    >>> from pathlib import Path
    >>> import fedcalib as fc
    >>> _ = Path("north.csv").write_text("label,score\n1,0.9\n0,nan\n0,0.1\n")
    >>> reading = fc.data.read_checked("north.csv", fc.data.Columns(one_site=True))
    >>> reading.federation.sizes.tolist(), reading.rejected[0].count
    ([2], 1)
    """
    return read_tables(tables_of(data), columns, seed=seed, watch=watch, private=private)


def _warned(reading: Reading) -> Federation:
    for rejected in reading.rejected:
        warnings.warn(RejectedRecords(str(rejected)), stacklevel=3)
    for note in reading.notes:
        warnings.warn(ReadingNote(note), stacklevel=3)
    return reading.federation


def read_tables(
    tables: Sequence[tuple[Table, str]],
    columns: Columns,
    *,
    seed: int | bytes | None = None,
    watch: Watch | None = None,
    private: bool = False,
) -> Reading:
    """Read tables that `frames.tables_of` has found, as `read_checked` does."""
    layouts = match_layouts(tables, columns)
    collected = _Collected.of(columns.sites)
    rejected = []
    for (table, stem), layout in zip(tables, layouts, strict=True):
        count, kept, first = _read_table(table, layout, stem, collected, watch)
        if not private:
            _check_some(table, count, kept, first)
        if kept < count:
            rejected.append(Rejected(table.file, count - kept, count, first))
            _check_missing(rejected[-1], columns.max_missing, private)
    federation = collected.federation(layouts[0])
    if not private:
        _check_labels(federation, tables, layouts[0])
    notes = [*(table.note for table, _ in tables if table.note), *collected.noticed(layouts[0], private)]
    if columns.unit is not None:
        federation = federation.one_per_unit(secrets.token_bytes(32) if seed is None else seed)
        notes += _kept_note(columns.unit, collected.kept, len(federation.records), private)
    federation = collected.timed(federation, columns.time)
    return Reading(federation, tuple(rejected), layouts[0].class_names, tuple(notes))


def _as_unit(layout: ColumnLayout) -> str:
    return f"state unit='{layout.person}' (--unit {layout.person})"


def _kept_note(unit: str, before: int, after: int, private: bool) -> list[str]:
    """How many records were kept; under an epsilon the note tells nothing about the records."""
    if private:
        return [f"One record per '{unit}' and site was kept, drawn at random."]
    return [f"{after:,} of {before:,} records were kept: one per '{unit}' and site, drawn at random."]


def _check_missing(rejected: Rejected, most: float, private: bool) -> None:
    """Stop where too much would be left out, unless an epsilon forbids that this decides about a release."""
    if rejected.count > most * rejected.records and not private:
        raise InputError(
            f"Expected to leave out at most {most:.0%} of the records, found that {rejected} Repair the file, or allow "
            "more with max_missing (--max-missing)."
        )


def match_layouts(tables: Sequence[tuple[Table, str]], columns: Columns) -> list[ColumnLayout]:
    """Find the columns of every file before any is read, and refuse files that do not fit together."""
    first, file = columns.layout(tables[0][0].names, tables[0][0].file), tables[0][0].file
    if first.class_names:  # other files may have the same columns in another order
        columns = replace(columns, classes=first.class_names)
    layouts = [columns.layout(table.names, table.file) for table, _ in tables]
    for layout, (table, _) in zip(layouts, tables, strict=True):
        if (layout.classes, layout.are_logits) != (first.classes, first.are_logits):
            raise InputError(
                f"Expected the same classes and kind of scores in all files, found {wording(first)} in {file} and "
                f"{wording(layout)} in {table.file}."
            )
        if (layout.site is None) != (first.site is None):
            raise InputError(
                f"Expected a site column in all files or in none, found one in only one of {file} and {table.file}."
            )
    if first.site is None:
        _check_sites(tables, columns)
    return layouts


def _check_sites(tables: Sequence[tuple[Table, str]], columns: Columns) -> None:
    """Refuse tables without a site column that are not one per site."""
    if len(tables) == 1 and not columns.one_site:
        table = tables[0][0]
        raise InputError(
            f"Expected a site column in {table.file}, or one file per site, found neither in {listing(table.names)}; "
            "name the column with site (--site), or state one_site=True (--one-site) if all records are of one site."
        )
    stems = [stem for _, stem in tables]
    twice = next((stem for stem in stems if stems.count(stem) > 1), None) if len(set(stems)) < len(stems) else None
    if twice is not None:
        raise InputError(
            f"Expected files with different names, one per site, found '{twice}' twice; add a site column."
        )


def wording(scores: ColumnLayout | Records) -> str:
    """The kind of scores and their number, in the words of a message."""
    return f"{'logits' if scores.are_logits else 'probabilities'} of {scores.classes} classes"


@final
@dataclass
class _Collected:
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
    def of(cls, sites: Sequence[str] | None) -> _Collected:
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
        for name in layout.groups:
            self.extra[name] = [np.zeros(0, dtype=str)]
        if layout.rival is not None:
            self.extra[layout.rival] = [np.zeros(0)]

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


def _read_table(
    table: Table, layout: ColumnLayout, stem: str, collected: _Collected, watch: Watch | None
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
    collected = _Collected(sites={"": 0}, others=others)
    good = _add(batch, layout, "", collected)
    return collected.federation(layout).records, good


def _check_some(table: Table, rows: int, kept: int, first: str) -> None:
    if not rows:
        raise InputError(f"Expected records in {table.file}, found a header and no rows.")
    if not kept:
        raise InputError(
            f"Expected numbers in {table.file}, found that all {rows} records hold a missing number, NaN or infinity, "
            f"first in {first}."
        )


def _add(batch: Batch, layout: ColumnLayout, stem: str, collected: _Collected) -> Bools:
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


def _class_words(layout: ColumnLayout, number: int) -> str:
    if layout.positive is not None:
        return f"'{layout.positive}'" if number else f"labels other than '{layout.positive}'"
    return f"class '{layout.class_names[number]}'" if layout.class_names else f"class {number}"


def _check_labels(federation: Federation, tables: Sequence[tuple[Table, str]], layout: ColumnLayout) -> None:
    labels = federation.records.labels
    if labels.min() == labels.max():
        others = f" and {len(tables) - 1} more" if len(tables) > 1 else ""
        raise InputError(
            f"Expected at least two classes in column '{layout.label}' of {tables[0][0].file}{others}, "
            f"found {_class_words(layout, int(labels[0]))} only; calibration needs two."
        )
