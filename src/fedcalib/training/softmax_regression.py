"""Softmax regression in numpy: a network of one layer, and the last layer of any frozen one."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.records import softmax
from fedcalib.training.network import BATCH, Network, Session
from fedcalib.types import Array, Floats, Ints


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
