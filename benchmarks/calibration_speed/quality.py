"""How well Bayesian binning fits real logits of CIFAR-10: 5,000 records to fit, 5,000 to measure on, five times."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

import fedcalib as fc
from benchmarks.calibration_speed.cells import SHARED
from benchmarks.calibration_speed.contenders import ALL, Contender
from benchmarks.calibration_speed.data import Data
from fedcalib.metrics import classwise_ece, nll
from fedcalib.types import Floats

COLUMNS = ("network", "contender", "splits", "cwECE", "log loss", "first is better")
SPLITS = 5
BINNERS = tuple(one for one in ALL if one.task == "BBQ")


def fitted(contender: Contender, given: Data) -> tuple[float, float]:
    """Measure cwECE and log loss, or nothing where a peer gives up."""
    try:
        probs = contender.fit(given)(given.fresh)
    except ValueError:
        return np.nan, np.nan
    return classwise_ece(probs, given.fresh.labels), nll(probs, given.fresh.labels)


def split(records: fc.Records, seed: int) -> Data:
    """Halve the records at random."""
    order = np.random.default_rng(seed).permutation(len(records))
    held, fresh = records.take(order[:5000]), records.take(order[5000:])
    return Data(held.logits, held.probs, held.labels, fresh)


def row(network: str, contender: Contender, found: Floats, first: Floats) -> list[object]:
    """Average over the splits, (splits, 2), in which there is something to average."""
    held = ~np.isnan(found[:, 0])
    error, loss = found[held].mean(axis=0) if held.any() else (np.nan, np.nan)
    better = "-" if found is first else int((first[held] < found[held]).all(axis=1).sum())
    return [network.rsplit("_", 1)[0], contender.name, int(held.sum()), f"{error:.5f}", f"{loss:.4f}", better]


def main(path: Path) -> None:
    """Fit everybody to the same halves, measure on the others."""
    archive = np.load(SHARED)
    labels = archive["y"].astype(np.int64)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for network in sorted(name for name in archive.files if name != "y"):
            records = fc.Records.of_logits(archive[network].astype(np.float64), labels)
            halves = [split(records, seed) for seed in range(SPLITS)]
            found = [np.array([fitted(contender, given) for given in halves]) for contender in BINNERS]
            for contender, values in zip(BINNERS, found, strict=True):
                said = row(network, contender, values, found[0])
                writer.writerow(said)
                print(*said, sep=" | ", flush=True)
