"""Loaders: real files come out whole, local copies in each format too, and a missing file says how to get it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from benchmarks.hugging_face import hugging_face
from benchmarks.shakespeare import CHARACTERS, shakespeare

from fedcalib import datasets
from fedcalib.errors import InputError

RNG = np.random.default_rng(0)


def idx(path: Path, array: np.ndarray, pack: bool = True) -> None:
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    path.write_bytes(gzip.compress(head + array.tobytes()) if pack else head + array.tobytes())


def test_fashion_mnist_reads_packed_and_plain_files(tmp_path: Path) -> None:
    images, labels = RNG.integers(0, 256, (7, 28, 28), dtype=np.uint8), np.arange(7, dtype=np.uint8)
    below = tmp_path / "usr" / "share"
    below.mkdir(parents=True)
    idx(below / "train-images-idx3-ubyte.gz", images)
    idx(below / "train-labels-idx1-ubyte.gz", labels)
    idx(below / "t10k-images-idx3-ubyte", images[:3], pack=False)
    idx(below / "t10k-labels-idx1-ubyte", labels[:3], pack=False)
    found = datasets.fashion_mnist(tmp_path)
    np.testing.assert_array_equal(found.inputs[:7], images)
    assert found.test.tolist() == [False] * 7 + [True] * 3
    assert found.test_records.labels.tolist() == [0, 1, 2]
    assert found.test_records.extra["inputs"].dtype == np.uint8


def test_a_damaged_file_is_explained(tmp_path: Path) -> None:
    from fedcalib.datasets import read_idx

    (tmp_path / "x").write_bytes(b"nonsense")
    with pytest.raises(InputError, match="idx file"):
        read_idx(tmp_path / "x")
    idx(tmp_path / "y", np.zeros((4, 2), np.uint8), pack=False)
    (tmp_path / "y").write_bytes((tmp_path / "y").read_bytes()[:-1])
    with pytest.raises(InputError, match="download the file again"):
        read_idx(tmp_path / "y")


def test_cifar10_reads_one_picture_a_row_of_the_sheet(tmp_path: Path) -> None:
    from PIL import Image

    pictures = RNG.integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
    for k in range(6):
        sheet = Image.fromarray(pictures[2 * k : 2 * k + 2].reshape(2, 1024, 3))
        sheet.save(tmp_path / (f"data_batch_{k + 1}.png" if k < 5 else "test_batch.png"))
    (tmp_path / "train_lables.json").write_text(json.dumps(list(range(10))))
    (tmp_path / "test_lables.json").write_text(json.dumps([0, 1]))
    found = datasets.cifar10(tmp_path)
    np.testing.assert_array_equal(found.inputs, pictures)
    assert found.labels.tolist() == [*range(10), 0, 1]
    (tmp_path / "test_lables.json").write_text("[0]")
    with pytest.raises(InputError, match="one label per picture"):
        datasets.cifar10(tmp_path)


@pytest.mark.parametrize("load", [datasets.mnist, datasets.fashion_mnist, datasets.cifar10, shakespeare])
def test_a_missing_file_says_how_to_get_it(load: Callable[[Path], datasets.Dataset], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"found none\. (Save|Install|Run)"):
        load(tmp_path)


def test_hugging_face_reads_a_local_copy(tmp_path: Path) -> None:
    """The very format that the hub's files have once saved: image columns, named parts."""
    hub = pytest.importorskip("datasets")
    pictures = RNG.integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)

    def part(rows: slice) -> object:
        columns = {"img": list(pictures[rows]), "fine_label": list(range(5))[rows], "coarse_label": [0] * 5}
        columns["coarse_label"] = columns["coarse_label"][rows]
        shape = hub.Features({"img": hub.Image(), "fine_label": hub.Value("int64"), "coarse_label": hub.Value("int64")})
        return hub.Dataset.from_dict(columns, features=shape)

    hub.DatasetDict({"train": part(slice(0, 3)), "test": part(slice(3, 5))}).save_to_disk(str(tmp_path / "c"))
    found = hugging_face("cifar100", tmp_path / "c")
    np.testing.assert_array_equal(found.inputs, pictures)
    assert found.labels.tolist() == [0, 1, 2, 3, 4]
    assert found.test.tolist() == [False, False, False, True, True]
    with pytest.raises(InputError, match="the part 'valid'"):
        hugging_face("tiny-imagenet", tmp_path / "c")


def test_hugging_face_keeps_writers(tmp_path: Path) -> None:
    hub = pytest.importorskip("datasets")
    pictures = RNG.integers(0, 256, (4, 28, 28), dtype=np.uint8)
    columns = {"image": list(pictures), "writer_id": ["a", "b", "a", "a"], "character": [3, 1, 0, 2]}
    shape = hub.Features({"image": hub.Image(), "writer_id": hub.Value("string"), "character": hub.Value("int64")})
    hub.DatasetDict({"train": hub.Dataset.from_dict(columns, features=shape)}).save_to_disk(str(tmp_path / "f"))
    found = hugging_face("femnist", tmp_path / "f")
    np.testing.assert_array_equal(found.inputs, pictures)
    assert found.natural(fewest=2).names == ("a",)
    with pytest.raises(InputError, match="Expected one of"):
        hugging_face("nonsense")


@pytest.mark.shared
def test_mnist_knows_its_writers(shared: Path) -> None:
    found = datasets.mnist(shared / "mnist_writers")
    assert (len(found), int(found.test.sum())) == (70_000, 10_000)
    writers = found.natural(fewest=1)
    assert len(writers) == 539 + 297
    train = found.inputs[~found.test].reshape(60_000, -1) / 255.0
    centroids = np.stack([train[found.labels[~found.test] == digit].mean(axis=0) for digit in range(10)])
    test = found.inputs[found.test].reshape(10_000, -1) / 255.0
    nearest = ((centroids**2).sum(axis=1) - 2 * test @ centroids.T).argmin(axis=1)
    assert (nearest == found.labels[found.test]).mean() == pytest.approx(0.8203, abs=1e-4)  # the textbook's


@pytest.mark.shared
def test_shakespeare_has_roles_and_next_characters(shared: Path) -> None:
    found = shakespeare(shared / "shakespeare_roles", length=40, stride=50)
    assert found.inputs.shape[1] == 40
    text = "".join(CHARACTERS[token] for token in found.inputs[0])
    assert text.isprintable() or "\n" in text
    assert len(found.natural(fewest=100)) > 50
    dense = shakespeare(shared / "shakespeare_roles", length=40, stride=1)
    first = dense.group == dense.group[0]
    np.testing.assert_array_equal(dense.inputs[first][1:, -1], dense.labels[first][:-1])
