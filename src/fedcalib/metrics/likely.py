"""Counts behind noisy ones, if densities are smooth: what rates at thresholds are read off where noise is large.

Noise on a count of few records swamps it, and a ratio of two such counts says nothing. Neighbouring counts know more:
a density of scores does not jump at random. So the log-densities of neighbouring groups of cells are drawn toward a
straight line, as strongly as the counts themselves ask for (the stiffness of most evidence), and where the counts are
clear they win.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

import numpy as np

from fedcalib.trees import answering, rising
from fedcalib.types import Floats

_GROUPS: Final = 64  # at most; finer groups cost time and bring little
_FEWEST: Final = 8
_STIFFNESS: Final = (1e4, 1e3, 1e2, 1e1, 1.0, 0.1)
_STEPS: Final = 40
_STILL: Final = 1e-4  # of a unit of log-likelihood
_LONGEST: Final = 2.0
_TINY: Final = 1e-9


def likely_counts(widths: Floats, counts: Floats, noise: tuple[Floats, ...], arity: int) -> Floats:
    """Give the counts of at least zero that are likeliest under smooth densities, for several runs, (runs, 2, cells).

    `widths` are those of the cells, (cells,); `noise` is what a table knows of its noise. All runs share the stiffness
    that the first one asks for. Too few cells to speak of a density come back as they are.
    """
    groups = _groups(len(widths))
    if groups < _FEWEST:
        return np.maximum(counts, 0.0)
    wide = np.log(widths.reshape(groups, -1).sum(axis=1))
    both = [
        _smoothed(wide, counts[:, label], [level[label] for level in noise], arity) for label in range(counts.shape[1])
    ]
    return np.stack(both, axis=1)


def _groups(cells: int) -> int:
    """Find the largest number of equal groups of cells."""
    return next(count for count in range(min(cells, _GROUPS), 0, -1) if cells % count == 0)


def _smoothed(wide: Floats, counts: Floats, noise: list[Floats], arity: int) -> Floats:
    groups, cells = len(wide), counts.shape[1]
    member = np.repeat(np.eye(groups), cells // groups, axis=1)
    shared = answering(member, noise, arity)  # covariance of each group with each cell
    spread = shared @ member.T
    precision = np.linalg.inv((spread + spread.T) / 2)
    sums = counts @ member.T
    law = _Law(wide, precision, float(np.sqrt(np.diag(spread).mean())))
    whole = law.fitted(sums)
    moved = counts + (whole - sums) @ precision @ shared  # cells follow their groups as far as they are tied to them
    return rising(moved.reshape(*whole.shape, -1)).reshape(counts.shape)


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
            start, _ = self._climbed(np.repeat(start, len(sums), axis=0), sums, stiff)
        return np.exp(start + self.wide)

    def _climbed(self, place: Floats, sums: Floats, stiffness: float) -> tuple[Floats, Floats]:
        """Take damped Newton steps until none of the runs gains any more."""
        here, damp = self._cost(place, sums, stiffness), np.full(len(place), 1e-6)
        for _ in range(_STEPS):
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
