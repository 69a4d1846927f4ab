"""FL-SWAG's second table: a LeNet-5 whose body is frozen, and posteriors over its last layer.

Run with `python -m benchmarks.fl_swag.frozen_body --data mnist=DIRECTORY --data fashion-mnist=DIRECTORY`. Two modes:
"public" pretrains the body on the other data set only, which no client holds; "union" pretrains it on the clients'
pooled records, as the slides did, which is not federated. Writes frozen_body.csv and a plot for each data set and mode;
a rerun goes on where it stopped, and bodies are kept under out/.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.fl_swag.data import LOADERS, deal, places, split
from benchmarks.fl_swag.last_layer import MODES, compare, pretrained
from benchmarks.fl_swag.measure import plot_confidence
from benchmarks.progress import Table
from fedcalib.artifacts.networks import Trained
from fedcalib.training import Adam, LeNet5, LocalTraining

HERE = Path(__file__).parent
OTHER = {"mnist": "fashion-mnist", "fashion-mnist": "mnist"}
SHOWN = ("FL-SWAG", "FL-SWAG, shrunken", "FL-SWAG, Fisher", "wFedAvg", "SGLD, centralised", "pSGLD, centralised")


def body(data: str, directory: str, epochs: int) -> Trained:
    """Pretrain a LeNet-5 on what the clients of a data set would hold: the union there, public elsewhere."""
    _, train = split(LOADERS[data](directory))
    training = LocalTraining(epochs, 64, Adam(0.001))
    return pretrained(LeNet5(), train, training, HERE / "out" / f"lenet-{data}-{epochs}.npz")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", action="append", required=True, help="NAME=DIRECTORY, for both data sets")
    options.add_argument("--epochs", type=int, default=5, help="of pretraining")
    told = options.parse_args()
    import torch

    torch.set_num_threads(1)
    found, table = places(told.data), Table(HERE / "frozen_body.csv")
    for data, directory in found.items():
        for mode, meaning in MODES.items():
            if table.has(data=data, mode=meaning):
                continue
            source = data if mode == "union" else OTHER[data]
            frozen, loaded = body(source, found[source], told.epochs), LOADERS[data](directory)
            held, train = split(loaded)
            scored = compare(
                data, mode, frozen, federation=deal(train), held=held, test=loaded.test_records, table=table,
                network="LeNet-5", pretrained_on=source, pretrained_epochs=told.epochs,
            )  # fmt: skip
            path = HERE / f"confidence-lenet-{data}-{mode}.png"
            plot_confidence({each: scored[each] for each in SHOWN}, path, f"{data}, LeNet-5 {meaning.split(',')[0]}")


if __name__ == "__main__":
    main()
