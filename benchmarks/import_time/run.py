"""What importing the package costs, against importing numpy, in the same run.

Run with `python -m benchmarks.import_time.run`; writes results.csv. Each import is a fresh process; the times are
medians of processes taken in turn, so that a busy machine slows both alike.
"""

from __future__ import annotations

import csv
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
CLOCK = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def seconds(module: str) -> float:
    """Time one import in a fresh process."""
    done = subprocess.run([sys.executable, "-c", CLOCK.format(module)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main(times: int = 15) -> None:
    """Take turns, and write the medians down."""
    modules = ("numpy", "fedcalib")
    spans = [[seconds(module) for module in modules] for _ in range(times)]
    medians = [statistics.median(column) for column in zip(*spans, strict=True)]
    whole = statistics.median([seconds("fedcalib, numpy") for _ in range(times)])
    rows = [
        {"import": "numpy", "seconds": round(medians[0], 4), "ratio": 1.0},
        {"import": "fedcalib", "seconds": round(medians[1], 4), "ratio": round(medians[1] / medians[0], 2)},
        {"import": "fedcalib and numpy", "seconds": round(whole, 4), "ratio": round(whole / medians[0], 2)},
    ]
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    for row in rows:
        print(row)


if __name__ == "__main__":
    main()
