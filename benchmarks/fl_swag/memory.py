"""How much memory low-rank FL-SWAG takes: 100,000 weights, 10 clients, rank 20.

Run with `python -m benchmarks.fl_swag.memory`; writes memory.csv. Each case runs in a process of its own, so that its
peak is its own. "Server step" multiplies ten Gaussians whose factors are given. "Whole run" trains ten clients, sums
their sketches under secure aggregation in one process, multiplies, and draws from the result.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from time import process_time

import numpy as np

import fedcalib as fc
from benchmarks.progress import Table
from fedcalib.methods.fl_swag import FLSWAG
from fedcalib.training import SGD, LocalTraining, SoftmaxRegression
from fedcalib.training.posterior import LocalGaussian, Trajectory, product, woodbury

WEIGHTS, CLIENTS, RANK = 100_000, 10, 20


def server_step() -> None:
    """Multiply, and solve for the mean."""
    rng, parts = np.random.default_rng(0), []
    for _ in range(CLIENTS):
        precision, deviations = rng.uniform(1, 2, WEIGHTS), rng.normal(size=(WEIGHTS, RANK))
        offset = rng.normal(size=WEIGHTS)
        parts.append(LocalGaussian.around(offset, precision, woodbury(precision, deviations)))
    product(parts)


def whole_run() -> None:
    """Train, sum, multiply, draw."""
    rng = np.random.default_rng(0)
    records = fc.Records.of_logits(np.zeros((160, 10)), np.arange(160) % 10, inputs=rng.normal(size=(160, 9_999)))
    recipe = Trajectory(LocalTraining(1, 16, SGD(0.01)), collected=RANK, rank=RANK, shrink=0.0, weighted=False)
    method = FLSWAG(SoftmaxRegression(9_999, 10), recipe, width=CLIENTS * RANK, most=1e9)
    runtime = fc.InProcess(fc.Federation.iid(records, CLIENTS, 0))
    fc.run(method, runtime, fc.SecAgg(bits=30), randomness=fc.Simulated(0)).artifact.sample(1, rng)


CASES = {"server step": server_step, "whole run": whole_run}


def main() -> None:
    if len(sys.argv) > 1:
        CASES[sys.argv[1]]()
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, process_time())
        return
    table = Table(Path(__file__).parent / "memory.csv")
    for case in CASES:
        if table.has(case=case):
            continue
        command = [sys.executable, "-m", "benchmarks.fl_swag.memory", case]
        peak, seconds = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        row = {"case": case, "weights": WEIGHTS, "clients": CLIENTS, "rank": RANK}
        table.add({**row, "peak_gib": round(int(peak) / 2**20, 2), "processor_seconds": round(float(seconds), 1)})


if __name__ == "__main__":
    main()
