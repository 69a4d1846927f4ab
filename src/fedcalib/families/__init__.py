"""Families of scalings: maps on logits that a parameter vector picks out, with their losses and gradients.

What every family of scalings offers: where it starts, how it learns from one client's records, what it becomes.

What some records say about a scaling of two parameters a class: the loss, its gradient and its curvature.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import inf
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import InputError
from fedcalib.families.local_fits import MANY, MOST, fit_alone, fit_side_by_side
from fedcalib.federation import Federation
from fedcalib.randomness import Randomness
from fedcalib.records import Records
from fedcalib.types import Floats, Ints


class Family(ABC):
    """Maps on logits, one for each parameter vector; the start is the identity.

    A family is a frozen dataclass that travels in queries; its parameters travel beside it.
    """

    @abstractmethod
    def start(self, classes: int) -> Floats:
        """Give the parameters of the map that changes nothing, (size,)."""

    def soft_start(self, classes: int) -> Floats:
        """Give parameters that make probabilities softer, from where Newton's steps do not overshoot, (size,)."""
        return self.start(classes)

    @abstractmethod
    def loss(self, parameters: Floats, logits: Floats, labels: Ints) -> tuple[float, Floats]:
        """Sum the log loss over records, with its gradient in the parameters."""

    @abstractmethod
    def artifact(self, parameters: Floats, classes: int) -> Calibrator:
        """Make a calibrator of parameters, valid whatever noise they carry."""

    def derivatives(self, parameters: Floats, logits: Floats, labels: Ints) -> Derivatives:
        """Give each record's loss with two derivatives; only families of two parameters a class can."""
        raise InputError(
            f"Expected a family that sums of gradients can train, found {type(self).__name__}; train it by local fits."
        )

    def record_losses(self, parameters: Floats, logits: Floats, labels: Ints) -> tuple[Floats, Floats]:
        """Give each record's loss, (n,), and slope, (n, size), each record with parameters of its own, (n, size)."""
        raise InputError(f"Expected a family that clients can fit side by side, found {type(self).__name__}.")

    @property
    def convex(self) -> bool:
        """Say whether the loss has one lowest place and `curvature` gives how it bends."""
        return False

    def curvature(self, parameters: Floats, logits: Floats, labels: Ints) -> Floats:
        """Sum the curvature of the log loss over records, (size, size)."""
        raise InputError(f"Expected a family that says how its loss bends, found {type(self).__name__}.")

    def fit_each(
        self, parameters: Floats, federation: Federation, *, ridge: float, steps: int, randomness: Randomness
    ) -> Floats:
        """Improve parameters on each client's own records, (clients, size); a client without records keeps them."""
        large = federation.sizes > self._many(parameters)
        fitted = np.empty((len(federation), len(parameters)))
        rest = federation.subset(~large) if large.any() else federation
        held = bounded_logits(rest.records), rest.records.labels, rest.offsets
        fitted[~large] = fit_side_by_side(self.record_losses, parameters, held, ridge=ridge, steps=steps)
        for client in np.flatnonzero(large):
            records = federation.client(int(client))
            alone = bounded_logits(records), records.labels
            fitted[client] = fit_alone(self.loss, self.curvature, parameters, alone, ridge=ridge, steps=steps)
        return fitted

    def fit(
        self, parameters: Floats, logits: Floats, labels: Ints, *, ridge: float, steps: int, rng: np.random.Generator
    ) -> Floats:
        """Improve parameters on one client's records, drawn by `ridge` toward where they started."""
        if len(labels) > self._many(parameters):
            return fit_alone(self.loss, self.curvature, parameters, (logits, labels), ridge=ridge, steps=steps)
        held = logits, labels, np.array([0, len(labels)])
        found: Floats = fit_side_by_side(self.record_losses, parameters, held, ridge=ridge, steps=steps)[0]
        return found

    def _many(self, parameters: Floats) -> float:
        """Say beyond how many records a client is fitted alone, by its own curvature."""
        return MANY if self.convex and len(parameters) <= MOST else inf


def bounded_logits(records: Records) -> Floats:
    """Give a client's logits, in double precision and within what exponentials can take."""
    return np.clip(np.asarray(records.logits, dtype=np.float64), -1e6, 1e6)


def log_loss(logits: Floats, labels: Ints) -> tuple[float, Floats]:
    """Sum the log loss of logits, with its gradient in them: probabilities minus labels, (n, classes)."""
    value, residual = log_losses(logits, labels)
    return float(value.sum()), residual


