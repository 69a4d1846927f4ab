"""Where do skewed clients differ? Centred kernel alignment of their layers after one more round of local training.

Run with `python -m benchmarks.ccvr.similarity --data fashion-mnist=DIRECTORY`, after `benchmarks.ccvr.run` has trained
the model (it is replayed from the run's transcript). Writes similarity.csv and similarity.png beside itself.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.baselines import alone
from benchmarks.ccvr.run import CLIENTS, HERE, LOADERS, trained
from benchmarks.progress import Table
from benchmarks.similarity import layer_similarity, plot_similarity
from fedcalib.data import partition
from fedcalib.training import SGD, LocalTraining


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", required=True, help="NAME=DIRECTORY")
    options.add_argument("--alpha", type=float, default=0.05)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--records", type=int, default=6_000)
    options.add_argument("--rounds", type=int, default=8)
    options.add_argument("--epochs", type=int, default=5)
    options.add_argument("--batch", type=int, default=64)
    told = options.parse_args()
    data, directory = told.data.split("=", 1)
    case = {"data": data, "alpha": told.alpha, "seed": told.seed, "base": "FedAvg"}
    case |= {"records": told.records, "rounds": told.rounds, "epochs": told.epochs, "batch": told.batch}
    loaded = LOADERS[data](directory)
    rows = np.random.default_rng(told.seed).permutation(np.flatnonzero(~loaded.test))[: told.records]
    federation = partition.dirichlet(loaded.records(rows), CLIENTS, told.alpha, told.seed, fewest=10)
    model = trained(federation, case, told)
    local = LocalTraining(told.epochs, told.batch, SGD(0.02, 0.9))
    models = alone(model.network, federation, local, weights=model.weights, seed=told.seed)
    layers = layer_similarity(models, loaded.test_records.extra["inputs"][:500])
    table = Table(HERE / "similarity.csv")
    if not table.has(**case):
        for layer, pairs in layers.items():
            between = pairs[~np.eye(len(pairs), dtype=bool)]
            table.add({**case, "layer": layer, "mean": round(between.mean(), 4), "least": round(between.min(), 4)})
    plot_similarity(layers, HERE / "similarity.png")


if __name__ == "__main__":
    main()
