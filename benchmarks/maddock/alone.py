"""Figures 1b and 1c of the paper: what calibrators that clients fit alone do to accuracy, at home and elsewhere.

Run with `python -m benchmarks.maddock.alone`; rows that alone.csv has are kept. Accuracies are in percent, means over
the first twenty clients of at least five records.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

import fedcalib as fc
from benchmarks.maddock.data import Deal
from benchmarks.maddock.published import FIGURES, clients
from benchmarks.progress import Sheet

HERE = Path(__file__).parent
KEY = ("dataset", "network", "beta", "method", "run")
KINDS: dict[str, fc.Method[fc.Calibrator]] = {
    "FedBin": fc.FedBin.as_published(rounds=1),
    "FedTemp": fc.FedTemp.as_published(rounds=1),
    "FedVector": fc.FedVector.as_published(rounds=1),
    "FedMatrix": fc.FedMatrix.as_published(rounds=1),
    "FedOPVector": fc.FedOPVector.as_published(rounds=1),
}


def right(probs: np.ndarray, labels: np.ndarray) -> float:
    return 100 * float((probs.argmax(axis=1) == labels).mean())


def alone(method: fc.Method[fc.Calibrator], own: fc.Records, test: fc.Records) -> dict[str, float]:
    """Fit one client's calibrator; accuracies before and after, on its own records and on the test half."""
    place = fc.InProcess(fc.Federation.of([own]), fewest_clients=1)
    fitted = fc.run(method, place, fc.Open(), randomness=fc.Simulated(0)).artifact
    return {
        "own_before": right(own.probs, own.labels), "own_after": right(fitted.of(own), own.labels),
        "test_before": right(test.probs, test.labels), "test_after": right(fitted.of(test), test.labels),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE / "alone.csv")
    told = parser.parse_args()
    sheet = Sheet(told.out, KEY)
    for run, network, beta in (
        (r, n, b) for r in range(told.runs) for n in FIGURES["cifar10"] for b in (0.1, 0.5, 10.0)
    ):
        fit, test, _ = clients("cifar10", network, Deal(beta=beta), run)
        some = [own for own in fit.clients() if len(own) >= 5][:20]
        for name, method in KINDS.items():
            key = ("cifar10", network, beta, name, run)
            if not sheet.has(*key):
                found = [alone(method, own, test) for own in some]
                means = {one: f"{np.mean([part[one] for part in found]):.6g}" for one in found[0]}
                sheet.add({**dict(zip(KEY, key, strict=True)), **means})
    return 0


if __name__ == "__main__":
    sys.exit(main())
