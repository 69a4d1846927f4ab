"""Next characters of Shakespeare's roles: an LSTM trained by FedAvg, each speaking role a client.

Run with `python -m benchmarks.base_models.shakespeare --data DIRECTORY`. Adds a row to shakespeare.csv beside itself,
with two baselines that need no network: how often each character occurs, and how often each follows another, and the
logits of what every role says last to out/, for benchmarks/maddock/roles.py. A rerun goes on where it stopped.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import fedcalib as fc
from benchmarks.progress import Table, bar
from benchmarks.shakespeare import shakespeare
from fedcalib import datasets, metrics
from fedcalib.artifacts.networks import Trained
from fedcalib.data import partition
from fedcalib.methods.fed_avg import FedAvg
from fedcalib.training import Adam, CharLSTM, LocalTraining

HERE = Path(__file__).parent


def baselines(train: fc.Records, test: fc.Records) -> dict[str, float]:
    """Give the log loss of frequencies alone, and of frequencies after each character; one is added to each count."""
    counts = np.ones((train.classes, train.classes))
    np.add.at(counts, (train.extra["inputs"][:, -1], train.labels), 1)
    single = counts.sum(axis=0) / counts.sum()
    pairs = counts / counts.sum(axis=1, keepdims=True)
    return {
        "frequencies": round(float(-np.log(single[test.labels]).mean()), 4),
        "pairs": round(float(-np.log(pairs[test.extra["inputs"][:, -1], test.labels]).mean()), 4),
    }


def keep(model: Trained, federation: fc.Federation, told: argparse.Namespace) -> None:
    """Keep the logits of every character in the last tenth of what the clients say, and whose it is."""
    every = shakespeare(told.data, told.length, stride=1)
    group = np.asarray(every.group)
    rows = np.flatnonzero(every.test & np.isin(group, federation.names))
    logits = model.over(every.records(rows)).logits.astype(np.float32)
    roles, owner = np.unique(group[rows], return_inverse=True)
    path = HERE / "out" / f"shakespeare-{told.fewest}-{told.rounds}.npz"
    np.savez_compressed(path, logits=logits, labels=every.labels[rows], owner=owner, roles=roles)


def train(data: datasets.Dataset, case: dict[str, object], told: argparse.Namespace) -> dict[str, object]:
    """Train on the first nine tenths of what each role says, test on the rest of all roles."""
    rows = np.flatnonzero(~data.test)
    federation = partition.natural(data.records(rows), np.asarray(data.group)[rows], told.fewest)
    network = CharLSTM(data.classes, embedding=8, hidden=told.hidden, layers=1)
    method = FedAvg(network, told.rounds, LocalTraining(1, 32, Adam(0.005)), largest=1000, seed=0)
    transcript = HERE / "out" / f"shakespeare-{told.fewest}-{told.rounds}-{told.hidden}.jsonl"
    began = time.process_time()
    with bar("shakespeare") as watch:
        model = fc.run(
            method, fc.InProcess(federation), fc.SecAgg(), participation=fc.Poisson(told.rate),
            randomness=fc.Simulated(0), transcript=transcript, watch=watch,
        ).artifact  # fmt: skip
    seconds = round(time.process_time() - began)
    keep(model, federation, told)
    test = data.test_records
    probs = model.over(test).probs
    return {
        **case,
        "clients": len(federation),
        "records": len(federation.records),
        "log_loss": round(metrics.nll(probs, test.labels), 4),
        **baselines(federation.records, test),
        "accuracy": round(100 * metrics.accuracy(probs, test.labels), 2),
        "source_accuracy": 36.0,
        "ece": round(100 * metrics.ece(probs, test.labels), 2),
        "processor_seconds": seconds,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", required=True, help="the directory of speeches.parquet")
    options.add_argument("--length", type=int, default=20, help="characters that are read")
    options.add_argument("--stride", type=int, default=10, help="characters from one record to the next")
    options.add_argument("--fewest", type=int, default=500, help="records that a role needs to take part")
    options.add_argument("--hidden", type=int, default=64)
    options.add_argument("--rounds", type=int, default=60)
    options.add_argument("--rate", type=float, default=0.1, help="share of roles in a round")
    told = options.parse_args()
    import torch

    torch.set_num_threads(1)
    (HERE / "out").mkdir(exist_ok=True)
    table = Table(HERE / "shakespeare.csv")
    case: dict[str, object] = {
        name: getattr(told, name) for name in ("length", "stride", "fewest", "hidden", "rounds", "rate")
    }
    if not table.has(**case) or not (HERE / "out" / f"shakespeare-{told.fewest}-{told.rounds}.npz").exists():
        found = train(shakespeare(told.data, told.length, told.stride), case, told)
        if not table.has(**case):
            table.add(found)


if __name__ == "__main__":
    main()
