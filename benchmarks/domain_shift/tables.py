"""Tables of the study, from its results: `python -m benchmarks.domain_shift.tables` prints them as markdown.

Table 1 and 7: median and mean over all settings of a severity, with intervals by resampling corruptions. Tables 4 to 6
of the publication, without privacy: every severity of the one data set that can be had.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np

from benchmarks.domain_shift import contenders as c
from benchmarks.domain_shift.data import SEVERITIES, clean, corrupted, corruptions
from benchmarks.domain_shift.pool import LADDER, Pool, Trials
from benchmarks.domain_shift.run import HERE, METHODS, OURS, PUBLISHED, RESULTS, WIDER
from fedcalib.types import Floats

FEWER = HERE / "results_thin.csv"
RESAMPLES = 2000


def errors(path: Path, severity: int, column: str = "ece") -> dict[str, Floats]:
    """Read a severity's results: by method, (corruptions, settings)."""
    held: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if int(row["severity"]) == severity:
                held[row["method"]][row["corruption"]].append(float(row[column]))
    return {method: np.array(list(by.values())) for method, by in held.items()}


def interval(table: Floats, rng: np.random.Generator) -> tuple[float, float]:
    """Bound the median over all settings by resampling corruptions, 95%."""
    drawn = rng.integers(len(table), size=(RESAMPLES, len(table)))
    medians = np.median(table[drawn].reshape(RESAMPLES, -1), axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    return float(low), float(high)


def overall(path: Path, severity: int) -> str:
    """Lay out median and mean of every method over all settings of a severity."""
    found, briers = errors(path, severity), errors(path, severity, "brier")
    rng = np.random.default_rng(0)
    lines = [
        "| method | median ECE | 95% over corruptions | mean ECE | mean Brier, top label |",
        "|---|--:|--:|--:|--:|",
    ]
    for method in METHODS:
        low, high = interval(found[method], rng)
        name = f"**{method}**" if method == "Ours: AccT" else method
        lines.append(
            f"| {name} | {np.median(found[method]):.4f} | {low:.4f} to {high:.4f} | {found[method].mean():.4f} | "
            f"{briers[method].mean():.4f} |"
        )
    return "\n".join(lines)


def ratio(path: Path, severity: int) -> str:
    """Compare our default with the best published method, wide bracket or not, by median; with an interval."""
    found = errors(path, severity)
    private = [name for name in (*PUBLISHED, *WIDER) if not name.startswith(("One source", "No "))]
    best = min(private, key=lambda name: float(np.median(found[name])))
    ours = next(iter(OURS))
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(found[best]), size=(RESAMPLES, len(found[best])))
    ratios = [np.median(found[best][rows]) / np.median(found[ours][rows]) for rows in drawn]
    low, high = np.quantile(ratios, [0.025, 0.975])
    exact = np.median(found[best]) / np.median(found[ours])
    return f"{best} / {ours}: {exact:.2f} ({low:.2f} to {high:.2f})"


def by_corruption(path: Path, severity: int) -> str:
    """Lay out the median of the main methods by corruption."""
    found = errors(path, severity)
    names = [*PUBLISHED, "Acc-T, wide", "Ours: AccT", "Ours: SourceBinning"]
    lines = ["| corruption | " + " | ".join(names) + " |", "|---" + "|--:" * len(names) + "|"]
    for place, corruption in enumerate(corruptions()):
        cells = (f"{np.median(found[name][place]):.4f}" for name in names)
        lines.append(f"| {corruption.replace('_', ' ')} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def without_privacy(severity: int) -> str:
    """Lay out what each criterion reaches without noise, fitted on half of the records and measured on the rest."""
    lines = ["| corruption | accuracy | no recalibration | NLL-T | Acc-T | ECE-T |", "|---" + "|--:" * 5 + "|"]
    for name in [*corruptions(), "clean"]:
        pool = Pool(*(clean() if name == "clean" else corrupted(name, severity)))
        trials = Trials(pool, 1, len(pool) // 2, 5, np.random.default_rng(0))
        cells = [f"{pool.right.mean():.3f}", f"{c.Nothing().measures(trials, 1.0)[0].mean():.4f}"]
        cells += [f"{trials.measured(best(trials, criterion))[0].mean():.4f}" for criterion in ("nll", "acc", "ece")]
        lines.append(f"| {name.replace('_', ' ')} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def best(trials: Trials, criterion: str) -> Floats:
    """Find the best rung of a coarse ladder in every trial, by one criterion, without noise."""
    look = {
        "nll": lambda rows: trials.losses(rows, np.inf),
        "acc": lambda rows: np.abs(trials.gaps(rows)),
        "ece": lambda rows: np.abs(trials.binned(rows)).sum(axis=1),
    }[criterion]
    rungs = trials.pool.rows(LADDER[::8])
    values = np.stack([look(np.full(len(trials), rung)) for rung in rungs])
    return rungs[values.argmin(axis=0)]


def main() -> None:
    """Print every table that there are results for."""
    for path, severity in ((RESULTS, 5), (FEWER, 3), (FEWER, 1)):
        if path.exists() and len(next(iter(errors(path, severity).values()), ())) == len(corruptions()):
            print(f"\n## Severity {severity} ({path.name})\n\n{overall(path, severity)}\n")
            print(f"Best published against ours: {ratio(path, severity)}\n\n{by_corruption(path, severity)}")
    for severity in SEVERITIES:
        print(f"\n## Without privacy, severity {severity}\n\n{without_privacy(severity)}")


if __name__ == "__main__":
    main()
