"""Training on one client's own records: batches, an optimiser, and a pull toward where it started."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.training.network import Network, Session
from fedcalib.types import Array, Floats, Ints

Update = Callable[[Floats, Floats], None]  # (weights, gradient): changes the weights in place


class Optimiser(ABC):
    """How a gradient moves weights."""

    @abstractmethod
    def begin(self, size: int) -> Update:
        """Start afresh for a vector of so many weights."""


@final
@dataclass(frozen=True)
class SGD(Optimiser):
    """Plain steps against the gradient, perhaps with momentum."""

    rate: float = 0.01
    momentum: float = 0.0

    def begin(self, size: int) -> Update:
        """Start with no velocity."""
        velocity = np.zeros(size)

        def update(weights: Floats, gradient: Floats) -> None:
            np.multiply(velocity, self.momentum, out=velocity)
            velocity[:] += gradient
            weights -= (self.rate * velocity).astype(weights.dtype, copy=False)

        return update


@final
@dataclass(frozen=True)
class Adam(Optimiser):
    """Steps scaled by running moments of the gradient."""

    rate: float = 0.001
    first: float = 0.9
    second: float = 0.999

    def begin(self, size: int) -> Update:
        """Start with no moments."""
        mean, square = np.zeros(size, np.float32), np.zeros(size, np.float32)
        steps = 0

        def update(weights: Floats, gradient: Floats) -> None:
            nonlocal steps
            steps += 1
            mean[:] = self.first * mean + (1 - self.first) * gradient
            square[:] = self.second * square + (1 - self.second) * np.square(gradient)
            rate = self.rate * np.sqrt(1 - self.second**steps) / (1 - self.first**steps)
            weights -= (rate * mean / (np.sqrt(square) + 1e-8)).astype(weights.dtype, copy=False)

        return update


@final
@dataclass(frozen=True)
class LocalTraining:
    """How a client trains: epochs over its records in shuffled batches.

    `decay` draws all weights toward zero; `proximal` draws the last layer, or the `whole` network, toward its start.
    """

    epochs: int = 1
    batch: int = 64
    optimiser: Optimiser = SGD()
    decay: float = 0.0
    proximal: float = 0.0
    whole: bool = False

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 1 or not self.decay >= 0 or not self.proximal >= 0:
            raise InputError(
                "Expected epochs and a batch of at least 1 and no negative decay or proximal, found others."
            )

    def train(
        self, network: Network, weights: Floats, inputs: Array, labels: Ints, rng: np.random.Generator
    ) -> Session:
        """Train from given weights on."""
        session = network.session(weights)
        update = self.optimiser.begin(network.trainable)
        for _ in range(self.epochs):
            for rows in batches(len(labels), self.batch, rng):
                slope = session.gradient(inputs[rows], labels[rows])[: network.trainable]
                self.draw(network, slope, session.weights, weights)
                update(session.weights[: network.trainable], slope)
        return session

    def draw(self, network: Network, slope: Floats, weights: Floats, started: Floats) -> None:
        """Add the pulls to a gradient, in place."""
        if self.decay:
            slope += (self.decay * weights[: len(slope)]).astype(slope.dtype, copy=False)
        if self.proximal:
            places = (slice(0, len(slope)),) if self.whole else network.head
            for place in places:
                slope[place] += (self.proximal * (weights[place] - started[place])).astype(slope.dtype, copy=False)


def batches(records: int, size: int, rng: np.random.Generator) -> Iterator[Ints]:
    """Deal shuffled row numbers into batches."""
    order = rng.permutation(records)
    for at in range(0, records, size):
        yield order[at : at + size]
