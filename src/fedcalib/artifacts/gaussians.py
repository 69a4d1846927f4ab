"""A Gaussian for each class's features: what federated sums tell about them, and no record.

A posterior over a network's weights, which predicts by averaging over draws from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from fedcalib.artifacts import Artifact
from fedcalib.artifacts.networks import Head, Representation, Scorer, Trained
from fedcalib.errors import InputError
from fedcalib.records import Records, softmax
from fedcalib.training.network import Network, inputs_of
from fedcalib.training.posterior import core
from fedcalib.types import Array, Bools, Floats, Ints


@final
@dataclass(frozen=True, eq=False)
class ClassGaussians(Artifact):
    """Each class's count, mean and covariance, exactly as the sums give them; `shrunk` makes them fit to draw from.

    A class of fewer than one record has no mean, one of fewer than two no covariance: both are zero here. `noise` is
    the variance of privacy noise in an entry of each class's sum of products, 0 when exact.
    """

    counts: Floats  # (classes,)
    means: Floats  # (classes, features)
    covariances: Floats  # (classes, features, features), or (classes, features) where only variances are known
    noise: Floats  # (classes,)
    representation: Representation = Representation()

    def __post_init__(self) -> None:
        classes, features = self.means.shape
        if self.covariances.shape not in ((classes, features, features), (classes, features)):
            raise InputError(f"Expected a covariance a class, found shape {self.covariances.shape}.")

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
        """Turn counts, sums and sums of products (or of squares) about `shift` into means and covariances."""
        full = seconds.ndim == 3
        present = counts >= 0.5
        some, most = np.where(present, counts, 1.0), np.where(counts >= 1.5, counts, np.inf)
        off = np.where(present[:, None], sums / some[:, None], 0.0)
        outer = off[:, :, None] * off[:, None, :] if full else off**2
        along = (-1, 1, 1) if full else (-1, 1)
        spread = (seconds - some.reshape(along) * outer) / (most - 1).reshape(along)
        return cls(counts, np.where(present[:, None], off + shift, 0.0), spread, noise, representation)

    @property
    def present(self) -> Bools:
        """Say which classes have a mean."""
        return self.counts >= 0.5

    def shrunk(self, least: float = 0.05) -> ClassGaussians:
        """Draw covariances together: each class toward all classes', and that toward a multiple of the identity.

        Each counts by how far it stands out from what it is drawn to, beside how far chance and privacy noise alone
        would have taken it (Ledoit and Wolf 2004). Eigenvalues below what noise may make of zero are lifted to that,
        so that no direction looks sharper than it was measured; the least is a hundred-millionth of the largest.
        """
        worth = np.where(self.counts >= 1.5, self.counts - 1, 0.0)
        pooled = np.tensordot(worth, self.covariances, 1) / max(worth.sum(), 1.0)
        typical = max(_trace(pooled) / len(pooled), 1e-12)
        even, everyone = typical * _identity(pooled), max(float(self.counts.sum()), 1.0)
        share = max(
            least, 1 - self._trust(pooled - even, pooled, max(worth.sum(), 1.0), self.noise.sum() / everyone**2)
        )
        base = (1 - share) * pooled + share * even
        noise = self.noise / np.maximum(self.counts, 1.0) ** 2
        own = np.array(
            [
                self._trust(each - base, base, records, own_noise) if records else 0.0
                for each, records, own_noise in zip(self.covariances, worth, noise, strict=True)
            ]
        )
        mixed = base + own.reshape(-1, *[1] * pooled.ndim) * (self.covariances - base)
        floor = own * self._swing(noise) + (1 - own) * (1 - share) * self._swing(self.noise.sum() / everyone**2)
        lifted = _lifted(mixed, np.maximum(floor, 1e-8 * typical))
        return ClassGaussians(self.counts, self.means, lifted, self.noise, self.representation)

    def _trust(self, apart: Floats, like: Floats, records: float, noise: float) -> float:
        """Say how much of a covariance's distance from another is more than chance and noise make, from 0 to 1."""
        features = len(like)
        full = like.ndim == 2
        chance = (_trace(like) ** 2 + float(np.sum(like**2)) if full else 2 * float(np.sum(like**2))) / records
        blurred = noise * (features * (features + 1) / 2 if full else features)
        return float(np.clip(1 - (chance + blurred) / max(float(np.sum(apart**2)), 1e-300), 0.0, 1.0))

    def _swing(self, noise: Floats | float) -> Floats:
        """Say how large an eigenvalue noise alone makes: sqrt(2 d) deviations of an entry of a random matrix."""
        width = 2 * self.means.shape[1] if self.covariances.ndim == 3 else 4
        swing: Floats = np.sqrt(width * np.asarray(noise))
        return swing

    def sample(self, counts: Ints, rng: np.random.Generator) -> tuple[Floats, Ints]:
        """Draw so many virtual features of each class, with their labels; absent classes give none."""
        features, labels = [], []
        for label in np.flatnonzero(self.present):
            chance = rng.normal(size=(int(counts[label]), self.means.shape[1]))
            features.append(self.means[label] + chance @ _root(self.covariances[label]))
            labels.append(np.full(len(chance), label))
        if not features:
            return np.zeros((0, self.means.shape[1])), np.zeros(0, dtype=np.int64)
        return np.concatenate(features), np.concatenate(labels)

    def closed_form(self, *, balanced: bool = False) -> Head:
        """Give the head that Gaussians of one common covariance make optimal: linear discriminant analysis."""
        worth = np.where(self.present, self.counts, 0.0)
        pooled = np.tensordot(worth, self.covariances, 1) / max(worth.sum(), 1.0)
        if pooled.ndim == 1:
            matrix = self.means / np.maximum(pooled, 1e-300)
        else:
            matrix = np.linalg.lstsq(pooled, self.means.T, rcond=1e-12)[0].T
        prior = np.where(balanced, 1.0, worth / max(worth.sum(), 1e-300))
        shift = np.log(np.maximum(prior, 1e-12)) - np.sum(matrix * self.means, axis=1) / 2
        lowest = shift.min() - 50.0  # a class that nobody has is never preferred
        return Head(
            np.where(self.present[:, None], matrix, 0.0), np.where(self.present, shift, lowest), self.representation
        )


def _trace(covariance: Floats) -> float:
    return float(np.trace(covariance) if covariance.ndim == 2 else covariance.sum())


def _identity(like: Floats) -> Floats:
    return np.eye(len(like)) if like.ndim == 2 else np.ones(len(like))


def _lifted(covariances: Floats, floor: Floats) -> Floats:
    """Lift eigenvalues that noise or rounding left too low, class by class."""
    if covariances.ndim == 2:
        least = np.maximum(floor[:, None], 1e-8 * covariances.max(axis=1, keepdims=True))
        higher: Floats = np.maximum(covariances, least)
        return higher
    values, vectors = np.linalg.eigh((covariances + covariances.transpose(0, 2, 1)) / 2)
    values = np.maximum(values, np.maximum(floor[:, None], 1e-8 * values[:, -1:]))
    lifted: Floats = (vectors * values[:, None, :]) @ vectors.transpose(0, 2, 1)
    return lifted


def _root(covariance: Floats) -> Floats:
    """Give a matrix whose square is the covariance."""
    if covariance.ndim == 1:
        return np.diag(np.sqrt(np.maximum(covariance, 0)))
    values, vectors = np.linalg.eigh(covariance)
    root: Floats = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    return root


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
