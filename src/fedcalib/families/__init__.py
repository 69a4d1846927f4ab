"""Families of scalings: maps on logits that a parameter vector picks out, with their losses and derivatives.

A `Family` states where it starts, how a client fits it to its own records, and which calibrator its parameters make.
Families with two parameters per class also state each record's `Derivatives`, so that sums of gradients can train them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import inf
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import InputError
from fedcalib.families.local_fits import MAX_PARAMETERS_FOR_NEWTON, MIN_RECORDS_FOR_NEWTON, fit_batched, fit_by_newton
from fedcalib.federation import Federation
from fedcalib.randomness import Randomness
from fedcalib.records import Records, one_score
from fedcalib.types import Floats, Ints


class Family(ABC):
    """Maps on logits, one for each parameter vector; the start is the identity.

    A family is a frozen dataclass that travels in queries; its parameters travel beside it.
    """

    @abstractmethod
    def start(self, classes: int) -> Floats:
        """The parameters of the identity, shape (size,)."""

    def soft_start(self, classes: int) -> Floats:
        """Parameters that make probabilities softer, from which Newton steps do not overshoot, shape (size,)."""
        return self.start(classes)

    @abstractmethod
    def loss(self, parameters: Floats, logits: Floats, labels: Ints) -> tuple[float, Floats]:
        """The log loss summed over records, and its gradient in the parameters."""

    @abstractmethod
    def artifact(self, parameters: Floats, classes: int) -> Calibrator:
        """The calibrator of these parameters, valid whatever noise they carry."""

    def derivatives(self, parameters: Floats, logits: Floats, labels: Ints) -> Derivatives:
        """Each record's loss and its first two derivatives; only for families of two parameters per class."""
        raise InputError(f"Expected a family that gradients can train, found {type(self).__name__}; use local fits.")

    def record_losses(self, parameters: Floats, logits: Floats, labels: Ints) -> tuple[Floats, Floats]:
        """Losses, shape (n,), and gradients, shape (n, size), of records that each have parameters of their own."""
        raise InputError(f"Expected a family whose clients can be fitted in one batch, found {type(self).__name__}.")

    @property
    def convex(self) -> bool:
        """Whether the loss is convex and `curvature` is its Hessian."""
        return False

    def curvature(self, parameters: Floats, logits: Floats, labels: Ints) -> Floats:
        """The Hessian of the summed log loss, shape (size, size)."""
        raise InputError(f"Expected a family with a known Hessian, found {type(self).__name__}.")

    def fit_each(
        self, parameters: Floats, federation: Federation, *, ridge: float, steps: int, randomness: Randomness
    ) -> Floats:
        """Parameters fitted to each client's records, shape (clients, size); a client without records keeps them."""
        large = federation.sizes > self._max_batched(parameters)
        fitted = np.empty((len(federation), len(parameters)))
        rest = federation.subset(~large) if large.any() else federation
        data = bounded_logits(rest.records), rest.records.labels, rest.offsets
        fitted[~large] = fit_batched(self.record_losses, parameters, data, ridge=ridge, steps=steps)
        for client in np.flatnonzero(large):
            records = federation.client(int(client))
            own = bounded_logits(records), records.labels
            fitted[client] = fit_by_newton(self.loss, self.curvature, parameters, own, ridge=ridge, steps=steps)
        return fitted

    def fit(
        self, parameters: Floats, logits: Floats, labels: Ints, *, ridge: float, steps: int, rng: np.random.Generator
    ) -> Floats:
        """Parameters fitted to one client's records, with a ridge toward where they start."""
        if len(labels) > self._max_batched(parameters):
            return fit_by_newton(self.loss, self.curvature, parameters, (logits, labels), ridge=ridge, steps=steps)
        data = logits, labels, np.array([0, len(labels)])
        fitted: Floats = fit_batched(self.record_losses, parameters, data, ridge=ridge, steps=steps)[0]
        return fitted

    def _max_batched(self, parameters: Floats) -> float:
        """The number of records beyond which a client is fitted on its own."""
        return MIN_RECORDS_FOR_NEWTON if self.convex and len(parameters) <= MAX_PARAMETERS_FOR_NEWTON else inf


def bounded_logits(records: Records) -> Floats:
    """A client's logits in double precision, clipped to the range of exponentials; two classes are one score.

    What is no number counts as 0, so that one record cannot spoil a matrix product of all.
    """
    clipped = np.clip(one_score(np.asarray(records.logits, dtype=np.float64)), -1e6, 1e6)
    return np.nan_to_num(clipped, copy=False)


def log_loss(logits: Floats, labels: Ints) -> tuple[float, Floats]:
    """The summed log loss of logits, and its gradient in them: probabilities minus labels, shape (n, classes)."""
    value, residual = log_losses(logits, labels)
    return float(value.sum()), residual


def log_losses(logits: Floats, labels: Ints) -> tuple[Floats, Floats]:
    """Each record's log loss, shape (n,), and the same gradient."""
    shifted = logits - logits.max(axis=1, keepdims=True, initial=-np.inf)
    exponentials = np.exp(shifted)
    mass = exponentials.sum(axis=1)
    rows = np.arange(len(labels))
    residual: Floats = exponentials / mass[:, None]
    residual[rows, labels] -= 1
    value: Floats = np.log(mass) - shifted[rows, labels]
    return value, residual


