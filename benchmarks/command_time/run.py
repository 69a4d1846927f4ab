"""Processor time of `fedcalib calibrate` on a small and on a large CSV file, beside reading the same file with pandas.

Run with `python -m benchmarks.command_time.run`; writes results.csv. Each measurement is a fresh process with a state
of its own; the processes are taken in turn, and medians are kept.
"""

from __future__ import annotations

import csv
import os
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
SIZES = {"small.csv": 2_000, "large.csv": 1_500_000}
CLOCK = "import resource; used = resource.getrusage(resource.RUSAGE_SELF); print(used.ru_utime + used.ru_stime)"
PANDAS = f"import pandas; pandas.read_csv({{file!r}}); {CLOCK}"
OURS = (
    "import sys, io, contextlib\nfrom fedcalib.cli.app import run\nwith contextlib.redirect_stdout(io.StringIO()):\n"
    f"    run(['calibrate', {{file!r}}, '--method', {{method!r}}, '--out', {{out!r}}, '--state', {{state!r}}])\n{CLOCK}"
)


def write(folder: Path) -> None:
    """Scores of an over-confident classifier at six sites."""
    for name, records in SIZES.items():
        rng = np.random.default_rng(0)
        odds = rng.normal(size=records)
        labels = (rng.random(records) < 1 / (1 + np.exp(-odds))).astype(int)
        columns = {"site": rng.choice(list("abcdef"), records), "score": 1 / (1 + np.exp(-2 * odds)), "label": labels}
        pd.DataFrame(columns).to_csv(folder / name, index=False)


def seconds(code: str) -> float:
    """Processor time of a fresh process."""
    one = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=one)
    return float(done.stdout.split()[-1])


def main(times: int = 3) -> None:
    """Take turns, and write the medians down."""
    rows = []
    with TemporaryDirectory() as place:
        folder = Path(place)
        write(folder)
        for name, records in SIZES.items():
            codes = {"pandas.read_csv": PANDAS.format(file=str(folder / name))}
            spans: dict[str, list[float]] = {}
            for turn in range(times):
                for method in ("auto", "platt-scaling"):
                    own = {
                        "out": str(folder / f"out{turn}{method}"),
                        "state": str(folder / f"state{turn}{method}{name}"),
                    }
                    codes[f"calibrate, {method}"] = OURS.format(file=str(folder / name), method=method, **own)
                for what, code in codes.items():
                    spans.setdefault(what, []).append(seconds(code))
            rows += [
                {"records": records, "what": what, "processor_seconds": round(statistics.median(found), 2)}
                for what, found in spans.items()
            ]
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    for row in rows:
        print(row)


if __name__ == "__main__":
    main()
