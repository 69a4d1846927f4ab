"""A million clients under the models that treat each of them: local reports, and clipping client by client.

Run with `python -m benchmarks.models.run`; writes results.csv beside itself. Each case runs in a process of its own, so
that its peak memory is its own. Times are the best of several, in one thread.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import fedcalib as fc
from fedcalib.privacy.local import RandomisedReports
from fedcalib.queries.class_tables import LabelHistogram
from fedcalib.queries.reliability import ScoreHistogram
from fedcalib.queries.scores import ScoreTree
from fedcalib.query import Query

HERE = Path(__file__).parent
MILLION = 1_000_000


def single_records() -> fc.Federation:
    """A million clients of one binary record each."""
    rng = np.random.default_rng(0)
    scores = rng.random(MILLION)
    labels = (rng.random(MILLION) < scores).astype(np.int64)
    return fc.Federation.grouped(fc.Records.of_scores(scores, labels), np.arange(MILLION), MILLION)


def few_records() -> fc.Federation:
    """A million clients of three records of ten classes each: 2 x 128 x 10 cells, of which a client touches 30."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3 * MILLION, 10)).astype(np.float32)
    labels = rng.integers(10, size=3 * MILLION)
    return fc.Federation.grouped(fc.Records.of_logits(logits, labels), np.arange(3 * MILLION) // 3, MILLION)


CASES: dict[str, tuple[Callable[[], fc.Federation], Query, fc.privacy.Privacy]] = {
    "LocalDP, 64 cells": (single_records, ScoreHistogram(32), fc.LocalDP(1.0)),
    "LocalDP, 1024 cells": (single_records, ScoreHistogram(512), fc.LocalDP(1.0)),
    "LocalDP, 1024 cells, epsilon 8": (single_records, ScoreHistogram(512), fc.LocalDP(8.0)),
    "LocalDP, tree of 5 levels": (single_records, ScoreTree(4, 5), fc.LocalDP(1.0)),
    "UserGaussian, 1024 cells": (single_records, ScoreHistogram(512), fc.UserGaussian(1.0, 1e-5, clip=1.0)),
    "UserGaussian, 3 records, 2560 cells": (few_records, LabelHistogram(10, 128), fc.UserGaussian(1.0, 1e-5, clip=2.0)),
    "SourceLaplace, 1024 cells": (single_records, ScoreHistogram(512), fc.SourceLaplace(1.0)),
}


def measure(case: str) -> list[object]:
    """Time one answer, and read the peak memory of this process, data included."""
    make, query, privacy = CASES[case]
    federation, drawn = make(), fc.Everyone()
    mechanism = privacy.mechanism(query, fc.method.Plan((query,)), drawn.cohort(MILLION), drawn)
    spans = []
    for seed in range(3):
        start = time.perf_counter()
        total = mechanism.gather(query, federation, fc.Simulated(seed))
        mechanism.decode(query, total, MILLION, fc.Simulated(seed))
        spans.append(time.perf_counter() - start)
    return [case, encoding(mechanism), round(min(spans), 3), round(_peak(), 2)]


def _peak() -> float:
    """The most memory that this process has held, in GiB; `getrusage` would count its parent as well."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / (1 << 20)


def encoding(mechanism: fc.privacy.Mechanism) -> str:
    """Name the mechanism, and the encoders of local reports."""
    if isinstance(mechanism, RandomisedReports):
        return "+".join(sorted({type(coder.encoder).__name__ for coder in mechanism.coders.values()}))
    return type(mechanism).__name__


def main() -> None:
    """Measure each case in its own process."""
    rows = []
    for case in CASES:
        command = [sys.executable, "-m", "benchmarks.models.run", case]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        rows.append(next(csv.reader([done.stdout.strip()])))
        print(*rows[-1], sep=" | ")
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["case, a million clients", "mechanism", "seconds an answer", "peak GiB, data included"])
        writer.writerows(rows)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        csv.writer(sys.stdout, lineterminator="\n").writerow(measure(sys.argv[1]))
    else:
        main()
