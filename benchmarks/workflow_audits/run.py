"""Audit whole workflows on neighbouring frames, and twins that are broken on purpose.

Run with `python -m benchmarks.workflow_audits`. Every document is kept in a folder (`--outputs`), so that a rerun goes
on where it stopped; results.csv is written at the end. `--scale 0.1` makes a tenth of the runs.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import fedcalib as fc
from benchmarks.workflow_audits import cases
from benchmarks.workflow_audits.cases import CLAIMED, Case, Document

HERE = Path(__file__).parent
FOLDER = Path(tempfile.gettempdir()) / "fedcalib-workflow-audits"
FITTED, HELD_OUT = 0, 5  # seeds of splits by which the first patient of `everything` is fitted, or held out
MAIN = {"evaluate": 10_000, "calibrate": 10_000, "monitor --recalibrate": 2_500, "compare": 10_000}  # runs on each side
SPLIT = {"evaluate": None, "calibrate": FITTED, "monitor --recalibrate": None, "compare": FITTED}
FEW, FEWER, FEWEST, BLOCK = 250, 100, 50, 50
CONFIDENCE = 1 - 1e-4


def main_cases(share: float) -> Iterator[tuple[Case, int]]:
    """Each workflow on the patient who is extreme in every way."""
    for name, runs in MAIN.items():
        yield Case(name, cases.everything(), split_seed=SPLIT[name]), round(share * runs)


def twins() -> Iterator[tuple[Case, int]]:
    """Workflows whose claim is wrong."""
    everything = cases.everything()
    yield Case("evaluate", everything, twin=cases.EXACT_COUNTS), FEW
    yield Case("calibrate", cases.chosen_units(), twin=cases.UNITS_BY_POSITION), FEW
    yield Case("calibrate", everything, twin=cases.CARELESS_MEASUREMENTS, split_seed=HELD_OUT), 2 * FEW
    yield Case("monitor", everything, twin=cases.WINDOWS_OF_RECORDS), FEW
    yield Case("compare", cases.held_rows(), twin=cases.SPLIT_BY_POSITION), FEW
    for name in ("evaluate", "calibrate", "compare"):
        yield Case(name, everything, twin=cases.QUARTER_OF_NOISE, split_seed=SPLIT[name]), 4 * FEW
    yield Case("monitor", everything, twin=cases.TENTH_OF_NOISE), FEW


def others() -> Iterator[tuple[Case, int]]:
    """One thing at a time, secret splits, held-out records, and other privacy models."""
    everything = cases.everything()
    for name in ("calibrate", "compare"):
        yield Case(name, everything, split_seed=HELD_OUT), FEW
        yield Case(name, everything), FEW
    pairs = (cases.extreme_score(), cases.minimum_count(), cases.rare_class(), cases.huge_logit())
    for name in ("evaluate", "calibrate", "monitor", "compare"):
        for pair in pairs:
            yield Case(name, pair), FEWER
    yield Case("monitor", everything), FEW
    yield Case("monitor", cases.early_date()), FEWER
    yield Case("calibrate", cases.chosen_units()), FEWER
    yield Case("compare", cases.held_rows()), FEWER
    yield Case("evaluate --curves", everything), FEWER
    for name in ("evaluate", "calibrate", "monitor", "compare"):
        yield Case(name, everything, fc.SourceLaplace(CLAIMED)), FEWER
        yield Case(name, cases.replaced(), fc.LocalDP(CLAIMED)), FEWER


def queue(scale: float) -> Iterator[tuple[Case, int]]:
    """All cases with their numbers of runs on each side, the quick ones before the whole of the long ones."""
    for batch in (main_cases(0.25), twins(), others(), main_cases(0.5), main_cases(1.0)):
        yield from ((case, max(round(scale * runs), 50)) for case, runs in batch)


def file_of(folder: Path, case: Case, side: str) -> Path:
    """The file of all documents of one side."""
    return folder / f"{case.name}.{side}.jsonl.gz"


def documents(file: Path) -> Iterator[Document]:
    """Documents that were kept."""
    if file.exists():
        with gzip.open(file, "rt") as lines:
            yield from map(json.loads, lines)


def fill(folder: Path, case: Case, runs: int) -> None:
    """Run a case until there are so many documents on each side; the sides take turns."""
    frames = {"present": case.pair.present, "absent": case.pair.absent}
    done = {side: sum(1 for _ in documents(file_of(folder, case, side))) for side in frames}
    start = time.monotonic()
    while min(done.values()) < runs:
        side = min(done, key=lambda name: done[name])
        count = min(BLOCK, runs - done[side])
        text = "".join(json.dumps(case.document(frames[side])) + "\n" for _ in range(count))
        with file_of(folder, case, side).open("ab") as file:
            file.write(gzip.compress(text.encode(), 1))
        done[side] += count
        print(
            f"\r{case.name}: {sum(done.values())} of {2 * runs}, {time.monotonic() - start:.0f} s ", end="", flush=True
        )


def audited(folder: Path, case: Case) -> dict[str, object] | None:
    """The audit of all documents of a case as a row; None where there are too few."""
    sides = [list(documents(file_of(folder, case, side))) for side in ("present", "absent")]
    runs = min(map(len, sides))
    if runs < FEWEST:
        return None
    present, absent = (side[:runs] for side in sides)
    audit = fc.audit.audit_outputs(present, absent, CLAIMED, confidence=CONFIDENCE, subject=case.name)
    return {
        "workflow": case.workflow,
        "pair": case.pair.name,
        "privacy": type(case.privacy).__name__,
        "split_seed": "secret" if case.split_seed is None else case.split_seed,
        "twin": case.twin.name,
        "runs_per_side": runs,
        "at_least": round(audit.lower_epsilon, 3),
        "claimed": audit.claimed,
        "stands": audit.passes,
        "best_test": audit.evidence,
    }


def write(rows: list[dict[str, object]]) -> None:
    """Write all rows, the honest workflows before the twins."""
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows, key=lambda row: row["twin"] != cases.HONEST.name))


def main() -> None:
    """Run what is missing, and audit everything that there is."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workflow_audits")
    parser.add_argument("--outputs", type=Path, default=FOLDER, help="folder of the documents")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the runs")
    parser.add_argument("--audit-only", action="store_true", help="run nothing, audit the documents that there are")
    told = parser.parse_args()
    told.outputs.mkdir(parents=True, exist_ok=True)
    everything = {case.name: (case, runs) for case, runs in queue(told.scale)}
    if not told.audit_only:
        for case, runs in queue(told.scale):
            fill(told.outputs, case, runs)
            print(flush=True)
    rows = []
    for case, _ in everything.values():
        row = audited(told.outputs, case)
        if row is not None:
            rows.append(row)
            write(rows)
            print(f"{case.name}: at least {row['at_least']}, stands: {row['stands']}", flush=True)


if __name__ == "__main__":
    main()
