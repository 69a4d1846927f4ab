"""Base models for calibration: a simple CNN trained by FedAvg on MNIST, over label skew.

Run with `python -m benchmarks.base_models.run --mnist DIRECTORY [--beta 0.1 --beta iid]`. Writes results.csv beside
itself and each model's logits on its test and calibration records to out/, for the calibration benchmarks. A rerun goes
on where it stopped, in the middle of a training too. `--sgd RATE` trains by local SGD and plain means, as the source
says, and writes sgd.csv.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import fedcalib as fc
from benchmarks.progress import Table, bar
from fedcalib import datasets, metrics
from fedcalib.artifacts.networks import Trained
from fedcalib.methods.fed_avg import FedAvg
from fedcalib.training import SGD, Adam, ConvNet, LocalTraining

HERE = Path(__file__).parent
CLIENTS, EPOCHS, RATE = 100, 10, 0.1
SOURCE = {"0.1": 93.6, "0.2": 93.7, "0.3": 94.6, "0.4": 95.3, "0.5": 95.0, "0.6": 95.4, "0.7": 96.0, "0.8": 96.5}
SOURCE |= {"1.0": 96.9, "iid": 96.9}  # one column of the source: it calls beta = 1 IID


def parts(records: fc.Records, beta: str, seed: int) -> tuple[fc.Federation, fc.Federation, fc.Federation]:
    """Deal all 70,000 records to 100 clients; 80% of each trains, 10% tests, 10% calibrates."""
    if beta == "iid":
        dealt = fc.Federation.iid(records, CLIENTS, seed)
    else:
        dealt = fc.Federation.dirichlet(records, CLIENTS, float(beta), seed)
    train, rest = dealt.split(0.2, seed)
    test, calibration = rest.split(0.5, seed + 1)
    return train, test, calibration


def by_adam(seed: int) -> FedAvg:
    """Local Adam, clients weighted by their records: better than what the source says."""
    local = LocalTraining(1, 64, Adam(0.001))
    return FedAvg(ConvNet(), rounds=round(EPOCHS / RATE), training=local, largest=2000, seed=seed)


def by_sgd(rate: float, seed: int) -> FedAvg:
    """Local SGD and a plain mean, as the source says (section 3, appendix B.2)."""
    return FedAvg.as_published(ConvNet(), round(EPOCHS / RATE), LocalTraining(1, 64, SGD(rate)), seed=seed)


def fitted(name: str, method: FedAvg, federation: fc.Federation, seed: int) -> Trained:
    """Train one model; an epoch is ten rounds of a tenth of the clients. A rerun goes on where it stopped."""
    (HERE / "out").mkdir(exist_ok=True)
    with bar(name) as watch:
        return fc.run(
            method, fc.InProcess(federation), fc.Open(), participation=fc.Poisson(RATE),
            randomness=fc.Simulated(seed), transcript=HERE / "out" / f"{name}.jsonl", watch=watch,
        ).artifact  # fmt: skip


def kept(name: str, scored: fc.Federation, held: fc.Federation) -> None:
    """Keep the logits of the records that test and of those that calibrate."""
    np.savez_compressed(
        HERE / "out" / f"{name}.npz",
        test_logits=scored.records.logits.astype(np.float32), test_labels=scored.records.labels,
        test_owner=scored.owner, calibration_logits=held.records.logits.astype(np.float32),
        calibration_labels=held.records.labels, calibration_owner=held.owner,
    )  # fmt: skip


def measured(scored: fc.Records, printed: float) -> dict[str, object]:
    """Accuracy and errors in percent, beside the source's accuracy."""
    probs, labels = scored.probs, scored.labels
    return {
        "accuracy": round(100 * metrics.accuracy(probs, labels), 2),
        "source_accuracy": printed,
        "ece": round(100 * metrics.ece(probs, labels), 2),
        "cwece": round(100 * metrics.classwise_ece(probs, labels), 3),
    }


def train(name: str, method: FedAvg, beta: str, seed: int, records: fc.Records) -> dict[str, object]:
    """Train, keep and measure one model of MNIST."""
    fit, test, calibration = parts(records, beta, seed)
    began = time.perf_counter()
    model = fitted(name, method, fit, seed)
    seconds = time.perf_counter() - began
    scored = model.across(test)
    kept(name, scored, model.across(calibration))
    found = measured(scored.records, SOURCE[beta])
    return {"data": "mnist", "beta": beta, "seed": seed, **found, "seconds": round(seconds)}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--mnist", required=True, help="the directory of mnist.npz")
    options.add_argument("--beta", action="append", choices=list(SOURCE), help="all of the source's, unless given")
    options.add_argument("--seed", type=int, action="append")
    options.add_argument("--sgd", type=float, metavar="RATE", help="local SGD in place of Adam")
    told = options.parse_args()
    import torch

    torch.set_num_threads(1)
    records = datasets.mnist(told.mnist).records()
    for beta, seed in ((beta, seed) for beta in told.beta or SOURCE for seed in told.seed or [0]):
        if told.sgd is None:
            table, name, method = Table(HERE / "results.csv"), f"mnist-{beta}-{seed}", by_adam(seed)
        else:
            table, method = Table(HERE / "sgd.csv"), by_sgd(told.sgd, seed)
            name = f"sgd-{told.sgd:g}-{beta}-{seed}"
        rate = {} if told.sgd is None else {"rate": told.sgd}
        done = table.has(beta=beta, seed=seed, **rate)
        if not done or not (HERE / "out" / f"{name}.npz").exists():
            found = {**rate, **train(name, method, beta, seed, records)}
            if not done:
                table.add(found)


if __name__ == "__main__":
    main()
