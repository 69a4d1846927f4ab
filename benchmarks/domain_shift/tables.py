"""Tables of the sweep: Table 1 and Table 7 of the publication, from results.csv.

Median and mean over all settings of a severity, with intervals by resampling corruptions.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.domain_shift.run import METHODS, OURS, PUBLISHED, RESULTS, WIDER
from fedcalib.types import Floats

RESAMPLES = 2000
DEFAULT = next(iter(OURS))


@cache
def lines(path: Path) -> list[dict[str, str]]:
    """Read a file of results."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """Lay out a table whose first columns hold words and whose others hold numbers."""
    rule = "|" + "---|" * words + "--:|" * (len(head) - words)
    return "\n".join(["| " + " | ".join(head) + " |", rule, *("| " + " | ".join(row) + " |" for row in rows)])


def errors(severity: int, column: str = "ece") -> dict[str, dict[str, list[float]]]:
    """Give a severity's results: by method and corruption, in the order of the settings."""
    held: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in lines(RESULTS):
        if int(row["severity"]) == severity:
            held[row["method"]][row["corruption"]].append(float(row[column]))
    return held


def tabled(severity: int, column: str = "ece") -> dict[str, Floats]:
    """Give a severity's results: by method, (corruptions, settings)."""
    return {method: np.array(list(by.values())) for method, by in errors(severity, column).items()}


def resampled(*tables: Floats) -> list[list[Floats]]:
    """Draw corruptions anew, the same for all tables."""
    drawn = np.random.default_rng(0).integers(len(tables[0]), size=(RESAMPLES, len(tables[0])))
    return [[table[rows] for table in tables] for rows in drawn]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Give the middle 95%."""
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def overall(severity: int) -> str:
    """Lay out median and mean of every method over all settings of a severity."""
    found, briers = tabled(severity), tabled(severity, "brier")
    rows = [_row(name, found[name], found[DEFAULT], briers[name]) for name in METHODS]
    return markdown(
        ("method", "median ECE", "95%", "mean ECE", "95%", "mean Brier, top label", "ours is lower in"), rows
    )


def _row(name: str, table: Floats, ours: Floats, brier: Floats) -> tuple[str, ...]:
    draws = [one for (one,) in resampled(table)]
    medians, means = interval([float(np.median(one)) for one in draws]), interval([float(one.mean()) for one in draws])
    return (
        f"**{name}**" if name == DEFAULT else name,
        f"{np.median(table):.4f}",
        "{:.4f} to {:.4f}".format(*medians),
        f"{table.mean():.4f}",
        "{:.4f} to {:.4f}".format(*means),
        f"{brier.mean():.4f}",
        "" if name == DEFAULT else f"{(ours < table).mean():.0%}",
    )


def ratio(severity: int) -> str:
    """Compare our default with the best published method, wide bracket or not, by median; with an interval."""
    found = tabled(severity)
    private = [name for name in (*PUBLISHED, *WIDER) if not name.startswith(("One source", "No "))]
    best = min(private, key=lambda name: float(np.median(found[name])))
    ratios = [float(np.median(theirs) / np.median(ours)) for theirs, ours in resampled(found[best], found[DEFAULT])]
    exact = np.median(found[best]) / np.median(found[DEFAULT])
    low, high = interval(ratios)
    told = f"{best} / {DEFAULT}: {exact:.2f} ({low:.2f} to {high:.2f} over corruptions)"
    return f"Best published private method against our default, by median: {told}."


def by_corruption(severity: int) -> str:
    """Lay out the median of the main methods by corruption."""
    names = [*PUBLISHED, "Acc-T, wide", DEFAULT, "Ours: SourceBinning", "Pooled, not private"]
    found = errors(severity)
    rows = [
        [corruption.replace("_", " "), *(f"{np.median(found[name][corruption]):.4f}" for name in names)]
        for corruption in sorted(found[DEFAULT])
    ]
    return markdown(["corruption", *names], rows)


def published(severity: int) -> str:
    """Lay the published figures beside ours of the same methods, median and mean."""
    found = tabled(severity)
    held = [row for row in lines(RESULTS.with_name("expected.csv")) if int(row["severity"]) == severity]
    rows = []
    for row in held:
        own = found[row["method"]]
        here = f"{np.median(own):.4f} / {own.mean():.4f}"
        rows.append((row["method"], f"{float(row['median']):.4f} / {float(row['mean']):.4f}", here))
    return markdown(("median / mean ECE", f"published, {held[0]['data']}-C", "here, bracket [0.5, 3]"), rows)
