"""What one client believes about a network's weights: a Gaussian, from its training's trajectory or its curvature.

Multiplying Gaussians: precisions and pulls add up; low-rank parts by Woodbury, never a matrix of size x size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.training.local import SGD, LocalTraining, batches
from fedcalib.training.network import Network, Session
from fedcalib.types import Array, Floats, Ints


@final
@dataclass(frozen=True, eq=False)
class LocalGaussian:
    """A Gaussian in natural parameters about a point: precision diag(e) - V V^T, and its pull away from the point.

    `offset` is where its mean lies from the point.
    """

    precision: Floats  # (size,): e
    factors: Floats  # (size, rank): V
    offset: Floats  # (size,)
    pull: Floats  # (size,): precision times offset

    @classmethod
    def around(cls, offset: Floats, precision: Floats, factors: Floats | None = None) -> LocalGaussian:
        """Take a Gaussian by its mean's offset and its precision."""
        low = np.zeros((len(offset), 0)) if factors is None else factors
        return cls(precision, low, offset, precision * offset - low @ (low.T @ offset))


class PosteriorRecipe(ABC):
    """How a client comes to believe."""

    @abstractmethod
    def find(
        self, network: Network, weights: Floats, inputs: Array, labels: Ints, *,
        prior: float, most: float, rng: np.random.Generator,
    ) -> LocalGaussian:  # fmt: skip
        """Find this client's Gaussian about shared weights; `prior` is the prior's precision, `most` the largest."""


@final
@dataclass(frozen=True)
class Trajectory(PosteriorRecipe):
    """SWAG: the mean and spread of the weights that SGD passes through, once an epoch after training.

    The spread follows the learning rate and the batch, so it is no posterior; a global scale has to be tuned. A weight
    whose variance is below `floor` times the median was hardly moved by any record: the client knows the prior about
    it and no more, or one dead weight would decide the mean alone. `shrink` takes each other variance that share of the
    way to the client's median, which did better than none (0, as published) wherever both were tried. `weighted`
    multiplies precisions by the batches of an epoch, since a posterior's grow with the records and a trajectory's do
    not. With a `rank` the last so many deviations add off-diagonal covariance (rank 0: diagonal).
    """

    training: LocalTraining = LocalTraining(epochs=5, optimiser=SGD(0.01))
    collected: int = 15
    rank: int = 0
    floor: float = 1e-3
    shrink: float = 0.9
    weighted: bool = True

    def __post_init__(self) -> None:
        if self.collected < 2 or not 0 <= self.rank <= self.collected or self.rank == 1 or not 0 < self.floor <= 1:
            raise InputError("Expected at least 2 epochs to collect, a rank of 0 or 2 and more within them, a floor.")
        if not 0 <= self.shrink <= 1:
            raise InputError(f"Expected a share from 0 to 1 to shrink variances by, found {self.shrink}.")

    def find(
        self, network: Network, weights: Floats, inputs: Array, labels: Ints, *,
        prior: float, most: float, rng: np.random.Generator,
    ) -> LocalGaussian:  # fmt: skip
        """Train, then collect."""
        training = replace(self.training, decay=prior / len(labels))
        trained = training.train(network, weights, inputs, labels, rng).weights
        once = replace(training, epochs=1)
        session, update = network.session(trained), training.optimiser.begin(network.trainable)
        mean, square, kept = np.zeros(len(weights)), np.zeros(len(weights)), []
        for count in range(1, self.collected + 1):
            for rows in batches(len(labels), once.batch, rng):
                slope = session.gradient(inputs[rows], labels[rows])[: network.trainable]
                once.draw(network, slope, session.weights, weights)
                update(session.weights[: network.trainable], slope)
            mean += (session.weights - mean) / count
            square += (session.weights.astype(np.float64) ** 2 - square) / count
            kept.append(session.weights - mean)
        counts = len(labels) / once.batch if self.weighted else 1.0
        precision = self.precision(square - mean**2, counts, prior, most)
        if not self.rank:
            return LocalGaussian.around(mean - weights, precision)
        deviations = np.stack(kept[-self.rank :], axis=1) / np.sqrt(counts)
        return LocalGaussian.around(mean - weights, precision, woodbury(precision, deviations))

    def precision(self, variance: Floats, counts: float, prior: float, most: float) -> Floats:
        """Turn spread into precisions; with a rank, half of the covariance is diagonal."""
        moving = variance[variance > 0]
        middle = float(np.median(moving)) if len(moving) else 0.0
        shrunk = np.maximum((1 - self.shrink) * variance + self.shrink * middle, 1e-300)
        told = np.minimum((2 if self.rank else 1) * counts / shrunk, most)
        precision: Floats = np.where(variance > self.floor * middle, told, prior)
        return precision


