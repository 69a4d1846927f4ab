"""From paths and patterns to tables: which files are meant, and how each is read."""

from __future__ import annotations

from collections.abc import Iterable
from glob import glob
from pathlib import Path

from fedcalib.data.tables import CsvTable, ExcelTable, NpzTable, ParquetTable, Table
from fedcalib.errors import InputError

_KINDS = ".csv, .csv.gz, .tsv, .parquet, .npz or .xlsx"
_TEXT = (".csv", ".csv.gz", ".txt", ".txt.gz")
_TABBED = (".tsv", ".tsv.gz")
_PARQUET = (".parquet", ".pq")
_SHEETS = (".xlsx", ".xlsm", ".xls", ".ods")
_ENDINGS = (*_TEXT, *_TABBED, *_PARQUET, ".npz", *_SHEETS)


def expand(paths: str | Path | Iterable[str | Path]) -> tuple[Path, ...]:
    r"""Expand paths and patterns such as 'scores/*.csv' to a list of files.

    Parameters
    ----------
    paths
        One path or pattern, or several.

    Returns
    -------
    tuple of Path
        Paths as they are given, and the matches of each pattern in alphabetical order.

    Raises
    ------
    InputError
        If a pattern matches no file, or if there is no path at all.

    Examples
    --------
    >>> from pathlib import Path
    >>> import fedcalib as fc
    >>> for name in ("north.csv", "south.csv"):
    ...     _ = Path(name).write_text("label,score\n1,0.9\n0,0.2\n")
    >>> [path.name for path in fc.data.expand("*.csv")]
    ['north.csv', 'south.csv']
    """
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    files: list[Path] = []
    for path in given:
        text = str(path)
        pattern = any(sign in text for sign in "*?[") and not Path(text).exists()
        found = sorted(glob(text)) if pattern else [text]  # noqa: PTH207 - Path.glob refuses absolute patterns
        if not found:
            raise InputError(f"Expected files that match {text}, found none.")
        files += map(Path, found)
    if not files:
        raise InputError("Expected at least one file, found none.")
    return tuple(files)


def files_in(path: Path) -> tuple[Path, ...]:
    """The files of records in a folder, in alphabetical order; anything else as it is."""
    if not path.is_dir():
        return (path,)
    found = tuple(sorted(one for one in path.iterdir() if one.is_file() and one.name.lower().endswith(_ENDINGS)))
    if not found:
        raise InputError(f"Expected files that end in {_KINDS} in the folder {path}, found none.")
    return found


def open_table(path: Path) -> Table:
    r"""Open a file as a table; the end of its name decides how it is read.

    Parameters
    ----------
    path
        A file that ends in .csv, .tsv or .txt, perhaps with .gz, in .parquet, .pq, .npz or .xlsx. Separator, decimal
        sign and encoding of text are found in the file.

    Returns
    -------
    Table
        The names of its columns, and its rows in batches.

    Raises
    ------
    InputError
        If the file cannot be read, is empty, or ends in something else.

    Examples
    --------
    >>> from pathlib import Path
    >>> import fedcalib as fc
    >>> path = Path("north.csv")
    >>> _ = path.write_text("label,score\n1,0.9\n0,0.2\n")
    >>> fc.data.open_table(path).names
    ('label', 'score')
    """
    try:
        if path.is_dir():
            raise InputError(
                f"Expected a file, found the directory {path}; name the files in it, such as {path}/*.csv."
            )
        with path.open("rb") as file:
            empty = not file.read(1)
    except OSError as error:
        raise InputError(f"Expected to read {path}, found: {error.strerror or error}.") from error
    if empty:
        raise InputError(f"Expected records in {path}, found an empty file.")
    return _by_suffix(path)


def _by_suffix(path: Path) -> Table:
    name = path.name.lower()
    if name.endswith(_TEXT):
        return CsvTable(path, ",")
    if name.endswith(_TABBED):
        return CsvTable(path, "\t")
    if name.endswith(_PARQUET):
        return ParquetTable(path)
    if name.endswith(".npz"):
        return NpzTable(path)
    if name.endswith(_SHEETS):
        return ExcelTable(path)
    raise InputError(f"Expected a file that ends in {_KINDS}, found {path}; convert it first.")
