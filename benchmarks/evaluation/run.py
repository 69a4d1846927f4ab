"""Do the intervals of an evaluation hold the truth? A thousand simulated evaluations per cell, nominal 95%.

Run with `python -m benchmarks.evaluation.run`, perhaps with numbers of runs per cell, one pass after the other
(`300 1000`), minutes after which it stops (`--minutes 15`), and the cells to run (`--sizes 20000 --kinds tied rare`).
What single runs found is kept in a folder for temporary files (`--keep`), so it goes on where it stopped; coverage.csv
has all cells that have been begun. Cells are privacy model x kind of scores x records. A figure that is not stated is
counted apart. The folder has a part for each state of the source, named by its hash, so that runs of different code are
never counted together; the column `code` of the table has it too.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from itertools import product
from pathlib import Path
from time import monotonic

import numpy as np

import fedcalib
from benchmarks.evaluation.simulation import KINDS, MODELS, studies, summary

SIZES = (600, 2_000, 20_000)
CELLS = tuple(product(SIZES, KINDS, MODELS))
PIECE = 100  # runs between two looks at the clock
Found = list[dict[str, tuple[float, float, float] | None]]


def state_of_code() -> str:
    """A hash of everything that an evaluation is computed with."""
    package = Path(fedcalib.__file__).parent
    parts = ("accounting", "artifacts", "estimation", "flows", "methods", "metrics", "privacy", "queries")
    files = sorted(file for part in parts for file in (package / part).glob("*.py"))
    simulation = Path(__file__).with_name("simulation.py")
    return sha256(b"".join(file.read_bytes() for file in (*files, simulation))).hexdigest()[:8]


class Kept:
    """What single runs of each cell found, in files."""

    def __init__(self, folder: Path) -> None:
        self.code = state_of_code()
        self.folder = folder / self.code
        self.folder.mkdir(parents=True, exist_ok=True)

    def _path(self, cell: tuple[int, str, str]) -> Path:
        return self.folder / f"{cell[2]}-{cell[1]}-{cell[0]}.npz"

    def load(self, cell: tuple[int, str, str]) -> Found:
        if not self._path(cell).exists():
            return []
        with np.load(self._path(cell)) as stored:
            names, values = stored["names"].tolist(), stored["values"]
        return [
            {name: None if np.isnan(own).all() else tuple(own) for name, own in zip(names, run, strict=True)}
            for run in values
        ]

    def save(self, cell: tuple[int, str, str], found: Found) -> None:
        names = list(found[0])
        values = [[run[name] or (np.nan,) * 3 for name in names] for run in found]
        np.savez(self._path(cell), names=np.array(names), values=np.array(values))


def write(kept: Kept, path: Path) -> None:
    """All cells that have been begun, into one table."""
    rows = list(_rows(kept))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _rows(kept: Kept) -> Iterator[dict[str, object]]:
    for records, kind, model in CELLS:
        if found := kept.load((records, kind, model)):
            for row in summary(found, KINDS[kind].truth()):
                yield {"model": model, "scores": kind, "records": records} | row | {"code": kept.code}


def main(passes: list[int], cells: list[tuple[int, str, str]], minutes: float, kept: Kept, path: Path) -> None:
    end = monotonic() + 60 * minutes
    for runs, cell in product(passes, cells):
        found = kept.load(cell)
        while len(found) < runs:
            if monotonic() > end:
                write(kept, path)
                return
            piece = min(PIECE, runs - len(found))
            found += studies(KINDS[cell[1]], cell[0], MODELS[cell[2]], piece, len(found))
            kept.save(cell, found)
        print(f"{runs} runs: {cell[2]}, {cell[1]}, {cell[0]} records", flush=True)
    write(kept, path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="*", type=int, default=[1000])
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "fedcalib-coverage")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("coverage.csv"))
    parser.add_argument("--sizes", nargs="*", type=int, default=SIZES)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    given = parser.parse_args()
    wanted = list(product(given.sizes, given.kinds, MODELS))
    main(given.runs, wanted, given.minutes, Kept(given.keep), given.out)
