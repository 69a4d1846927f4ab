"""Processor time of drawing and writing a report of 8,000 records, and its bytes: the median of five.

python -m benchmarks.report_drawing.seconds
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import fedcalib as fc
from fedcalib.workflows import calibrate, evaluate

REPEATS = 5


def federation(records: int = 8000) -> fc.Federation:
    """Four sites with a classifier that is too sure of itself."""
    rng = np.random.default_rng(0)
    odds = rng.normal(-1.2, 1.3, records)
    label = rng.random(records) < 1 / (1 + np.exp(-odds))
    made = fc.Records.of_scores(1 / (1 + np.exp(-1.4 * odds)), label, sex=rng.choice(["F", "M"], records))
    return fc.Federation.by_site(made, rng.choice(["a", "b", "c", "d"], records))


def main() -> None:
    """Print a table."""
    data, groups = federation(), {"sex": ["F", "M"]}
    classes = fc.Federation.simulated(classes=10, records=8000)
    runs: dict[str, Any] = {
        "evaluation by sex and site, exact": lambda: evaluate(data, fc.Open(), groups=groups),
        "evaluation, epsilon 1": lambda: evaluate(data, fc.DistributedDP(1.0)),
        "calibration, exact": lambda: calibrate(data, fc.PlattScaling(), fc.SecAgg()),
        "evaluation of ten classes, exact": lambda: evaluate(classes, fc.SecAgg()),
    }
    print("| report | processor time, s | bytes |\n|---|---|---|")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        runs["calibration, exact"]().report(path)  # templates are read once
        for name, run in runs.items():
            print(f"| {name} | {median(_seconds(run(), path) for _ in range(REPEATS)):.2f} | {path.stat().st_size:,} |")


def _seconds(done: Any, path: Path) -> float:
    begun = time.process_time()
    done.report(path)
    return time.process_time() - begun


if __name__ == "__main__":
    main()