@dataclass(frozen=True, eq=False)
class Derivatives(ABC):
    """Log losses of some records, and their first two derivatives in the parameters, class by class.

    A class's two parameters make one predictor, covariate * first + second, and the loss depends on the predictors
    alone. So the gradient is each class's residual (the derivative in its predictor) times (covariate, 1), and the
    Hessian block of two classes is the second derivative in their predictors times the outer product of their
    (covariate, 1). Parameters are in the order first of every class, then second of every class.
    """

    loss: Floats  # (n,)
    covariate: Floats  # (classes, n)
    residual: Floats  # (classes, n)
    own: Floats  # (classes, n): the second derivative in each class's predictor

    @abstractmethod
    def predictor_hessian(self) -> Floats:
        """Second derivatives in the predictors of every two classes, shape (classes, classes, n)."""

    @abstractmethod
    def summed_cross_hessian(self, weights: Floats) -> Floats:
        """The Hessian blocks of different classes, summed over weighted records, shape (parameters, parameters).

        Blocks of a class with itself may hold anything.
        """

    @abstractmethod
    def cross_squares(self) -> Floats:
        """The sum of squares of the Hessian blocks of different classes, each two classes once, shape (n,)."""

    @property
    def gradient(self) -> Floats:
        """Each record's gradient, shape (parameters, n)."""
        return np.concatenate([self.residual * self.covariate, self.residual])

    @property
    def curvature_by_class(self) -> Floats:
        """The Hessian of each class's two parameters, shape (3, classes, n).

        The three are the first parameter with itself, with the second, and the second with itself.
        """
        return np.stack([self.own * self.covariate**2, self.own * self.covariate, self.own])

    def curvature(self) -> Floats:
        """Each record's Hessian, shape (parameters, parameters, n)."""
        mixed = self.predictor_hessian() * self.covariate
        upper = np.concatenate([mixed * self.covariate[:, None], mixed.swapaxes(0, 1)], axis=1)
        return np.concatenate([upper, np.concatenate([mixed, self.predictor_hessian()], axis=1)])

    def summed_curvature(self, weights: Floats) -> Floats:
        """The Hessian summed over weighted records, shape (parameters, parameters)."""
        total = self.summed_cross_hessian(weights)
        first, second = np.split(np.arange(len(total)), 2)
        pairs = ((first, first), (first, second), (second, second))
        for (a, b), value in zip(pairs, self.curvature_by_class @ weights, strict=True):
            total[a, b] = total[b, a] = value
        return total

    def curvature_norms(self) -> Floats:
        """The L2 norm of the upper triangle of each record's Hessian, shape (n,)."""
        squared_covariate = self.covariate**2
        squares: Floats = np.square(self.own * (1 + squared_covariate)).sum(axis=0) + 2 * self.cross_squares()
        diagonal = (np.square(self.own) * (1 + squared_covariate**2)).sum(axis=0)
        norms: Floats = np.sqrt((squares + diagonal) / 2)
        return norms


@final
@dataclass(frozen=True, eq=False)
class SoftmaxDerivatives(Derivatives):
    """Predictors are logits: second derivatives are -pq for two classes and p(1 - p) for a class with itself."""

    probs: Floats  # (classes, n)

    def predictor_hessian(self) -> Floats:
        products: Floats = -self.probs[:, None] * self.probs
        every = np.arange(len(self.probs))
        products[every, every] = self.own
        return products

    def summed_cross_hessian(self, weights: Floats) -> Floats:
        """A matrix product, since the blocks are minus an outer product."""
        weighted = np.concatenate([self.probs * self.covariate, self.probs])
        weighted *= np.sqrt(weights)
        product: Floats = -(weighted @ weighted.T)
        return product

    def cross_squares(self) -> Floats:
        values = self.probs**2 * (1 + self.covariate**2)
        return np.asarray(np.einsum("ij,ij->j", np.cumsum(values, axis=0)[:-1], values[1:]))


@final
@dataclass(frozen=True, eq=False)
class GapDerivatives(Derivatives):
    """Predictors stretch gaps between sorted logits.

    Let P be the probability of a class above the first of two gaps, and Q >= P that of a class above the second. The
    second derivative in their predictors is P(1 - Q) times both gaps' derivatives (`lift`). A gap has a further term
    with itself, since its stretch is not linear. The lowest class has no gap: its lift is zero.
    """

    lift: Floats  # (classes, n): the derivative of the gap in its predictor
    above: Floats  # (classes, n): the probability of a class above the gap
    above_ranked: Floats  # (classes - 1, n): the same from the top down
    squares_ranked: Floats  # (classes - 1, n): lift^2 (1 + covariate^2), from the top down

    def predictor_hessian(self) -> Floats:
        covariance = np.minimum(self.above[:, None], self.above) - self.above[:, None] * self.above
        every = np.arange(len(self.above))
        second: Floats = covariance * self.lift[:, None] * self.lift
        second[every, every] = self.own
        return second

    def summed_cross_hessian(self, weights: Floats) -> Floats:
        """One class after another with all that follow it."""
        classes = len(self.lift)
        total = np.zeros((2, classes, 2, classes))
        lifted = np.stack([self.lift * self.covariate, self.lift]) * weights
        for first in range(classes - 1):
            rest = self.above[first + 1 :]
            covariance = np.minimum(self.above[first], rest) - self.above[first] * rest
            covariance *= self.lift[first + 1 :]
            blocks = np.stack([covariance * self.covariate[first + 1 :], covariance])
            total[:, first, :, first + 1 :] = (blocks @ lifted[:, first].T).transpose(2, 0, 1)
        whole = total.reshape(2 * classes, 2 * classes)
        return whole + whole.T

    def cross_squares(self) -> Floats:
        upper = np.cumsum(self.above_ranked**2 * self.squares_ranked, axis=0)[:-1]
        lower = np.square(1 - self.above_ranked) * self.squares_ranked
        squares: Floats = np.einsum("ij,ij->j", upper, lower[1:])
        return squares
