"""A posterior over a network's weights, which predicts by averaging over draws from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from fedcalib.artifacts.scorer import Scorer
from fedcalib.artifacts.trained import Trained
from fedcalib.errors import InputError
from fedcalib.records import Records, softmax
from fedcalib.training.network import Network, inputs_of
from fedcalib.training.product import core
from fedcalib.types import Array, Floats


@final
@dataclass(frozen=True, eq=False)
class WeightPosterior(Scorer):
    """A Gaussian over weights with precision diag(e) - V V^T, widened by how much clients disagree.

    `scatter` is a variance that is added for disagreement, `scale` multiplies the standard deviation; predictions
    average the probabilities of `samples` draws.
    """

    network: Network
    mean: Floats  # (size,)
    precision: Floats  # (size,): e
    factors: Floats  # (size, rank): V
    scatter: Floats  # (size,)
    scale: float = 1.0
    samples: int = 30
    seed: int = 0
    column: str | None = "inputs"

    def __post_init__(self) -> None:
        if not (np.isfinite(self.mean).all() and (self.precision > 0).all() and (self.scatter >= 0).all()):
            raise InputError("Expected a finite mean, precisions above 0 and no negative scatter, found others.")
        if self.samples < 1 or not self.scale >= 0:
            raise InputError("Expected at least one sample and a scale of at least 0, found others.")

    @property
    def variance(self) -> Floats:
        """Give each weight's variance, (size,)."""
        own = 1 / self.precision
        if self.factors.shape[1]:
            half = self._low_rank()
            own = own + np.einsum("ij,ij->i", half, half)
        spread: Floats = self.scale**2 * (own + self.scatter)
        return spread

    def sample(self, count: int, rng: np.random.Generator) -> Floats:
        """Draw weights, (count, size)."""
        size = len(self.mean)
        off = rng.normal(size=(count, size)) * np.sqrt(1 / self.precision + self.scatter)
        if self.factors.shape[1]:
            off += rng.normal(size=(count, self.factors.shape[1])) @ self._low_rank().T
        drawn: Floats = self.mean + self.scale * off
        return drawn

    def _low_rank(self) -> Floats:
        """Give B with covariance diag(1/e) + B B^T, (size, rank)."""
        root = np.linalg.cholesky(core(self.precision, self.factors))
        half: Floats = np.linalg.solve(root, (self.factors / self.precision[:, None]).T).T
        return half

    @property
    def point(self) -> Trained:
        """Give the network at the mean weights."""
        return Trained(self.network, self.mean, self.column)

    def probs(self, inputs: Array) -> Floats:
        """Average predicted probabilities over draws, (n, classes)."""
        rng = np.random.default_rng(self.seed)
        total: Floats = np.zeros(1)
        for _ in range(self.samples):
            logits = self.network.session(self.sample(1, rng)[0]).logits(inputs)
            total = total + softmax(logits.astype(np.float64))
        averaged: Floats = total / total.sum(axis=1, keepdims=True)
        return averaged

    def over(self, records: Records) -> Records:
        """Score records with averaged probabilities."""
        probs = self.probs(inputs_of(records, self.column))
        return Records(probs, records.labels, False, records.unit, records.extra)

    def scaled(self, scale: float) -> WeightPosterior:
        """Multiply the standard deviation."""
        return replace(self, scale=scale)

    def tuned(self, records: Records, scales: Sequence[float] = (0.0, 0.1, 0.2, 0.5, 1.0, 1.5, 2.0)) -> WeightPosterior:
        """Choose the scale with the least log loss on held-out records."""
        from fedcalib.metrics import nll

        return min(
            (self.scaled(scale) for scale in scales), key=lambda each: nll(each.over(records).probs, records.labels)
        )
