"""How well Bayesian binning fits real logits of CIFAR-10: 5,000 records to fit, 5,000 more to measure on."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

import fedcalib as fc
from benchmarks.calibration_speed.cells import SHARED
from benchmarks.calibration_speed.contenders import ALL
from benchmarks.calibration_speed.data import Data
from fedcalib.metrics import classwise_ece, nll

COLUMNS = ("network", "contender", "cwECE", "log loss")


def main(path: Path) -> None:
    """Fit everybody to the same half, measure on the other."""
    archive = np.load(SHARED)
    order = np.random.default_rng(0).permutation(len(archive["y"]))
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for network in sorted(name for name in archive.files if name != "y"):
            records = fc.Records.of_logits(archive[network].astype(np.float64), archive["y"].astype(np.int64))
            held, fresh = records.take(order[:5000]), records.take(order[5000:])
            given = Data(held.logits, held.probs, held.labels, fresh)
            for contender in (one for one in ALL if one.task == "BBQ"):
                probs = contender.fit(given)(fresh)
                error, loss = classwise_ece(probs, fresh.labels), nll(probs, fresh.labels)
                row = [network.rsplit("_", 1)[0], contender.name, f"{error:.5f}", f"{loss:.4f}"]
                writer.writerow(row)
                print(*row, sep=" | ", flush=True)
