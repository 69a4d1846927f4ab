"""How far estimates spread around the truth, 3.92 standard deviations, under DistributedDP(1).

Run with `python -m benchmarks.evaluation.spread`, perhaps with the number of runs; it goes on where spread.csv beside
it stops.
"""

from __future__ import annotations

import sys
from pathlib import Path

import fedcalib as fc
from benchmarks.evaluation.simulation import KINDS, studies, summary
from benchmarks.progress import Table

RUNS = 400
SIZES = (600, 2_000, 20_000)


def main(runs: int) -> None:
    table, kind = Table(Path(__file__).with_name("spread.csv")), KINDS["ordinary"]
    for epsilon in (1.0, 0.3):
        for records in SIZES:
            if table.has(epsilon=epsilon, records=records):
                continue
            found = list(studies(kind, records, fc.DistributedDP(epsilon), runs))
            for row in summary(found, kind.truth()):
                table.add({"epsilon": epsilon, "records": records} | row)
            print(f"epsilon {epsilon}, {records} records: done", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS)
