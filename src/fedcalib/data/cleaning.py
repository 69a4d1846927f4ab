"""One batch of rows turned into numbers; every error names the file, the column and the row.

This module needs pyarrow from the start, so others import it when the first batch is there.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pyarrow as pa
from pyarrow import compute, types

from fedcalib.data.columns import ColumnLayout
from fedcalib.errors import InputError
from fedcalib.types import Array, Bools, Floats, Ints

_MISSING = ("", "na", "n/a", "nan", "null", "none")
_NAME_LABELS = "name the label of class 1 with positive (--positive), or all labels in order with classes (--classes)"
_DAY = "a date such as 2024-03-31, or a numbered day,"
_WRITE_DATES = "; write dates as year-month-day."
_TIME_OF_DAY = r"^([0-9]{4}-[0-9]{2}-[0-9]{2})[T ][0-9:.,]+ ?(?:Z|UTC|[+-][0-9:]+)?$"
_MOST_DAYS = 1e6  # 2,700 years
_TOLERANCE = 1e-3  # how far probabilities may be from summing to one


@final
@dataclass(frozen=True)
class Batch:
    """Some rows of one file."""

    file: str
    first: int  # how many rows of the file came before
    columns: Mapping[str, Any]  # Arrow arrays
    decimal: str = "."  # of numbers that are text

    def place(self, column: str, index: int) -> str:
        """A cell in the words of an error message."""
        return f"column '{column}' of {self.file}, row {self.first + index + 1}"

    def numbers(self, column: str) -> Floats:
        """A column as floating point numbers; missing cells become NaN."""
        array = _plain(self.columns[column])
        if _is_text(array):
            array = self._parsed(column, array)
        elif types.is_boolean(array.type):
            array = compute.cast(array, pa.uint8())
        elif not _is_numeric(array):
            raise InputError(f"Expected numbers in column '{column}' of {self.file}, found {array.type}.")
        narrow = array.type in (pa.float16(), pa.float32())
        return _floats(compute.cast(array, pa.float32() if narrow else pa.float64(), safe=False))

    def _parsed(self, column: str, array: Any) -> Any:
        if self.decimal != ".":
            array = compute.replace_substring(array, self.decimal, ".")
        try:
            return compute.cast(array, pa.float64())
        except pa.ArrowInvalid:  # something is missing, padded or not a number: find out which
            trimmed = compute.utf8_trim_whitespace(array)
            missing = compute.is_in(compute.utf8_lower(trimmed), pa.array(_MISSING, array.type))
            cells = compute.if_else(missing, pa.scalar(None, array.type), trimmed)
        try:
            return compute.cast(cells, pa.float64())
        except pa.ArrowInvalid as error:
            index = _first_wrong(cells, pa.float64())
            found = cells[index].as_py()[:40]
            raise InputError(f"Expected a number in {self.place(column, index)}, found {found!r}.") from error

    def groups(self, column: str) -> Array:
        """A column of groups as text, (n,); a missing one is empty."""
        found: Array = compute.fill_null(self.names(column), "").to_numpy(zero_copy_only=False)
        return found.astype(str)

    def rival(self, column: str) -> tuple[Floats, Bools]:
        """Another model's scores, (n,), and which rows have one."""
        scores = self.numbers(column).astype(np.float64)
        known: Bools = np.isfinite(scores)
        outside = known & ((scores < 0) | (scores > 1))
        if outside.any():
            row = int(outside.argmax())
            raise InputError(
                f"Expected a probability between 0 and 1 in {self.place(column, row)}, found {scores[row]:.6g}."
            )
        return scores, known

    def words(self, column: str, what: str) -> Any:
        """A column of names as an Arrow array of text; a missing name is refused."""
        words = self.names(column)
        absent = _bools(compute.is_null(words))
        if absent.any():
            place = self.place(column, int(absent.argmax()))
            raise InputError(f"Expected a {what} in {place}, found none: the {what} is unknown. Fill it in.")
        return words

    def names(self, column: str) -> Any:
        """A column of names as an Arrow array of text, with nulls where a name is missing."""
        array = _plain(self.columns[column])
        if types.is_floating(array.type):
            array = compute.if_else(compute.is_nan(array), pa.scalar(None, array.type), array)
        try:
            words = compute.utf8_trim_whitespace(compute.cast(array, pa.string()))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InputError(f"Expected names in column '{column}' of {self.file}, found {array.type}.") from error
        return compute.if_else(compute.equal(words, ""), pa.scalar(None, pa.string()), words)

    def scores(self, layout: ColumnLayout) -> tuple[Floats, Bools]:
        """Logits or probabilities as they are in the file, (n, classes), and which rows are finite throughout."""
        given = np.stack([self._score(name, layout.percent) for name in layout.scores], axis=1)
        finite = np.asarray(np.isfinite(given).all(axis=1))
        if layout.percent:
            given = given / 100
        if not layout.are_logits:
            self._check_probs(layout, given, finite)
        if len(layout.scores) == 1:
            given = np.concatenate([np.zeros_like(given) if layout.are_logits else 1 - given, given], axis=1)
        return given, finite

    def _score(self, column: str, percent: bool) -> Floats:
        """A column of scores; a sign such as in '90%' is read where percentages were stated."""
        try:
            return self.numbers(column)
        except InputError:
            array = _plain(self.columns[column])
            if not _is_text(array):
                raise
            signed = compute.ends_with(compute.utf8_trim_whitespace(array), "%")
            if not compute.any(signed).as_py():
                raise
        if not percent:
            row = signed.index(True).as_py()
            raise InputError(
                f"Expected a number in {self.place(column, row)}, found {array[row].as_py()[:40]!r}, a percentage; "
                "state percent=True (--percent)."
            )
        plain = compute.replace_substring(array, "%", "")
        return Batch(self.file, self.first, {column: plain}, self.decimal).numbers(column)

    def _check_probs(self, layout: ColumnLayout, given: Floats, finite: Bools) -> None:
        outside = ((given < 0) | (given > 1)) & finite[:, None]
        if outside.any():
            row, column = (int(index) for index in np.argwhere(outside)[0])
            raise InputError(
                f"Expected a probability between 0 and 1 in {self.place(layout.scores[column], row)}, "
                f"found {given[row, column]:.6g}; {_advice(layout, given[finite])}"
            )
        if len(layout.scores) == 1:
            return
        off = (np.abs(given.sum(axis=1, dtype=np.float64) - 1) > _TOLERANCE) & finite
        if off.any():
            row = int(off.argmax())
            columns = f"columns '{layout.scores[0]}' to '{layout.scores[-1]}'"
            raise InputError(
                f"Expected probabilities that sum to one in {columns} of {self.file}, row {self.first + row + 1}, "
                f"found {given[row].sum():.6g}; {_advice(layout, given[finite])}"
            )

    def labels(self, layout: ColumnLayout) -> tuple[Ints, Bools]:
        """Class numbers, (n,), and which rows have one."""
        column = str(layout.label)
        if layout.class_names:
            return self._named_labels(column, layout.class_names)
        if layout.positive is not None:
            words = self._label_words(column, (layout.positive,))
            chosen = compute.fill_null(compute.equal(words, layout.positive), False)
            return _bools(chosen).astype(np.int64), _bools(compute.is_valid(words))
        values = self._label_numbers(column)
        known: Bools = np.isfinite(values)
        wrong = known & ~((values >= 0) & (values < layout.classes) & (np.floor(values) == values))
        if wrong.any():
            row = int(wrong.argmax())
            raise InputError(
                f"Expected a class from 0 to {layout.classes - 1} in {self.place(column, row)}, found "
                f"{values[row]:.6g}; number the classes from 0, in whole numbers, or {_NAME_LABELS}."
            )
        return np.where(known, values, 0).astype(np.int64), known

    def other_labels(self, layout: ColumnLayout) -> list[str]:
        """The labels that are not `layout.positive`, each once."""
        words = compute.unique(self._label_words(str(layout.label), (str(layout.positive),))).to_pylist()
        return [word for word in words if word is not None and word != layout.positive]

    def _named_labels(self, column: str, names: tuple[str, ...]) -> tuple[Ints, Bools]:
        """Class numbers of labels that are names of classes, or numbers where no name is a number."""
        words = self._label_words(column, names)
        places = compute.index_in(words, pa.array(names, pa.string()))
        if not any(re.fullmatch(r"[+-]?[0-9]+", name) for name in names):
            numbers = compute.index_in(words, pa.array([str(k) for k in range(len(names))]))
            places = compute.coalesce(places, numbers)
        known = _bools(compute.is_valid(words))
        codes = _floats(compute.cast(places, pa.float64()))
        wrong = known & np.isnan(codes)
        if wrong.any():
            row = int(wrong.argmax())
            listed = ", ".join(f"'{name}'" for name in names[:8]) + (", ..." if len(names) > 8 else "")
            raise InputError(
                f"Expected one of the classes {listed} in {self.place(column, row)}, found "
                f"{words[row].as_py()[:40]!r}; state all labels in order with classes (--classes)."
            )
        return np.where(known, codes, 0).astype(np.int64), known

    def _label_words(self, column: str, names: tuple[str, ...] = ()) -> Any:
        """Labels as text as they are compared, with nulls where one is missing; a class may be called 'none'."""
        words = _plain_labels(self.names(column))
        missing = compute.is_in(compute.utf8_lower(words), pa.array([word for word in _MISSING if word not in names]))
        named = compute.is_in(words, pa.array(names, pa.string()))
        return compute.if_else(compute.and_not(missing, named), pa.scalar(None, pa.string()), words)

    def days(self, column: str) -> tuple[Ints, Bools, bool]:
        """Days, (n,), which rows have one, and whether they are dates: days since 1970, or else numbers as they are."""
        array = _plain(self.columns[column])
        dated = bool(types.is_temporal(array.type)) or (_is_text(array) and _has_dates(array))
        values = self._dates(column, array) if dated else self._numbered_days(column)
        known: Bools = np.isfinite(values)
        return np.floor(np.where(known, values, 0)).astype(np.int64), known, dated

    def _numbered_days(self, column: str) -> Floats:
        """Numbers of days as they are; seconds since 1970 and dates such as 20240331 are none."""
        try:
            values = self.numbers(column)
        except InputError as error:
            raise InputError(str(error).replace("a number in", f"{_DAY} in", 1)[:-1] + _WRITE_DATES) from error
        wrong = np.abs(np.where(np.isfinite(values), values, 0)) >= _MOST_DAYS
        if wrong.any():
            row = int(wrong.argmax())
            raise InputError(f"Expected {_DAY} in {self.place(column, row)}, found {values[row]:.0f}{_WRITE_DATES}")
        return values

    def _dates(self, column: str, array: Any) -> Floats:
        """Days since 1970 of dates as they are written: a time of day and its time zone move no date."""
        if _is_text(array):
            trimmed = compute.utf8_trim_whitespace(array)
            missing = compute.is_in(compute.utf8_lower(trimmed), pa.array(_MISSING, array.type))
            dates = compute.replace_substring_regex(trimmed, _TIME_OF_DAY, r"\1")
            array = compute.if_else(missing, pa.scalar(None, array.type), dates)
        elif getattr(array.type, "tz", None) is not None:
            array = compute.local_timestamp(array)
        try:
            dates = compute.cast(compute.cast(array, pa.timestamp("s"), safe=False), pa.date32(), safe=False)
        except pa.ArrowInvalid as error:
            row = _first_wrong(array, pa.timestamp("s"))
            found = array[row].as_py()[:40]
            raise InputError(f"Expected {_DAY} in {self.place(column, row)}, found {found!r}{_WRITE_DATES}") from error
        return _floats(compute.cast(compute.cast(dates, pa.int32()), pa.float64()))

    def bad_cell(self, layout: ColumnLayout, row: int) -> str:
        """The first cell of a row that does not hold a finite number, in the words of a message."""
        for name in layout.scores:
            if not np.isfinite(self._score(name, layout.percent)[row]):
                return self.place(name, row)
        if not self.labels(layout)[1][row]:
            return self.place(str(layout.label), row)
        if layout.rival is not None and not np.isfinite(self.numbers(layout.rival)[row]):
            return self.place(layout.rival, row)
        if layout.site is not None and not self.names(layout.site)[row].is_valid:
            return self.place(layout.site, row)
        return self.place(str(layout.time), row)

    def _label_numbers(self, column: str) -> Floats:
        array = _plain(self.columns[column])
        if not _is_text(array):
            return self.numbers(column)
        lowered = compute.utf8_lower(compute.utf8_trim_whitespace(array))  # pandas writes booleans as 'True
        digits = compute.replace_substring_regex(lowered, "^true$", "1")
        digits = compute.replace_substring_regex(digits, "^false$", "0")
        try:
            return Batch(self.file, self.first, {column: digits}, self.decimal).numbers(column)
        except InputError as error:
            raise InputError(f"{str(error).replace('a number', 'a class number')[:-1]}; {_NAME_LABELS}.") from error


