"""Table 1 of the source, row "Expected Calibration Error": theorems 7 and 8, where the true probabilities are known.

Scores are overconfident by a known amount, so that the mean distance of a calibrated score from the true probability,
which the theorems bound, can be measured without any bins. `python -m
benchmarks.cormode_markov.ece_by_clients` keeps the rows that ece_by_clients.csv has.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

import fedcalib as fc
from benchmarks.cormode_markov.experiments import MODELS
from benchmarks.progress import Sheet

HERE = Path(__file__).parent
CLIENTS = (1_000, 4_000, 16_000, 64_000, 256_000)
KEY = ("model", "clients", "run")


def scored(clients: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, labels and true probabilities."""
    x = rng.normal(size=clients)
    truth = 1 / (1 + np.exp(-1.3 * x - 0.2))
    return 1 / (1 + np.exp(-2.4 * x)), (rng.random(clients) < truth).astype(np.int64), truth


def distance(model: str, clients: int, run: int) -> float:
    """How far calibrated scores are from the true probabilities, on average over other records."""
    scores, labels, _ = scored(clients, np.random.default_rng([run, clients]))
    others, _, truth = scored(200_000, np.random.default_rng([run, 7]))
    federation = fc.Federation.grouped(fc.Records.of_scores(scores, labels), np.arange(clients))
    method = fc.QuantileBinning(tree=fc.planning.suited_tree(MODELS[model]))
    found = fc.run(method, fc.InProcess(federation), MODELS[model], randomness=fc.Simulated(run)).artifact
    return float(np.abs(found(others) - truth).mean())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--clients", type=int, nargs="*", default=list(CLIENTS))
    parser.add_argument("--out", type=Path, default=HERE / "ece_by_clients.csv")
    told = parser.parse_args()
    sheet = Sheet(told.out, KEY)
    for run, clients, model in ((r, c, m) for r in range(told.runs) for c in told.clients for m in MODELS):
        if not sheet.has(model, clients, run):
            error = distance(model, clients, run)
            sheet.add({"model": model, "clients": clients, "run": run, "distance": f"{error:.6g}"})
    return 0


if __name__ == "__main__":
    sys.exit(main())
