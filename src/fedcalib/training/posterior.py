"""Gaussian posteriors over a network's weights: one per client, and their product.

A client's Gaussian comes from the trajectory of its training (`Trajectory`, SWAG) or from the curvature of its loss
(`Curvature`, Laplace). In the product of Gaussians the precisions add, and so do the precisions times the means.
Low-rank parts are handled by Woodbury's identity, so that no matrix of size x size is ever made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.training.network import BATCH, SGD, LocalTraining, Network, Session, batches
from fedcalib.types import Array, Floats, Ints


@final
@dataclass(frozen=True, eq=False)
class LocalGaussian:
    """A Gaussian around a point, with precision matrix diag(e) - V V^T.

    The natural parameters of a Gaussian are its precision and its information: the precision times the mean.
    """

    precision: Floats  # (size,): e
    factors: Floats  # (size, rank): V
    offset: Floats  # (size,): its mean minus the point
    information: Floats  # (size,): precision times offset

    @classmethod
    def around(cls, offset: Floats, precision: Floats, factors: Floats | None = None) -> LocalGaussian:
        """A Gaussian from the offset of its mean and its precision."""
        low = np.zeros((len(offset), 0)) if factors is None else factors
        return cls(precision, low, offset, precision * offset - low @ (low.T @ offset))

    def with_prior_once(self, point: Floats, prior: float) -> LocalGaussian:
        """This Gaussian with its mean counted as evidence only as far as records determine it.

        `precision` includes the prior's. At a posterior mode, precision times mean is the records' evidence alone. But
        short training leaves a weight that no record moves where it started, and a product of Gaussians would count
        that start as evidence of every client: with b clients the weight would end at up to b times its start. So the
        prior's part of the precision counts for the mean in the proportion that records have in the precision, and for
        the prior's mean, zero, in the rest.
        """
        rest = np.minimum(prior / np.maximum(self.precision, 1e-300), 1.0)
        return replace(self, information=self.information - rest * prior * (point + self.offset))

    def with_averages(self, trainable: int, most: float) -> LocalGaussian:
        """This Gaussian with running averages, which come after the weights, averaged alike over clients."""
        if trainable == len(self.offset):
            return self
        after = np.arange(len(self.offset)) >= trainable
        precision = np.where(after, most, self.precision)
        information = np.where(after, most * self.offset, self.information)
        return replace(self, precision=precision, information=information, factors=self.factors * ~after[:, None])


class PosteriorRecipe(ABC):
    """How a client's posterior is found."""

    @property
    def newton(self) -> bool:
        """Whether the information is the gradient at the shared weights, so that means are Newton steps from there."""
        return False

    @abstractmethod
    def find(
        self, network: Network, weights: Floats, inputs: Array, labels: Ints, *,
        prior: float, most: float, rng: np.random.Generator,
    ) -> LocalGaussian:  # fmt: skip
        """This client's Gaussian around shared weights.

        Parameters
        ----------
        network, weights
            The architecture, and the shared weights, shape (size,).
        inputs, labels
            The client's records.
        prior
            Precision of the prior.
        most
            Upper limit of each precision.
        rng
            Source of the order of batches.
        """


