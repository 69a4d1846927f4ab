"""The slides' claims about whole networks: averaged in one shot they fail from scratch and work when pretrained.

LeNet-5 on MNIST; the server pretrains on public records, ten clients hold others by the favourite-class split. Run
with `python -m benchmarks.fl_swag.whole_network --data mnist=DIRECTORY`; rows that whole_network.csv has are kept.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import fedcalib as fc
from benchmarks.baselines import alone, averaged_predictions, averaged_weights
from benchmarks.fl_swag.data import CLIENTS, LOADERS, places
from benchmarks.fl_swag.measure import figures
from benchmarks.fl_swag.run import HERE
from benchmarks.progress import Table
from fedcalib.artifacts.networks import Scorer, Trained
from fedcalib.data import partition
from fedcalib.methods.fl_swag import FLSWAG
from fedcalib.training import SGD, Adam, LeNet5, LocalTraining
from fedcalib.training.posterior import Curvature, Trajectory

PUBLIC, HELD, TESTED = 1_500, 4_000, 4_000
NETWORK = LeNet5()
RATES = {"pretrained": 0.02, "from scratch": 0.1}


def pretrained(public: fc.Records, seed: int) -> Trained:
    """What the server trains on its own records."""
    rng, start = np.random.default_rng(seed), NETWORK.start(seed)
    found = LocalTraining(4, 64, Adam(1e-3)).train(NETWORK, start, public.extra["inputs"], public.labels, rng)
    return Trained(NETWORK, np.array(found.weights, dtype=np.float64))


def posteriors(start: Trained, rate: float, seed: int) -> dict[str, FLSWAG]:
    """SWAG as on the slides (no prior), with shrunken variances, and the Fisher information after training."""
    half, whole = LocalTraining(3, 32, SGD(rate)), LocalTraining(6, 32, SGD(rate))
    rest = {"initial": start, "samples": 5, "seed": seed}
    return {
        "FL-SWAG": FLSWAG(NETWORK, Trajectory(half, 3, shrink=0.0, weighted=False), prior=0.0, **rest),
        "FL-SWAG, shrunken": FLSWAG(NETWORK, Trajectory(half, 3), prior=0.0, **rest),
        "FL-SWAG, Fisher": FLSWAG(NETWORK, Curvature(whole), prior=0.0, **rest),
    }


def scorers(start: Trained, fit: fc.Federation, rate: float, seed: int) -> Iterator[tuple[str, Scorer]]:
    """The clients alone, their averages and their products."""
    models = alone(NETWORK, fit, LocalTraining(6, 32, SGD(rate)), weights=start.weights, seed=seed)
    sizes = tuple(map(float, fit.sizes))
    yield "start", start
    yield from ((f"client {k + 1}", model) for k, model in enumerate(models))
    yield "FedAvg", averaged_weights(models)
    yield "wFedAvg", averaged_weights(models, sizes)
    yield "wBayAvg", averaged_predictions(models, sizes)
    for name, method in posteriors(start, rate, seed).items():
        found = fc.run(method, fc.InProcess(fit), fc.SecAgg(bits=40), randomness=fc.Simulated(seed)).artifact
        yield f"{name}, mean weights", found.point
        yield f"{name}, sampled", found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", action="append", required=True, help="NAME=DIRECTORY")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--out", type=Path, default=HERE / "whole_network.csv")
    told = options.parse_args()
    import torch

    torch.set_num_threads(1)
    table = Table(told.out)
    for (data, directory), seed in ((pair, seed) for pair in places(told.data).items() for seed in range(told.seeds)):
        loaded = LOADERS[data](directory)
        rows = np.random.default_rng(seed).permutation(np.flatnonzero(~loaded.test))
        tested = np.random.default_rng(seed).permutation(np.flatnonzero(loaded.test))[:TESTED]
        public, test = loaded.records(rows[:PUBLIC]), loaded.records(tested)
        fit = partition.favourite_class(loaded.records(rows[PUBLIC : PUBLIC + HELD]), CLIENTS, seed)
        for begun, rate in RATES.items():
            last = {"data": data, "begun": begun, "seed": seed, "method": "FL-SWAG, Fisher, sampled"}
            if table.has(**last):
                continue
            start = pretrained(public, seed) if begun == "pretrained" else Trained(NETWORK, NETWORK.start(seed) * 1.0)
            for name, scorer in list(scorers(start, fit, rate, seed)):
                table.add({**last, "method": name, "records": HELD, **figures(scorer.over(test))})


if __name__ == "__main__":
    main()