def log_losses(logits: Floats, labels: Ints) -> tuple[Floats, Floats]:
    """Give each record's log loss of its logits, (n,), with the same gradient."""
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
    """Some records' log loss, and its first two derivatives in the parameters, class by class.

    A class's two parameters make one number, lever * first + second, and the loss depends on these numbers alone. So
    the gradient is each class's pull times (lever, 1), and the curvature of two classes is their bend times the outer
    product of their (lever, 1). Parameters are in the order first of every class, then second of every class.
    """

    loss: Floats  # (n,)
    lever: Floats  # (classes, n)
    pull: Floats  # (classes, n)
    own: Floats  # (classes, n): the bend of each class with itself

    @abstractmethod
    def bends(self) -> Floats:
        """Write out the bend of every two classes, (classes, classes, n)."""

    @abstractmethod
    def summed_bends(self, weights: Floats) -> Floats:
        """Sum the curvature of different classes over weighted records, (parameters, parameters).

        What stands where a class meets itself does not matter.
        """

    @abstractmethod
    def squares_apart(self) -> Floats:
        """Sum the squares of the curvature of different classes, each two classes once, (n,)."""

    @property
    def gradient(self) -> Floats:
        """Give each record's gradient, (parameters, n)."""
        return np.concatenate([self.pull * self.lever, self.pull])

    @property
    def curvature_by_class(self) -> Floats:
        """Give the curvature of each class's two parameters, (3, classes, n).

        The three are the first parameter with itself, with the second, and the second with itself.
        """
        return np.stack([self.own * self.lever**2, self.own * self.lever, self.own])

    def curvature(self) -> Floats:
        """Write out each record's curvature, (parameters, parameters, n)."""
        mixed = self.bends() * self.lever
        upper = np.concatenate([mixed * self.lever[:, None], mixed.swapaxes(0, 1)], axis=1)
        return np.concatenate([upper, np.concatenate([mixed, self.bends()], axis=1)])

    def summed_curvature(self, weights: Floats) -> Floats:
        """Sum the curvature over weighted records, (parameters, parameters)."""
        total = self.summed_bends(weights)
        first, second = np.split(np.arange(len(total)), 2)
        pairs = ((first, first), (first, second), (second, second))
        for (a, b), value in zip(pairs, self.curvature_by_class @ weights, strict=True):
            total[a, b] = total[b, a] = value
        return total

    def curvature_norms(self) -> Floats:
        """Give the L2 norm of the upper triangle of each record's curvature, (n,)."""
        levers = self.lever**2
        squares: Floats = np.square(self.own * (1 + levers)).sum(axis=0) + 2 * self.squares_apart()
        diagonal = (np.square(self.own) * (1 + levers**2)).sum(axis=0)
        norms: Floats = np.sqrt((squares + diagonal) / 2)
        return norms


@final
@dataclass(frozen=True, eq=False)
class SoftmaxDerivatives(Derivatives):
    """The numbers are logits: classes p and q bend by -pq, a class with itself by p(1 - p)."""

    probs: Floats  # (classes, n)

    def bends(self) -> Floats:
        """Multiply probabilities."""
        products: Floats = -self.probs[:, None] * self.probs
        every = np.arange(len(self.probs))
        products[every, every] = self.own
        return products

    def summed_bends(self, weights: Floats) -> Floats:
        """Multiply matrices: the bends are minus an outer product."""
        moved = np.concatenate([self.probs * self.lever, self.probs])
        moved *= np.sqrt(weights)
        product: Floats = -(moved @ moved.T)
        return product

    def squares_apart(self) -> Floats:
        """Add up, class after class, what lies before it."""
        return _products_apart(self.probs**2 * (1 + self.lever**2))


@final
@dataclass(frozen=True, eq=False)
class GapDerivatives(Derivatives):
    """The numbers stretch gaps: what matters is how much each gap is lifted, and how likely a class above it is.

    Two gaps, the first with probability P of a class above it and the second with Q >= P, bend by P(1 - Q) times both
    lifts. A gap bends with itself further, since its stretch is no straight line. The lowest class has no gap: its
    lift is zero.
    """

    lift: Floats  # (classes, n)
    above: Floats  # (classes, n): the probability of a class above the gap
    above_ranked: Floats  # (classes - 1, n): the same from the top down
    squares_ranked: Floats  # (classes - 1, n): lift^2 (1 + lever^2), from the top down

    def bends(self) -> Floats:
        """Take the smaller probability, less the product."""
        nearer = np.minimum(self.above[:, None], self.above) - self.above[:, None] * self.above
        every = np.arange(len(self.above))
        bent: Floats = nearer * self.lift[:, None] * self.lift
        bent[every, every] = self.own
        return bent

    def summed_bends(self, weights: Floats) -> Floats:
        """Take one class after another with all that follow it."""
        classes = len(self.lift)
        total = np.zeros((2, classes, 2, classes))
        lifted = np.stack([self.lift * self.lever, self.lift]) * weights
        for first in range(classes - 1):
            rest = self.above[first + 1 :]
            nearer = np.minimum(self.above[first], rest) - self.above[first] * rest
            nearer *= self.lift[first + 1 :]
            moved = np.stack([nearer * self.lever[first + 1 :], nearer])
            total[:, first, :, first + 1 :] = (moved @ lifted[:, first].T).transpose(2, 0, 1)
        whole = total.reshape(2 * classes, 2 * classes)
        return whole + whole.T

    def squares_apart(self) -> Floats:
        """Add up, gap after gap from the top, what lies above it."""
        upper = np.cumsum(self.above_ranked**2 * self.squares_ranked, axis=0)[:-1]
        lower = np.square(1 - self.above_ranked) * self.squares_ranked
        squares: Floats = np.einsum("ij,ij->j", upper, lower[1:])
        return squares


def _products_apart(values: Floats) -> Floats:
    """Sum the products of each two different rows, (n,)."""
    products: Floats = np.einsum("ij,ij->j", np.cumsum(values, axis=0)[:-1], values[1:])
    return products
