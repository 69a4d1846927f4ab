"""Training on one client's own records: batches, an optimiser, weight decay and a proximal term."""

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
    """How weights are updated by a gradient.

    Examples
    --------
    >>> import fedcalib as fc
    >>> isinstance(fc.training.SGD(rate=0.1), fc.training.Optimiser)
    True
    """

    @abstractmethod
    def begin(self, size: int) -> Update:
        """A new update function for `size` weights; it changes them in place."""


@final
@dataclass(frozen=True)
class SGD(Optimiser):
    """Stochastic gradient descent, optionally with momentum.

    Parameters
    ----------
    rate
        Learning rate.
    momentum
        Factor of the previous velocity; 0 for none.

    Examples
    --------
    >>> import numpy as np
    >>> import fedcalib as fc
    >>> weights = np.array([1.0, 2.0])
    >>> fc.training.SGD(rate=0.1).begin(2)(weights, np.array([1.0, -1.0]))
    >>> weights
    array([0.9, 2.1])
    """

    rate: float = 0.01
    momentum: float = 0.0

    def begin(self, size: int) -> Update:
        velocity = np.zeros(size)

        def update(weights: Floats, gradient: Floats) -> None:
            np.multiply(velocity, self.momentum, out=velocity)
            velocity[:] += gradient
            weights -= (self.rate * velocity).astype(weights.dtype, copy=False)

        return update


@final
@dataclass(frozen=True)
class Adam(Optimiser):
    """Adam: steps scaled by running moments of the gradient.

    Parameters
    ----------
    rate
        Learning rate.
    first, second
        Decay factors of the first and the second moment.

    Examples
    --------
    >>> import numpy as np
    >>> import fedcalib as fc
    >>> weights = np.array([1.0, 2.0])
    >>> fc.training.Adam(rate=0.1).begin(2)(weights, np.array([5.0, -1.0]))
    >>> weights.round(2)
    array([0.9, 2.1])
    """

    rate: float = 0.001
    first: float = 0.9
    second: float = 0.999

    def begin(self, size: int) -> Update:
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

    Parameters
    ----------
    epochs
        Passes over the records.
    batch
        Records per step.
    optimiser
        `SGD` or `Adam`.
    decay
        Weight decay: strength of the penalty on all weights.
    proximal
        Strength of the penalty on the distance from the weights that training started at.
    whole
        Whether that penalty covers the whole network instead of its last layer.

    Examples
    --------
    >>> import numpy as np
    >>> import fedcalib as fc
    >>> training = fc.training.LocalTraining(epochs=5, batch=16, optimiser=fc.training.SGD(0.5))
    >>> network = fc.training.SoftmaxRegression(1, 2)
    >>> inputs, labels = np.array([[-1.0], [1.0]] * 20), np.array([0, 1] * 20)
    >>> session = training.train(network, network.start(0), inputs, labels, np.random.default_rng(0))
    >>> session.logits(inputs[:2]).argmax(axis=1)
    array([0, 1])
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
        """Train, starting from the given weights.

        Returns
        -------
        Session
            The network with its trained weights.
        """
        session = network.session(weights)
        update = self.optimiser.begin(network.trainable)
        for _ in range(self.epochs):
            for rows in batches(len(labels), self.batch, rng):
                gradient = session.gradient(inputs[rows], labels[rows])[: network.trainable]
                self.add_penalties(network, gradient, session.weights, weights)
                update(session.weights[: network.trainable], gradient)
        return session

    def add_penalties(self, network: Network, gradient: Floats, weights: Floats, start: Floats) -> None:
        """Add the gradients of both penalties to a gradient, in place."""
        if self.decay:
            gradient += (self.decay * weights[: len(gradient)]).astype(gradient.dtype, copy=False)
        if self.proximal:
            parts = (slice(0, len(gradient)),) if self.whole else network.head
            for part in parts:
                gradient[part] += (self.proximal * (weights[part] - start[part])).astype(gradient.dtype, copy=False)


def batches(records: int, size: int, rng: np.random.Generator) -> Iterator[Ints]:
    """Shuffled row numbers in batches."""
    order = rng.permutation(records)
    for at in range(0, records, size):
        yield order[at : at + size]
