"""What training needs of a network: a vector of weights, and the gradient and logits that it gives.

Softmax regression in numpy: a network of one layer, and the last layer of any frozen one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.records import Records, softmax
from fedcalib.types import Array, Floats, Ints

BATCH = 1024  # records at a time where nothing is learnt


@final
@dataclass(frozen=True)
class Layout:
    """Where things lie in a network's vector."""

    outputs: int
    trainable: int
    matrix: slice
    shift: slice


class Session(ABC):
    """A network at work: its weights lie in one vector, which whoever trains changes in place."""

    weights: Floats  # (size,)

    @abstractmethod
    def gradient(self, inputs: Array, labels: Ints) -> Floats:
        """Give the gradient of the mean log loss over a batch, (size,), as a network that is being trained."""

    @abstractmethod
    def logits(self, inputs: Array) -> Floats:
        """Score records, (n, classes), as a network that is being used."""

    @abstractmethod
    def features(self, inputs: Array) -> Floats:
        """Give what the last linear layer is fed, (n, features)."""

    def scores(self, inputs: Array) -> tuple[Floats, Floats]:
        """Give logits and features together; override to work them out in one pass."""
        return self.logits(inputs), self.features(inputs)

    @abstractmethod
    def curvature(self, inputs: Array) -> Floats:
        """Give the diagonal of the Gauss-Newton matrix of the summed log loss, (size,)."""


class Network(ABC):
    """A frozen dataclass that names an architecture. It travels in queries; code never does."""

    @abstractmethod
    def start(self, seed: int) -> Floats:
        """Draw the weights that training starts from, (size,)."""

    @abstractmethod
    def session(self, weights: Floats) -> Session:
        """Put a copy of these weights to work."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Count the classes that it scores."""

    @property
    @abstractmethod
    def trainable(self) -> int:
        """Count the weights that gradients move; running averages come after them in the vector."""

    @property
    @abstractmethod
    def head(self) -> tuple[slice, slice]:
        """Say where the last linear layer's matrix and shift lie in the vector."""

    @property
    def unit(self) -> bool:
        """Say whether the last linear layer's rows count by their direction only."""
        return False


def inputs_of(records: Records, column: str | None) -> Array:
    """Give the column that a network reads; without one, the logits, kept to what arithmetic can bear."""
    if column is None:
        return np.clip(np.asarray(records.logits, dtype=np.float64), -1e6, 1e6)
    if column not in records.extra:
        raise InputError(
            f"Expected a column '{column}' beside the scores, found {sorted(records.extra) or 'none'}; "
            f"say Records.of_logits(..., {column}=...)."
        )
    return records.extra[column]


def in_batches(inputs: Array, score: Callable[[Array], Floats]) -> Floats:
    """Score inputs a batch at a time, so that hidden layers stay small."""
    parts = [np.asarray(score(inputs[at : at + BATCH])) for at in range(0, max(len(inputs), 1), BATCH)]
    return np.concatenate(parts)


@final
class LinearSession(Session):
    """One linear layer at work."""

    def __init__(self, network: SoftmaxRegression, weights: Floats) -> None:
        self.weights = np.array(weights, dtype=np.float64)
        self._matrix = self.weights[: network.classes * network.inputs].reshape(network.classes, network.inputs)
        self._shift = self.weights[network.classes * network.inputs :]

    def gradient(self, inputs: Array, labels: Ints) -> Floats:
        """Multiply residuals and features."""
        features = self.features(inputs)
        residual = softmax(features @ self._matrix.T + self._shift)
        residual[np.arange(len(labels)), labels] -= 1
        residual /= max(len(labels), 1)
        return np.concatenate([(residual.T @ features).reshape(-1), residual.sum(axis=0)])

    def logits(self, inputs: Array) -> Floats:
        """Multiply and shift."""
        scored: Floats = self.features(inputs) @ self._matrix.T + self._shift
        return scored

    def features(self, inputs: Array) -> Floats:
        """Flatten; bytes become shares of 255."""
        given = np.asarray(inputs)
        flat = given.reshape(len(given), prod(given.shape[1:]))
        if flat.shape[1] != self._matrix.shape[1]:
            raise InputError(f"Expected {self._matrix.shape[1]} numbers a record, found {flat.shape[1]}.")
        return flat / 255.0 if flat.dtype == np.uint8 else flat.astype(np.float64, copy=False)

    def curvature(self, inputs: Array) -> Floats:
        """Add up p (1 - p) times squared features."""
        matrix, shift = np.zeros_like(self._matrix), np.zeros_like(self._shift)
        for at in range(0, len(inputs), BATCH):
            features = self.features(inputs[at : at + BATCH])
            probs = softmax(features @ self._matrix.T + self._shift)
            spread = probs * (1 - probs)
            matrix += spread.T @ features**2
            shift += spread.sum(axis=0)
        return np.concatenate([matrix.reshape(-1), shift])


@final
@dataclass(frozen=True)
class SoftmaxRegression(Network):
    """One linear layer from `inputs` numbers to `classes` logits; starts at zero. Needs no torch."""

    inputs: int
    classes: int

    def __post_init__(self) -> None:
        if self.inputs < 1 or self.classes < 2:
            raise InputError(f"Expected at least 1 input and 2 classes, found {self.inputs} and {self.classes}.")

    def start(self, seed: int) -> Floats:
        """Start at zero, which any seed does: the loss is convex."""
        return np.zeros(self.trainable)

    def session(self, weights: Floats) -> Session:
        """Put the layer to work."""
        return LinearSession(self, weights)

    @property
    def outputs(self) -> int:
        """Count the classes."""
        return self.classes

    @property
    def trainable(self) -> int:
        """Count the matrix and the shift."""
        return self.classes * (self.inputs + 1)

    @property
    def head(self) -> tuple[slice, slice]:
        """All of it."""
        return slice(0, self.classes * self.inputs), slice(self.classes * self.inputs, self.trainable)
