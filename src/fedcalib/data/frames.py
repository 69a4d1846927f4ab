"""Frames, columns and lists of them as tables: pandas, Polars, Arrow, DuckDB, NumPy, torch and plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np

from fedcalib.data.paths import expand, open_table
from fedcalib.data.tables import BATCH, Table, column_array
from fedcalib.errors import InputError
from fedcalib.records import as_array

_FRAMES = "files, a dict of columns, a DuckDB relation, or a pandas, Polars or Arrow frame"
_EXAMPLE = "{'site': [...], 'score': [...], 'label': [...]}"


@final
@dataclass(frozen=True)
class FrameTable(Table):
    """A frame: anything that Arrow can convert, or columns by name."""

    frame: Any = field(repr=False)  # an Arrow table
    file: str = "the frame"

    @classmethod
    def of(cls, frame: Any, file: str = "the frame") -> FrameTable:
        """Wrap a frame, a mapping of columns or a structured array."""
        import pyarrow as pa

        if type(frame).__name__ == "LazyFrame":  # of Polars
            frame = frame.collect()
        if isinstance(frame, np.ndarray) and frame.dtype.names:
            frame = {name: frame[name] for name in frame.dtype.names}
        if isinstance(frame, Mapping):
            return cls(_table(frame, file), file)
        _check_named(frame)
        try:
            return cls(pa.table(frame), file)
        except (TypeError, ValueError, pa.ArrowException) as error:
            return cls(_by_column(frame, file, error), file)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.frame.column_names)

    def batches(self, columns: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        for batch in self.frame.select(list(columns)).to_batches(BATCH):
            yield {name: batch.column(name) for name in columns}


def tables_of(source: Any) -> tuple[tuple[Table, str], ...]:
    """The tables of anything that holds records, each with the name of the site that it is without a site column.

    Parameters
    ----------
    source
        A path or a pattern, a frame, a mapping of columns or of sites to any of these, rows as a list of dicts, or
        several of these in a list.

    Raises
    ------
    InputError
        If there is nothing, or something else.
    """
    if isinstance(source, str | Path):
        return tuple((open_table(path), path.name.split(".")[0]) for path in expand(source))
    if isinstance(source, Mapping) and source and all(map(_holds_records, source.values())):
        return tuple((_one_table(part, f"the frame of {name}"), str(name)) for name, part in source.items())
    if isinstance(source, Table):
        return ((source, "all"),)
    if isinstance(source, list | tuple | Iterator):
        return _listed(list(source))
    return ((FrameTable.of(source), "all"),)


def _listed(parts: list[Any]) -> tuple[tuple[Table, str], ...]:
    if not parts:
        raise InputError("Expected at least one file or frame, found none.")
    if all(isinstance(part, Mapping) and not any(map(_is_column, part.values())) for part in parts):
        names = dict.fromkeys(name for row in parts for name in row)
        return ((FrameTable.of({name: [row.get(name) for row in parts] for name in names}), "all"),)
    if not all(map(_holds_records, parts)):
        other = next(part for part in parts if not _holds_records(part))
        raise InputError(f"Expected files or frames in the list, found {type(other).__name__}; pass {_EXAMPLE}.")
    tables: list[tuple[Table, str]] = []
    for number, part in enumerate(parts, 1):
        tables += (
            tables_of(part) if isinstance(part, str | Path) else [(_one_table(part, f"frame {number}"), str(number))]
        )
    return tuple(tables)


def _one_table(part: Any, file: str) -> Table:
    if not isinstance(part, str | Path):
        return FrameTable.of(part, file)
    files = expand(part)
    if len(files) > 1:
        raise InputError(f"Expected one file for a site, found {len(files)} that match {part}.")
    return open_table(files[0])


def _holds_records(part: Any) -> bool:
    return isinstance(part, str | Path | Table | Mapping) or any(
        hasattr(part, name) for name in ("columns", "column_names", "schema")
    )


def _is_column(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes) and np.ndim(value) > 0  # type: ignore[arg-type]


def _check_named(frame: Any) -> None:
    shape = getattr(frame, "shape", None)
    if hasattr(frame, "dtype") and shape is not None:
        raise InputError(f"Expected columns with names, found an array of shape {tuple(shape)}; pass {_EXAMPLE}.")
    if not _holds_records(frame) and not hasattr(frame, "__arrow_c_stream__"):
        raise InputError(f"Expected {_FRAMES}, found {type(frame).__name__}.")


def _by_column(frame: Any, file: str, error: Exception) -> Any:
    """A pandas frame whose columns mix types, column by column; anything else is refused."""
    names = [] if not hasattr(frame, "iloc") else [str(name) for name in frame.columns]
    if not names or len(set(names)) < len(names):
        reason = str(error).split("\n", 1)[0][:200] if not names else f"a column name twice: {', '.join(names)[:200]}"
        raise InputError(f"Expected {_FRAMES}, found {type(frame).__name__} with {reason}.") from error
    return _table({name: frame.iloc[:, place] for place, name in enumerate(names)}, file)


def _table(columns: Mapping[Any, Any], file: str) -> Any:
    """An Arrow table of columns by name; a matrix `m` stands for the columns `m_0`, `m_1`, ..."""
    import pyarrow as pa

    arrays: dict[str, Any] = {}
    for name, values in columns.items():
        matrix = None if isinstance(values, pa.Array | pa.ChunkedArray) else _matrix(values)
        if matrix is None:
            arrays[str(name)] = _column(str(name), values, file)
        else:
            arrays |= {f"{name}_{k}": pa.array(np.ascontiguousarray(matrix[:, k])) for k in range(matrix.shape[1])}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"Expected columns of one length in {file}, found {lengths}.")
    return pa.table(arrays)


def _matrix(values: Any) -> Any:
    """The values as an array if they are a matrix, or None."""
    if len(getattr(values, "shape", ())) == 2:
        return as_array(values)
    nested = isinstance(values, list | tuple) and values and isinstance(values[0], list | tuple)
    matrix = np.array(values, dtype=object) if nested else np.empty(0)
    return np.asarray(values) if matrix.ndim == 2 else None


def _column(name: str, values: Any, file: str) -> Any:
    """One column as an Arrow array; values of several types become text."""
    import pyarrow as pa

    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if not _is_column(values):
        raise InputError(f"Expected one value per record in column '{name}' of {file}, found {type(values).__name__}.")
    if hasattr(values, "to_arrow"):  # a Polars series
        return values.to_arrow()
    try:
        return pa.array(as_array(values) if hasattr(values, "detach") else values, from_pandas=True)
    except (TypeError, ValueError, pa.ArrowException):
        return column_array(list(as_array(values).tolist()))
