"""Counts estimated from noisy counts under a smooth density: where noise is large, rates at thresholds use them.

Noise on a count of few records is larger than the count, and the ratio of two such counts carries no information.
Neighbouring counts add information, because the density of scores changes little from cell to cell. So the second
differences of the log-densities of neighbouring groups of cells have a normal prior around zero. Its precision, the
stiffness, is the one with the largest evidence; where the counts are precise, they outweigh the prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

import numpy as np

from fedcalib.estimation.trees import cross_covariance, nonnegative_leaves
from fedcalib.types import Floats, Ints

_MAX_GROUPS: Final = 64  # finer groups take time and change little
_MIN_GROUPS: Final = 8
_STIFFNESS: Final = (1e4, 1e3, 1e2, 1e1, 1.0)
_MAX_STEPS: Final = 40
_MAX_REPEAT_STEPS: Final = 5  # for further runs, which start where the first one ended
_TOLERANCE: Final = 1e-2  # of the log-likelihood
_MAX_STEP: Final = 2.0
_TINY: Final = 1e-9


@final
@dataclass(frozen=True, eq=False)
class Groups:
    """Neighbouring cells of one label summed in groups, and the covariance of their noise."""

    first: Ints  # (groups,): index of each group's first cell
    cells: int
    cell_covariance: Floats  # (groups, cells): the noise covariance of each group with each cell

    @classmethod
    def of(cls, noise: Sequence[Floats], arity: int, cells: int) -> Groups:
        """Group cells into at most 64 groups of sizes as equal as possible."""
        count = min(_MAX_GROUPS, cells)
        group = np.arange(cells) * count // cells
        member = (group == np.arange(count)[:, None]).astype(np.float64)
        return cls(np.searchsorted(group, np.arange(count)), cells, cross_covariance(member, noise, arity))

    def sums(self, cells: Floats) -> Floats:
        """Sums of cells, (..., cells), by group."""
        return np.add.reduceat(cells, self.first, axis=-1)

    @cached_property
    def covariance(self) -> Floats:
        """Noise covariance of the groups, shape (groups, groups)."""
        covariance = self.sums(self.cell_covariance)
        return (covariance + covariance.T) / 2

    def smoothed(self, widths: Floats, counts: Floats) -> Floats:
        """Posterior mode of the counts under a smooth density, for several runs, shape (runs, cells).

        `widths` are those of the cells. All runs use the stiffness with the largest evidence in the first one. Where
        there are too few cells for a density, the counts are returned, clipped at zero.
        """
        if len(self.first) < _MIN_GROUPS:
            return np.maximum(counts, 0.0)
        precision = np.linalg.inv(self.covariance)
        sums = self.sums(counts)
        deviation = float(np.sqrt(np.diag(self.covariance).mean()))
        fitted = _GroupLikelihood(np.log(self.sums(widths)), precision, deviation).fitted(sums)
        moved = counts + (fitted - sums) @ precision @ self.cell_covariance  # cells given their groups: a regression
        if self.cells % len(self.first):
            return nonnegative_leaves(moved)
        inside = moved.reshape(*fitted.shape, -1)
        cells = nonnegative_leaves(inside) if len(counts) == 1 else _clipped(inside, fitted)
        return cells.reshape(counts.shape)


def _clipped(cells: Floats, totals: Floats) -> Floats:
    """Clip at zero inside each group and keep the group's total; for many runs, faster than nonnegative leaves."""
    parts = np.maximum(cells, 0.0) + _TINY
    scaled: Floats = parts * (totals / parts.sum(axis=2))[:, :, None]
    return scaled


@final
@dataclass(frozen=True, eq=False)
class _GroupLikelihood:
    """Likelihood of noisy group sums given the log-densities of the groups."""

    log_widths: Floats  # (groups,)
    precision: Floats  # (groups, groups)
    deviation: float  # typical standard deviation of a sum

    def fitted(self, sums: Floats) -> Floats:
        """Posterior mode of the sums, shape (runs, groups)."""
        density = np.log(np.maximum(sums[:1], 0.0) + 0.1 * self.deviation + _TINY) - self.log_widths
        largest, chosen, start = -np.inf, _STIFFNESS[0], density
        for stiffness in _STIFFNESS:
            density, loss = self._minimised(density, sums[:1], stiffness)
            evidence = self._log_evidence(density, loss, stiffness)
            if evidence > largest:
                largest, chosen, start = evidence, stiffness, density
        if len(sums) > 1:
            start, _ = self._minimised(np.repeat(start, len(sums), axis=0), sums, chosen, _MAX_REPEAT_STEPS)
        return np.exp(start + self.log_widths)

    def _minimised(
        self, density: Floats, sums: Floats, stiffness: float, max_steps: int = _MAX_STEPS
    ) -> tuple[Floats, Floats]:
        """Minimise the loss of all runs by damped Newton steps (Levenberg and Marquardt)."""
        loss, damping = self._loss(density, sums, stiffness), np.full(len(density), 1e-6)
        for _ in range(max_steps):
            candidate = density + self._step(density, sums, stiffness, damping)
            candidate_loss = self._loss(candidate, sums, stiffness)
            gain, better = loss - candidate_loss, candidate_loss <= loss
            density, loss = np.where(better[:, None], candidate, density), np.minimum(loss, candidate_loss)
            damping = np.clip(np.where(better, damping / 10, damping * 10), 1e-8, 1e8)
            if (np.abs(gain) < _TOLERANCE).all():
                break
        return density, loss

    def _step(self, density: Floats, sums: Floats, stiffness: float, damping: Floats) -> Floats:
        counts = np.exp(density + self.log_widths)
        gradient = counts * ((counts - sums) @ self.precision) + stiffness * density @ self._roughness
        hessian = self._hessian(counts, stiffness)
        diagonal = np.arange(len(self.log_widths))
        hessian[:, diagonal, diagonal] *= 1 + damping[:, None]
        step: Floats = np.linalg.solve(hessian, -gradient[:, :, None])[:, :, 0]
        return np.clip(step, -_MAX_STEP, _MAX_STEP)

    def _hessian(self, counts: Floats, stiffness: float) -> Floats:
        hessian: Floats = counts[:, :, None] * self.precision * counts[:, None, :]
        return hessian + stiffness * self._roughness + _TINY * np.eye(len(self.log_widths))

    def _loss(self, density: Floats, sums: Floats, stiffness: float) -> Floats:
        """Negative log-posterior of each run, up to a constant."""
        residual = np.exp(np.minimum(density + self.log_widths, 60.0)) - sums
        roughness = np.square(np.diff(density, 2, axis=1)).sum(axis=1)
        loss: Floats = 0.5 * (residual @ self.precision * residual).sum(axis=1) + 0.5 * stiffness * roughness
        return loss

    def _log_evidence(self, density: Floats, loss: Floats, stiffness: float) -> float:
        """Logarithm of the evidence for a stiffness, by Laplace's method."""
        hessian = self._hessian(np.exp(density + self.log_widths), stiffness)[0]
        rank = len(self.log_widths) - 2
        return float(-loss[0] + 0.5 * rank * np.log(stiffness) - 0.5 * np.linalg.slogdet(hessian)[1])

    @cached_property
    def _roughness(self) -> Floats:
        """Matrix of the quadratic form that sums squared second differences."""
        differences = np.diff(np.eye(len(self.log_widths)), 2, axis=0)
        return differences.T @ differences