def _advice(layout: ColumnLayout, given: Floats) -> str:
    """What to do about scores that are not probabilities, from what they look like."""
    column = "column" if len(layout.scores) == 1 else "columns"
    if given.min() >= 0 and given.max() <= 100 and np.median(given.max(axis=1)) > 1 and not layout.percent:
        return "this looks like percentages; state percent=True (--percent)."
    if given.min() < 0:
        return f"this looks like logits; name the {column} with logits (--logits) instead."
    return f"repair the {column}; if these are logits, name the {column} with logits (--logits) instead."


def _plain_labels(words: Any) -> Any:
    """`columns.plain_label` of each word, in Arrow."""
    lowered = compute.utf8_lower(words)
    truth = compute.is_in(lowered, pa.array(["true", "false"]))
    return compute.replace_substring_regex(compute.if_else(truth, lowered, words), r"^([+-]?[0-9]+)\.0*$", r"\1")


def _plain(array: Any) -> Any:
    """A column without dictionary encoding, in one chunk."""
    whole = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    if types.is_dictionary(whole.type):
        whole = pa.DictionaryArray.from_arrays(whole.indices, _without_views(whole.dictionary)).dictionary_decode()
    return _without_views(whole)


def _without_views(array: Any) -> Any:
    """Text that Polars hands over as views, as plain text."""
    return array.cast(pa.string()) if types.is_string_view(array.type) else array


def _floats(array: Any) -> Floats:
    numbers: Floats = compute.fill_null(array, float("nan")).to_numpy(zero_copy_only=False)
    return numbers


def _bools(array: Any) -> Bools:
    truths: Bools = array.to_numpy(zero_copy_only=False)
    return truths


def _is_numeric(array: Any) -> bool:
    kinds = (types.is_integer, types.is_floating, types.is_decimal, types.is_null)
    return any(kind(array.type) for kind in kinds)


def _is_text(array: Any) -> bool:
    return bool(types.is_string(array.type) or types.is_large_string(array.type))


def _has_dates(array: Any) -> bool:
    return bool(compute.any(compute.match_substring_regex(array, r"^\s*[0-9]{4}-")).as_py())


def _first_wrong(cells: Any, kind: Any) -> int:
    """The index of the first cell that cannot be cast to a type, where at least one cannot, by bisection."""
    return bisect_left(range(1, len(cells)), True, key=lambda count: not _castable(cells[:count], kind))


def _castable(cells: Any, kind: Any) -> bool:
    try:
        compute.cast(cells, kind, safe=False)
    except pa.ArrowInvalid:
        return False
    return True
