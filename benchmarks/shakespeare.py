"""Shakespeare's speeches by role: which character comes next?"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedcalib.datasets import Dataset, found
from fedcalib.types import Array, Ints

CHARACTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}\x00"
_HOW = "Save a Parquet file of that name with the columns source, role and text, one speech a row."


def shakespeare(directory: Path | str, length: int = 80, stride: int = 1) -> Dataset:
    """Read speeches.parquet: each record is `length` characters of a role's speeches, its label the next one.

    The first nine tenths of what a role says are for training, the rest for testing; `stride` skips starts.
    """
    import pyarrow.parquet as pq

    table = pq.read_table(found(directory, "speeches.parquet", _HOW), columns=["source", "role", "text"])
    spoken: dict[str, list[str]] = {}
    for source, role, text in zip(*(table[name].to_pylist() for name in ("source", "role", "text")), strict=True):
        spoken.setdefault(f"{source}: {role}", []).append(text)
    windows, labels, tests, roles = [], [], [], []
    for role, speeches in spoken.items():
        inputs, following = _windows("\n".join(speeches), length, stride)
        windows.append(inputs)
        labels.append(following)
        tests.append(np.arange(len(following)) >= 0.9 * len(following))
        roles.append(np.full(len(following), role, dtype=object))
    group = np.concatenate(roles).astype(str)
    inputs, following = np.concatenate(windows), np.concatenate(labels)
    return Dataset("shakespeare", inputs, following, len(CHARACTERS), np.concatenate(tests), group)


def _windows(text: str, length: int, stride: int) -> tuple[Array, Ints]:
    """Cut numbered characters into windows and what follows each."""
    place = {character: number for number, character in enumerate(CHARACTERS)}
    tokens = np.array([place.get(character, len(CHARACTERS) - 1) for character in text], dtype=np.int8)
    if len(tokens) <= length:
        return np.zeros((0, length), np.int8), np.zeros(0, np.int64)
    cut = np.lib.stride_tricks.sliding_window_view(tokens, length)[:-1:stride]
    return np.ascontiguousarray(cut), tokens[length::stride].astype(np.int64)
