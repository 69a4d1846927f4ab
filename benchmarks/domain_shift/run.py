"""The sweep of the published study: every corruption, severity, number of sources, samples a source and epsilon.

Run with `python -m benchmarks.domain_shift.run`; it goes on where it stopped. Results go to results.csv beside this
file, one line a setting and method, each the mean over 500 random splits; what it took goes to speed.csv, one line a
corruption. `--severity 5` runs one severity alone, `--thin 5 --trials 100 --out few/results.csv` every fifth setting
with fewer splits. `--method "Ours: AccT" --out again.csv` runs one method on the same splits, and `--merge again.csv`
puts its lines in the place of those in results.csv.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import final
from zlib import crc32

import numpy as np

from benchmarks.domain_shift import contenders as c
from benchmarks.domain_shift.data import SEVERITIES, corrupted, corruptions
from benchmarks.domain_shift.pool import Pool, Trials

HERE = Path(__file__).parent
RESULTS = HERE / "results.csv"
TRIALS = 500
COLUMNS = ("corruption", "severity", "panel", "sources", "samples", "epsilon", "method", "ece", "ece_sd", "brier")
TIMES = ("corruption", "severity", "settings", "trials", "processor_seconds", "slowest_setting", "wall_seconds", "load")
WIDE = 16.0

PUBLISHED: dict[str, c.Contender] = {
    "No recalibration": c.Nothing(),
    "One source": c.OneSource(),
    "Histogram binning": c.PublishedBinning(),
    "ECE-T": c.ECETGolden(),
    "NLL-T": c.NLLTGolden(),
    "Acc-T": c.AccTGolden(),
}
WIDER: dict[str, c.Contender] = {
    "One source, wide": c.OneSource(high=WIDE),
    "ECE-T, wide": c.ECETGolden(high=WIDE),
    "NLL-T, wide": c.NLLTGolden(high=WIDE),
    "Acc-T, wide": c.AccTGolden(high=WIDE),
}
OURS: dict[str, c.Contender] = {
    "Ours: AccT": c.AccTCurve(),
    "Ours: AccT, two looks": c.AccTLooks(),
    "Ours: AccT, bisection": c.AccTBisection(),
    "Ours: SourceBinning": c.RightWrongBinning(),
}
CEILING: dict[str, c.Contender] = {"Pooled, not private": c.Pooled()}
METHODS = {**PUBLISHED, **WIDER, **OURS, **CEILING}


@final
@dataclass(frozen=True)
class Setting:
    """One point of one panel."""

    panel: str
    sources: int
    samples: int
    epsilon: float


SETTINGS = (
    *(Setting("sources", sources, 10, 1.0) for sources in range(10, 251, 10)),
    *(Setting("samples", 50, samples, 1.0) for samples in range(5, 51, 5)),
    *(Setting("epsilon", 50, 30, round(0.2 * step, 1)) for step in range(1, 11)),
)


def rows(
    pool: Pool, corruption: str, severity: int, setting: Setting, trials: int = TRIALS, *, only: str | None = None
) -> Iterator[list[object]]:
    """Run all methods, or only one, on one setting, on the same splits."""
    seed = crc32(f"{corruption} {severity} {setting}".encode())
    drawn = Trials(pool, setting.sources, setting.samples, trials, np.random.default_rng(seed))
    for name, method in METHODS.items() if only is None else [(only, METHODS[only])]:
        ece, brier = method.measures(drawn, setting.epsilon)
        where = (corruption, severity, setting.panel, setting.sources, setting.samples, setting.epsilon)
        yield [*where, name, f"{ece.mean():.6f}", f"{ece.std(ddof=1):.6f}", f"{brier.mean():.6f}"]


def sweep(
    corruption: str, severity: int, trials: int, thin: int, only: str | None = None
) -> tuple[list[list[object]], list[object]]:
    """Run the settings of one corruption, so that they share its table of temperatures; say what it took."""
    started, clock = time.process_time(), time.perf_counter()
    pool = Pool(*corrupted(corruption, severity))
    found: list[list[object]] = []
    slowest = 0.0
    for setting in SETTINGS[::thin]:
        before = time.process_time()
        found += rows(pool, corruption, severity, setting, trials, only=only)
        slowest = max(slowest, time.process_time() - before)
    spent, waited = time.process_time() - started, time.perf_counter() - clock
    took = (spent, slowest, waited, os.getloadavg()[0])
    return found, [corruption, severity, len(SETTINGS[::thin]), trials, *(f"{value:.2f}" for value in took)]


def done(path: Path) -> set[tuple[str, int]]:
    """Say which corruptions and severities a file of results holds already."""
    if not path.exists():
        return set()
    with path.open(newline="") as file:
        return {(row["corruption"], int(row["severity"])) for row in csv.DictReader(file)}


def merge(again: Path) -> None:
    """Put the lines of a file in the place of those of the same setting and method in the results."""
    key = COLUMNS[:7]
    with again.open(newline="") as file:
        newer = {tuple(row[name] for name in key): row for row in csv.DictReader(file)}
    with RESULTS.open(newline="") as file:
        every = [newer.get(tuple(row[name] for name in key), row) for row in csv.DictReader(file)]
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(every)


def main() -> None:
    """Run what is not there yet, two processes at a time unless told otherwise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--severity", type=int, choices=SEVERITIES, action="append")
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--thin", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--method", choices=list(METHODS))
    parser.add_argument("--merge", type=Path)
    told = parser.parse_args()
    if told.merge:
        merge(told.merge)
        return
    held = done(told.out)
    severities = told.severity or reversed(SEVERITIES)
    left = [(name, s) for s in severities for name in corruptions() if (name, s) not in held]
    jobs = [(*one, told.trials, told.thin, told.method) for one in left]
    started = time.perf_counter()
    with (
        told.out.open("a", newline="") as file,
        told.out.with_name("speed.csv" if told.method is None else "again_speed.csv").open("a", newline="") as clocks,
        ProcessPoolExecutor(told.processes) as processes,
    ):
        writers = csv.writer(file, lineterminator="\n"), csv.writer(clocks, lineterminator="\n")
        if not held:
            writers[0].writerow(COLUMNS)
            writers[1].writerow(TIMES)
        found = processes.map(sweep, *zip(*jobs, strict=True)) if jobs else ()
        for place, (result, took) in enumerate(found, start=1):
            writers[0].writerows(result)
            writers[1].writerow(took)
            file.flush()
            clocks.flush()
            bar = "#" * round(30 * place / len(jobs))
            spent = time.perf_counter() - started
            print(f"\r[{bar:<30}] {place}/{len(jobs)} sweeps, {spent:.0f} s", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


if __name__ == "__main__":
    main()
