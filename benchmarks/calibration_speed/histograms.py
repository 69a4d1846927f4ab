"""Classwise histograms of 100,000 x 100 probabilities against plain numpy, in one thread."""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import fedcalib as fc
from fedcalib.metrics import binning as fast
from fedcalib.queries.class_tables import LabelHistogram

RECORDS, CLASSES, BINS = 100_000, 100, 15
YARDSTICK = "one pass of plain numpy: multiplying by the bins"


def best(act: Callable[[], object], times: int = 5) -> float:
    """Take the least processor time of a few runs."""
    spans = []
    for _ in range(times):
        start = time.process_time()
        act()
        spans.append(time.process_time() - start)
    return min(spans)


def main(path: Path) -> None:
    """Time both ways of counting beside one pass, and check that they count the same."""
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.full(CLASSES, 0.3), RECORDS)
    records = fc.Records.of_probs(probs, rng.integers(CLASSES, size=RECORDS))
    query = LabelHistogram(CLASSES, BINS)

    def one_pass() -> object:
        cells = np.minimum((probs * BINS).astype(np.int64), BINS - 1) + 2 * BINS * np.arange(CLASSES)
        cells[records.labels[:, None] != np.arange(CLASSES)] += BINS
        return np.bincount(cells.reshape(-1), minlength=query.size)

    def compiled() -> object:
        with fast.compiled():
            return query.pooled(records)

    expected = one_pass()
    for way in (lambda: query.pooled(records), compiled):
        if not np.array_equal(way(), expected):
            raise SystemExit("Expected the same counts, found others.")
    seconds = {
        YARDSTICK: best(lambda: probs * BINS),
        "all at once in plain numpy": best(one_pass),
        "fedcalib": best(lambda: query.pooled(records)),
        "fedcalib, compiled": best(compiled),
    }
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["way", "seconds", "of one pass", "load"])
        for name, took in seconds.items():
            row = [name, f"{took:.4f}", f"{took / seconds[YARDSTICK]:.2f}", f"{os.getloadavg()[0]:.0f}"]
            writer.writerow(row)
            print(*row, sep=" | ")
