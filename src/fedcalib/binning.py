"""Equal-width bins on [0, 1]: one convention for clients, servers and metrics.

Bin k holds [k/B, (k+1)/B), and the last bin holds 1.0 too, so every probability has exactly one bin. The product
p * B is taken in double precision whatever the input: a probability kept in single precision is widened first, so it
falls into the same bin on every machine. The product rounds once, as any division into decimals does, which puts 0.3
of ten bins where a reader expects it (bin 3) although the nearest double lies a hair below 3/10.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcalib.errors import InputError
from fedcalib.types import Floats, Ints

MOST_BINS = 1 << 31


def bin_index(p: Any, bins: int) -> Ints:
    """Number the bin of each probability: min(floor(p * bins), bins - 1), in any shape."""
    check_bins(bins)
    values = np.asarray(p)
    if values.dtype.kind not in "fiub":
        raise InputError(f"Expected probabilities as numbers, found {values.dtype}; convert them first.")
    check_unit_interval(values, "probabilities")
    return bin_index_unchecked(values, bins)


def bin_index_unchecked(p: Floats, bins: int) -> Ints:
    """Number the bin of each probability that has already passed a door; the hot loops use this."""
    scaled: Floats = np.multiply(p, float(bins), dtype=np.float64)
    return np.minimum(scaled, bins - 1).astype(np.int64)  # the cast truncates, which is floor from 0 upwards


def bin_edges(bins: int) -> Floats:
    """List the edges 0, 1/bins, ..., 1, for axes and tables; bins are assigned by `bin_index`, never by edges."""
    check_bins(bins)
    return np.arange(bins + 1) / bins  # (bins + 1,)


def check_bins(bins: int) -> None:
    """Refuse a number of bins that is not a whole number from 1 up."""
    whole = isinstance(bins, (int, np.integer)) and not isinstance(bins, bool)
    if not whole or not 1 <= bins <= MOST_BINS:
        raise InputError(f"Expected a whole number of bins from 1 to {MOST_BINS}, found {bins!r}.")


def check_unit_interval(values: Floats, name: str) -> None:
    """Refuse values outside [0, 1]; NaN is outside too."""
    if not values.size:
        return
    low, high = values.min(), values.max()
    if not (low >= 0 and high <= 1):  # written so that NaN, which compares with nothing, is refused
        raise InputError(
            f"Expected {name} between 0 and 1, found {low:.6g} to {high:.6g}; "
            "drop records that hold NaN, and turn logits into probabilities first."
        )