@final
@dataclass(frozen=True)
class Trajectory(PosteriorRecipe):
    """SWAG: mean and variance of the weights along an SGD trajectory, taken once per epoch after training.

    The variance depends on the learning rate and the batch, so it is not a posterior's; its global scale has to be
    tuned.

    Parameters
    ----------
    training
        The training before, and the optimiser and batch of the trajectory.
    collected
        Epochs of the trajectory, at least 2.
    rank
        How many of the last deviations add off-diagonal covariance; 0 for a diagonal covariance.
    floor
        A weight whose variance is below this fraction of the median was hardly changed by any record, so it gets the
        prior's precision; otherwise one unused weight would decide the mean alone.
    shrink
        How far each other variance is shrunk toward the client's median, from 0 (none, as published) to 1. 0.9 did
        better than 0 wherever both were tried.
    weighted
        Whether precisions are multiplied by the batches per epoch, because those of a posterior grow with the number of
        records and those of a trajectory do not.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.training.posterior import Trajectory
    >>> network = fc.training.SoftmaxRegression(4, 3)
    >>> fc.methods.FLSWAG(network, Trajectory(collected=10, rank=5), width=20).recipe.rank
    5
    """

    training: LocalTraining = LocalTraining(epochs=5, optimiser=SGD(0.01))
    collected: int = 15
    rank: int = 0
    floor: float = 1e-3
    shrink: float = 0.9
    weighted: bool = True

    def __post_init__(self) -> None:
        if self.collected < 2 or not 0 <= self.rank <= self.collected or self.rank == 1 or not 0 < self.floor <= 1:
            raise InputError(
                "Expected at least 2 epochs to collect, a rank of 0 or from 2 to that number, and a floor in (0, 1]."
            )
        if not 0 <= self.shrink <= 1:
            raise InputError(f"Expected to shrink variances by a fraction from 0 to 1, found {self.shrink}.")

    def find(
        self, network: Network, weights: Floats, inputs: Array, labels: Ints, *,
        prior: float, most: float, rng: np.random.Generator,
    ) -> LocalGaussian:  # fmt: skip
        training = replace(self.training, decay=prior / len(labels))
        trained = training.train(network, weights, inputs, labels, rng).weights
        session, update = network.session(trained), training.optimiser.begin(network.trainable)
        mean, square, deviations = np.zeros(len(weights)), np.zeros(len(weights)), []
        touched = np.arange(len(weights)) >= network.trainable  # by any record; running averages are
        for count in range(1, self.collected + 1):
            for rows in batches(len(labels), training.batch, rng):
                gradient = session.gradient(inputs[rows], labels[rows])[: network.trainable]
                touched[: network.trainable] |= gradient != 0  # decay alone moves the others
                training.add_penalties(network, gradient, session.weights, weights)
                update(session.weights[: network.trainable], gradient)
            mean += (session.weights - mean) / count
            square += (session.weights.astype(np.float64) ** 2 - square) / count
            deviations.append(session.weights - mean)
        factor = len(labels) / training.batch if self.weighted else 1.0
        variance = np.where(touched, square - mean**2, 0.0)
        precision = self.precision(variance, factor, prior, most)
        last = np.stack(deviations[-self.rank :], axis=1) * touched[:, None] if self.rank else None
        factors = None if last is None else woodbury(precision, last / np.sqrt(factor))
        found = LocalGaussian.around(mean - weights, precision, factors)
        return found.with_prior_once(weights, prior)

    def precision(self, variance: Floats, factor: float, prior: float, most: float) -> Floats:
        """Precisions from variances, times a factor; with a rank, half of the covariance is diagonal."""
        positive = variance[variance > 0]
        median = float(np.median(positive)) if len(positive) else 0.0
        shrunken = np.maximum((1 - self.shrink) * variance + self.shrink * median, 1e-300)
        data = np.minimum((2 if self.rank else 1) * factor / shrunken, most)
        precision: Floats = np.where(variance > self.floor * median, data, prior)
        return precision


