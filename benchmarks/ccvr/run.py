"""CCVR: federated classifiers under label skew, before and after their last layer is repaired.

Run with `python -m benchmarks.ccvr.run --data fashion-mnist=DIRECTORY [--alpha 0.05] [--seed 0] [--records 10000]`.
Writes results.csv and results.png beside itself. A rerun goes on where it stopped, in the middle of a training too.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import fedcalib as fc
from benchmarks.progress import Table, bar
from fedcalib import datasets, metrics, partition
from fedcalib.artifacts.gaussians import ClassGaussians
from fedcalib.artifacts.head import Head, Representation
from fedcalib.artifacts.scorer import Scorer
from fedcalib.artifacts.trained import Trained
from fedcalib.methods.ccvr import ClosedForm, FeatureGaussians, Retrained
from fedcalib.methods.fed_avg import FedAvg
from fedcalib.training import SGD, ConvNet, LocalTraining, SoftmaxRegression

HERE = Path(__file__).parent
CLIENTS = 10
LOADERS = {"mnist": datasets.mnist, "fashion-mnist": datasets.fashion_mnist, "cifar10": datasets.cifar10}
BASES = {"FedAvg": 0.0, "FedAvg, proximal head": 1.0}


def repairs(model: Trained, scored: fc.Federation, seed: int) -> dict[str, Scorer]:
    """Make every kind of head of the same two secure sums; M_c = 100 virtual features a class, as in the source."""
    width = scored.records.extra["features"].shape[1]

    def gaussians(power: float) -> ClassGaussians:
        method = FeatureGaussians(width, representation=Representation(power=power))
        return fc.run(method, fc.InProcess(scored), fc.SecAgg(), randomness=fc.Simulated(seed)).artifact

    plain, tukey, start = gaussians(1.0), gaussians(0.5), model.head
    return {
        "CCVR": Retrained(100).fit(plain, start),
        "CCVR, balanced": Retrained(100, balanced=True).fit(plain, start),
        "CCVR, 1000 a class": Retrained(1000).fit(plain, start),
        "CCVR, Tukey 0.5, 1000 a class": Retrained(1000).fit(tukey, None),
        "closed form": ClosedForm().fit(plain, None),
        "closed form, Tukey 0.5": ClosedForm().fit(tukey, None),
    }


def oracle(model: Trained, scored: fc.Records, seed: int) -> Head:
    """Train the head on the clients' real features, pooled: what no federation may do, as the limit."""
    features = scored.extra["features"]
    network = SoftmaxRegression(features.shape[1], scored.classes)
    start = np.concatenate([model.head.matrix.reshape(-1), model.head.shift])
    training = LocalTraining(10, 64, SGD(0.5 / (1 + float(np.mean(np.sum(features**2, axis=1))))))
    weights = training.train(network, start, features, scored.labels, np.random.default_rng(seed)).weights
    return Trained(network, weights).head


def measured(scorer: Scorer, test: fc.Records) -> dict[str, object]:
    probs, labels = scorer.over(test).probs, test.labels
    return {
        "accuracy": round(100 * metrics.accuracy(probs, labels), 2),
        "ece": round(100 * metrics.ece(probs, labels), 2),
        "cwece": round(100 * metrics.classwise_ece(probs, labels), 3),
        "nll": round(metrics.nll(probs, labels), 4),
    }


def case(data: str, directory: str, alpha: float, seed: int, *, base: str, told: argparse.Namespace) -> list[dict]:
    """Train one model and repair it in every way."""
    loaded = LOADERS[data](directory)
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(~loaded.test))[: told.records]
    federation = partition.dirichlet(loaded.records(rows), CLIENTS, alpha, seed, fewest=10)
    colour = {"cifar10": {"side": 32, "channels": 3}}.get(data, {})
    training = LocalTraining(told.epochs, 64, SGD(0.02, 0.9), proximal=BASES[base])
    method = FedAvg(ConvNet(**colour), told.rounds, training, largest=told.records, seed=seed)
    (HERE / "out").mkdir(exist_ok=True)
    partition.plot_holdings(federation, HERE / "out" / f"{data}-{alpha}-{seed}.png", f"{data}, alpha = {alpha}")
    name = f"{data}-{alpha}-{seed}-{base}-{told.records}-{told.rounds}-{told.epochs}".replace(" ", "")
    began = time.perf_counter()
    with bar(f"{data}, alpha {alpha}, seed {seed}, {base}") as watch:
        model = fc.run(
            method, fc.InProcess(federation), fc.SecAgg(), randomness=fc.Simulated(seed),
            transcript=HERE / "out" / f"{name}.jsonl", watch=watch,
        ).artifact  # fmt: skip
    seconds = round(time.perf_counter() - began)
    scored, test = model.across(federation), model.over(loaded.test_records)
    heads: dict[str, Scorer] = {"none": model.head, "normalised head": model.head.normalised}
    heads |= repairs(model, scored, seed)
    heads["oracle: real pooled features"] = oracle(model, scored.records, seed)
    setting = {
        "data": data, "alpha": alpha, "seed": seed, "base": base, "records": told.records, "rounds": told.rounds,
        "epochs": told.epochs,
    }  # fmt: skip
    return [{**setting, "repair": repair, **measured(head, test), "seconds": seconds} for repair, head in heads.items()]


def plot(table: Table) -> None:
    """Draw each repair's change in accuracy and in ECE, run by run."""
    from matplotlib.figure import Figure

    runs: dict[tuple, dict[str, dict]] = {}
    for row in table.rows:
        runs.setdefault((row["data"], row["alpha"], row["base"], row["seed"]), {})[row["repair"]] = row
    repairs_ = [name for name in next(iter(runs.values())) if name != "none"]
    figure = Figure(figsize=(11, 4.5))
    for axes, metric in zip(figure.subplots(1, 2, sharey=True), ("accuracy", "ece"), strict=True):
        for place, repair in enumerate(repairs_):
            change = [float(run[repair][metric]) - float(run["none"][metric]) for run in runs.values()]
            axes.plot(change, [place] * len(change), "o", alpha=0.5, color="#2a6f97")
            axes.plot(np.mean(change), place, "|", markersize=18, color="black")
        axes.axvline(0, color="grey", linewidth=0.8)
        axes.set(xlabel=f"change in {metric}, points", yticks=range(len(repairs_)), yticklabels=repairs_)
    figure.tight_layout()
    figure.savefig(HERE / "results.png", dpi=110)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument(
        "--data", action="append", required=True, help="NAME=DIRECTORY, of mnist, fashion-mnist, cifar10"
    )
    options.add_argument("--alpha", type=float, action="append", help="0.05, 0.1 and 0.5 unless given")
    options.add_argument("--base", action="append", choices=list(BASES), help="both unless given")
    options.add_argument("--seed", type=int, action="append", help="0 to 4 unless given")
    options.add_argument("--records", type=int, default=60_000)
    options.add_argument("--rounds", type=int, default=30)
    options.add_argument("--epochs", type=int, default=1)
    told = options.parse_args()
    import torch

    torch.set_num_threads(1)
    table = Table(HERE / "results.csv")
    for seed in told.seed or range(5):
        for data, directory in (pair.split("=", 1) for pair in told.data):
            for alpha in told.alpha or (0.05, 0.1, 0.5):
                for base in told.base or BASES:
                    if not table.has(data=data, alpha=alpha, seed=seed, base=base):
                        for row in case(data, directory, alpha, seed, base=base, told=told):
                            table.add(row)
                        plot(table)


if __name__ == "__main__":
    main()
