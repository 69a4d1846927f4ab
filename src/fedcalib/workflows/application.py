"""Apply: stream a table through a calibrator into a new file, whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np

from fedcalib import files
from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.steps import Steps
from fedcalib.data import ColumnLayout, Columns, Table, open_table
from fedcalib.data.tables import FileTable
from fedcalib.errors import InputError
from fedcalib.records import softmax
from fedcalib.types import Bools, Floats
from fedcalib.workflows.session import Notices, Silent


@final
@dataclass(frozen=True)
class Applied:
    """How many records went through, how many had no finite score, and for how many all steps were zero."""

    records: int
    missing: int
    massless: int
    classes: int

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is said about records without calibrated probabilities."""
        texts = {
            f"{self.missing} of {self.records} records hold a missing number, NaN or infinity; "
            "their calibrated probability is missing too.": self.missing,
            f"For {self.massless} of {self.records} records the calibrator gives zero to every class; "
            "they keep the probabilities they had.": self.massless,
        }
        return tuple(text for text, count in texts.items() if count)


@final
@dataclass(frozen=True)
class Application:
    """A calibrator, a table of scores and the file to write."""

    calibrator: Calibrator
    table: Table
    columns: Columns
    out: Path
    notices: Notices = field(default_factory=Silent)

    def run(self) -> Applied:
        """Calibrate batch by batch."""
        from fedcalib.data.cleaning import Batch

        layout = self.columns.layout(self.table.names, self.table.file)
        names = self._names(layout)
        taken = [name for name in names if name in self.table.names]
        if taken:
            raise InputError(f"Expected no column '{taken[0]}' in {self.table.file}, found one; rename it first.")
        self._check_kept()
        rows = missing = massless = 0
        with _writer(self.out) as write, self.notices.progress("calibrating rows") as at:
            for columns in self.table.batches(self.table.names):
                given, finite = Batch(self.table.file, rows, columns, self.table.decimal).scores(layout)
                write({**columns, **dict(zip(names, self._mapped(layout, given, finite), strict=True))})
                rows, missing = rows + len(finite), missing + int((~finite).sum())
                massless += self._massless(layout, given[finite])
                at(rows)
            if not rows:
                raise InputError(f"Expected records in {self.table.file}, found none.")
        return Applied(rows, missing, massless, layout.classes)

    def _check_kept(self) -> None:
        """Refuse what would lose a column of the input, or the input itself."""
        names = self.table.names
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"Expected different names of columns in {self.table.file}, found '{twice}' twice.")
        if isinstance(self.table, FileTable) and self.out.resolve() == self.table.path.resolve():
            raise InputError(f"Expected another file with --out than the one that is read, found {self.out} for both.")

    def _names(self, layout: ColumnLayout) -> tuple[str, ...]:
        """The columns to add; those of several classes are named after the classes."""
        if layout.class_names and not self.calibrator.class_names and not self.columns.class_names:
            raise InputError(
                f"Expected a calibrator that knows the names of its classes, as the columns of {self.table.file} are "
                "named after them, found one that does not; state the columns in order with probs (--probs)."
            )
        words = layout.class_names or map(str, range(layout.classes))
        return ("calibrated",) if layout.classes == 2 else tuple(f"calibrated_{word}" for word in words)

    def _massless(self, layout: ColumnLayout, good: Floats) -> int:
        if not isinstance(self.calibrator, Steps):
            return 0
        return self.calibrator.without_mass(softmax(good) if layout.are_logits else good)

    def _mapped(self, layout: ColumnLayout, given: Floats, finite: Bools) -> list[Any]:
        """Calibrate the finite rows; the others stay missing."""
        import pyarrow as pa

        values = np.full(given.shape, np.nan)
        good = given[finite]
        values[finite] = self.calibrator.from_logits(good) if layout.are_logits else self.calibrator(good)
        shown = values[:, 1:] if layout.classes == 2 else values
        return [pa.array(np.ascontiguousarray(column), mask=~finite) for column in shown.T]


