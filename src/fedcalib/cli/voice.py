"""Which exit code an error becomes: the one place that knows.

Files that a command leaves: all of them, or none.

What a command says, and where: results on stdout, everything else on stderr.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

from fedcalib.errors import (
    BudgetError,
    FedcalibError,
    InputError,
    LedgerError,
    PolicyError,
    RefusedError,
    TooFewClients,
    TranscriptError,
    WireError,
)

FINE: Final = 0
BUG: Final = 1
USAGE: Final = 2
BUDGET: Final = 3
REFUSED: Final = 4
INTERRUPTED: Final = 130

_CODES: Final[tuple[tuple[type[FedcalibError], int], ...]] = (
    (InputError, USAGE),
    (TranscriptError, USAGE),
    (WireError, USAGE),
    (LedgerError, USAGE),
    (BudgetError, BUDGET),
    (RefusedError, REFUSED),
    (PolicyError, REFUSED),
    (TooFewClients, REFUSED),
)


def exit_code(error: BaseException) -> int:
    """Say with which code a command ends after an error; what is not listed is a bug of ours."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), BUG)


def check_folder(folder: Path, names: Iterable[str]) -> None:
    """Refuse a folder that cannot be written, before anything is asked and spent."""
    try:
        blocked = next((folder / name for name in names if (folder / name).is_dir()), None)
        if blocked is not None:
            raise InputError(f"Expected to write the file {blocked}, found a directory; name another with --out.")
        nearest = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
        if not nearest.is_dir():
            raise InputError(f"Expected a directory with --out, found the file {nearest}; name another.")
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise InputError(f"Expected to write into {nearest}, found: Permission denied; name another with --out.")
    except OSError as error:
        raise InputError(f"Expected a directory with --out, found: {error.strerror or error}.") from error


def write_all(folder: Path, contents: Mapping[str, bytes]) -> dict[str, str]:
    """Write files into a folder, all at once at the very end; say where each one is."""
    beside: Path | None = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=".part-", dir=folder))
        for name, content in contents.items():
            (beside / name).write_bytes(content)
        for name in contents:
            (beside / name).replace(folder / name)
    except OSError as error:
        raise InputError(f"Expected to write into {folder}, found: {error.strerror or error}.") from error
    finally:
        if beside is not None:
            shutil.rmtree(beside, ignore_errors=True)
    return places(folder, contents)


def places(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Say where each file is, under its name without the suffix."""
    return {Path(name).stem: str(folder / name) for name in names}


SCHEMA_VERSION: Final = 1
_WIDE: Final = 120  # columns, where there is no terminal to ask
_PATIENCE: Final = 1.0  # seconds before a progress bar is worth showing


@final
@dataclass(frozen=True)
class Table:
    """A few rows under a heading."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@final
@dataclass(frozen=True)
class Voice:
    """Speaks for one command: as JSON for programs, in tables for people."""

    as_json: bool

    def result(self, document: dict[str, Any], tables: Sequence[Table]) -> None:
        """Give the result: one JSON document on stdout and the tables on stderr, or the tables on stdout."""
        self._show(tables, sys.stderr if self.as_json else sys.stdout)
        if self.as_json:
            text = json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=1, allow_nan=False)
            sys.stdout.write(text + "\n")
            sys.stdout.flush()

    def note(self, text: str) -> None:
        """Say something on the side."""
        print(text, file=sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        """Say something that should not be missed."""
        self.note(f"Warning: {text}")

    def _show(self, tables: Sequence[Table], stream: Any) -> None:
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table as Grid

        width = None if stream.isatty() else _WIDE
        console = Console(file=stream, highlight=False, soft_wrap=False, width=width)
        for table in tables:
            headed = any(table.columns)
            grid = Grid(
                *table.columns,
                title=table.title or None,
                box=SIMPLE_HEAD,
                title_justify="left",
                show_header=headed,
            )
            for row in table.rows:
                grid.add_row(*(cell.replace("[", r"\[") for cell in row))
            console.print(grid)

    @contextmanager
    def meter(self, what: str) -> Iterator[Meter]:
        """Show how far a task has come, once it has taken a second, and only to somebody who looks."""
        meter = Meter(what)
        try:
            yield meter
        finally:
            meter.stop()


@final
@dataclass
class Meter:
    """A progress bar that appears when a task turns out to be long."""

    what: str
    begun: float = field(default_factory=time.monotonic)
    bar: Any = None
    task: Any = None

    def at(self, done: int, total: int | None = None) -> None:
        """Say how much is done."""
        if self.bar is None and time.monotonic() - self.begun > _PATIENCE and sys.stderr.isatty():
            self._start()
        if self.bar is not None:
            self.bar.update(self.task, completed=done, total=total)

    def stop(self) -> None:
        """Take the bar away."""
        if self.bar is not None:
            self.bar.stop()

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self.task = self.bar.add_task(self.what, total=None)
        self.bar.start()
