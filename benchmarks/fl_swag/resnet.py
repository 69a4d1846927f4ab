"""The CIFAR-10 row of FL-SWAG's second table, as far as two processor cores allow.

Run with `python -m benchmarks.fl_swag.resnet --cifar10 DIRECTORY`. The body is a ResNet-18 that is `--width` channels
wide at its start (64 is the usual one), pretrained on `--records` pictures and their mirror images, then frozen; the
clients hold another `--records` pictures. "Public" pretrains it on pictures that no client holds, "union" on the
clients' own, as the slides did. Writes resnet.csv and plots; bodies are kept under out/, a rerun goes on where it
stopped.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import fedcalib as fc
from benchmarks.fl_swag.data import LOADERS, deal, split
from benchmarks.fl_swag.frozen_body import SHOWN
from benchmarks.fl_swag.last_layer import MODES, compare, pretrained
from benchmarks.fl_swag.measure import plot_confidence
from benchmarks.progress import Table
from fedcalib.training import Adam, LocalTraining, ResNet18

HERE = Path(__file__).parent


def mirrored(records: fc.Records) -> fc.Records:
    """Put each picture's mirror image beside it."""
    pictures, labels = records.extra["inputs"], np.tile(records.labels, 2)
    both = np.concatenate([pictures, pictures[:, :, ::-1]])
    return fc.Records.of_logits(np.zeros((len(labels), records.classes)), labels, inputs=both)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--cifar10", required=True, help="the directory of CIFAR-10")
    options.add_argument("--width", type=int, default=16)
    options.add_argument("--records", type=int, default=4_000, help="that clients hold, and that are public")
    options.add_argument("--epochs", type=int, default=3, help="of pretraining, each over pictures and mirror images")
    told = options.parse_args()
    import torch

    torch.set_num_threads(1)
    loaded, table = LOADERS["cifar10"](told.cifar10), Table(HERE / "resnet.csv")
    held, rest = split(loaded)
    dealt = {"union": rest.take(slice(0, told.records)), "public": rest.take(slice(told.records, 2 * told.records))}
    training = LocalTraining(told.epochs, 64, Adam(0.001))
    size = {"width": told.width, "pretrained_records": told.records, "pretrained_epochs": told.epochs}
    for mode, meaning in MODES.items():
        if table.has(mode=meaning, **size):
            continue
        cache = HERE / "out" / f"resnet-{mode}-{told.width}-{told.records}-{told.epochs}.npz"
        body = pretrained(ResNet18(width=told.width), mirrored(dealt[mode]), training, cache)
        scored = compare(
            "cifar10", mode, body, federation=deal(dealt["union"]), held=held, test=loaded.test_records, table=table,
            network="ResNet-18", **size,
        )  # fmt: skip
        title = f"CIFAR-10, ResNet-18 of width {told.width}, {meaning.split(',')[0]}"
        plot_confidence({name: scored[name] for name in SHOWN}, HERE / f"confidence-resnet-cifar10-{mode}.png", title)


if __name__ == "__main__":
    main()
