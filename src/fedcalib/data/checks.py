"""What tables must have: columns that fit together, sites, whole rows and two classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedcalib.data.columns import ColumnLayout, Columns, listing
from fedcalib.data.tables import FileTable, Table
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.records import Records


def match_layouts(tables: Sequence[tuple[Table, str]], columns: Columns) -> list[ColumnLayout]:
    """Find the columns of every file before any is read, and refuse files that do not fit together."""
    _check_different(tables)
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


def _check_different(tables: Sequence[tuple[Table, str]]) -> None:
    """Refuse a file that is named twice, however it is written: each of its records would count twice."""
    seen: dict[Path, Path] = {}
    for table, _ in tables:
        if not isinstance(table, FileTable):
            continue
        first = seen.setdefault(table.path.resolve(), table.path)
        if first is not table.path:
            other = "" if str(first) == str(table.path) else f", as {first} too"
            raise InputError(f"Expected different files, found {table.path} twice{other}; name each file once.")


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


def check_some(table: Table, rows: int, kept: int, first: str) -> None:
    """Refuse a table without rows, or without a row that is whole."""
    if not rows:
        raise InputError(f"Expected records in {table.file}, found a header and no rows.")
    if not kept:
        raise InputError(
            f"Expected numbers in {table.file}, found that all {rows} records hold a missing number, NaN or infinity, "
            f"first in {first}."
        )


def _class_words(layout: ColumnLayout, number: int) -> str:
    if layout.positive is not None:
        return f"'{layout.positive}'" if number else f"labels other than '{layout.positive}'"
    return f"class '{layout.class_names[number]}'" if layout.class_names else f"class {number}"


def check_labels(federation: Federation, tables: Sequence[tuple[Table, str]], layout: ColumnLayout) -> None:
    """Refuse records of one class."""
    labels = federation.records.labels
    if labels.min() == labels.max():
        others = f" and {len(tables) - 1} more" if len(tables) > 1 else ""
        raise InputError(
            f"Expected at least two classes in column '{layout.label}' of {tables[0][0].file}{others}, "
            f"found {_class_words(layout, int(labels[0]))} only; calibration needs two."
        )
