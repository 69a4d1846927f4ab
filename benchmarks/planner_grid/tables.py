"""Write the tables of the README from results.csv; run with `python -m benchmarks.planner_grid.tables`."""

from __future__ import annotations

import csv
from pathlib import Path

from benchmarks.filled import fill, markdown

HERE = Path(__file__).parent
Row = dict[str, str]


def ratios(rows: list[Row]) -> str:
    """A line per kind of scores, size and privacy model: the least and the greatest ratio of forecast to measured."""
    lines = []
    for key in dict.fromkeys((row["scores"], row["records"], row["model"]) for row in rows):
        here = [row for row in rows if (row["scores"], row["records"], row["model"]) == key]
        told = [float(row["ratio"]) for row in here if row["enough"] == "True" and row["ratio"]]
        span = f"{min(told):.2f} to {max(told):.2f}" if told else "-"
        lines.append([key[0], f"{int(key[1]):,}", key[2], str(len(told)), span, str(len(here) - len(told))])
    header = ["scores", "records", "privacy model", "forecasts", "forecast / measured", "not enough data"]
    return markdown(header, lines)


def verdict(rows: list[Row]) -> str:
    """Count the forecasts within a factor of 1.3, and those of too little data that were right."""
    told = [float(row["ratio"]) for row in rows if row["enough"] == "True" and row["ratio"]]
    good = sum(1 / 1.3 <= ratio <= 1.3 for ratio in told)
    short = [row for row in rows if row["enough"] == "False"]
    right = sum(float(row["refused"]) > 0.05 for row in short)
    return (
        f"{good} of {len(told)} forecasts are within a factor of 1.3 of the measured error (from {min(told):.2f} to "
        f"{max(told):.2f}). In {len(short)} cells the planner says that there is not enough data; in {right} of them "
        "more than one evaluation in twenty did not state the metric."
    )


if __name__ == "__main__":
    with (HERE / "results.csv").open() as file:
        everything = list(csv.DictReader(file))
    fill(HERE / "README.md", {"ratios": ratios(everything), "verdict": verdict(everything)})
