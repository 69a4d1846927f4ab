"""Queries that train scalings: summed gradients with curvature, and local fits of whole clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, sqrt
from typing import Final, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.families import Derivatives, Family, bounded_logits
from fedcalib.federation import Federation
from fedcalib.numeric import ExactSum, Grid, finite
from fedcalib.query import Block, Bound, ClientQuery, RecordQuery, Rows
from fedcalib.randomness import Randomness
from fedcalib.records import Records
from fedcalib.types import Array, Floats, Ints

_CACHED_LOGITS = 1 << 15  # logits that are worked on at a time
_MAX_CELLS = 1 << 20  # of rows that are written out at a time
_MAX_PARAMETER = 1e6  # beyond, sums would overflow
_CLIP_SLACK = 1 - 1e-12  # rounding must not carry a row beyond its bound
MAX_CHANGE: Final = 1e6  # of parameters in one local fit, where no clip is set
MAX_LOSS: Final = 30.0  # to which a record's log loss is clipped
MAX_FULL_HESSIAN: Final = 64  # parameters up to which the whole Hessian is sent


@final
@dataclass(frozen=True)
class ScalingGradient(RecordQuery):
    """Log loss at a family's parameters, its gradient, and its curvature.

    A record's gradient is clipped to the L2 norm `reach` and divided by it; its curvature likewise by the square of it.
    So both blocks have L2 = 1, attained by any record that is clipped, Linf = 1 and L1 = sqrt(size). Up to 64
    parameters the curvature is the upper triangle of the Hessian; beyond, the three numbers of each class's factor and
    shift. The loss is clipped at `MAX_LOSS` and divided by it: every norm is 1, attained by a record that is certain
    and wrong.
    """

    family: Family
    parameters: tuple[float, ...]
    reach: float

    def __post_init__(self) -> None:
        if not self.reach > 0 or len(self.parameters) % 2:
            raise InputError(f"Expected a reach above 0 and two parameters per class, found {self!r:.200}.")
        if not np.abs(self.parameters).max(initial=0.0) <= _MAX_PARAMETER:
            raise InputError(f"Expected parameters from {-_MAX_PARAMETER:g} to {_MAX_PARAMETER:g}, found one beyond.")

    @property
    def pairs(self) -> tuple[Ints, Ints]:
        """The pairs of parameters whose curvature is sent."""
        size = len(self.parameters)
        if size <= MAX_FULL_HESSIAN:
            rows, columns = np.triu_indices(size)
            return rows, columns
        first, second = np.arange(size // 2), np.arange(size // 2, size)
        return np.concatenate([first, first, second]), np.concatenate([first, second, second])

    @property
    def blocks(self) -> Mapping[str, Block]:
        size = len(self.parameters)
        pairs = size * (size + 1) // 2 if size <= MAX_FULL_HESSIAN else size // 2 * 3
        return {
            "gradient": Block((size,), Bound(sqrt(size), 1.0, 1.0)),
            "curvature": Block((pairs,), Bound(sqrt(pairs), 1.0, 1.0), weight=0.25),
            "loss": Block((1,), weight=0.05),
        }

    def rows(self, records: Records) -> Rows:
        parts = [self._rows(part) for part in records.chunks(self._rows_at_once)]
        return Rows(None, np.concatenate(parts) if parts else np.zeros((0, self.size)))

    def pooled(self, records: Records, scale: Floats | None = None) -> Array:
        """Sum without writing the rows out; with a scale each row has to be truncated on its own."""
        if scale is None:
            total: Array = np.zeros(self.size)
            for part in records.chunks(self._cached_rows(records)):
                total += self._sum(self._derivatives(part))
            return total
        grid, exact = self.grid(scale), ExactSum(self.size)
        for part in records.chunks(self._rows_at_once):
            grid.add_dense(self._rows(part), exact)
        return exact.value()

    def rounded(self, federation: Federation, randomness: Randomness, scale: Floats) -> Array:
        """Each record's gradient and loss are cut to the grid, and the curvature, which only sets steps, as a whole.

        So no record's Hessian is written out: their sum is a matrix product.
        """
        size, exact = len(self.parameters), ExactSum(len(self.parameters) + 1)
        curvature: Floats = np.zeros(self.size - size - 1)
        kept = np.append(np.arange(size), self.size - 1)
        grid = Grid([size, 1], [float(scale[0]), float(scale[-1])], [(sqrt(size), 1.0, 1.0), (1.0, 1.0, 1.0)])
        for part in federation.records.chunks(self._cached_rows(federation.records)):
            here = self._derivatives(part)
            grid.add_dense(np.hstack([self._gradients(here), _loss(here)[:, None]]), exact)
            curvature = curvature + self._curvature(here)
        total = np.zeros(self.size, dtype=np.int64)
        total[kept] = exact.value()
        total[size:-1] = np.trunc(finite(curvature) * scale[size:-1]).astype(np.int64)
        return total

    @staticmethod
    def _cached_rows(records: Records) -> int:
        return max(_CACHED_LOGITS // records.classes, 16)

    @property
    def _rows_at_once(self) -> int:
        return max(_MAX_CELLS // self.size, 1)

    def _derivatives(self, records: Records) -> Derivatives:
        return self.family.derivatives(np.array(self.parameters), bounded_logits(records), records.labels)

    def _rows(self, records: Records) -> Floats:
        here = self._derivatives(records)
        gradient = here.gradient.T
        if gradient.shape[1] <= MAX_FULL_HESSIAN:
            curvature = here.curvature()[self.pairs].T
        else:
            curvature = here.curvature_by_class.reshape(-1, len(records)).T
        clipped = _clipped(gradient, self.reach), _clipped(curvature, self.reach**2)
        return np.hstack([*clipped, _loss(here)[:, None]])

    def _sum(self, here: Derivatives) -> Floats:
        gradient = here.gradient
        clipped = gradient @ _clip_factor(np.sqrt(np.einsum("ij,ij->j", gradient, gradient)), self.reach)
        return np.concatenate([clipped, self._curvature(here), [_loss(here).sum()]])

    def _gradients(self, here: Derivatives) -> Floats:
        """Each record's clipped gradient, shape (n, parameters)."""
        gradient = here.gradient
        gradient *= _clip_factor(np.sqrt(np.einsum("ij,ij->j", gradient, gradient)), self.reach)
        return gradient.T

    def _curvature(self, here: Derivatives) -> Floats:
        """The sum of the records' clipped curvatures."""
        if len(self.parameters) <= MAX_FULL_HESSIAN:
            return here.summed_curvature(_clip_factor(here.curvature_norms(), self.reach**2))[self.pairs]
        by_class = here.curvature_by_class.reshape(-1, len(here.loss))
        norms = np.sqrt(np.einsum("ij,ij->j", by_class, by_class))
        return np.asarray(by_class @ _clip_factor(norms, self.reach**2))


