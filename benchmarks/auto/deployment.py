"""What a job with Auto costs on three sites: real processes with TLS, as in `benchmarks/deployment`.

Run with `python -m benchmarks.auto.deployment`; writes deployment.csv beside itself. The first job is not counted.
"""

from __future__ import annotations

import csv
import os
import time
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

import numpy as np
from tests.e2e.fleet import Fleet, wait

from benchmarks.deployment.run import processor_seconds
from fedcalib.deploy.job import Job
from fedcalib.records import softmax

HERE = Path(__file__).parent
RECORDS = 2000
JOBS = 2


def write_classes(path: Path, seed: int, classes: int = 10) -> None:
    """Over-confident probabilities of ten classes."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(RECORDS, classes))
    labels = (softmax(logits).cumsum(axis=1) < rng.random((RECORDS, 1))).sum(axis=1).clip(0, classes - 1)
    header = ",".join([*(f"prob_{k}" for k in range(classes)), "label"])
    np.savetxt(path, np.column_stack([softmax(2 * logits), labels]), "%.6g", ",", header=header, comments="")


def job(classes: int, privacy: str, epsilon: float | None) -> dict[str, object]:
    """Seconds of a job, and processor seconds of a site, the mean of a few jobs."""
    with TemporaryDirectory() as folder, Fleet(Path(folder), 3) as fleet:
        for index, name in enumerate(fleet.names):
            if classes > 2:
                write_classes(fleet.root / f"{name}.csv", index, classes)
        fleet.start_server()
        for name in fleet.names:
            fleet.admit(name)
            fleet.start_site(name)
        wait("the sites", lambda: all("Connected to" in fleet.log(name) for name in fleet.names))
        seconds, before = [], [0.0]
        for number in range(JOBS + 1):
            if number == 1:
                before = processor_seconds(fleet)
            begun = time.monotonic()
            told = Job("auto", privacy, 3, classes, epsilon=epsilon, name=str(number), timeout=300)
            fleet.result(fleet.submit(told))
            seconds.append(time.monotonic() - begun)
        used = [after - one for after, one in zip(processor_seconds(fleet), before, strict=True)]
    return {
        "classes": classes, "privacy": privacy, "seconds": f"{min(seconds[1:]):.1f}",
        "processor seconds per site": f"{mean(used) / JOBS:.2f}", "load": f"{os.getloadavg()[0]:.1f}",
    }  # fmt: skip


def main() -> None:
    rows = [job(2, "secagg", None), job(10, "secagg", None), job(2, "distributed", 1.0)]
    with (HERE / "deployment.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
