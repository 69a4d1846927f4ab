"""What long benchmarks share: a bar, and a table that grows row by row so that a rerun goes on where it stopped."""

from __future__ import annotations

import csv
import sys
import time
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


class Sheet:
    """A CSV file of many small cases, known by their key; says on the error stream every half minute how far it is."""

    def __init__(self, path: Path, key: tuple[str, ...]) -> None:
        self.path = path
        self.key = key
        self.done = {tuple(row[name] for name in key) for row in Table(path).rows}
        self._found = len(self.done)
        self._began = self._said = time.monotonic()

    def has(self, *key: object) -> bool:
        return tuple(map(str, key)) in self.done

    def add(self, row: Mapping[str, object]) -> None:
        Table(self.path).add(row)
        self.done.add(tuple(str(row[name]) for name in self.key))
        if time.monotonic() - self._said > 30:
            self._said = time.monotonic()
            new, minutes = len(self.done) - self._found, (self._said - self._began) / 60
            print(f"{self.path.name}: {new} new rows in {minutes:.1f} min, {len(self.done)} in all", file=sys.stderr)


@contextmanager
def bar(label: str) -> Iterator[Callable[[Progress], None]]:
    """Show how far a run has come."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    with Bar(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as shown:
        task = shown.add_task(label, total=None)
        yield lambda progress: shown.update(task, total=progress.steps, completed=progress.step + 1)
