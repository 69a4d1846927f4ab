"""How long fitting takes on 100,000 records, beside peers, in one run and one thread.

Run with `python -m benchmarks.calibration_speed.run`; writes fits.csv, histograms.csv, cells.csv and quality.csv beside
itself, and the README from them. Times are seconds of processor time, the best of a few, because the machine may be
shared. Each contender runs in a process of its own. Name a task and a number of classes to run only those:
`... temperature 10`.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.calibration_speed import cells, contenders, data, histograms, quality, report
from fedcalib.metrics import classwise_ece, nll

HERE = Path(__file__).parent
CLASSES = (10, 100)
COLUMNS = ("task", "classes", "contender", "seconds", "best of", "cwECE", "log loss", "load")


def measure(index: int, classes: int) -> dict[str, object]:
    """Time one contender, and measure what it gives on fresh records."""
    contender = contenders.ALL[index]
    given = data.make(classes)
    contender.fit(data.make(classes, 2_000))  # imports and warm-up
    _ = given.runtime, given.runtime_of_probs  # every contender's input is at hand before the clock starts
    spans = []
    for _ in range(contender.times):
        start = time.process_time()
        apply = contender.fit(given)
        spans.append(time.process_time() - start)
    probs = apply(given.fresh)
    return {
        "seconds": f"{min(spans):.4g}",
        "best of": contender.times,
        "cwECE": f"{classwise_ece(probs, given.fresh.labels):.5f}",
        "log loss": f"{nll(probs, given.fresh.labels):.6f}",
    }


def row(index: int, classes: int) -> dict[str, object]:
    """Measure in a process of its own; a peer that is not installed is left empty."""
    contender = contenders.ALL[index]
    said: dict[str, object] = {"task": contender.task, "classes": classes, "contender": contender.name}
    command = [sys.executable, "-m", "benchmarks.calibration_speed.run", "--one", str(index), str(classes)]
    settings = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    if contender.disabled:
        settings["NPY_DISABLE_CPU_FEATURES"] = contender.disabled
    done = subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, **settings})
    lines = done.stderr.strip().splitlines()
    found = json.loads(done.stdout) if done.returncode == 0 else {"seconds": lines[-1] if lines else "failed"}
    return {**said, **found, "load": f"{os.getloadavg()[0]:.0f}"}


def main(task: str | None, only: int | None) -> None:
    """Measure, and keep what was measured before of what is not measured now."""
    path = HERE / "fits.csv"
    kept = list(csv.DictReader(path.open())) if path.exists() else []
    rows: dict[tuple[str, str], dict[str, object]] = {(one["contender"], one["classes"]): dict(one) for one in kept}
    order = []
    for classes in CLASSES:
        for index, contender in enumerate(contenders.ALL):
            key = (contender.name, str(classes))
            if classes <= contender.largest:
                order.append(key)
                if task in (None, contender.task) and only in (None, classes):
                    rows[key] = row(index, classes)
                    print(*rows[key].values(), sep=" | ", flush=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", restval="")
        writer.writeheader()
        writer.writerows(rows[key] for key in order if key in rows)
    if task in (None, "histograms"):
        histograms.main(HERE / "histograms.csv")
    if task in (None, "cells"):
        cells.main(HERE / "cells.csv")
    if task in (None, "quality"):
        quality.main(HERE / "quality.csv")
    report.main()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(int(sys.argv[2]), int(sys.argv[3]))))
    else:
        main(sys.argv[1] if len(sys.argv) > 1 else None, int(sys.argv[2]) if len(sys.argv) > 2 else None)
