"""What long benchmarks share: a bar, and a table that grows row by row so that a rerun goes on where it stopped."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fedcalib.loop import Progress


class Table:
    """A CSV file with one row a case; a case that is there already is not run again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def rows(self) -> list[dict[str, str]]:
        """Read anew each time: other processes may add rows too."""
        if not self.path.exists():
            return []
        with self.path.open(newline="") as file:
            return list(csv.DictReader(file))

    def has(self, **key: object) -> bool:
        return any(all(row[name] == str(value) for name, value in key.items()) for row in self.rows)

    def add(self, row: Mapping[str, object]) -> None:
        new = not self.path.exists()
        with self.path.open("a", newline="") as file:
            writer = csv.DictWriter(file, list(row))
            if new:
                writer.writeheader()
            writer.writerow(row)


@contextmanager
def bar(label: str) -> Iterator[Callable[[Progress], None]]:
    """Show how far a run has come."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    with Bar(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as shown:
        task = shown.add_task(label, total=None)
        yield lambda progress: shown.update(task, total=progress.steps, completed=progress.step + 1)
