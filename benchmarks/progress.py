"""What long benchmarks share: a bar, and a table that grows row by row so that a rerun goes on where it stopped."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fedcalib.loop import Progress


class Table:
    """A CSV file with one row a case; a case that is there already is not run again."""

    def __init__(self, path: Path, keys: tuple[str, ...]) -> None:
        self.path, self.keys = path, keys
        self.rows: list[dict[str, str]] = []
        if path.exists():
            with path.open(newline="") as file:
                self.rows = list(csv.DictReader(file))

    def has(self, **key: object) -> bool:
        return any(all(row[name] == str(value) for name, value in key.items()) for row in self.rows)

    def add(self, row: Mapping[str, object]) -> None:
        self.rows.append({name: str(value) for name, value in row.items()})
        with self.path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(row))
            writer.writeheader()
            writer.writerows(self.rows)


@contextmanager
def bar(label: str) -> Iterator[Callable[[Progress], None]]:
    """Show how far a run has come."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    with Bar(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as shown:
        task = shown.add_task(label, total=None)
        yield lambda progress: shown.update(task, total=progress.steps, completed=progress.step + 1)
