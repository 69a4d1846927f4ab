"""Write the table of the README from results.csv; run with `python -m benchmarks.binary_speed.tables`."""

from __future__ import annotations

import csv
from pathlib import Path

from benchmarks.filled import fill, markdown

HERE = Path(__file__).parent


def table() -> str:
    """A line a measurement, as in the file."""
    with (HERE / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    lines = [
        [row["what"], row["ours"], row["peer"] or "-", row["theirs"] or "-", row["times_faster"] or "-"] for row in rows
    ]
    return markdown(["what", "ours", "beside", "theirs", "times faster"], lines)


if __name__ == "__main__":
    fill(HERE / "README.md", {"speed": table()})
