"""Fashion-MNIST, from Debian's package."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedcalib.datasets.dataset import Dataset, found
from fedcalib.datasets.idx import read_idx

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
_HOW = (
    "Install Debian's package dataset-fashion-mnist, or download it (apt-get download), unpack it (dpkg -x) and give "
    "the directory that it was unpacked into."
)


def fashion_mnist(directory: Path | str = DEBIAN) -> Dataset:
    """Read Fashion-MNIST: 70,000 pieces of clothing of 28 x 28 bytes."""
    images, labels = [], []
    for part in ("train", "t10k"):
        images.append(read_idx(found(directory, f"{part}-images-idx3-ubyte*", _HOW)))
        labels.append(read_idx(found(directory, f"{part}-labels-idx1-ubyte*", _HOW)))
    test = np.repeat([False, True], [len(labels[0]), len(labels[1])])
    return Dataset("fashion-mnist", np.concatenate(images), np.concatenate(labels).astype(np.int64), 10, test)
