"""FL-SWAG's second table: a LeNet-5 whose body is frozen, and posteriors over its last layer.

Run with `python -m benchmarks.fl_swag.frozen_body --data mnist=DIRECTORY --data fashion-mnist=DIRECTORY`. Two modes:
"public" pretrains the body on the other data set only, which the clients do not hold; "union" pretrains it on the
clients' pooled records, as the slides did, which is not federated. Writes frozen_body.csv; a rerun goes on where it
stopped.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import fedcalib as fc
from benchmarks.fl_swag.measure import figures
from benchmarks.progress import Table, bar
from fedcalib import datasets, partition
from fedcalib.artifacts.scorer import Scorer
from fedcalib.artifacts.trained import Trained
from fedcalib.methods.fl_swag import FLSWAG
from fedcalib.training import SGD, Adam, LeNet5, LocalTraining, SoftmaxRegression
from fedcalib.training.langevin import Langevin
from fedcalib.training.posterior import Curvature, Trajectory

HERE = Path(__file__).parent
LOADERS = {"mnist": datasets.mnist, "fashion-mnist": datasets.fashion_mnist}
OTHER = {"mnist": "fashion-mnist", "fashion-mnist": "mnist"}
MODES = {
    "public": "pretrained on the other data set: public",
    "union": "pretrained on the clients' union, as the slides did: not federated",
}
SLIDES = {("mnist", "FL-SWAG"): 97.41, ("mnist", "SGLD"): 97.61, ("mnist", "pSGLD"): 97.42}
SLIDES |= {("fashion-mnist", "FL-SWAG"): 87.57, ("fashion-mnist", "SGLD"): 87.15, ("fashion-mnist", "pSGLD"): 86.67}
CLIENTS, SEED = 10, 0
HEAD = SoftmaxRegression(84, 10)


def body(records: fc.Records, epochs: int) -> Trained:
    """Pretrain a LeNet-5 in one place."""
    network = LeNet5()
    training = LocalTraining(epochs, 64, Adam(0.001))
    rng = np.random.default_rng(SEED)
    weights = training.train(network, network.start(SEED), records.extra["inputs"], records.labels, rng).weights
    return Trained(network, weights)


def scorers(federation: fc.Federation, held: fc.Records) -> dict[str, Scorer]:
    """Posteriors over the head, on features that the frozen body made."""
    found: dict[str, Scorer] = {}
    recipes = {
        "FL-SWAG": Trajectory(LocalTraining(5, 64, SGD(0.01)), 15),
        "FL-SWAG, Fisher": Curvature(LocalTraining(10, 64, SGD(0.01))),
    }
    for name, recipe in recipes.items():
        method = FLSWAG(HEAD, recipe, prior=1.0, column="features")
        with bar(name) as watch:
            posterior = fc.run(
                method, fc.InProcess(federation), fc.SecAgg(bits=30), randomness=fc.Simulated(SEED), watch=watch
            ).artifact
        found |= {name: posterior, f"{name}, scale tuned": posterior.tuned(held)}
    for name, sampler in {"SGLD": Langevin(rate=1e-6), "pSGLD": Langevin(rate=1e-8, preconditioned=True)}.items():
        found[name] = sampler.sample(HEAD, HEAD.start(0), federation.records, SEED, "features")
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", action="append", required=True, help="NAME=DIRECTORY, for both data sets")
    options.add_argument("--records", type=int, default=58_000)
    options.add_argument("--epochs", type=int, default=5, help="of pretraining")
    told = options.parse_args()
    import torch

    torch.set_num_threads(1)
    places = dict(pair.split("=", 1) for pair in told.data)
    table = Table(HERE / "frozen_body.csv")
    for data, directory in places.items():
        for mode, meaning in MODES.items():
            if table.has(data=data, mode=meaning):
                continue
            loaded = LOADERS[data](directory)
            rows = np.random.default_rng(SEED).permutation(np.flatnonzero(~loaded.test))
            own = loaded.records(rows[2000 : 2000 + told.records])
            public = LOADERS[OTHER[data]](places[OTHER[data]]).train_records.take(slice(0, told.records))
            frozen = body(public if mode == "public" else own, told.epochs)
            federation = frozen.across(partition.favourite_class(own, CLIENTS, SEED))
            test = frozen.over(loaded.test_records)
            for name, scorer in scorers(federation, frozen.over(loaded.records(rows[:2000]))).items():
                setting = {"data": data, "mode": meaning, "records": told.records, "method": name}
                table.add({**setting, **figures(scorer.over(test)), "slides_accuracy": SLIDES.get((data, name), "")})


if __name__ == "__main__":
    main()
