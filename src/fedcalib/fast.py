"""Counting probabilities by class and bin, in numpy, or compiled by numba where one asks for it.

Both count the same integers, so nothing but the time depends on the choice. Compiling takes seconds, so it is never
done unasked: say `with fast.compiled(): ...`. It needs the extra `fast`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import numpy as np

from fedcalib.errors import InputError
from fedcalib.types import Floats, Ints

_AT_ONCE = 1 << 15  # probabilities: what is worked on stays in cache

Counter = Callable[[Floats, int], Ints]


def counted(probs: Floats, bins: int) -> Ints:
    """Count the probabilities of each class, (n, classes), by equal-width bin, (classes, bins)."""
    return _COUNTER.get()(probs, bins)


@contextmanager
def compiled() -> Iterator[None]:
    """Count with compiled code inside this block."""
    loop = _compiled_loop()

    def count(probs: Floats, bins: int) -> Ints:
        total = np.zeros((probs.shape[1], bins), dtype=np.int64)
        loop(probs, bins, total)
        return total

    token = _COUNTER.set(count)
    try:
        yield
    finally:
        _COUNTER.reset(token)


def _plain(probs: Floats, bins: int) -> Ints:
    """Count a few records at a time, all classes in one pass over them."""
    classes = probs.shape[1]
    step = max(_AT_ONCE // classes, 16)
    total = np.zeros(classes * bins, dtype=np.int64)
    starts = bins * np.arange(classes)
    scaled, cells = np.empty((step, classes)), np.empty((step, classes), dtype=np.int64)
    for start in range(0, len(probs), step):
        part = probs[start : start + step]
        places, held = scaled[: len(part)], cells[: len(part)]
        np.multiply(part, float(bins), out=places, dtype=np.float64)  # as bin_index does
        np.minimum(places, bins - 1, out=places)
        np.copyto(held, places, casting="unsafe")  # truncates
        held += starts
        total += np.bincount(held.reshape(-1), minlength=len(total))
    return total.reshape(classes, bins)


_COUNTER: ContextVar[Counter] = ContextVar("counter", default=_plain)


@cache
def _compiled_loop() -> Any:
    """Compile the loop, once a process."""
    try:
        import numba
    except ImportError as error:
        raise InputError(
            "Expected the package numba for compiled counting, found none; "
            "install it with: pip install 'fedcalib[fast]'."
        ) from error

    def loop(probs: Any, bins: int, total: Any) -> None:
        records, classes = probs.shape
        for record in range(records):
            for label in range(classes):
                cell = int(np.float64(probs[record, label]) * bins)
                total[label, min(cell, bins - 1)] += 1

    return numba.njit(nogil=True)(loop)
