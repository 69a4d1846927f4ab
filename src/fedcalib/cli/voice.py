"""What a command prints, and where: results on stdout, everything else on stderr.

Also the one place that knows which exit code an error becomes.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, final

from fedcalib import errors
from fedcalib.workflows.documents import DryRun, TextTable, facts_table, phase_tables, text
from fedcalib.workflows.session import At, Notices

FINE: Final = 0
BUG: Final = 1
USAGE: Final = 2
BUDGET: Final = 3
REFUSED: Final = 4
UNAVAILABLE: Final = 5
INTERRUPTED: Final = 130
UNREAD: Final = 141  # the reader of a pipe has left, as `head` does

_CODES: Final = {
    USAGE: (errors.InputError, errors.TranscriptError, errors.WireError, errors.LedgerError),
    BUDGET: (errors.BudgetError,),
    REFUSED: (errors.RefusedError, errors.PolicyError, errors.TooFewClients),
    UNAVAILABLE: (errors.UnavailableError,),
}


def exit_code(error: BaseException) -> int:
    """The exit code of a command after an error; what is not listed is a bug of ours."""
    return next((code for code, kinds in _CODES.items() if isinstance(error, kinds)), BUG)


_COLUMNS: Final = "score|logits|probs|label|site|unit|time|classes|positive|group|rival"


def as_flags(text: str) -> str:
    """A message of the package in the words of the command line: flags instead of arguments."""
    text = re.sub(r"\b(\w+)(?:=(?:\w+|'[^']*'))? \(--([\w-]+)((?: [^)]*)?)\)", _flag, text)
    text = re.sub(r"state score, logits or probs\b", "state --score, --logits or --probs", text)
    text = re.sub(rf"\bwith ({_COLUMNS})(?=[.,;)]| and )", r"with --\1", text)
    text = re.sub(r"Set UserGaussian\(\.\.\., clip=10\) for ten records' worth, or an L2 norm per block", _CLIP, text)
    return text.replace(" (start and until in Python)", "").replace("Expected max_missing", "Expected --max-missing")


_CLIP: Final = "Add --clip 10 for ten records' worth"


def _flag(found: re.Match[str]) -> str:
    """The flag alone, where an argument of the same name stands before it."""
    return f"--{found[2]}{found[3]}" if found[1].replace("_", "-") == found[2] else found[0]


_WIDE: Final = 140  # columns, where there is no terminal to ask
_NARROW: Final = 80
_PATIENCE: Final = 1.0  # seconds before a progress bar is worth showing


@final
@dataclass(frozen=True)
class Voice(Notices):
    """Speaks for one command: as JSON for programs, in tables for people."""

    as_json: bool

    def result(self, document: dict[str, Any], tables: Sequence[TextTable], warnings: Iterable[str] = ()) -> None:
        """Print the warnings, then the result: JSON on stdout and the tables on stderr, or the tables on stdout."""
        for warning in warnings:
            self.warn(warning)
        self._show(tables, sys.stderr if self.as_json else sys.stdout)
        if self.as_json:
            sys.stdout.write(text(document))
            sys.stdout.flush()

    def dry_run(self, found: DryRun, title: str = "Nothing was asked. It would cost:") -> None:
        """Show what would be asked, and what it would cost."""
        document = found.to_json()
        self.result(document, [*phase_tables(found.phases), facts_table(title, document["privacy"])])

    def note(self, text: str) -> None:
        """Print something on the side."""
        print(as_flags(text), file=sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        """Print something that should not be missed."""
        self.note(f"Warning: {text}")

    def _show(self, tables: Sequence[TextTable], stream: Any) -> None:
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table as Grid

        width = None if stream.isatty() else _WIDE
        console = Console(file=stream, highlight=False, soft_wrap=False, width=width)
        console.width = max(console.width, _NARROW)  # below that the terminal wraps lines, and cells stay whole
        for table in tables:
            title, headed = table.title or None, any(table.columns)
            grid = Grid(title=title, box=SIMPLE_HEAD, title_justify="left", show_header=headed)
            for column in table.columns:
                grid.add_column(column, overflow="fold")  # a narrow terminal must not cut digits off
            for row in table.rows:
                grid.add_row(*(cell.replace("[", r"\[") for cell in row))
            console.print(grid)

    @contextmanager
    def progress(self, what: str) -> Iterator[At]:
        """Show how far a task has come, once it has taken a second, and only to somebody who looks."""
        meter = Meter(what)
        try:
            yield meter.at
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
        """Show how much is done."""
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
