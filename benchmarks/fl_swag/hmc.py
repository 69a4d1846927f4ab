"""Hamiltonian Monte Carlo over the weights of a small network of tanh layers: many chains at once, in numpy."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from rich.progress import track

import fedcalib as fc
from fedcalib.types import Floats

Layers = list[tuple[Floats, Floats]]


@dataclass(frozen=True, eq=False)
class Posterior:
    """Minus the log posterior of a network's weights, in the order in which torch lays them out."""

    sizes: tuple[int, ...]
    records: fc.Records
    prior: float

    def layers(self, weights: Floats) -> Layers:
        """Cut vectors into matrices and shifts, (chains, outputs, inputs) and (chains, 1, outputs)."""
        found, at = [], 0
        for inside, outside in pairwise(self.sizes):
            middle, end = at + inside * outside, at + (inside + 1) * outside
            matrix = weights[:, at:middle].reshape(len(weights), outside, inside)
            found.append((matrix, weights[:, None, middle:end]))
            at = end
        return found

    def potential(self, weights: Floats) -> tuple[Floats, Floats]:
        """Give the potential and its gradient, (chains,) and (chains, size)."""
        layers, labels = self.layers(weights), self.records.labels
        seen = [np.broadcast_to(self.records.extra["inputs"], (len(weights), *self.records.extra["inputs"].shape))]
        for matrix, shift in layers[:-1]:
            seen.append(np.tanh(seen[-1] @ matrix.transpose(0, 2, 1) + shift))
        logits = seen[-1] @ layers[-1][0].transpose(0, 2, 1) + layers[-1][1]
        most = logits.max(axis=2, keepdims=True)
        mass = (most + np.log(np.exp(logits - most).sum(axis=2, keepdims=True)))[:, :, 0]
        loss = (mass - logits[:, np.arange(len(labels)), labels]).sum(axis=1)
        residual = np.exp(logits - mass[:, :, None])
        residual[:, np.arange(len(labels)), labels] -= 1
        slopes = []
        for at in reversed(range(len(layers))):
            fed = seen[at]
            slopes += [residual.sum(axis=1), (residual.transpose(0, 2, 1) @ fed).reshape(len(weights), -1)]
            if at:
                residual = (residual @ layers[at][0]) * (1 - fed**2)
        gradient = np.concatenate(slopes[::-1], axis=1) + self.prior * weights
        return loss + self.prior / 2 * np.square(weights).sum(axis=1), gradient


def hmc(
    posterior: Posterior, start: Floats, draws: int, *, step: float, leaps: int, seed: int
) -> tuple[Floats, Floats, float]:
    """Draw from several starts, (chains, size), after half as many draws that are thrown away.

    Gives the draws, (chains, draws, size), their potentials, and how often a proposal was taken.
    """
    rng, weights = np.random.default_rng(seed), start.astype(np.float64)
    value, slope = posterior.potential(weights)
    kept, values, taken = [], [], []
    for _ in track(range(draws // 2 + draws), description="HMC"):
        speed = rng.normal(size=weights.shape)
        energy = value + np.square(speed).sum(axis=1) / 2
        moved, now, bend = weights, value, slope
        length = step * rng.uniform(0.8, 1.2)  # a fixed length may come back to where it started
        for _ in range(leaps):
            speed = speed - length / 2 * bend
            moved = moved + length * speed
            now, bend = posterior.potential(moved)
            speed = speed - length / 2 * bend
        better = np.log(rng.random(len(weights))) < energy - now - np.square(speed).sum(axis=1) / 2
        weights, slope = (np.where(better[:, None], new, old) for new, old in ((moved, weights), (bend, slope)))
        value = np.where(better, now, value)
        kept.append(weights)
        values.append(value)
        taken.append(better)
    rest = slice(draws // 2, None)
    return np.stack(kept[rest], axis=1), np.stack(values[rest], axis=1), float(np.mean(taken[rest]))


def disagreement(chains: Floats) -> float:
    """Give the split R-hat of one number, (chains, draws): 1 where halves of all chains tell the same."""
    halves = np.concatenate(np.split(chains[:, : chains.shape[1] // 2 * 2], 2, axis=1))
    within = halves.var(axis=1, ddof=1).mean()
    return float(np.sqrt(1 - 1 / halves.shape[1] + halves.mean(axis=1).var(ddof=1) / within))
