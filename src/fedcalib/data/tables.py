"""Files as tables: the names of their columns, and their rows in batches; `paths` opens them."""

from __future__ import annotations

import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np

from fedcalib.data.dialects import Dialect
from fedcalib.errors import InputError, needs

BATCH = 1 << 16  # rows at a time
_BLOCK = 1 << 23  # bytes of text at a time


class Table(ABC):
    """Named columns, read in batches of rows; a batch maps names to Arrow arrays."""

    @property
    @abstractmethod
    def file(self) -> str:
        """The name of this table in messages."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""

    @property
    def decimal(self) -> str:
        """The decimal sign of numbers that are text."""
        return "."

    @property
    def note(self) -> str:
        """What is unusual about the way this table is written; empty if nothing is."""
        return ""

    @abstractmethod
    def batches(self, columns: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        """Read some of the columns, batch by batch."""

    def ordered(self, column: str) -> Table:
        """The same table with rows in the order of a column where it can be had; otherwise as it is."""
        return self


@dataclass(frozen=True)
class FileTable(Table, ABC):
    """A table in a file, which messages call by its path."""

    path: Path

    @property
    def file(self) -> str:
        return str(self.path)


@final
@dataclass(frozen=True)
class CsvTable(FileTable):
    """A file of separated text. Every cell stays text here, so that nothing is lost or guessed."""

    usual: str = ","  # the separator that the name of the file suggests

    @cached_property
    def dialect(self) -> Dialect:
        """How the file is written."""
        with _explained(self.path, "CSV"):
            return Dialect.of(self.path, self.usual)

    @property
    def decimal(self) -> str:
        return self.dialect.decimal

    @property
    def note(self) -> str:
        words = self.dialect.wording(self.usual)
        return f"{self.path} was read {words}." if words else ""

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self._header)

    @cached_property
    def _header(self) -> tuple[str, ...]:
        with self._reader(None) as reader:
            return tuple(reader.schema.names)

    def batches(self, columns: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        written = dict(zip(self.names, self._header, strict=True))  # names may be padded
        with self._reader([written[name] for name in columns]) as reader:
            for batch in reader:
                yield dict(zip(columns, batch.columns, strict=True))

    @contextmanager
    def _reader(self, columns: Sequence[str] | None) -> Iterator[Any]:
        ragged: list[Any] = []
        try:
            with _explained(self.path, "CSV"), self._open(columns, ragged) as reader:
                yield reader
        except InputError as error:
            if not ragged:
                raise
            row = ragged[0]
            raise InputError(
                f"Expected {row.expected_columns} cells per row in {self.path}, as in its header, "
                f"found {row.actual_columns} in row {row.number - 1 - self.dialect.skipped}; repair the file."
            ) from error

    def _open(self, columns: Sequence[str] | None, ragged: list[Any]) -> Any:
        import pyarrow as pa
        from pyarrow import csv

        def note(row: Any) -> str:  # raising in here would be lost on the way through Arrow
            ragged.append(row)
            return "error"

        types = {} if columns is None else dict.fromkeys(columns, pa.string())
        dialect = self.dialect
        reading = csv.ReadOptions(
            block_size=_BLOCK,
            use_threads=False,  # threads would lose row numbers
            skip_rows=dialect.skipped,
            encoding="utf-8" if dialect.encoding == "utf-8-sig" else dialect.encoding,
        )
        parsing = csv.ParseOptions(delimiter=dialect.separator, invalid_row_handler=note)
        text = csv.ConvertOptions(
            column_types=types, include_columns=columns, strings_can_be_null=False, null_values=[]
        )
        source = pa.input_stream(str(self.path), compression="gzip" if dialect.compressed else None)
        return csv.open_csv(source, reading, parsing, text)


@final
@dataclass(frozen=True)
class ParquetTable(FileTable):
    """A Parquet file."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        from pyarrow.parquet import ParquetFile

        with _explained(self.path, "Parquet"), ParquetFile(self.path, pre_buffer=False) as opened:
            return tuple(opened.schema_arrow.names)

    def batches(self, columns: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        from pyarrow.parquet import ParquetFile

        with _explained(self.path, "Parquet"), ParquetFile(self.path, pre_buffer=False) as opened:
            for batch in opened.iter_batches(BATCH, columns=list(columns)):
                yield {name: batch.column(name) for name in columns}


@final
@dataclass(frozen=True)
class NpzTable(FileTable):
    """Arrays of one length in an NPZ file; a matrix `m` stands for the columns `m_0`, `m_1`, ..."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(self._homes)

    @cached_property
    def _homes(self) -> dict[str, tuple[str, int | None]]:
        """For each column, the array that holds it and its column there."""
        with _explained(self.path, "NPZ"), zipfile.ZipFile(self.path) as archive:
            shapes = {entry.removesuffix(".npy"): _shape(archive, entry) for entry in archive.namelist()}
        homes: dict[str, tuple[str, int | None]] = {}
        for name, shape in shapes.items():
            if len(shape) == 2:
                homes |= {f"{name}_{column}": (name, column) for column in range(shape[1])}
            elif len(shape) == 1:
                homes[name] = (name, None)
        return homes

    def batches(self, columns: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        import pyarrow as pa

        with _explained(self.path, "NPZ"), np.load(self.path, allow_pickle=False) as arrays:
            loaded = {name: arrays[name] for name in {self._homes[column][0] for column in columns}}
        lengths = {name: len(array) for name, array in loaded.items()}
        if len(set(lengths.values())) > 1:
            raise InputError(f"Expected arrays of one length in {self.path}, found {lengths}.")
        homes = {name: self._homes[name] for name in columns}
        whole = {name: loaded[home] if k is None else loaded[home][:, k] for name, (home, k) in homes.items()}
        for start in range(0, max(lengths.values(), default=0), BATCH):
            yield {name: pa.array(np.ascontiguousarray(c[start : start + BATCH])) for name, c in whole.items()}


@final
@dataclass(frozen=True)
class ExcelTable(FileTable):
    """The first sheet of a workbook; needs the extra `excel`."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self._columns)

    def batches(self, columns: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        arrays = dict(self._columns)
        for start in range(0, len(arrays[columns[0]]), BATCH):
            yield {name: arrays[name].slice(start, BATCH) for name in columns}

    @cached_property
    def _columns(self) -> list[tuple[str, Any]]:
        """Names and values of the columns, below the first row that holds anything."""
        header, *rows = self._cells() or [[]]
        cells = zip(*rows, strict=True) if rows else [()] * len(header)
        return [(str(name).strip(), column_array(cell)) for name, cell in zip(header, cells, strict=True)]

    def _cells(self) -> list[list[Any]]:
        with needs(f"read {self.path}"):
            from python_calamine import CalamineError, CalamineWorkbook
        try:
            rows = CalamineWorkbook.from_path(str(self.path)).get_sheet_by_index(0).to_python()
        except (CalamineError, OSError, ValueError) as error:
            raise InputError(f"Expected a whole, valid workbook in {self.path}, found: {error}") from error
        return [list(row) for row in rows if any(cell != "" for cell in row)]


def column_array(values: Sequence[Any]) -> Any:
    """Plain values as an Arrow array: numbers if they all are, otherwise text; empty cells are missing."""
    import pyarrow as pa

    cells = [None if value is None or value == "" or value != value else value for value in values]  # noqa: PLR0124
    try:
        return pa.array(cells)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([None if cell is None else str(cell) for cell in cells], pa.string())


@contextmanager
def _explained(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a reader raises into one error that names the file."""
    import pyarrow as pa

    try:
        yield
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        reason = str(error).split("\n", 1)[0]
        raise InputError(f"Expected a whole, valid {kind} file in {path}, found: {reason}") from error


def _shape(archive: zipfile.ZipFile, entry: str) -> tuple[int, ...]:
    """An array's shape, read without its content."""
    from numpy.lib import format as npy

    with archive.open(entry) as file:
        version = npy.read_magic(file)
        shape, _, _ = (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(file)
    return tuple(shape)
