"""What each criterion reaches without privacy, as in the published Tables 4 to 6: 500 splits into halves.

Run with `python -m benchmarks.domain_shift.without_privacy`; writes without_privacy.csv beside itself. Each criterion's
best temperature is found on half of the records and measured on the other half; all splits and all temperatures of a
ladder are one matrix product.
"""

from __future__ import annotations

import csv
import sys

import numpy as np

from benchmarks.domain_shift.data import SEVERITIES, clean, corrupted, corruptions
from benchmarks.domain_shift.pool import BINS, LADDER, Pool
from benchmarks.domain_shift.run import HERE, TRIALS
from fedcalib.types import Array, Floats, Ints

RESULTS = HERE / "without_privacy.csv"
RUNGS = LADDER[::4]  # 1.4% apart
CRITERIA = ("NLL-T", "Acc-T", "ECE-T")
COLUMNS = ("severity", "corruption", "splits", "accuracy", "No recalibration", *CRITERIA)


def halves(records: int, splits: int, seed: int) -> Array:
    """Draw splits: one where a record fits and zero where it measures, (splits, records)."""
    keys = np.random.default_rng(seed).random((splits, records), dtype=np.float32)
    drawn = np.zeros((splits, records), dtype=np.float32)
    np.put_along_axis(drawn, np.argpartition(keys, records // 2, axis=1)[:, : records // 2], 1.0, axis=1)
    return drawn


def errors(pool: Pool, splits: int = TRIALS, seed: int = 0) -> dict[str, Floats]:
    """Measure what no recalibration and every criterion's best temperature reach on the other half, (splits,) each."""
    drawn, rows = halves(len(pool), splits, seed), pool.rows(RUNGS)
    fitted = np.stack([drawn @ _by_bin(pool, row) for row in rows])  # (rungs, splits, bins)
    left = len(pool) - len(pool) // 2
    rest = np.abs(pool.binned[rows][:, None] - fitted).sum(axis=2) / left  # (rungs, splits)
    best = {
        "NLL-T": (pool.loss[rows] @ drawn.T).argmin(axis=0),
        "Acc-T": np.abs(fitted.sum(axis=2)).argmin(axis=0),
        "ECE-T": np.abs(fitted).sum(axis=2).argmin(axis=0),
    }
    plain = int(pool.rows(np.ones(1))[0])
    untouched = np.abs(pool.binned[plain] - drawn @ _by_bin(pool, plain)).sum(axis=1) / left
    return {"No recalibration": untouched, **{name: _chosen(rest, rungs) for name, rungs in best.items()}}


def _by_bin(pool: Pool, row: int) -> Array:
    """Spread right minus confidence over bins, (records, bins)."""
    spread = np.zeros((len(pool), BINS), dtype=np.float32)
    spread[np.arange(len(pool)), pool.bins[row]] = pool.right - pool.confidence[row]
    return spread


def _chosen(rest: Floats, rungs: Ints) -> Floats:
    return rest[rungs, np.arange(rest.shape[1])]


def main() -> None:
    """Measure every corruption at every severity."""
    cases = [(severity, name) for severity in reversed(SEVERITIES) for name in corruptions()]
    with RESULTS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for place, (severity, name) in enumerate([*cases, (0, "clean")], start=1):
            pool = Pool(*(corrupted(name, severity) if severity else clean()))
            found = errors(pool)
            cells = (f"{found[column].mean():.6f}" for column in COLUMNS[4:])
            writer.writerow([severity, name, TRIALS, f"{pool.right.mean():.4f}", *cells])
            file.flush()
            print(f"\r{place}/{len(cases) + 1}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


if __name__ == "__main__":
    main()