def apply(
    calibrator: Calibrator,
    file: Path | str,
    out: Path | str,
    *,
    score: str | None = None,
    logits: str | None = None,
    probs: str | None = None,
    percent: bool = False,
    notices: Notices | None = None,
) -> Applied:
    """Calibrate the scores of a file; its columns are kept and the calibrated probabilities added.

    Parameters
    ----------
    calibrator
        What to apply.
    file
        A CSV, Parquet or NPZ file of scores; no labels are needed.
    out
        The CSV or Parquet file to write, whole or not at all.
    score, logits, probs
        Columns of the scores, as in `fedcalib.read`. Columns that are named after classes are put in the order of the
        calibrator's classes.
    percent
        Whether probabilities are percentages; calibrated ones never are.
    notices
        Hears of progress.

    Returns
    -------
    Applied
        How many records were calibrated, and warnings about those that could not be.

    Examples
    --------
    >>> from pathlib import Path
    >>> from fedcalib.artifacts.scaling import Temperature
    >>> from fedcalib.workflows import apply
    >>> _ = Path("scores.csv").write_text("score\\n0.9\\n0.2\\n")
    >>> apply(Temperature(2.0), "scores.csv", "calibrated.csv").records
    2
    """
    names = calibrator.class_names or None
    columns = Columns(score=score, logits=logits, probs=probs, label=None, classes=names, percent=percent)
    table, told = open_table(Path(file)), notices or Silent()
    if table.note:
        told.note(table.note)
    return Application(calibrator, table, columns, Path(out), told).run()


@final
class CsvLines:
    """Writes tables as comma-separated lines; a cell is quoted only where it has to be, so text stays as it was."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        import pyarrow as pa

        self._file = path.open("w", encoding="utf-8", newline="")
        self._file.write(",".join(_quoted(pa.array(list(names), pa.string())).to_pylist()) + "\n")

    def write_table(self, table: Any) -> None:
        """Write the rows of an Arrow table."""
        from pyarrow import compute

        cells = [_quoted(column.combine_chunks()) for column in table.columns]
        lines = compute.binary_join_element_wise(*cells, ",")
        self._file.write("\n".join(lines.to_pylist()) + "\n")

    def close(self) -> None:
        """Finish the file."""
        self._file.close()


def _quoted(column: Any) -> Any:
    """Turn a column into cells of text; what is missing becomes an empty one."""
    import pyarrow as pa
    from pyarrow import compute

    text = compute.fill_null(compute.cast(column, pa.string()), "")
    special = compute.match_substring_regex(text, '[",\r\n]')
    if not compute.any(special).as_py():
        return text
    doubled = compute.replace_substring(text, '"', '""')
    return compute.if_else(special, compute.binary_join_element_wise('"', doubled, '"', ""), text)


@contextmanager
def _writer(path: Path) -> Iterator[Any]:
    """Yield a function that writes a batch; the file appears when everything has been written."""
    if path.is_dir():
        raise InputError(f"Expected a file with --out, found the directory {path}; name a file in it.")
    start, opened = _starter(path), list[Any]()
    with files.explained(path), files.replacing(path) as beside:

        def write(columns: Mapping[str, Any]) -> None:
            import pyarrow as pa

            table = pa.table(dict(columns))
            if not opened:
                opened.append(start(beside, table.schema))
            opened[0].write_table(table)

        try:
            yield write
        finally:
            for writer in opened:
                writer.close()


def _starter(path: Path) -> Any:
    """Choose how to write a file by how its name ends."""
    from pyarrow.parquet import ParquetWriter

    if path.suffix.lower() == ".csv":
        return lambda beside, schema: CsvLines(beside, schema.names)
    if path.suffix.lower() in (".parquet", ".pq"):
        return ParquetWriter
    raise InputError(f"Expected a file that ends in .csv or .parquet with --out, found {path}.")
