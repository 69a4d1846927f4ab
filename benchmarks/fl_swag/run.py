"""FL-SWAG's first table: softmax regression on the favourite-class split, every client and every baseline.

Run with `python -m benchmarks.fl_swag.run --data mnist=DIRECTORY --data fashion-mnist=DIRECTORY`. Writes
softmax_regression.csv and, for each data set, its accuracy against confidence as a plot. A rerun goes on where it
stopped.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

import fedcalib as fc
from benchmarks.fl_swag.measure import SLIDES, figures, plot_confidence
from benchmarks.progress import Table, bar
from fedcalib import datasets, partition
from fedcalib.artifacts.scorer import Scorer
from fedcalib.methods.fl_swag import FLSWAG
from fedcalib.training import SGD, LocalTraining, SoftmaxRegression
from fedcalib.training.baselines import alone, averaged_predictions, averaged_weights
from fedcalib.training.langevin import Langevin
from fedcalib.training.posterior import Curvature, Trajectory

HERE = Path(__file__).parent
LOADERS = {"mnist": datasets.mnist, "fashion-mnist": datasets.fashion_mnist}
CLIENTS, SEED = 10, 0
NETWORK = SoftmaxRegression(784, 10)
EPOCHS = 20


def posteriors(training: LocalTraining, prior: float) -> dict[str, FLSWAG]:
    """SWAG as on the slides, and ours."""
    swag = Trajectory(replace(training, epochs=5), EPOCHS - 5)
    return {
        "FL-SWAG": FLSWAG(NETWORK, swag, prior),
        "FL-SWAG, low rank 5": FLSWAG(NETWORK, Trajectory(swag.training, EPOCHS - 5, rank=5), prior, width=50),
        "FL-SWAG, Fisher": FLSWAG(NETWORK, Curvature(training), prior),
        "FL-SWAG, Fisher and scatter": FLSWAG(NETWORK, Curvature(training), prior, scatter=True),
    }


def scorers(data: str, federation: fc.Federation, held: fc.Records, rate: float) -> dict[str, Scorer]:
    """Train everything that the table compares."""
    training = LocalTraining(EPOCHS, 64, SGD(rate))
    models = alone(NETWORK, federation, training, weights=NETWORK.start(0), seed=SEED)
    sizes = tuple(float(size) for size in federation.sizes)
    found: dict[str, Scorer] = {f"client {k + 1}": model for k, model in enumerate(models)}
    found |= {
        "FedAvg": averaged_weights(models),
        "wFedAvg": averaged_weights(models, sizes),
        "BayAvg": averaged_predictions(models),
        "wBayAvg": averaged_predictions(models, sizes),
    }
    for name, method in posteriors(training, prior=1.0).items():
        with bar(f"{data}: {name}") as watch:
            posterior = fc.run(
                method, fc.InProcess(federation), fc.SecAgg(bits=30), randomness=fc.Simulated(SEED), watch=watch
            ).artifact
        found[name] = posterior
        found[f"{name}, scale tuned"] = posterior.tuned(held)
    for name, sampler in {"SGLD": Langevin(rate=2e-6), "pSGLD": Langevin(rate=2e-8, preconditioned=True)}.items():
        pooled = federation.records
        found[f"{name}, centralised"] = sampler.sample(NETWORK, models[-1].weights, pooled, SEED)
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", action="append", required=True, help="NAME=DIRECTORY, of mnist and fashion-mnist")
    options.add_argument("--rate", type=float, default=0.05, help="the clients' learning rate")
    told = options.parse_args()
    name_ = "softmax_regression" + ("" if told.rate == 0.05 else f"-rate-{told.rate}")
    table = Table(HERE / f"{name_}.csv")
    for data, directory in (pair.split("=", 1) for pair in told.data):
        if table.has(data=data):
            continue
        loaded = LOADERS[data](directory)
        rows = np.random.default_rng(SEED).permutation(np.flatnonzero(~loaded.test))
        held, train = loaded.records(rows[:2000]), loaded.records(rows[2000:])
        federation = partition.favourite_class(train, CLIENTS, SEED)
        partition.plot_holdings(federation, HERE / f"holdings-{data}.png", f"{data}: favourite-class split")
        found = scorers(data, federation, held, told.rate)
        scored = {name: scorer.over(loaded.test_records) for name, scorer in found.items()}
        for name, records in scored.items():
            slides = SLIDES[data].get(name, "")
            table.add({"data": data, "method": name, **figures(records), "slides_accuracy": slides})
        shown = ("FL-SWAG, scale tuned", "FL-SWAG, Fisher", "wFedAvg", "wBayAvg", "SGLD, centralised")
        plot_confidence({name: scored[name] for name in shown}, HERE / f"confidence-{data}.png")


if __name__ == "__main__":
    main()
