"""Data sets of the Hugging Face hub, or a local copy in the same format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from fedcalib.datasets import Dataset
from fedcalib.errors import InputError
from fedcalib.types import Array


@final
@dataclass(frozen=True)
class Source:
    """Where a data set lies on the hub and what its columns are called."""

    path: str
    image: str
    label: str
    test: str
    config: str | None = None
    group: str | None = None


HUB: Final = {
    "cifar100": Source("uoft-cs/cifar100", "img", "fine_label", "test"),
    "svhn": Source("ufldl-stanford/svhn", "image", "label", "test", "cropped_digits"),
    "tiny-imagenet": Source("zh-plus/tiny-imagenet", "image", "label", "valid"),
    "femnist": Source("flwrlabs/femnist", "image", "character", "", group="writer_id"),
}


def hugging_face(name: str, directory: Path | str | None = None) -> Dataset:
    """Read a data set that HUB names: from a directory that `save_to_disk` wrote, or over the internet."""
    if name not in HUB:
        raise InputError(f"Expected one of {', '.join(HUB)}, found {name!r}.")
    source = HUB[name]
    parts = _load(source, directory)
    names = [part for part in ("train", source.test) if part]
    missing = [part for part in names if part not in parts]
    if missing:
        raise InputError(f"Expected the part '{missing[0]}' of {name}, found {', '.join(parts)}.")
    inputs = np.concatenate([_images(parts[part], source.image) for part in names])
    labels = np.concatenate([np.asarray(parts[part][source.label], dtype=np.int64) for part in names])
    test = np.repeat([part == source.test for part in names], [len(parts[part]) for part in names])
    group = None
    if source.group is not None:
        group = np.concatenate([np.asarray(parts[part][source.group]) for part in names])
    return Dataset(name, inputs, labels, int(labels.max(initial=-1)) + 1, test, group)


def _load(source: Source, directory: Path | str | None) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise InputError("Expected the package 'datasets', found none: pip install 'fedcalib[datasets]'.") from error
    if directory is not None:
        return datasets.load_from_disk(str(directory))
    try:
        return datasets.load_dataset(source.path, source.config)
    except (OSError, ConnectionError) as error:
        raise InputError(
            f"Expected to reach {source.path} on the Hugging Face hub, found no way there. Download it elsewhere, "
            "say save_to_disk, and give the directory."
        ) from error


def _images(part: Any, column: str) -> Array:
    """Stack pictures as bytes; grey ones keep no channel, mixed ones become colour."""
    pictures = part[column]
    modes = {picture.mode for picture in pictures}
    mode = "L" if modes == {"L"} else "RGB"
    return np.stack([np.asarray(picture.convert(mode), dtype=np.uint8) for picture in pictures])