@final
@dataclass(frozen=True)
class Curvature(PosteriorRecipe):
    """Laplace: precisions from the Gauss-Newton diagonal, which add over clients whatever their learning rates.

    Parameters
    ----------
    training
        With None, all clients evaluate the curvature at the shared weights: sums are then exactly those of the pooled
        records, and several rounds converge to the pooled Laplace approximation. With a training, each client first
        moves to its own optimum.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.training.posterior import Curvature
    >>> fc.methods.FLSWAG(fc.training.SoftmaxRegression(4, 3), Curvature(), rounds=3).recipe
    Curvature(training=None)
    """

    training: LocalTraining | None = None

    @property
    def newton(self) -> bool:
        return self.training is None

    def find(
        self, network: Network, weights: Floats, inputs: Array, labels: Ints, *,
        prior: float, most: float, rng: np.random.Generator,
    ) -> LocalGaussian:  # fmt: skip
        if self.training is not None:
            training = replace(self.training, decay=prior / len(labels))
            found = training.train(network, weights, inputs, labels, rng)
            precision = np.minimum(found.curvature(inputs) + prior, most)
            gaussian = LocalGaussian.around(found.weights.astype(np.float64) - weights, precision)
            return gaussian.with_prior_once(weights, prior)
        session = network.session(weights)
        precision = np.minimum(session.curvature(inputs) + prior, most)
        information = -len(labels) * _mean_gradient(session, inputs, labels) - prior * weights
        information[network.trainable :] = 0.0
        offset = information / np.maximum(precision, 1e-300)
        return LocalGaussian(precision, np.zeros((len(weights), 0)), offset, information)


def _mean_gradient(session: Session, inputs: Array, labels: Ints) -> Floats:
    """Mean gradient over all records, computed in batches."""
    total = np.zeros(1)
    for at in range(0, len(labels), BATCH):
        part = slice(at, at + BATCH)
        total = total + session.gradient(inputs[part], labels[part]) * len(labels[part])
    return total / len(labels)


def woodbury(precision: Floats, deviations: Floats) -> Floats:
    """The V of (diag(1/e) + D D^T / (2 (R - 1)))^-1 = diag(e) - V V^T, shape (size, R), for deviations D."""
    a = deviations / np.sqrt(2 * (deviations.shape[1] - 1))
    scaled = precision[:, None] * a
    inner = np.linalg.cholesky(np.eye(a.shape[1]) + a.T @ scaled)
    factors: Floats = np.linalg.solve(inner, scaled.T).T
    return factors


def solved(precision: Floats, factors: Floats, information: Floats) -> Floats:
    """Solution x of (diag(e) - V V^T) x = h, shape (size,)."""
    x: Floats = information / precision
    if factors.shape[1]:
        x = x + (factors @ np.linalg.solve(core(precision, factors), factors.T @ x)) / precision
    return x


def core(precision: Floats, factors: Floats) -> Floats:
    """I - V^T diag(1/e) V, shape (rank, rank), with eigenvalues raised above zero whatever noise or rounding did."""
    small = np.eye(factors.shape[1]) - factors.T @ (factors / precision[:, None])
    values, vectors = np.linalg.eigh((small + small.T) / 2)
    raised: Floats = (vectors * np.clip(values, 1e-9, 1.0)) @ vectors.T
    return raised


def product(gaussians: Sequence[LocalGaussian]) -> LocalGaussian:
    """Product of Gaussians around one point; their factors are concatenated, so each must be known."""
    precision = np.sum([each.precision for each in gaussians], axis=0)
    factors = np.concatenate([each.factors for each in gaussians], axis=1)
    information = np.sum([each.information for each in gaussians], axis=0)
    return LocalGaussian(precision, factors, solved(precision, factors, information), information)


def probes(size: int, width: int, seed: int) -> Floats:
    """Public random directions of about unit length, (size, width), to which clients apply their low-rank parts."""
    return np.random.default_rng(seed).normal(0, 1 / np.sqrt(size), (size, width))


def from_sketch(sketch: Floats, directions: Floats) -> Floats:
    """The V of V V^T = A, shape (size, width), from A applied to directions (Nystroem approximation).

    It is exact if there are at least as many directions as A's rank, and never exceeds A otherwise, so a precision that
    it is subtracted from stays positive.
    """
    if not sketch.shape[1]:
        return sketch
    inner = directions.T @ sketch
    values, vectors = np.linalg.eigh((inner + inner.T) / 2)
    positive = values > 1e-10 * max(values[-1], 1e-300)
    factors: Floats = sketch @ (vectors[:, positive] / np.sqrt(values[positive]))
    return factors
