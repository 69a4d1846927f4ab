"""What the scripts here share: data sets by name, and how their records are dealt out."""

from __future__ import annotations

import numpy as np

import fedcalib as fc
from fedcalib import datasets
from fedcalib.data import partition
from fedcalib.datasets import Dataset

LOADERS = {"mnist": datasets.mnist, "fashion-mnist": datasets.fashion_mnist, "cifar10": datasets.cifar10}
CLIENTS, SEED = 10, 0
HELD = 2000  # training records that no client holds, for the scale


def places(pairs: list[str]) -> dict[str, str]:
    """Read NAME=DIRECTORY pairs."""
    return dict(pair.split("=", 1) for pair in pairs)


def split(loaded: Dataset, held: int = HELD) -> tuple[fc.Records, fc.Records]:
    """Set training records aside; give them, and those left for the clients."""
    rows = np.random.default_rng(SEED).permutation(np.flatnonzero(~loaded.test))
    return loaded.records(rows[:held]), loaded.records(rows[held:])


def deal(records: fc.Records) -> fc.Federation:
    """Deal records out as the slides did: ten uneven clients, each with a favourite class."""
    return partition.favourite_class(records, CLIENTS, SEED)
