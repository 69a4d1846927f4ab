"""CCVR as published, with raw covariances, and the source's second motivation: do heads favour what clients hold?

LeNet-5 trained by FedAvg on few MNIST records: `python -m benchmarks.ccvr.as_published --data mnist=DIRECTORY`, or on
more of CIFAR-10: `--data cifar10=DIRECTORY --seeds 3 --alpha 0.1 --alpha 0.5`. Rows that as_published.csv has are kept.
"norm_correlation" is the mean over clients of the correlation between a class's number of records and the length of its
row of the client's head, after one more local training.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import fedcalib as fc
from benchmarks.baselines import alone
from benchmarks.ccvr.run import CLIENTS, HERE, LOADERS, measured, oracle, trained
from benchmarks.progress import Table
from fedcalib.artifacts.networks import Head, Trained
from fedcalib.data import partition
from fedcalib.methods.ccvr import CCVR, Retrained
from fedcalib.training import SGD, LocalTraining

SIZES = {"mnist": (3_000, 5, 4, 16), "cifar10": (20_000, 10, 3, 64)}  # records, rounds, epochs, batch


def norm_correlation(model: Trained, federation: fc.Federation, told: argparse.Namespace, seed: int) -> float:
    """Do clients' heads have longer rows for the classes that they hold?"""
    local = LocalTraining(told.epochs, told.batch, SGD(0.02, 0.9))
    models = alone(model.network, federation, local, weights=model.weights, seed=seed)
    held = partition.holdings(federation)
    lengths = np.array([np.linalg.norm(own.head.matrix, axis=1) for own in models])
    return float(np.mean([np.corrcoef(*pair)[0, 1] for pair in zip(held, lengths, strict=True)]))


def heads(model: Trained, scored: fc.Federation, seed: int) -> dict[str, Head]:
    """The same secure sums with shrunken and with raw covariances, and the limit."""
    width = scored.records.extra["features"].shape[1]

    def repaired(method: CCVR) -> Head:
        return fc.run(method, fc.InProcess(scored), fc.SecAgg(bits=40), randomness=fc.Simulated(seed)).artifact

    return {
        "none": model.head,
        "CCVR, shrunken covariances": repaired(
            CCVR(width, Retrained(100, whitened=False, seed=seed), start=model.head)
        ),
        "CCVR, as published": repaired(CCVR.as_published(width, 100, start=model.head, seed=seed)),
        "oracle": oracle(model, scored.records, seed),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", required=True, help="NAME=DIRECTORY")
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--alpha", type=float, action="append", help="0.05, 0.1 and 0.5 unless given")
    options.add_argument("--out", type=Path, default=HERE / "as_published.csv")
    told = options.parse_args()
    import torch

    torch.set_num_threads(1)
    (HERE / "out").mkdir(exist_ok=True)
    data, directory = told.data.split("=", 1)
    told.records, told.rounds, told.epochs, told.batch = SIZES[data]
    table, loaded = Table(told.out), LOADERS[data](directory)
    for seed, alpha in ((seed, alpha) for seed in range(told.seeds) for alpha in told.alpha or (0.05, 0.1, 0.5)):
        case: dict[str, object] = {"data": data, "alpha": alpha, "seed": seed, "base": "FedAvg"}
        case |= {"records": told.records, "rounds": told.rounds, "epochs": told.epochs, "batch": told.batch}
        if table.has(**case):
            continue
        rows = np.random.default_rng(seed).permutation(np.flatnonzero(~loaded.test))[: told.records]
        federation = partition.dirichlet(loaded.records(rows), CLIENTS, alpha, seed, fewest=10)
        model = trained(federation, case, told)
        scored, test = model.across(federation), model.over(loaded.test_records)
        held = partition.holdings(federation)
        correlation = round(norm_correlation(model, federation, told, seed), 4)
        for repair, head in heads(model, scored, seed).items():
            found = measured(head, model.head, test, held / held.sum(axis=1, keepdims=True))
            table.add({**case, "repair": repair, **found, "norm_correlation": correlation})


if __name__ == "__main__":
    main()
