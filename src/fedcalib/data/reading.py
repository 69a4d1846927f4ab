"""Tables into a federation, in one pass; only the needed columns are held in memory."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from fedcalib.data.checks import check_labels, check_some, match_layouts
from fedcalib.data.collecting import Collected, Watch, read_table
from fedcalib.data.columns import ColumnLayout, Columns
from fedcalib.data.frames import tables_of
from fedcalib.data.tables import Table
from fedcalib.display import meant
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.records import Records


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
        Further fields of `fc.data.Columns`: `positive`, `classes`, `percent`, `one_site`, `max_missing`, `sites`,
        `rival`, `groups`.

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


_MEANINGS: Final = {"positive", "classes", "percent", "one_site", "max_missing", "sites", "rival", "groups"}


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
    collected = Collected.of(columns.sites)
    rejected = []
    for (table, stem), layout in zip(tables, layouts, strict=True):
        count, kept, first = read_table(table, layout, stem, collected, watch)
        if not private:
            check_some(table, count, kept, first)
        if kept < count:
            rejected.append(Rejected(table.file, count - kept, count, first))
            _check_missing(rejected[-1], columns.max_missing, private)
    federation = collected.federation(layouts[0])
    if not private:
        check_labels(federation, tables, layouts[0])
    notes = [*(table.note for table, _ in tables if table.note), *collected.noticed(layouts[0], private)]
    notes += [] if private else _scale_note(federation.records, layouts[0])
    if columns.unit is not None:
        federation = federation.one_per_unit(secrets.token_bytes(32) if seed is None else seed)
        notes += _kept_note(columns.unit, collected.kept, len(federation.records), private)
    federation = collected.timed(federation, columns.time)
    return Reading(federation, tuple(rejected), layouts[0].class_names, tuple(notes))


def _scale_note(records: Records, layout: ColumnLayout) -> list[str]:
    """Scores that are probabilities although something else was stated: every figure would be wrong."""
    given = records.given
    listed = ", ".join(f"'{name}'" for name in layout.scores[:4])
    if layout.percent and len(layout.scores) == 1 and given[:, 1].max() <= 0.01:
        return [f"No percentage in {listed} is above 1. If these are probabilities, leave percent (--percent) out."]
    shares = given[:, 1:] if len(layout.scores) == 1 else given
    inside = layout.are_logits and shares.min() >= 0 and shares.max() <= 1
    if inside and (len(layout.scores) == 1 or np.allclose(given.sum(axis=1), 1, atol=1e-3)):
        right = "score (--score)" if len(layout.scores) == 1 else "probs (--probs)"
        return [f"All logits in {listed} are between 0 and 1. If these are probabilities, name them with {right}."]
    return []


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
