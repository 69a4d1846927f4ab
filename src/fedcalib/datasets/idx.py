"""The idx format of MNIST and its kin."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from fedcalib.errors import InputError
from fedcalib.types import Array


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
