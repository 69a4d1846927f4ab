"""FL-SWAG's second table: a LeNet-5 whose body is frozen, and posteriors over its last layer.

Run with `python -m benchmarks.fl_swag.frozen_body --data mnist=DIRECTORY --data fashion-mnist=DIRECTORY`. Two modes:
"public" pretrains the body on the other data set only, which no client holds; "union" pretrains it on the clients'
pooled records, as the slides did, which is not federated. `--reduced` takes away the two hidden linear layers: two
convolutions, then 256 features, as in the slides' code. Writes frozen_body.csv and a plot for each network, data set
and mode; a rerun goes on where it stopped, and bodies are kept under out/.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.fl_swag.data import LOADERS, deal, places, split
from benchmarks.fl_swag.last_layer import MODES, compare, pretrained
from benchmarks.fl_swag.measure import plot_confidence
from benchmarks.progress import Table
from fedcalib.artifacts.trained import Trained
from fedcalib.training import Adam, ConvNet, LeNet5, LocalTraining
from fedcalib.training.network import Network

HERE = Path(__file__).parent
OTHER = {"mnist": "fashion-mnist", "fashion-mnist": "mnist"}
SHOWN = ("FL-SWAG", "FL-SWAG, shrunken", "FL-SWAG, Fisher", "wFedAvg", "SGLD, centralised", "pSGLD, centralised")


def body(network: Network, name: str, data: str, directory: str, epochs: int) -> Trained:
    """Pretrain on what the clients of a data set would hold: the union there, public elsewhere."""
    _, train = split(LOADERS[data](directory))
    training = LocalTraining(epochs, 64, Adam(0.001))
    return pretrained(network, train, training, HERE / "out" / f"{name}-{data}-{epochs}.npz")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", action="append", required=True, help="NAME=DIRECTORY, for both data sets")
    options.add_argument("--epochs", type=int, default=5, help="of pretraining")
    options.add_argument("--reduced", action="store_true", help="convolutions alone make the body")
    told = options.parse_args()
    import torch

    torch.set_num_threads(1)
    found, table = places(told.data), Table(HERE / "frozen_body.csv")
    network, name = (ConvNet(width=8), "reduced LeNet-5") if told.reduced else (LeNet5(), "LeNet-5")
    short = "reduced" if told.reduced else "lenet"
    for data, directory in found.items():
        for mode, meaning in MODES.items():
            if table.has(data=data, mode=meaning, network=name):
                continue
            source = data if mode == "union" else OTHER[data]
            frozen, loaded = body(network, short, source, found[source], told.epochs), LOADERS[data](directory)
            held, train = split(loaded)
            scored = compare(
                data, mode, frozen, federation=deal(train), held=held, test=loaded.test_records, table=table,
                network=name, pretrained_on=source, pretrained_epochs=told.epochs,
            )  # fmt: skip
            path = HERE / f"confidence-{short}-{data}-{mode}.png"
            plot_confidence({each: scored[each] for each in SHOWN}, path, f"{data}, {name} {meaning.split(',')[0]}")


if __name__ == "__main__":
    main()
