"""CCVR: federated classifiers under label skew, before and after their last layer is repaired.

Run with `python -m benchmarks.ccvr.run --data fashion-mnist=DIRECTORY [--alpha 0.05] [--seed 0] [--records 6000]`.
Writes results.csv beside itself. A rerun goes on where it stopped, in the middle of a training too. The pictures and
the tables of the README are made of results.csv by `python -m benchmarks.ccvr.tables`.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import fedcalib as fc
from benchmarks.progress import Table, bar
from fedcalib import datasets, metrics
from fedcalib.artifacts.gaussians import ClassGaussians
from fedcalib.artifacts.networks import Head, Representation, Trained
from fedcalib.data import partition
from fedcalib.methods.ccvr import ClosedForm, FeatureGaussians, Retrained, Whitening
from fedcalib.methods.fed_avg import FedAvg
from fedcalib.training import SGD, LeNet5, LocalTraining, Network, SoftmaxRegression, UnitHead
from fedcalib.types import Floats

HERE = Path(__file__).parent
CLIENTS = 10
LOADERS = {"mnist": datasets.mnist, "fashion-mnist": datasets.fashion_mnist, "cifar10": datasets.cifar10}
PROXIMAL = {"FedAvg": 0.0, "FedAvg, proximal head": 1.0, "FedAvg, normalised head": 0.0}


def network(data: str, base: str) -> Network:
    """Give LeNet-5, which feeds 84 features to its head, for the data set's pictures."""
    plain = LeNet5(32, 3) if data == "cifar10" else LeNet5()
    return UnitHead(plain) if base == "FedAvg, normalised head" else plain


def trained(federation: fc.Federation, case: dict[str, object], told: argparse.Namespace) -> Trained:
    """Train one model by FedAvg; clients count by their records."""
    base, seed = str(case["base"]), int(str(case["seed"]))
    training = LocalTraining(told.epochs, told.batch, SGD(0.02, 0.9), proximal=PROXIMAL[base])
    method = FedAvg(network(str(case["data"]), base), told.rounds, training, largest=told.records, seed=seed)
    name = "-".join(str(value) for value in case.values()).replace(" ", "")
    with bar(", ".join(str(value) for value in case.values())) as watch:
        return fc.run(
            method, fc.InProcess(federation), fc.SecAgg(), randomness=fc.Simulated(seed),
            transcript=HERE / "out" / f"{name}.jsonl", watch=watch,
        ).artifact  # fmt: skip


def repairs(model: Trained, scored: fc.Federation, seed: int) -> dict[str, Head]:
    """Make every kind of head of the same secure sums; M_c = 100 virtual features per class, as in the source."""
    width = scored.records.extra["features"].shape[1]

    def gaussians(power: float) -> ClassGaussians:
        method = FeatureGaussians(width, representation=Representation(power=power))
        return fc.run(method, fc.InProcess(scored), fc.SecAgg(bits=40), randomness=fc.Simulated(seed)).artifact

    plain, tukey, start = gaussians(1.0), gaussians(0.5), model.head
    return {
        "CCVR": Retrained(100, whitened=False, seed=seed).fit(plain, start),
        "CCVR, balanced": Retrained(100, balanced=True, whitened=False, seed=seed).fit(plain, start),
        "CCVR, 1000 per class": Retrained(1000, whitened=False, seed=seed).fit(plain, start),
        "CCVR, 1000 per class, whitened": Retrained(1000, seed=seed).fit(plain, start),
        "CCVR, 1000 per class, whitened, Tukey 0.5": Retrained(1000, seed=seed).fit(tukey, None),
        "closed form": ClosedForm().fit(plain, None),
        "closed form, Tukey 0.5": ClosedForm().fit(tukey, None),
        "CCVR, 1000 per class, whitened, epsilon 8 per record": private(scored, width, seed),
        "normalised afterwards": start.normalised,
        "oracle: real pooled features": oracle(model, scored.records, seed),
    }


def private(scored: fc.Federation, width: int, seed: int) -> Head:
    """Repair with differential privacy for each record: features of length one, noise shares from every client."""
    method = fc.methods.CCVR(width, Retrained(1000, seed=seed), radius=1.0, representation=Representation(unit=True))
    private = fc.DistributedDP(epsilon=8.0, delta=1e-5)
    return fc.run(method, fc.InProcess(scored), private, randomness=fc.Simulated(seed)).artifact


