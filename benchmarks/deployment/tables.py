"""Write the table of the README from results.csv; run with `python -m benchmarks.deployment.tables`."""

from __future__ import annotations

import csv
from pathlib import Path

from benchmarks.filled import fill, markdown

HERE = Path(__file__).parent


def table() -> str:
    """A line per measurement, as in the file."""
    with (HERE / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    head = ["what", "sites", "seconds per job", "processor seconds per message and site", "load of the machine"]
    lines = [[row["what"], row["sites"], row["seconds"], row["cpu_per_message"] or "-", row["load"]] for row in rows]
    return markdown(head, lines)


if __name__ == "__main__":
    fill(HERE / "README.md", {"deployment": table()})
