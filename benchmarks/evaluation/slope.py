"""Is the calibration slope biased by noise? Its mean over 400 noisy tables of ordinary scores, stated or not.

Run with `python -m benchmarks.evaluation.slope`; writes slope.csv beside itself in half a minute. Tables are those that
`FederatedMetrics` requests under `DistributedDP`, with discrete Laplace noise of that scale drawn by NumPy. The true
slope is 0.7. A run has no slope where its information does not exceed its noise.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import fedcalib as fc
from benchmarks.evaluation.simulation import KINDS
from fedcalib.estimation.logistic import calibration_line
from fedcalib.estimation.score_sheet import ScoreSheet
from fedcalib.methods.evaluation import Resolution

RUNS = 400
KIND = KINDS["ordinary"]


def sheets(records: int, epsilon: float) -> Iterator[ScoreSheet]:
    """Noisy tables of as many simulated evaluations."""
    wanted = Resolution.of(fc.FederatedMetrics(records=records, epsilon=epsilon), fc.Schema(2, 5))
    cells, stop = wanted.cells, 1 - np.exp(-epsilon)
    noise = np.full((2, cells), 2 * np.exp(-epsilon) / stop**2)
    for run in range(RUNS):
        rng = np.random.default_rng(300_000 + run)
        score, labels = KIND.draw(records, rng)
        counts = np.bincount(wanted.axis.cells(score, cells) + cells * labels, minlength=2 * cells).reshape(2, cells)
        added = rng.geometric(stop, counts.shape) - rng.geometric(stop, counts.shape)
        yield wanted.sheet_of((counts + added).astype(np.float64), noise)


def main() -> None:
    rows = []
    for epsilon in (1.0, 0.3):
        for records in (600, 2_000, 20_000):
            found = [calibration_line(sheet) for sheet in sheets(records, epsilon)]
            slope = np.array([fit.weights[1] for fit in found if fit is not None])
            bias = (slope.mean() - KIND.slope) / slope.std()
            row = {"epsilon": epsilon, "records": records, "found": len(slope), "mean": f"{slope.mean():.4f}"}
            rows.append(row | {"deviation": f"{slope.std():.4f}", "bias_over_deviation": f"{bias:.3f}"})
            print(rows[-1], flush=True)
    with Path(__file__).with_name("slope.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
