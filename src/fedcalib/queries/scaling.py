"""Summed gradients of a scaling's log loss, with as much curvature as a message should carry.

One round of local training: each client improves parameters on its own records and sends the change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Final, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.families import Derivatives, Family, bounded_logits
from fedcalib.federation import Federation
from fedcalib.query import Block, Bound, ClientQuery, RecordQuery, Rows
from fedcalib.randomness import Randomness
from fedcalib.records import Records
from fedcalib.types import Array, Floats, Ints

_AT_ONCE = 1 << 15  # logits: what is worked on stays in cache
_CELLS = 1 << 20  # of rows at a time
_LARGEST = 1e6  # parameters beyond would leave floating point
_WITHIN = 1 - 1e-12  # rounding must not carry a row beyond its bound
MAX_LOSS: Final = 30.0  # a record's log loss counts for no more
MAX_FULL_HESSIAN: Final = 64  # parameters up to which all their curvature is sent


@final
@dataclass(frozen=True)
class ScalingGradient(RecordQuery):
    """The log loss at a family's parameters, its gradient, and its curvature.

    A record's gradient is cut to the L2 norm `reach` and divided by it; its curvature likewise by the square of it. So
    both blocks have L2 = 1, attained by any record that is cut, Linf = 1 and L1 = sqrt(size). Up to 64 parameters the
    curvature is the upper triangle of a matrix; beyond, the three numbers of each class's factor and shift. The loss is
    cut at `MAX_LOSS` and divided by it: every norm is 1, attained by a record that is certain and wrong.
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
        if size <= MAX_FULL_HESSIAN:
            rows, columns = np.triu_indices(size)
            return rows, columns
        first, second = np.arange(size // 2), np.arange(size // 2, size)
        return np.concatenate([first, first, second]), np.concatenate([first, second, second])

    @property
    def blocks(self) -> Mapping[str, Block]:
        """One cell a parameter, one a pair."""
        size = len(self.parameters)
        pairs = size * (size + 1) // 2 if size <= MAX_FULL_HESSIAN else size // 2 * 3
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
        if gradient.shape[1] <= MAX_FULL_HESSIAN:
            curvature = here.curvature()[self.pairs].T
        else:
            curvature = here.curvature_by_class.reshape(-1, len(records)).T
        return np.concatenate(
            [_cut(gradient, self.reach), _cut(curvature, self.reach**2), _loss(here)[:, None]], axis=1
        )

    def _sum(self, here: Derivatives) -> Floats:
        gradient = here.gradient
        pulled = gradient @ _share(np.sqrt(np.einsum("ij,ij->j", gradient, gradient)), self.reach)
        if len(gradient) <= MAX_FULL_HESSIAN:
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
    cut: Floats = np.minimum(here.loss / MAX_LOSS, 1.0)
    return cut


@final
@dataclass(frozen=True)
class LocalFit(ClientQuery):
    """The change that a client's own records make to parameters, cut to the L2 norm `clip` and divided by it.

    The cut happens here, on the client, so a client adds a vector of L2 norm at most 1, attained by any client whose
    records move the parameters further; then L1 <= sqrt(size) and Linf <= 1. A client without records adds zero.
    """

    family: Family
    parameters: tuple[float, ...]
    clip: float
    ridge: float
    steps: int

    def __post_init__(self) -> None:
        if not self.clip > 0 or not self.ridge >= 0 or self.steps < 1 or not np.isfinite(self.parameters).all():
            raise InputError("Expected finite parameters, a clip and steps above 0 and no negative ridge.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        """One cell a parameter."""
        size = len(self.parameters)
        return {"change": Block((size,), Bound(sqrt(size), 1.0, 1.0, "client"), clip=1.0)}

    def term(self, records: Records, rng: np.random.Generator) -> Floats:
        """Fit, and cut the change."""
        parameters = np.array(self.parameters)
        if not len(records):
            return np.zeros_like(parameters)
        logits = bounded_logits(records)
        fitted = self.family.fit(parameters, logits, records.labels, ridge=self.ridge, steps=self.steps, rng=rng)
        change: Floats = self._cut(fitted[None])[0]
        return change

    def terms(self, federation: Federation, randomness: Randomness) -> Floats:
        """Fit all clients, side by side where the family can, and cut each one's change."""
        parameters = np.array(self.parameters)
        return self._cut(
            self.family.fit_each(parameters, federation, ridge=self.ridge, steps=self.steps, randomness=randomness)
        )

    def _cut(self, fitted: Floats) -> Floats:
        change = np.nan_to_num(fitted - np.array(self.parameters), nan=0.0, posinf=0.0, neginf=0.0)
        norms = np.linalg.norm(change, axis=1, keepdims=True)
        shortened: Floats = change / np.maximum(norms, self.clip) * (1 - 1e-12)
        return shortened
