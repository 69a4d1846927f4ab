"""Two things behind the cells where Auto falls short: what a perfect model would score, and what temperatures do.

Run with `python -m benchmarks.maddock.floors`; writes floors.csv and temperatures.csv beside itself.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator

import numpy as np

import fedcalib as fc
from benchmarks.maddock.data import Deal, dealt, halves, networks
from benchmarks.maddock.statistics import HERE
from fedcalib import metrics
from fedcalib.artifacts.scaling import Temperature

RUNS, DRAWS = 10, 5
METHODS: dict[str, fc.Method[fc.Calibrator]] = {
    "FedBin (15 bins)": fc.FedBin(),
    "RidgeVector": fc.methods.RidgeVector(),
    "Auto": fc.Auto(),
}
PLACES = (
    *(("cifar10", "resnet20"), ("cifar10", "wideresnet164")),
    *(("cifar100", "lenet5"), ("cifar100", "wideresnet164")),
    *(("mnist", "cnn 0.1"), ("mnist", "cnn iid")),
)
FACTORS = (0.8, 0.9, 1.0, 1.1, 1.25)


def drawn(probs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw labels that make probabilities perfectly calibrated."""
    return (probs.cumsum(axis=1) < rng.random((len(probs), 1))).sum(axis=1).clip(0, probs.shape[1] - 1)


def floors() -> Iterator[list[object]]:
    """The plug-in error, and what it would be had labels been drawn from the very probabilities."""
    for dataset, network in PLACES:
        for name, method in METHODS.items():
            found, least, loss = [], [], []
            for run in range(RUNS):
                calibration, test = halves(networks(dataset)[network], run)
                place = fc.InProcess(dealt(calibration, Deal(), run))
                probs = fc.run(method, place, fc.Open(), randomness=fc.Simulated(run)).artifact.of(test)
                rng = np.random.default_rng([run, 9])
                found.append(metrics.classwise_ece(probs, test.labels))
                least += [metrics.classwise_ece(probs, drawn(probs, rng)) for _ in range(DRAWS)]
                loss.append(metrics.nll(probs, test.labels))
            numbers = 100 * np.mean(found), 100 * np.mean(least), float(np.mean(loss))
            yield [dataset, network, name, *(f"{number:.4f}" for number in numbers)]


def temperatures() -> Iterator[list[object]]:
    """The error and the log loss at the pooled optimum of the log loss, and beside it."""
    exact = fc.OneShotTemperature(reach=30.0, refinements=2)
    for dataset, network in PLACES:
        rows = []
        for run in range(RUNS):
            calibration, test = halves(networks(dataset)[network], run)
            best = fc.run(exact, fc.InProcess(dealt(calibration, Deal(), run)), fc.Open()).artifact.temperature
            outcomes = [Temperature(best * factor).of(test) for factor in FACTORS]
            rows.append([(100 * metrics.classwise_ece(p, test.labels), metrics.nll(p, test.labels)) for p in outcomes])
        for factor, (error, loss) in zip(FACTORS, np.mean(rows, axis=0), strict=True):
            yield [dataset, network, factor, f"{error:.4f}", f"{loss:.4f}"]


def main() -> int:
    tables = {
        "floors.csv": (["data set", "network", "method", "cwECE %", "were it perfect %", "NLL"], floors()),
        "temperatures.csv": (["data set", "network", "times the best T", "cwECE %", "NLL"], temperatures()),
    }
    for name, (header, lines) in tables.items():
        with (HERE / name).open("w", newline="") as file:
            sheet = csv.writer(file, lineterminator="\n")
            sheet.writerow(header)
            sheet.writerows(lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
