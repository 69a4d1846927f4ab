"""The data sets of this study, from the folder of real data beside the repository."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedcalib.types import Floats, Ints

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
SEVERITIES = (1, 3, 5)


def corruptions() -> list[str]:
    """Name the corruptions of the test images."""
    with np.load(_corrupted()) as arrays:
        return sorted({name.rsplit("_", 1)[0] for name in arrays.files if name not in ("y", "clean")})


def corrupted(corruption: str, severity: int) -> tuple[Floats, Ints]:
    """Give the logits of a ResNet-20 on corrupted CIFAR-10 test images, and the labels."""
    with np.load(_corrupted()) as arrays:
        return arrays[f"{corruption}_{severity}"].astype(np.float32), arrays["y"].astype(np.int64)


def clean() -> tuple[Floats, Ints]:
    """Give the logits on the images as they were."""
    with np.load(_corrupted()) as arrays:
        return arrays["clean"].astype(np.float32), arrays["y"].astype(np.int64)


def _corrupted() -> Path:
    return SHARED / "cifar10_corrupted_logits" / "resnet20_cifar10_corrupted.npz"
