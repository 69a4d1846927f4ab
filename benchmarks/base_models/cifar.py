"""The source's simple CNN on CIFAR-10: trained by FedAvg over label skew, which leaves it far from calibrated.

Run with `python -m benchmarks.base_models.cifar --cifar10 DIRECTORY [--beta 0.1]`. Writes cifar.csv beside itself, each
model and its logits to out/. A rerun goes on where it stopped, in the middle of a training too. All 60,000 pictures are
dealt to 100 clients, of which a tenth take part in a round; local Adam and ten epochs instead of the source's local
SGD and 300, for time. `--local 5` trains five epochs at each client before a mean is taken, in a fifth of the rounds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.base_models.run import HERE, RATE, fitted, kept, measured, parts
from benchmarks.progress import Table
from fedcalib import datasets
from fedcalib.methods.fed_avg import FedAvg
from fedcalib.training import Adam, ConvNet, LocalTraining

EPOCHS, WIDTH = 10, 32
SOURCE = {"0.1": 46.3, "0.2": 53.6, "0.3": 51.8, "0.4": 53.8, "0.5": 54.2, "0.6": 55.0, "0.7": 56.3, "0.8": 55.1}
SOURCE |= {"iid": 63.0}


def method(local: int, seed: int) -> FedAvg:
    """FedAvg with clients weighted by their records, as on MNIST."""
    rounds = round(EPOCHS / RATE / local)
    training = LocalTraining(local, 64, Adam(0.001))
    return FedAvg(ConvNet(32, 3, width=WIDTH), rounds=rounds, training=training, largest=2000, seed=seed)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--cifar10", required=True, type=Path, help="the directory of CIFAR-10")
    options.add_argument("--beta", action="append", choices=list(SOURCE), help="0.1 and iid, unless given")
    options.add_argument("--local", type=int, default=1, help="epochs of a client in a round")
    told = options.parse_args()
    import torch

    torch.set_num_threads(1)
    records, table = datasets.cifar10(told.cifar10).records(), Table(HERE / "cifar.csv")
    for beta in told.beta or ("0.1", "iid"):
        name, case = f"cifar-{told.local}-{beta}-0", {"beta": beta, "local_epochs": told.local}
        if table.has(**case) and (HERE / "out" / f"{name}.npz").exists():
            continue
        fit, test, calibration = parts(records, beta, seed=0)
        model = fitted(name, method(told.local, 0), fit, seed=0)
        scored = model.across(test)
        kept(name, scored, model.across(calibration))
        model.save(HERE / "out" / f"{name}.json")
        if not table.has(**case):
            table.add({**case, "epochs": EPOCHS, **measured(scored.records, SOURCE[beta])})


if __name__ == "__main__":
    main()