def _clipped(rows: Floats, limit: float) -> Floats:
    """Rows clipped to this norm, in units of it."""
    return rows * _clip_factor(np.linalg.norm(rows, axis=1), limit)[:, None]


def _clip_factor(norms: Floats, limit: float) -> Floats:
    """Factors that clip rows of these norms, in units of the limit."""
    return _CLIP_SLACK / np.maximum(norms, limit)


def _loss(here: Derivatives) -> Floats:
    """Each record's clipped loss, in units of the limit."""
    clipped: Floats = np.minimum(here.loss / MAX_LOSS, 1.0)
    return clipped


@final
@dataclass(frozen=True)
class LocalFit(ClientQuery):
    """The change that a client's own records make to parameters, clipped to the L2 norm `clip` and divided by it.

    The client clips, so it adds a vector of L2 norm at most 1, attained by any client whose records move the parameters
    further; then L1 <= sqrt(size) and Linf <= 1. A client without records adds zero. An infinite `clip` is for runs
    without privacy: changes are then in units of 1, and limited to `MAX_CHANGE` only so that sums stay finite.
    """

    family: Family
    parameters: tuple[float, ...]
    clip: float
    ridge: float
    steps: int

    def __post_init__(self) -> None:
        if not self.clip > 0 or not self.ridge >= 0 or self.steps < 1 or not np.isfinite(self.parameters).all():
            raise InputError(f"Expected finite parameters, clip and steps above 0 and ridge >= 0, found {self!r:.200}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        size, most = len(self.parameters), 1.0 if self.clip < inf else MAX_CHANGE
        return {"change": Block((size,), Bound(sqrt(size) * most, most, most, "client"), clip=most)}

    @property
    def unit_of_change(self) -> float:
        """What a change of 1 in the answer stands for."""
        return self.clip if self.clip < inf else 1.0

    def term(self, records: Records, rng: np.random.Generator) -> Floats:
        parameters = np.array(self.parameters)
        if not len(records):
            return np.zeros_like(parameters)
        logits = bounded_logits(records)
        fitted = self.family.fit(parameters, logits, records.labels, ridge=self.ridge, steps=self.steps, rng=rng)
        change: Floats = self._clipped(fitted[None])[0]
        return change

    def terms(self, federation: Federation, randomness: Randomness) -> Floats:
        parameters = np.array(self.parameters)
        return self._clipped(
            self.family.fit_each(parameters, federation, ridge=self.ridge, steps=self.steps, randomness=randomness)
        )

    def _clipped(self, fitted: Floats) -> Floats:
        change = np.nan_to_num(fitted - np.array(self.parameters), nan=0.0, posinf=0.0, neginf=0.0)
        norms = np.linalg.norm(change, axis=1, keepdims=True)
        limit = self.clip if self.clip < inf else MAX_CHANGE
        shortened: Floats = change / np.maximum(norms, limit) * (1 - 1e-12)
        return shortened if self.clip < inf else np.multiply(shortened, MAX_CHANGE)
