"""Choose how clients train in the first table: on held-out training records, before the test set is looked at.

Run with `python -m benchmarks.fl_swag.settings --data mnist=DIRECTORY --data fashion-mnist=DIRECTORY`. The slides do
not give a learning rate. 10,000 training records are set aside and 50,000 dealt to the clients; every setting is
trained at once, since one product of matrices serves them all. Writes settings.csv; a data set that is there is not
run again.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product as pairs
from pathlib import Path

import numpy as np
from rich.progress import track

import fedcalib as fc
from benchmarks.fl_swag.data import LOADERS, SEED, deal, places, split
from benchmarks.progress import Table
from fedcalib.records import softmax
from fedcalib.training.posterior import LocalGaussian, Trajectory, product
from fedcalib.types import Floats

TABLE = Table(Path(__file__).parent / "settings.csv")
RATES, PRIORS, EPOCHS = (0.02, 0.05, 0.1, 0.2, 0.4), (0.0, 1.0), (20, 40, 60)
SHRINKS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
SETTINGS = list(pairs(RATES, PRIORS))
BATCH, HELD, MOST = 64, 10_000, 1e9
Key = tuple[float, float, int]  # rate, prior, epochs
AVERAGES = ("FedAvg", "wFedAvg", "BayAvg", "wBayAvg")


@dataclass(frozen=True, eq=False)
class Way:
    """Where one client's weights went, for each setting: at the end, on average and how far spread."""

    records: int
    last: Floats  # (features + 1, settings, classes)
    mean: Floats  # likewise: over the second half of the epochs
    variance: Floats  # likewise


def columns(records: fc.Records) -> Floats:
    """Give pixels from 0 to 1, and a one for the shift."""
    flat = records.extra["inputs"].reshape(len(records), -1).astype(np.float32) / 255
    return np.concatenate([flat, np.ones((len(flat), 1), np.float32)], axis=1)


def train(records: fc.Records, client: int) -> dict[int, Way]:
    """Train one client at all settings side by side; give its way for each number of epochs."""
    x, y, rng = columns(records), records.labels, np.random.default_rng((SEED, client))
    rate, prior = (np.array(each, np.float32)[:, None] for each in zip(*SETTINGS, strict=True))
    weights = np.zeros((x.shape[1], len(SETTINGS), records.classes), np.float32)
    sums = {epochs: np.zeros((2, *weights.shape)) for epochs in EPOCHS}
    found = {}
    for epoch in range(1, EPOCHS[-1] + 1):
        order = rng.permutation(len(y))
        for at in range(0, len(y), BATCH):
            rows = order[at : at + BATCH]
            weights *= 1 - rate * prior / len(y)
            weights -= rate * slope(weights, x[rows], y[rows])
        for epochs in EPOCHS:
            if epochs // 2 < epoch <= epochs:
                sums[epochs] += np.stack([weights, np.square(weights, dtype=np.float64)])
        if epoch in EPOCHS:
            mean, square = sums[epoch] / (epoch - epoch // 2)
            found[epoch] = Way(len(y), weights.copy(), mean, np.maximum(square - mean**2, 0))
    return found


def slope(weights: Floats, x: Floats, y: Floats) -> Floats:
    """Give the gradient of the mean log loss at every setting, shaped as the weights."""
    residual = softmax((x @ weights.reshape(len(weights), -1)).reshape(len(x), *weights.shape[1:]))
    residual[np.arange(len(y)), :, y] -= 1
    gradient: Floats = (x.T @ residual.reshape(len(x), -1)).reshape(weights.shape) / len(y)
    return gradient


def averages(ways: list[Way], at: int, x: Floats) -> Iterator[tuple[str, Floats]]:
    """Score by each average of the clients' weights or predictions: of their means on the way, and of the last ones."""
    sizes = np.array([way.records for way in ways])
    for ending, weights in {
        "": np.stack([way.mean[:, at].astype(np.float32) for way in ways]),
        ", last weights": np.stack([way.last[:, at] for way in ways]),
    }.items():
        probs = np.stack([softmax(x @ each) for each in weights])
        yield f"FedAvg{ending}", x @ weights.mean(axis=0)
        yield f"wFedAvg{ending}", x @ np.average(weights, axis=0, weights=sizes).astype(np.float32)
        yield f"BayAvg{ending}", probs.mean(axis=0)
        yield f"wBayAvg{ending}", np.average(probs, axis=0, weights=sizes)
        yield from ((f"client {k + 1}{ending}", each) for k, each in enumerate(probs))


def swag(ways: list[Way], at: int, x: Floats) -> Iterator[tuple[str, Floats]]:
    """Score by the mean of the product of trajectories, however much their variances are shrunken."""
    for shrink, weighted in pairs(SHRINKS, (False, True)):
        recipe, beliefs = Trajectory(shrink=shrink, weighted=weighted), []
        for way in ways:
            variance = way.variance[:, at].reshape(-1)
            precision = recipe.precision(variance, way.records / BATCH if weighted else 1.0, 1e-6, MOST)
            beliefs.append(LocalGaussian.around(way.mean[:, at].reshape(-1), precision))
        yield swag_name(shrink, weighted), x @ product(beliefs).offset.astype(np.float32).reshape(x.shape[1], -1)


def swag_name(shrink: float, weighted: bool) -> str:
    return f"FL-SWAG, shrunken by {shrink}" + (", weighted" if weighted else "")


def sweep(data: str, directory: str) -> None:
    """Train, score held-out records, and write down every setting's accuracy."""
    held, train_records = split(LOADERS[data](directory), HELD)
    clients = list(deal(train_records).clients())
    ways = [train(own, k) for k, own in enumerate(track(clients, description=f"{data}: clients"))]
    x = columns(held)
    for epochs, (at, (rate, prior)) in pairs(EPOCHS, list(enumerate(SETTINGS))):
        here = [way[epochs] for way in ways]
        for method, scores in (*averages(here, at, x), *swag(here, at, x)):
            right = float((scores.argmax(axis=1) == held.labels).mean())
            row = {"data": data, "rate": rate, "prior": prior, "epochs": epochs, "method": method}
            TABLE.add({**row, "held_out_accuracy": round(100 * right, 2)})


@dataclass(frozen=True)
class Chosen:
    """How clients train, and how much of the way variances are shrunken."""

    rate: float
    prior: float
    epochs: int
    shrink: float


def chosen(data: str) -> Chosen:
    """Take the setting with the best held-out mean of the four averages, and there the best shrinkage below 1."""
    rows = [row for row in TABLE.rows if row["data"] == data]
    sums: dict[Key, float] = {}
    for row in rows:
        if row["method"] in AVERAGES:
            sums[key(row)] = sums.get(key(row), 0.0) + float(row["held_out_accuracy"])
    where = max(sums, key=lambda each: sums[each])
    told = {row["method"]: float(row["held_out_accuracy"]) for row in rows if key(row) == where}
    shrink = max((each for each in SHRINKS if each < 1), key=lambda each: told[swag_name(each, True)])
    return Chosen(*where, shrink)


def key(row: dict[str, str]) -> Key:
    """Read a row's setting."""
    return float(row["rate"]), float(row["prior"]), int(row["epochs"])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", action="append", required=True, help="NAME=DIRECTORY, of mnist and fashion-mnist")
    for data, directory in places(options.parse_args().data).items():
        if not TABLE.has(data=data):
            sweep(data, directory)
        print(data, chosen(data))


if __name__ == "__main__":
    main()
