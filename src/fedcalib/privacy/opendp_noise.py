"""Discrete Laplace and discrete Gaussian noise from OpenDP's exact samplers."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import inf, nextafter
from types import ModuleType
from typing import Any

import numpy as np

from fedcalib.privacy.samplers import chunks
from fedcalib.types import Ints


def laplace(scale: Fraction, count: int) -> Ints:
    """Draw integers k with probability proportional to e^(-|k|/scale)."""
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    return _draw(dp.m.make_laplace(*space, scale=at_least(scale)), count)


def gaussian(sigma: Fraction, count: int) -> Ints:
    """Draw integers k with probability proportional to e^(-k^2 / (2 sigma^2))."""
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    return _draw(dp.m.make_gaussian(*space, scale=at_least(sigma)), count)


def at_least(value: Fraction) -> float:
    """Round a fraction up to a float, so that noise is never less than asked."""
    near = float(value)
    return near if Fraction(near) >= value else nextafter(near, inf)


def _draw(measurement: Any, count: int) -> Ints:
    """Release zeros: what comes back is the noise alone."""
    drawn = [np.asarray(measurement([0] * size), dtype=np.int64) for size in chunks(count)]
    return np.concatenate(drawn) if drawn else np.zeros(0, dtype=np.int64)


@cache
def _opendp() -> ModuleType:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    module: ModuleType = dp
    return module