@final
@dataclass(frozen=True)
class Curvature(PosteriorRecipe):
    """Laplace: precisions from the Gauss-Newton diagonal, which add up over clients whatever their learning rates.

    Without `training` all clients look from the shared weights: sums are then exactly those of the pooled records, and
    rounds of it end in the pooled Laplace approximation. With it each client moves to its own optimum first.
    """

    training: LocalTraining | None = None

    def find(
        self, network: Network, weights: Floats, inputs: Array, labels: Ints, *,
        prior: float, most: float, rng: np.random.Generator,
    ) -> LocalGaussian:  # fmt: skip
        """Look at the curvature where the client stands."""
        if self.training is not None:
            training = replace(self.training, decay=prior / len(labels))
            found = training.train(network, weights, inputs, labels, rng)
            precision = np.minimum(found.curvature(inputs) + prior, most)
            return LocalGaussian.around(found.weights.astype(np.float64) - weights, precision)
        session = network.session(weights)
        precision = np.minimum(session.curvature(inputs) + prior, most)
        pull = -len(labels) * _mean_gradient(session, inputs, labels) - prior * weights
        return LocalGaussian(precision, np.zeros((len(weights), 0)), pull / np.maximum(precision, 1e-300), pull)


def _mean_gradient(session: Session, inputs: Array, labels: Ints) -> Floats:
    """Average the gradient over all records, some at a time."""
    total = np.zeros(1)
    for at in range(0, len(labels), 1024):
        part = slice(at, at + 1024)
        total = total + session.gradient(inputs[part], labels[part]) * len(labels[part])
    return total / len(labels)


def woodbury(precision: Floats, deviations: Floats) -> Floats:
    """Give V with (diag(1/e) + D D^T / (2 (R - 1)))^-1 = diag(e) - V V^T, (size, R); nothing of size x size is made."""
    a = deviations / np.sqrt(2 * (deviations.shape[1] - 1))
    scaled = precision[:, None] * a
    inner = np.linalg.cholesky(np.eye(a.shape[1]) + a.T @ scaled)
    factors: Floats = np.linalg.solve(inner, scaled.T).T
    return factors


def solved(precision: Floats, factors: Floats, pull: Floats) -> Floats:
    """Solve (diag(e) - V V^T) x = h, (size,)."""
    x: Floats = pull / precision
    if factors.shape[1]:
        x = x + (factors @ np.linalg.solve(core(precision, factors), factors.T @ x)) / precision
    return x


def core(precision: Floats, factors: Floats) -> Floats:
    """Give I - V^T diag(1/e) V, lifted to be positive whatever noise or rounding did, (rank, rank)."""
    small = np.eye(factors.shape[1]) - factors.T @ (factors / precision[:, None])
    values, vectors = np.linalg.eigh((small + small.T) / 2)
    lifted: Floats = (vectors * np.clip(values, 1e-9, 1.0)) @ vectors.T
    return lifted


def product(gaussians: Sequence[LocalGaussian]) -> LocalGaussian:
    """Multiply Gaussians about one point whose factors may be seen: their factors stand side by side."""
    precision = np.sum([each.precision for each in gaussians], axis=0)
    factors = np.concatenate([each.factors for each in gaussians], axis=1)
    pull = np.sum([each.pull for each in gaussians], axis=0)
    return LocalGaussian(precision, factors, solved(precision, factors, pull), pull)


def probes(size: int, width: int, seed: int) -> Floats:
    """Draw the public directions along which clients tell their low-rank parts, (size, width), each about length 1."""
    return np.random.default_rng(seed).normal(0, 1 / np.sqrt(size), (size, width))


def from_sketch(sketch: Floats, directions: Floats) -> Floats:
    """Find V with V V^T = A from A applied to directions (Nystroem), (size, width).

    It is exact when the directions are at least as many as A's rank, and never more than A otherwise, so a precision
    that it is taken from stays positive.
    """
    if not sketch.shape[1]:
        return sketch
    inner = directions.T @ sketch
    values, vectors = np.linalg.eigh((inner + inner.T) / 2)
    kept = values > 1e-10 * max(values[-1], 1e-300)
    factors: Floats = sketch @ (vectors[:, kept] / np.sqrt(values[kept]))
    return factors
