"""Do the intervals of an evaluation hold the truth? A thousand simulated evaluations per cell, nominal 95%.

Run with `python -m benchmarks.evaluation.run`, perhaps with the number of runs per cell and a file name; it goes on
where the file stops. Cells are privacy model x kind of scores x records. A figure that is not stated is counted apart.
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

from benchmarks.evaluation.simulation import KINDS, MODELS, studies, summary
from benchmarks.progress import Table

RUNS = 1000
SIZES = (600, 2_000, 20_000)


def main(runs: int = RUNS, name: str = "coverage.csv") -> None:
    table = Table(Path(__file__).with_name(name))
    cells = list(product(SIZES, KINDS, MODELS))
    for number, (records, kind, model) in enumerate(cells):
        if table.has(model=model, scores=kind, records=records):
            continue
        found = list(studies(KINDS[kind], records, MODELS[model], runs))
        for row in summary(found, KINDS[kind].truth()):
            table.add({"model": model, "scores": kind, "records": records} | row)
        print(f"{number + 1} of {len(cells)}: {model}, {kind}, {records} records", flush=True)


if __name__ == "__main__":
    main(*(int(word) if word.isdigit() else word for word in sys.argv[1:]))
