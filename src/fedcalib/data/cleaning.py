"""One batch of rows turned into numbers; every error names the file, the column and the row.

This module needs pyarrow from the start, so others import it when the first batch is there.
"""

from __future__ import annotations

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
_TOLERANCE = 1e-3  # how far probabilities may be from summing to one


@final
@dataclass(frozen=True)
class Batch:
    """Some rows of one file."""

    file: str
    first: int  # how many rows of the file came before
    columns: Mapping[str, Any]  # Arrow arrays

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
        try:
            return compute.cast(array, pa.float64())
        except pa.ArrowInvalid:  # something is missing, padded or not a number: find out which
            trimmed = compute.utf8_trim_whitespace(array)
            missing = compute.is_in(compute.utf8_lower(trimmed), pa.array(_MISSING, array.type))
            cells = compute.if_else(missing, pa.scalar(None, array.type), trimmed)
        try:
            return compute.cast(cells, pa.float64())
        except pa.ArrowInvalid as error:
            index = _first_wrong(cells)
            found = cells[index].as_py()[:40]
            raise InputError(f"Expected a number in {self.place(column, index)}, found {found!r}.") from error

    def groups(self, column: str) -> Array:
        """A column of groups as text, (n,); a missing one is empty."""
        found: Array = compute.fill_null(self._text(column), "").to_numpy(zero_copy_only=False)
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

    def _text(self, column: str) -> Any:
        array = _plain(self.columns[column])
        if types.is_floating(array.type):
            array = compute.if_else(compute.is_nan(array), pa.scalar(None, array.type), array)
        try:
            return compute.utf8_trim_whitespace(compute.cast(array, pa.string()))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InputError(f"Expected names in column '{column}' of {self.file}, found {array.type}.") from error

    def words(self, column: str, what: str) -> Any:
        """A column of names as an Arrow array of text; a missing name is refused."""
        words = self._text(column)
        absent = compute.fill_null(compute.equal(words, ""), True).to_numpy(zero_copy_only=False)
        if absent.any():
            place = self.place(column, int(absent.argmax()))
            raise InputError(f"Expected a {what} in {place}, found none: the {what} is unknown. Fill it in.")
        return words

    def scores(self, layout: ColumnLayout) -> tuple[Floats, Bools]:
        """Logits or probabilities as they are in the file, (n, classes), and which rows are finite throughout."""
        given = np.stack([self.numbers(name) for name in layout.scores], axis=1)
        finite = np.asarray(np.isfinite(given).all(axis=1))
        if not layout.are_logits:
            self._check_probs(layout, given, finite)
        if len(layout.scores) == 1:
            given = np.concatenate([1 - given, given], axis=1)
        return given, finite

    def _check_probs(self, layout: ColumnLayout, given: Floats, finite: Bools) -> None:
        outside = ((given < 0) | (given > 1)) & finite[:, None]
        if outside.any():
            row, column = (int(index) for index in np.argwhere(outside)[0])
            raise InputError(
                f"Expected a probability between 0 and 1 in {self.place(layout.scores[column], row)}, "
                f"found {given[row, column]:.6g}; if these are logits, name the columns with logits."
            )
        if len(layout.scores) == 1:
            return
        off = (np.abs(given.sum(axis=1, dtype=np.float64) - 1) > _TOLERANCE) & finite
        if off.any():
            row = int(off.argmax())
            columns = f"columns '{layout.scores[0]}' to '{layout.scores[-1]}'"
            raise InputError(
                f"Expected probabilities that sum to one in {columns} of {self.file}, row {self.first + row + 1}, "
                f"found {given[row].sum():.6g}; if these are logits, name the columns with logits."
            )

    def labels(self, column: str, classes: int) -> tuple[Ints, Bools]:
        """Class numbers, (n,), and which rows have one."""
        values = self._label_numbers(column)
        known: Bools = np.isfinite(values)
        wrong = known & ~((values >= 0) & (values < classes) & (np.floor(values) == values))
        if wrong.any():
            row = int(wrong.argmax())
            raise InputError(
                f"Expected a class from 0 to {classes - 1} in {self.place(column, row)}, found {values[row]:.6g}; "
                "number the classes from 0, in whole numbers."
            )
        return np.where(known, values, 0).astype(np.int64), known

    def days(self, column: str) -> tuple[Ints, Bools, bool]:
        """Days, (n,), which rows have one, and whether they are dates: days since 1970, or else numbers as they are."""
        array = _plain(self.columns[column])
        dated = bool(types.is_temporal(array.type)) or (_is_text(array) and _has_dates(array))
        values = self._dates(column, array) if dated else self.numbers(column)
        known: Bools = np.isfinite(values)
        return np.floor(np.where(known, values, 0)).astype(np.int64), known, dated

    def _dates(self, column: str, array: Any) -> Floats:
        if _is_text(array):
            trimmed = compute.utf8_trim_whitespace(array)
            missing = compute.is_in(compute.utf8_lower(trimmed), pa.array(_MISSING, array.type))
            array = compute.if_else(missing, pa.scalar(None, array.type), trimmed)
        try:
            dates = compute.cast(compute.cast(array, pa.timestamp("s"), safe=False), pa.date32(), safe=False)
        except pa.ArrowInvalid as error:
            raise InputError(
                f"Expected dates such as 2024-03-31 in column '{column}' of {self.file}, found others."
            ) from error
        return _floats(compute.cast(compute.cast(dates, pa.int32()), pa.float64()))

    def bad_cell(self, layout: ColumnLayout, row: int) -> str:
        """The first cell of a row that does not hold a finite number, in the words of a message."""
        for name in layout.scores:
            if not np.isfinite(self.numbers(name)[row]):
                return self.place(name, row)
        labelled = bool(self.labels(str(layout.label), layout.classes)[1][row])
        if layout.rival is not None and labelled and not np.isfinite(self.numbers(layout.rival)[row]):
            return self.place(layout.rival, row)
        if layout.time is not None and labelled:
            return self.place(layout.time, row)
        return self.place(str(layout.label), row)

    def _label_numbers(self, column: str) -> Floats:
        array = _plain(self.columns[column])
        if not _is_text(array):
            return self.numbers(column)
        lowered = compute.utf8_lower(compute.utf8_trim_whitespace(array))  # pandas writes booleans as 'True
        digits = compute.replace_substring_regex(lowered, "^true$", "1")
        digits = compute.replace_substring_regex(digits, "^false$", "0")
        return Batch(self.file, self.first, {column: digits}).numbers(column)


def _plain(array: Any) -> Any:
    """A column without dictionary encoding, in one chunk."""
    whole = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    return whole.dictionary_decode() if types.is_dictionary(whole.type) else whole


def _floats(array: Any) -> Floats:
    numbers: Floats = compute.fill_null(array, float("nan")).to_numpy(zero_copy_only=False)
    return numbers


def _is_numeric(array: Any) -> bool:
    kinds = (types.is_integer, types.is_floating, types.is_decimal, types.is_null)
    return any(kind(array.type) for kind in kinds)


def _is_text(array: Any) -> bool:
    return bool(types.is_string(array.type) or types.is_large_string(array.type))


def _has_dates(array: Any) -> bool:
    return bool(compute.any(compute.match_substring_regex(array, r"^\s*[0-9]{4}-")).as_py())


def _first_wrong(cells: Any) -> int:
    """The index of the first cell that is not a number, where at least one is not, by bisection."""
    return bisect_left(range(1, len(cells)), True, key=lambda count: not _are_numbers(cells[:count]))


def _are_numbers(cells: Any) -> bool:
    try:
        compute.cast(cells, pa.float64())
    except pa.ArrowInvalid:
        return False
    return True
