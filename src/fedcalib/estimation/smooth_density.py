"""Counts behind noisy ones, if densities are smooth: what rates at thresholds are read off where noise is large.

Noise on a count of few records swamps it, and a ratio of two such counts says nothing. Neighbouring counts know more:
a density of scores does not jump at random. So the log-densities of neighbouring groups of cells are drawn toward a
straight line, as strongly as the counts themselves ask for (the stiffness of most evidence), and where the counts are
clear they win.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

import numpy as np

from fedcalib.estimation.trees import answering, rising
from fedcalib.types import Floats, Ints

_GROUPS: Final = 64  # at most; finer groups cost time and bring little
_FEWEST: Final = 8
_STIFFNESS: Final = (1e4, 1e3, 1e2, 1e1, 1.0)
_STEPS: Final = 40
_FEW_STEPS: Final = 5  # enough for further runs, which start where the first one ended
_STILL: Final = 1e-2  # of a unit of log-likelihood
_LONGEST: Final = 2.0
_TINY: Final = 1e-9


@final
@dataclass(frozen=True, eq=False)
class Groups:
    """Neighbouring cells of one label taken together, and what noise makes of them."""

    first: Ints  # (groups,): where each begins
    cells: int
    shared: Floats  # (groups, cells): the covariance of each group with each cell

    @classmethod
    def of(cls, noise: Sequence[Floats], arity: int, cells: int) -> Groups:
        """Take cells together to at most 64 groups, as even as they go."""
        count = min(_GROUPS, cells)
        group = np.arange(cells) * count // cells
        member = (group == np.arange(count)[:, None]).astype(np.float64)
        return cls(np.searchsorted(group, np.arange(count)), cells, answering(member, noise, arity))

    def sums(self, cells: Floats) -> Floats:
        """Add up cells, (..., cells), by group."""
        added: Floats = np.add.reduceat(cells, self.first, axis=-1)
        return added

    @cached_property
    def covariance(self) -> Floats:
        """Give the covariance that noise leaves to the groups, (groups, groups)."""
        both = self.sums(self.shared)
        return (both + both.T) / 2

    def likely(self, widths: Floats, counts: Floats) -> Floats:
        """Give the counts of at least zero that are likeliest under a smooth density, for several runs, (runs, cells).

        `widths` are those of the cells. All runs share the stiffness that the first one asks for. Too few cells to
        speak of a density come back as they are, cut at zero.
        """
        if len(self.first) < _FEWEST:
            return np.maximum(counts, 0.0)
        precision = np.linalg.inv(self.covariance)
        sums = self.sums(counts)
        law = _Law(np.log(self.sums(widths)), precision, float(np.sqrt(np.diag(self.covariance).mean())))
        whole = law.fitted(sums)
        moved = counts + (whole - sums) @ precision @ self.shared  # cells follow their groups as far as they are tied
        if self.cells % len(self.first):
            return rising(moved)
        inside = moved.reshape(*whole.shape, -1)
        return (rising(inside) if len(counts) == 1 else _cut(inside, whole)).reshape(counts.shape)


def _cut(cells: Floats, whole: Floats) -> Floats:
    """Cut what is below zero inside each group and keep the group's sum: quicker for many runs than rising sums."""
    parts = np.maximum(cells, 0.0) + _TINY
    scaled: Floats = parts * (whole / parts.sum(axis=2))[:, :, None]
    return scaled


@final
@dataclass(frozen=True, eq=False)
class _Law:
    """How likely noisy sums of groups are, given the groups' log-densities."""

    wide: Floats  # (groups,): logarithms of the groups' widths
    precision: Floats  # (groups, groups)
    spread: float

    def fitted(self, sums: Floats) -> Floats:
        """Give the likeliest sums, (runs, groups)."""
        place = np.log(np.maximum(sums[:1], 0.0) + 0.1 * self.spread + _TINY) - self.wide
        best, stiff, start = -np.inf, _STIFFNESS[0], place
        for stiffness in _STIFFNESS:
            place, cost = self._climbed(place, sums[:1], stiffness)
            evidence = self._evidence(place, cost, stiffness)
            if evidence > best:
                best, stiff, start = evidence, stiffness, place
        if len(sums) > 1:
            start, _ = self._climbed(np.repeat(start, len(sums), axis=0), sums, stiff, _FEW_STEPS)
        return np.exp(start + self.wide)

    def _climbed(self, place: Floats, sums: Floats, stiffness: float, most: int = _STEPS) -> tuple[Floats, Floats]:
        """Take damped Newton steps until none of the runs gains any more."""
        here, damp = self._cost(place, sums, stiffness), np.full(len(place), 1e-6)
        for _ in range(most):
            there = place + self._step(place, sums, stiffness, damp)
            cost = self._cost(there, sums, stiffness)
            gain, better = here - cost, cost <= here
            place, here = np.where(better[:, None], there, place), np.minimum(here, cost)
            damp = np.clip(np.where(better, damp / 10, damp * 10), 1e-8, 1e8)
            if (np.abs(gain) < _STILL).all():
                break
        return place, here

    def _step(self, place: Floats, sums: Floats, stiffness: float, damp: Floats) -> Floats:
        counts = np.exp(place + self.wide)
        slope = counts * ((counts - sums) @ self.precision) + stiffness * place @ self._roughness
        curve = self._curve(counts, stiffness)
        middle = np.arange(len(self.wide))
        curve[:, middle, middle] *= 1 + damp[:, None]
        step: Floats = np.linalg.solve(curve, -slope[:, :, None])[:, :, 0]
        return np.clip(step, -_LONGEST, _LONGEST)

    def _curve(self, counts: Floats, stiffness: float) -> Floats:
        curve: Floats = counts[:, :, None] * self.precision * counts[:, None, :]
        return curve + stiffness * self._roughness + _TINY * np.eye(len(self.wide))

    def _cost(self, place: Floats, sums: Floats, stiffness: float) -> Floats:
        rest = np.exp(np.minimum(place + self.wide, 60.0)) - sums
        bent = np.square(np.diff(place, 2, axis=1)).sum(axis=1)
        cost: Floats = 0.5 * (rest @ self.precision * rest).sum(axis=1) + 0.5 * stiffness * bent
        return cost

    def _evidence(self, place: Floats, cost: Floats, stiffness: float) -> float:
        """Give the logarithm of the evidence for a stiffness, by Laplace's method."""
        curve = self._curve(np.exp(place + self.wide), stiffness)[0]
        free = len(self.wide) - 2
        return float(-cost[0] + 0.5 * free * np.log(stiffness) - 0.5 * np.linalg.slogdet(curve)[1])

    @cached_property
    def _roughness(self) -> Floats:
        bends = np.diff(np.eye(len(self.wide)), 2, axis=0)
        rough: Floats = bends.T @ bends
        return rough