def oracle(model: Trained, scored: fc.Records, seed: int) -> Head:
    """Train the head on the clients' real features, pooled: what no federation may do, as the limit."""
    features = scored.extra["features"].astype(np.float64)
    whitening = Whitening.of(features)
    network = SoftmaxRegression(features.shape[1], scored.classes)
    matrix, shift = whitening.into(model.head.matrix, model.head.shift)
    training = LocalTraining(20, 64, SGD(1.0 / features.shape[1]), decay=1e-4)
    start = np.concatenate([matrix.reshape(-1), shift])
    rng = np.random.default_rng(seed)
    head = Trained(network, training.train(network, start, whitening.along(features), scored.labels, rng).weights).head
    return Head(*whitening.back(head.matrix, head.shift))


def recalls(head: Head, test: fc.Records) -> Floats:
    """Give the share of each class's test records that are told right, (classes,)."""
    right = head.over(test).logits.argmax(axis=1) == test.labels
    return np.bincount(test.labels, right) / np.bincount(test.labels)


def measured(head: Head, before: Head, test: fc.Records, shares: Floats) -> dict[str, object]:
    """Measure on the published test set; `shares` are the clients' own class shares, (clients, classes)."""
    probs, labels, found = head.over(test).probs, test.labels, recalls(head, test)
    return {
        "accuracy": round(100 * metrics.accuracy(probs, labels), 2),
        "ece": round(100 * metrics.ece(probs, labels), 2),
        "cwece": round(100 * metrics.classwise_ece(probs, labels), 3),
        "nll": round(metrics.nll(probs, labels), 4),
        "worst_class": round(100 * float(found.min()), 1),
        "clients_better": int(np.sum(shares @ (found - recalls(before, test)) > 0)),
    }


def rows(data: str, directory: str, case: dict[str, object], told: argparse.Namespace) -> list[dict[str, object]]:
    """Train one model and repair it in every way."""
    loaded, seed = LOADERS[data](directory), int(str(case["seed"]))
    dealt = np.random.default_rng(seed).permutation(np.flatnonzero(~loaded.test))[: told.records]
    alpha = float(str(case["alpha"]))
    federation = partition.dirichlet(loaded.records(dealt), CLIENTS, alpha, seed, fewest=10)
    partition.plot_holdings(federation, HERE / "out" / f"{data}-{alpha}-{seed}.png", f"{data}, alpha = {alpha}")
    began = time.process_time()
    model = trained(federation, case, told)
    seconds = round(time.process_time() - began)
    scored, test = model.across(federation), model.over(loaded.test_records)
    held = partition.holdings(federation)
    shares = held / held.sum(axis=1, keepdims=True)
    heads = {"none": model.head, **repairs(model, scored, seed)}
    return [
        {**case, "repair": repair, **measured(head, model.head, test, shares), "processor_seconds": seconds}
        for repair, head in heads.items()
    ]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument(
        "--data", action="append", required=True, help="NAME=DIRECTORY, of mnist, fashion-mnist, cifar10"
    )
    options.add_argument("--alpha", type=float, action="append", help="0.05, 0.1 and 0.5 unless given")
    options.add_argument("--base", action="append", choices=list(PROXIMAL), help="all unless given")
    options.add_argument("--seed", type=int, action="append", help="0 to 4 unless given")
    options.add_argument("--records", type=int, default=6_000)
    options.add_argument("--rounds", type=int, default=8)
    options.add_argument("--epochs", type=int, default=5)
    options.add_argument("--batch", type=int, default=64)
    told = options.parse_args()
    import torch

    torch.set_num_threads(1)
    (HERE / "out").mkdir(exist_ok=True)
    table = Table(HERE / "results.csv")
    for seed in told.seed or range(5):
        for data, directory in (pair.split("=", 1) for pair in told.data):
            for alpha in told.alpha or (0.05, 0.1, 0.5):
                for base in told.base or PROXIMAL:
                    case = {
                        "data": data, "alpha": alpha, "seed": seed, "base": base,
                        "records": told.records, "rounds": told.rounds, "epochs": told.epochs,
                        "batch": told.batch,
                    }  # fmt: skip
                    if not table.has(**case):
                        for row in rows(data, directory, case, told):
                            table.add(row)


if __name__ == "__main__":
    main()
