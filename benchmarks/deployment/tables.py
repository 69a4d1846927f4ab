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


def records() -> str:
    """A line per source of records."""
    with (HERE / "records.csv").open() as file:
        rows = list(csv.DictReader(file))
    head = ["source", "rows", "seconds to open", "seconds to answer", "peak MiB", "hash of the sums", "load"]
    names = ("source", "rows", "seconds_open", "seconds_answer", "peak_mib", "sums", "load")
    return markdown(head, [[f"{int(row[n]):,}" if n == "rows" else row[n] for n in names] for row in rows])


if __name__ == "__main__":
    fill(HERE / "README.md", {"deployment": table(), "records": records()})
