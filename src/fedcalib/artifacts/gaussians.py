"""Gaussian models: one of each class's features, and one of a network's weights.

`ClassGaussians` holds the mean and covariance of each class's features, from federated sums. `WeightPosterior` is a
posterior over a network's weights, which predicts by averaging over samples from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np

from fedcalib.artifacts.networks import Head, Representation, Scorer, Trained
from fedcalib.artifacts.saving import Artifact
from fedcalib.errors import InputError
from fedcalib.records import Records, softmax
from fedcalib.training.network import Network, inputs_of
from fedcalib.training.posterior import core
from fedcalib.types import Array, Bools, Floats, Ints
from fedcalib.wire import ADDED


@final
@dataclass(frozen=True, eq=False)
class ClassGaussians(Artifact):
    """Count, mean and covariance of each class's features.

    They are exactly what the sums give; take `shrunk` before sampling. A class of fewer than one record has no mean,
    one of fewer than two no covariance: both are zero here.

    Parameters
    ----------
    counts
        Records per class, shape (classes,).
    means
        Shape (classes, features).
    covariances
        Shape (classes, features, features), or (classes, features) where only variances are known.
    noise
        Variance of the privacy noise in an entry of each class's sum of products, shape (classes,); 0 if exact.
    representation
        How features were transformed before they were summed.

    Examples
    --------
    >>> import fedcalib as fc
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat([0, 1], 500)
    >>> features = rng.normal(size=(1000, 2)) + 2 * labels[:, None]
    >>> records = fc.Records.of_logits(np.zeros((1000, 2)), labels, features=features)
    >>> found = fc.run(fc.methods.FeatureGaussians(), fc.InProcess(fc.Federation.of([records])), fc.Open()).artifact
    >>> (found.means[1] - found.means[0]).round()
    array([2., 2.])
    """

    counts: Floats
    means: Floats
    covariances: Floats
    noise: Floats
    representation: Representation = Representation()

    def __post_init__(self) -> None:
        classes, features = self.means.shape
        if self.covariances.shape not in ((classes, features, features), (classes, features)):
            raise InputError(f"Expected one covariance per class, found shape {self.covariances.shape}.")

    @classmethod
    def of_sums(
        cls,
        counts: Floats,
        sums: Floats,
        seconds: Floats,
        *,
        noise: Floats,
        shift: Floats,
        representation: Representation,
    ) -> ClassGaussians:
        """Means and covariances from counts, sums and sums of products (or of squares) of features minus `shift`."""
        full = seconds.ndim == 3
        present = counts >= 0.5
        divisor, divisor_of_seconds = np.where(present, counts, 1.0), np.where(counts >= 1.5, counts, np.inf)
        centred = np.where(present[:, None], sums / divisor[:, None], 0.0)
        outer = centred[:, :, None] * centred[:, None, :] if full else centred**2
        shape = (-1, 1, 1) if full else (-1, 1)
        covariances = (seconds - divisor.reshape(shape) * outer) / (divisor_of_seconds - 1).reshape(shape)
        return cls(counts, np.where(present[:, None], centred + shift, 0.0), covariances, noise, representation)

    @property
    def present(self) -> Bools:
        """Which classes have a mean, shape (classes,)."""
        return self.counts >= 0.5

    def shrunk(self, least: float = 0.05) -> ClassGaussians:
        """Shrunken covariances: each class toward the pooled one, and the pooled one toward a multiple of the identity.

        The weight of an estimate is the part of its squared distance from the target that sampling and privacy noise do
        not explain (Ledoit and Wolf 2004). Eigenvalues below the largest that noise alone produces are raised to it, so
        that no direction has less variance than could be measured; none is below a hundred-millionth of the largest.

        Parameters
        ----------
        least
            Least weight of the identity in the pooled covariance.
        """
        freedom = np.where(self.counts >= 1.5, self.counts - 1, 0.0)
        pooled = np.tensordot(freedom, self.covariances, 1) / max(freedom.sum(), 1.0)
        typical = max(_trace(pooled) / len(pooled), 1e-12)
        isotropic, records = typical * _identity(pooled), max(float(self.counts.sum()), 1.0)
        pooled_noise = self.noise.sum() / records**2
        identity_weight = max(
            least, 1 - self._weight(pooled - isotropic, pooled, max(freedom.sum(), 1.0), pooled_noise)
        )
        target = (1 - identity_weight) * pooled + identity_weight * isotropic
        noise = self.noise / np.maximum(self.counts, 1.0) ** 2
        weight = np.array(
            [
                self._weight(covariance - target, target, degrees, class_noise) if degrees else 0.0
                for covariance, degrees, class_noise in zip(self.covariances, freedom, noise, strict=True)
            ]
        )
        mixed = target + weight.reshape(-1, *[1] * pooled.ndim) * (self.covariances - target)
        floor = weight * self._noise_eigenvalue(noise)
        floor = floor + (1 - weight) * (1 - identity_weight) * self._noise_eigenvalue(pooled_noise)
        raised = _raised(mixed, np.maximum(floor, 1e-8 * typical))
        return ClassGaussians(self.counts, self.means, raised, self.noise, self.representation)

    def _weight(self, difference: Floats, target: Floats, freedom: float, noise: float) -> float:
        """Part of the squared distance from the target that sampling and noise do not explain, from 0 to 1."""
        features = len(target)
        full = target.ndim == 2
        squares = float(np.sum(target**2))
        sampling = (_trace(target) ** 2 + squares if full else 2 * squares) / freedom
        privacy = noise * (features * (features + 1) / 2 if full else features)
        return float(np.clip(1 - (sampling + privacy) / max(float(np.sum(difference**2)), 1e-300), 0.0, 1.0))

    def _noise_eigenvalue(self, noise: Floats | float) -> Floats:
        """Largest eigenvalue of noise alone: sqrt(2 d) standard deviations of an entry of a random matrix."""
        width = 2 * self.means.shape[1] if self.covariances.ndim == 3 else 4
        largest: Floats = np.sqrt(width * np.asarray(noise))
        return largest

    def sample(self, counts: Ints, rng: np.random.Generator) -> tuple[Floats, Ints]:
        """Sample `counts` features of each class, with their labels; classes without a mean have none."""
        features, labels = [], []
        for label in np.flatnonzero(self.present):
            normal = rng.normal(size=(int(counts[label]), self.means.shape[1]))
            features.append(self.means[label] + normal @ _root(self.covariances[label]))
            labels.append(np.full(len(normal), label))
        if not features:
            return np.zeros((0, self.means.shape[1])), np.zeros(0, dtype=np.int64)
        return np.concatenate(features), np.concatenate(labels)

    def closed_form(self, *, balanced: bool = False) -> Head:
        """Linear discriminant analysis: the optimal head if all classes have the same covariance.

        With `balanced`, all classes have the same prior probability instead of their proportions.
        """
        records = np.where(self.present, self.counts, 0.0)
        pooled = np.tensordot(records, self.covariances, 1) / max(records.sum(), 1.0)
        if pooled.ndim == 1:
            matrix = self.means / np.maximum(pooled, 1e-300)
        else:
            matrix = np.linalg.lstsq(pooled, self.means.T, rcond=1e-12)[0].T
        prior = np.where(balanced, 1.0, records / max(records.sum(), 1e-300))
        shift = np.log(np.maximum(prior, 1e-12)) - np.sum(matrix * self.means, axis=1) / 2
        lowest = shift.min() - 50.0  # a class without records is never preferred
        return Head(
            np.where(self.present[:, None], matrix, 0.0), np.where(self.present, shift, lowest), self.representation
        )


def _trace(covariance: Floats) -> float:
    return float(np.trace(covariance) if covariance.ndim == 2 else covariance.sum())


def _identity(like: Floats) -> Floats:
    return np.eye(len(like)) if like.ndim == 2 else np.ones(len(like))


def _raised(covariances: Floats, floor: Floats) -> Floats:
    """Raise eigenvalues below the floor to it, class by class."""
    if covariances.ndim == 2:
        least = np.maximum(floor[:, None], 1e-8 * covariances.max(axis=1, keepdims=True))
        higher: Floats = np.maximum(covariances, least)
        return higher
    values, vectors = np.linalg.eigh((covariances + covariances.transpose(0, 2, 1)) / 2)
    values = np.maximum(values, np.maximum(floor[:, None], 1e-8 * values[:, -1:]))
    raised: Floats = (vectors * values[:, None, :]) @ vectors.transpose(0, 2, 1)
    return raised


def _root(covariance: Floats) -> Floats:
    """The symmetric square root of a covariance."""
    if covariance.ndim == 1:
        return np.diag(np.sqrt(np.maximum(covariance, 0)))
    values, vectors = np.linalg.eigh(covariance)
    root: Floats = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    return root


@final
@dataclass(frozen=True, eq=False)
class WeightPosterior(Scorer):
    """A Gaussian posterior over a network's weights; predictions average the probabilities of samples from it.

    The precision matrix is diag(e) - V V^T; a variance for the disagreement of clients is added.

    Parameters
    ----------
    network
        The architecture.
    mean
        Mean of the weights, shape (size,).
    precision
        The diagonal e, shape (size,).
    factors
        The matrix V, shape (size, rank).
    scatter
        Variance that is added for the disagreement of clients, shape (size,).
    scale
        Factor of the standard deviation, at least 0.
    samples
        How many samples predictions average over.
    seed
        Seed of those samples.
    column
        The column of the records that holds the inputs; None if the scores themselves are the inputs.
    warnings
        What to know about how the posterior was found.

    Examples
    --------
    >>> import fedcalib as fc
    >>> import numpy as np
    >>> from fedcalib.artifacts.gaussians import WeightPosterior
    >>> network = fc.training.SoftmaxRegression(3, 2)
    >>> size = network.trainable
    >>> posterior = WeightPosterior(network, np.zeros(size), np.full(size, 4.0), np.zeros((size, 0)), np.zeros(size))
    >>> float(posterior.variance[0])
    0.25
    >>> posterior.probs(np.ones((5, 3))).shape
    (5, 2)
    """

    network: Network
    mean: Floats
    precision: Floats
    factors: Floats
    scatter: Floats
    scale: float = 1.0
    samples: int = 30
    seed: int = 0
    column: str | None = "inputs"
    warnings: tuple[str, ...] = field(default=(), metadata=ADDED)

    def __post_init__(self) -> None:
        if not (np.isfinite(self.mean).all() and (self.precision > 0).all() and (self.scatter >= 0).all()):
            raise InputError("Expected a finite mean, precisions above 0 and no negative scatter, found others.")
        if self.samples < 1 or not self.scale >= 0:
            raise InputError("Expected at least one sample and a scale of at least 0, found others.")

    @property
    def variance(self) -> Floats:
        """Variance of each weight, shape (size,)."""
        posterior = 1 / self.precision
        if self.factors.shape[1]:
            half = self._low_rank()
            posterior = posterior + np.einsum("ij,ij->i", half, half)
        variance: Floats = self.scale**2 * (posterior + self.scatter)
        return variance

    def sample(self, count: int, rng: np.random.Generator) -> Floats:
        """Samples of the weights, shape (count, size)."""
        size = len(self.mean)
        deviations = rng.normal(size=(count, size)) * np.sqrt(1 / self.precision + self.scatter)
        if self.factors.shape[1]:
            deviations += rng.normal(size=(count, self.factors.shape[1])) @ self._low_rank().T
        samples: Floats = self.mean + self.scale * deviations
        return samples

    def _low_rank(self) -> Floats:
        """The matrix B of the covariance diag(1/e) + B B^T, shape (size, rank)."""
        root = np.linalg.cholesky(core(self.precision, self.factors))
        half: Floats = np.linalg.solve(root, (self.factors / self.precision[:, None]).T).T
        return half

    @property
    def point(self) -> Trained:
        """The network at the mean weights."""
        return Trained(self.network, self.mean, self.column)

    def probs(self, inputs: Array) -> Floats:
        """Predicted probabilities, averaged over samples of the weights, shape (n, classes)."""
        rng = np.random.default_rng(self.seed)
        total: Floats = np.zeros(1)
        for _ in range(self.samples):
            logits = self.network.session(self.sample(1, rng)[0]).logits(inputs)
            total = total + softmax(logits.astype(np.float64))
        averaged: Floats = total / total.sum(axis=1, keepdims=True)
        return averaged

    def over(self, records: Records) -> Records:
        """The same records with averaged probabilities."""
        probs = self.probs(inputs_of(records, self.column))
        return Records(probs, records.labels, False, records.unit, records.extra)

    def scaled(self, scale: float) -> WeightPosterior:
        """The same posterior with this factor of its standard deviation."""
        return replace(self, scale=scale)

    def tuned(self, records: Records, scales: Sequence[float] = (0.0, 0.1, 0.2, 0.5, 1.0, 1.5, 2.0)) -> WeightPosterior:
        """The same posterior with the scale of least log loss on held-out records."""
        from fedcalib.metrics import nll

        return min(
            (self.scaled(scale) for scale in scales), key=lambda each: nll(each.over(records).probs, records.labels)
        )
