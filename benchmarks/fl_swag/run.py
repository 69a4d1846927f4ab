"""FL-SWAG's first table: softmax regression on the favourite-class split, every client and every baseline.

Run with `python -m benchmarks.fl_swag.run --data mnist=DIRECTORY --data fashion-mnist=DIRECTORY`, with the rate, the
epochs, the prior and the shrinkage that `settings` chose on held-out records. Writes softmax_regression.csv and, for
each data set, who holds what and its accuracy against confidence as plots. A rerun goes on where it stopped; scores of
test records are kept under out/ for the plots.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from rich.progress import track

import fedcalib as fc
from benchmarks.baselines import averaged_predictions, averaged_weights
from benchmarks.fl_swag.data import LOADERS, SEED, deal, places, split
from benchmarks.fl_swag.measure import SLIDES, figures, plot_confidence
from benchmarks.fl_swag.settings import Chosen, chosen
from benchmarks.langevin import Langevin
from benchmarks.progress import Table
from fedcalib.artifacts.networks import Scorer, Trained
from fedcalib.data import partition
from fedcalib.methods.fl_swag import FLSWAG
from fedcalib.training import SGD, LocalTraining, SoftmaxRegression
from fedcalib.training.posterior import Curvature, Trajectory

Family = Callable[[], Iterator[tuple[str, Scorer]]]
HERE = Path(__file__).parent
OUT = HERE / "out"
NETWORK = SoftmaxRegression(784, 10)
MOST = 1e7  # the largest precision that a client tells
SHOWN = ("FL-SWAG", "FL-SWAG, shrunken", "FL-SWAG, Fisher", "wFedAvg", "wBayAvg", "SGLD, centralised")
SAMPLERS = {
    "SGLD, centralised": Langevin(rate=2e-6),
    "pSGLD, centralised": Langevin(rate=2e-8, preconditioned=True),
}


def trajectory(how: Chosen) -> Trajectory:
    """Collect weights in the second half of the epochs."""
    half = how.epochs // 2
    return Trajectory(LocalTraining(half, 64, SGD(how.rate)), how.epochs - half, shrink=0.0, weighted=False)


def posteriors(how: Chosen) -> dict[str, FLSWAG]:
    """SWAG as on the slides, with shrunken variances, and ours."""
    plain, whole = trajectory(how), LocalTraining(how.epochs, 64, SGD(how.rate))
    shrunken = replace(plain, shrink=how.shrink, weighted=True)
    prior = max(how.prior, 1.0)  # about pixels that are always dark, records say nothing
    return {
        "FL-SWAG": FLSWAG(NETWORK, plain, prior, most=MOST),
        "FL-SWAG, shrunken": FLSWAG(NETWORK, shrunken, prior, most=MOST),
        "FL-SWAG, low rank 5": FLSWAG(NETWORK, replace(plain, rank=5), prior, width=50, most=MOST),
        "FL-SWAG, Fisher": FLSWAG(NETWORK, Curvature(whole), prior),
        "FL-SWAG, Fisher and scatter": FLSWAG(NETWORK, Curvature(whole), prior, scatter=True),
    }


def averages(federation: fc.Federation, how: Chosen) -> Iterator[tuple[str, Scorer]]:
    """Each client's mean on its way, as in the slides' code, and averages of these weights and their predictions."""
    models = tuple(alone(held, k, how) for k, held in enumerate(federation.clients()))
    sizes = tuple(float(size) for size in federation.sizes)
    yield from ((f"client {k + 1}", model) for k, model in enumerate(models))
    yield "FedAvg", averaged_weights(models)
    yield "wFedAvg", averaged_weights(models, sizes)
    yield "BayAvg", averaged_predictions(models)
    yield "wBayAvg", averaged_predictions(models, sizes)


def alone(held: fc.Records, client: int, how: Chosen) -> Trained:
    """Train one client on its own records; its last weights alone would be noisy."""
    rng, start = np.random.default_rng((SEED, client)), NETWORK.start(0)
    found = trajectory(how).find(NETWORK, start, held.extra["inputs"], held.labels, prior=how.prior, most=MOST, rng=rng)
    return Trained(NETWORK, start + found.offset)


def multiplied(name: str, method: FLSWAG, federation: fc.Federation, held: fc.Records) -> Iterator[tuple[str, Scorer]]:
    """Run FL-SWAG through a secure sum, then tune its scale."""
    runtime = fc.InProcess(federation)
    posterior = fc.run(method, runtime, fc.SecAgg(bits=40), randomness=fc.Simulated(SEED)).artifact
    yield name, posterior
    yield f"{name}, scale tuned", posterior.tuned(held)


def sampled(name: str, sampler: Langevin, federation: fc.Federation) -> Iterator[tuple[str, Scorer]]:
    """Sample over pooled records."""
    yield name, sampler.sample(NETWORK, NETWORK.start(0), federation.records, SEED)


def families(federation: fc.Federation, held: fc.Records, how: Chosen) -> dict[str, Family]:
    """Give what the table compares, trained when asked for, by the last method whose row a rerun looks for."""
    found: dict[str, Family] = {"wBayAvg": partial(averages, federation, how)}
    for name, method in posteriors(how).items():
        found[f"{name}, scale tuned"] = partial(multiplied, name, method, federation, held)
    return found | {name: partial(sampled, name, sampler, federation) for name, sampler in SAMPLERS.items()}


def kept(data: str, name: str) -> Path:
    """Say where the scores of test records lie."""
    return OUT / f"softmax-{data}-{name.replace(', ', '-').replace(' ', '-')}.npy"


def compare(data: str, directory: str, table: Table) -> None:
    """Fill one data set's part of the table, and draw its plots."""
    loaded, how = LOADERS[data](directory), chosen(data)
    held, train = split(loaded)
    federation, test = deal(train), loaded.test_records
    partition.plot_holdings(federation, HERE / f"holdings-{data}.png", f"{data}: favourite-class split")
    sizes = {f"client {k + 1}": int(size) for k, size in enumerate(federation.sizes)}
    OUT.mkdir(exist_ok=True)
    for last, family in track(families(federation, held, how).items(), description=data):
        if table.has(data=data, method=last):
            continue
        for name, scorer in list(family()):
            records = scorer.over(test)
            np.save(kept(data, name), records.probs.astype(np.float32))
            row = {"data": data, "method": name, "records": sizes.get(name, len(train)), **figures(records)}
            table.add({**row, "slides_accuracy": SLIDES[data].get(name, "")})
    if not all(kept(data, name).exists() for name in SHOWN):
        print(f"No new confidence-{data}.png: the scores of rows that were kept are not here.")
        return
    shown = {name: fc.Records(np.load(kept(data, name)), test.labels, False) for name in SHOWN}
    plot_confidence(shown, HERE / f"confidence-{data}.png", f"{data}, test records")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", action="append", required=True, help="NAME=DIRECTORY, of mnist and fashion-mnist")
    table = Table(HERE / "softmax_regression.csv")
    for data, directory in places(options.parse_args().data).items():
        compare(data, directory, table)


if __name__ == "__main__":
    main()
