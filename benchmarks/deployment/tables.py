"""Write the tables of the README from the CSV files; run with `python -m benchmarks.deployment.tables`."""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import median

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


def many_jobs() -> str:
    """The jobs at the beginning, in the middle and at the end, by medians over a tenth of them."""
    with (HERE / "many_jobs.csv").open() as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    part = max(len(rows) // 10, 3)
    middle = (len(rows) - part) // 2
    names = ("seconds", "cpu", "processes", "files", "mib", "state_kib", "load")
    head = ["jobs", "seconds", "processor seconds", "processes", "open files", "MiB", "KiB of state", "load"]
    lines = []
    for some in (rows[1 : part + 1], rows[middle : middle + part], rows[-part:]):
        span = f"{some[0]['job'] + 1:.0f} to {some[-1]['job'] + 1:.0f}"
        lines.append([span, *(f"{median(row[name] for row in some):.4g}" for name in names)])
    return markdown(head, lines)


if __name__ == "__main__":
    fill(HERE / "README.md", {"deployment": table(), "records": records(), "many jobs": many_jobs()})
