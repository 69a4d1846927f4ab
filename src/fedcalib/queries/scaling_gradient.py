"""Summed gradients of a scaling's log loss, with as much curvature as a message should carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Final, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.families.derivatives import Derivatives
from fedcalib.families.family import Family, bounded_logits
from fedcalib.query import Block, Bound, RecordQuery, Rows
from fedcalib.records import Records
from fedcalib.types import Array, Floats, Ints

_AT_ONCE = 1 << 15  # logits: what is worked on stays in cache
_CELLS = 1 << 20  # of rows at a time
_LARGEST = 1e6  # parameters beyond would leave floating point
_WITHIN = 1 - 1e-12  # rounding must not carry a row beyond its bound
WORST: Final = 30.0  # a record's log loss counts for no more
FULL: Final = 64  # parameters up to which all their curvature is sent


@final
@dataclass(frozen=True)
class ScalingGradient(RecordQuery):
    """The log loss at a family's parameters, its gradient, and its curvature.

    A record's gradient is cut to the L2 norm `reach` and divided by it; its curvature likewise by the square of it. So
    both blocks have L2 = 1, attained by any record that is cut, Linf = 1 and L1 = sqrt(size). Up to 64 parameters the
    curvature is the upper triangle of a matrix; beyond, the three numbers of each class's factor and shift. The loss is
    cut at `WORST` and divided by it: every norm is 1, attained by a record that is certain and wrong.
    """

    family: Family
    parameters: tuple[float, ...]
    reach: float

    def __post_init__(self) -> None:
        if not self.reach > 0 or len(self.parameters) % 2:
            raise InputError("Expected a reach above 0 and parameters, two a class, found others.")
        if not np.abs(self.parameters).max(initial=0.0) <= _LARGEST:
            raise InputError(f"Expected parameters from {-_LARGEST:g} to {_LARGEST:g}, found one beyond.")

    @property
    def pairs(self) -> tuple[Ints, Ints]:
        """List the pairs of parameters whose curvature is sent."""
        size = len(self.parameters)
        if size <= FULL:
            rows, columns = np.triu_indices(size)
            return rows, columns
        first, second = np.arange(size // 2), np.arange(size // 2, size)
        return np.concatenate([first, first, second]), np.concatenate([first, second, second])

    @property
    def blocks(self) -> Mapping[str, Block]:
        """One cell a parameter, one a pair."""
        size = len(self.parameters)
        pairs = size * (size + 1) // 2 if size <= FULL else size // 2 * 3
        return {
            "gradient": Block((size,), Bound(sqrt(size), 1.0, 1.0)),
            "curvature": Block((pairs,), Bound(sqrt(pairs), 1.0, 1.0), weight=0.25),
            "loss": Block((1,), weight=0.05),
        }

    def rows(self, records: Records) -> Rows:
        """Touch every cell, some records at a time."""
        parts = [self._rows(part) for part in records.chunks(self._few)]
        return Rows(None, np.concatenate(parts) if parts else np.zeros((0, self.size)))

    def pooled(self, records: Records, scale: Floats | None = None) -> Array:
        """Sum without writing the rows out; on a grid each row has to be cut on its own."""
        total: Array = np.zeros(self.size, dtype=np.float64 if scale is None else np.int64)
        if scale is None:
            for part in records.chunks(max(_AT_ONCE // records.classes, 16)):
                total += self._sum(self._derivatives(part))
            return total
        for part in records.chunks(self._few):
            total += Rows(None, self._rows(part)).sum(self.size, scale)
        return total

    @property
    def _few(self) -> int:
        """Say how many full rows to hold at a time."""
        return max(_CELLS // self.size, 1)

    def _derivatives(self, records: Records) -> Derivatives:
        return self.family.derivatives(np.array(self.parameters), bounded_logits(records), records.labels)

    def _rows(self, records: Records) -> Floats:
        here = self._derivatives(records)
        gradient = here.gradient.T
        if gradient.shape[1] <= FULL:
            curvature = here.curvature()[self.pairs].T
        else:
            curvature = here.curvature_by_class.reshape(-1, len(records)).T
        return np.concatenate(
            [_cut(gradient, self.reach), _cut(curvature, self.reach**2), _loss(here)[:, None]], axis=1
        )

    def _sum(self, here: Derivatives) -> Floats:
        gradient = here.gradient
        pulled = gradient @ _share(np.sqrt(np.einsum("ij,ij->j", gradient, gradient)), self.reach)
        if len(gradient) <= FULL:
            bent = here.summed_curvature(_share(here.curvature_norms(), self.reach**2))[self.pairs]
        else:
            by_class = here.curvature_by_class.reshape(-1, gradient.shape[1])
            bent = by_class @ _share(np.sqrt(np.einsum("ij,ij->j", by_class, by_class)), self.reach**2)
        return np.concatenate([pulled, bent, [_loss(here).sum()]])


def _cut(rows: Floats, reach: float) -> Floats:
    """Shorten rows to the reach, in units of it."""
    return rows * _share(np.linalg.norm(rows, axis=1), reach)[:, None]


def _share(norms: Floats, reach: float) -> Floats:
    """Say by what to multiply rows of such norms to shorten them to the reach, in units of it."""
    shares: Floats = _WITHIN / np.maximum(norms, reach)
    return shares


def _loss(here: Derivatives) -> Floats:
    """Cut each record's loss to what it may count."""
    cut: Floats = np.minimum(here.loss / WORST, 1.0)
    return cut
