"""Stochastic gradient Langevin dynamics: centralised samplers to compare posteriors with.

They draw from exp(-U) with U the log loss summed over all records plus the prior's, at temperature one: gradients of a
batch's mean are multiplied by the number of records, and noise comes in from the first step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.networks import Ensemble, Trained
from fedcalib.errors import InputError
from fedcalib.records import Records
from fedcalib.training.network import Network, batches, inputs_of
from fedcalib.types import Floats


@final
@dataclass(frozen=True)
class Langevin:
    """A sampler over pooled records: after `burn_in` epochs it keeps the weights `kept` times, `thinning` epochs apart.

    `rate` is the step. `preconditioned` divides it by the root of a running mean of squared gradients (pSGLD); the term
    for that preconditioner's own curvature is dropped, as usual.
    """

    rate: float = 1e-6
    burn_in: int = 5
    kept: int = 15
    thinning: int = 1
    batch: int = 64
    prior: float = 1.0
    preconditioned: bool = False
    decay: float = 0.99
    damping: float = 1e-5

    def __post_init__(self) -> None:
        if not self.rate > 0 or self.burn_in < 0 or self.kept < 1 or self.thinning < 1 or self.batch < 1:
            raise InputError("Expected a rate above 0 and at least one sample kept, found others.")

    def sample(
        self, network: Network, weights: Floats, records: Records, seed: int, column: str | None = "inputs"
    ) -> Ensemble:
        """Draw weights; the ensemble averages the predictions of those kept."""
        rng, inputs = np.random.default_rng(seed), inputs_of(records, column)
        session, square, kept = network.session(weights), np.zeros(network.trainable), []
        for epoch in range(self.burn_in + self.kept * self.thinning):
            for rows in batches(len(records), self.batch, rng):
                slope = session.gradient(inputs[rows], records.labels[rows])[: network.trainable].astype(np.float64)
                self._step(session.weights[: network.trainable], slope, square, len(records), rng)
            past = epoch + 1 - self.burn_in
            if past > 0 and past % self.thinning == 0:
                kept.append(Trained(network, session.weights.copy(), column))
        return Ensemble.of(tuple(kept))

    def _step(self, weights: Floats, slope: Floats, square: Floats, records: int, rng: np.random.Generator) -> None:
        """Move the weights in place."""
        step: Floats | float = self.rate
        if self.preconditioned:
            square *= self.decay
            square += (1 - self.decay) * slope**2
            step = self.rate / (self.damping + np.sqrt(square))
        drift = records * slope + self.prior * weights
        moved = -step / 2 * drift + np.sqrt(step) * rng.normal(size=len(weights))
        weights += moved.astype(weights.dtype, copy=False)
