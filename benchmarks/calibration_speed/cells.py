"""How long one cell of a table takes: one method, one run, 100 clients, twelve rounds of a tenth of them.

Real logits where they are there: resnet20 on CIFAR-10, 5,000 records for calibration and as many for measuring, labels
dealt by Dirichlet(0.1). A cell is the run, the calibrated probabilities of the test half, and what is measured of them.
"""

from __future__ import annotations

import csv
import os
import time
from pathlib import Path

import fedcalib as fc
from benchmarks.calibration_speed.data import make
from fedcalib.metrics import classwise_ece, nll

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "cifar10_logits" / "cifar10_logits.npz"
ROUNDS = 12
SAMPLED = fc.Poisson(0.1)
COLUMNS = ("kind", "method", "data", "seconds", "allowed", "cwECE", "log loss", "load")

METHODS: dict[str, tuple[str, fc.Method[fc.Calibrator]]] = {
    "FedBin": ("binning", fc.FedBin(bins=128, smoothing=0.0, rounds=ROUNDS)),
    "FedBBQ": ("binning", fc.FedBBQ(coarsest=1, rounds=ROUNDS)),
    "FedTemp": ("scaling", fc.FedTemp(rounds=ROUNDS)),
    "FedVector": ("scaling", fc.FedVector(rounds=ROUNDS)),
    "FedMatrix": ("scaling", fc.FedMatrix(rounds=ROUNDS)),
    "FedOPVector": ("scaling", fc.FedOPVector(rounds=ROUNDS)),
    "FedCal": ("scaling", fc.FedCal(rounds=ROUNDS)),
}
ALLOWED = {"binning": 2.0, "scaling": 5.0}


def halves() -> tuple[str, fc.Records, fc.Records]:
    """Take the real logits, or such as the other timings have."""
    if SHARED.exists():
        import numpy as np

        archive = np.load(SHARED)
        records = fc.Records.of_logits(archive["resnet20_logits"].astype(np.float64), archive["y"].astype(np.int64))
        order = np.random.default_rng(0).permutation(len(records))
        return "CIFAR-10, resnet20", records.take(order[:5000]), records.take(order[5000:])
    given = make(10, 5000)
    return "simulated", fc.Records.of_logits(given.logits, given.labels), given.fresh


def main(path: Path) -> None:
    """Time every method's cell, best of two."""
    name, calibration, test = halves()
    runtime = fc.InProcess(fc.Federation.dirichlet(calibration, 100, 0.1, seed=0))
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for method, (kind, made) in METHODS.items():
            spans = []
            for _ in range(2):
                start = time.process_time()
                found = fc.run(made, runtime, fc.Open(), participation=SAMPLED, randomness=fc.Simulated(0)).artifact
                probs = found.of(test)
                error, loss = classwise_ece(probs, test.labels), nll(probs, test.labels)
                spans.append(time.process_time() - start)
            row = [kind, method, name, f"{min(spans):.3g}", ALLOWED[kind], f"{error:.5f}", f"{loss:.4f}"]
            writer.writerow([*row, f"{os.getloadavg()[0]:.0f}"])
            print(*row, sep=" | ", flush=True)
