"""Networks as weight vectors: the interfaces `Network` and `Session`, and softmax regression in numpy.

A `Network` is a frozen dataclass that names an architecture; it can be sent to clients, because it holds no code. A
`Session` is a network with one vector of weights, which computes gradients and logits. `SoftmaxRegression` is a network
of one linear layer, and so the last layer of any frozen network.

`LocalTraining` trains on one client's own records: batches, an optimiser, weight decay and a proximal term.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.records import Records, softmax
from fedcalib.types import Array, Floats, Ints

BATCH = 1024  # records at a time in prediction


@final
@dataclass(frozen=True)
class WeightLayout:
    """Where the parts of a network are in its weight vector."""

    outputs: int
    trainable: int
    matrix: slice
    shift: slice
    name: str = ""  # of the last linear layer that a forward pass runs
    last: bool = True  # whether its outputs are the network's


class Session(ABC):
    """A network with its weights in one vector, which training changes in place.

    `weights` is that vector, of shape (size,).

    Examples
    --------
    >>> import numpy as np
    >>> import fedcalib as fc
    >>> network = fc.training.SoftmaxRegression(2, 3)
    >>> session = network.session(network.start(0))
    >>> session.logits(np.ones((4, 2))).shape
    (4, 3)
    """

    weights: Floats

    @abstractmethod
    def gradient(self, inputs: Array, labels: Ints) -> Floats:
        """Gradient of the mean log loss over a batch, shape (size,), in training mode."""

    @abstractmethod
    def logits(self, inputs: Array) -> Floats:
        """Logits of records, shape (n, classes), in evaluation mode."""

    @abstractmethod
    def features(self, inputs: Array) -> Floats:
        """Inputs of the last linear layer, shape (n, features)."""

    def scores(self, inputs: Array) -> tuple[Floats, Floats]:
        """Logits and features; override it to compute both in one pass."""
        return self.logits(inputs), self.features(inputs)

    @abstractmethod
    def curvature(self, inputs: Array) -> Floats:
        """Diagonal of the Gauss-Newton matrix of the summed log loss, shape (size,)."""


class Network(ABC):
    """An architecture: a frozen dataclass that is sent to clients inside queries. Code is never sent.

    Examples
    --------
    >>> import fedcalib as fc
    >>> network = fc.training.SoftmaxRegression(4, 3)
    >>> network.outputs, network.trainable, network.head
    (3, 15, (slice(0, 12, None), slice(12, 15, None)))
    """

    @abstractmethod
    def start(self, seed: int) -> Floats:
        """Initial weights, shape (size,)."""

    @abstractmethod
    def session(self, weights: Floats) -> Session:
        """A session with a copy of these weights."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Number of classes."""

    @property
    @abstractmethod
    def trainable(self) -> int:
        """Number of weights that gradients change; running averages come after them in the vector."""

    @property
    @abstractmethod
    def head(self) -> tuple[slice, slice]:
        """Where the last linear layer's matrix and shift are in the vector."""

    @property
    def ends_in_head(self) -> bool:
        """Whether the outputs of that layer are the logits, with nothing after it."""
        return True

    @property
    def unit(self) -> bool:
        """Whether only the direction of the last linear layer's rows matters, not their length."""
        return False


def inputs_of(records: Records, column: str | None) -> Array:
    """The column that a network takes as input; without one, the logits, clipped so that products stay finite."""
    if column is None:
        return np.clip(np.asarray(records.logits, dtype=np.float64), -1e6, 1e6)
    if column not in records.extra:
        raise InputError(
            f"Expected a column '{column}' beside the scores, found {sorted(records.extra) or 'none'}; "
            f"pass it as Records.of_logits(..., {column}=...)."
        )
    return records.extra[column]


def in_batches(inputs: Array, score: Callable[[Array], Floats]) -> Floats:
    """Scores of inputs, computed in batches so that hidden layers stay small."""
    parts = [np.asarray(score(inputs[at : at + BATCH])) for at in range(0, max(len(inputs), 1), BATCH)]
    return np.concatenate(parts)


@final
class LinearSession(Session):
    """A session of one linear layer."""

    def __init__(self, network: SoftmaxRegression, weights: Floats) -> None:
        self.weights = np.array(weights, dtype=np.float64)
        self._matrix = self.weights[: network.classes * network.inputs].reshape(network.classes, network.inputs)
        self._shift = self.weights[network.classes * network.inputs :]

    def gradient(self, inputs: Array, labels: Ints) -> Floats:
        features = self.features(inputs)
        residual = softmax(features @ self._matrix.T + self._shift)
        residual[np.arange(len(labels)), labels] -= 1
        residual /= max(len(labels), 1)
        return np.concatenate([(residual.T @ features).reshape(-1), residual.sum(axis=0)])

    def logits(self, inputs: Array) -> Floats:
        scored: Floats = self.features(inputs) @ self._matrix.T + self._shift
        return scored

    def features(self, inputs: Array) -> Floats:
        """Flattened inputs; bytes are divided by 255."""
        given = np.asarray(inputs)
        flat = given.reshape(len(given), prod(given.shape[1:]))
        if flat.shape[1] != self._matrix.shape[1]:
            raise InputError(f"Expected {self._matrix.shape[1]} numbers per record, found {flat.shape[1]}.")
        return flat / 255.0 if flat.dtype == np.uint8 else flat.astype(np.float64, copy=False)

    def curvature(self, inputs: Array) -> Floats:
        matrix, shift = np.zeros_like(self._matrix), np.zeros_like(self._shift)
        for at in range(0, len(inputs), BATCH):
            features = self.features(inputs[at : at + BATCH])
            probs = softmax(features @ self._matrix.T + self._shift)
            variance = probs * (1 - probs)
            matrix += variance.T @ features**2
            shift += variance.sum(axis=0)
        return np.concatenate([matrix.reshape(-1), shift])


@final
@dataclass(frozen=True)
class SoftmaxRegression(Network):
    """Softmax regression: one linear layer that starts at zero. It needs no torch.

    Parameters
    ----------
    inputs
        Numbers per record.
    classes
        Number of classes.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.training.SoftmaxRegression(784, 10).trainable
    7850
    """

    inputs: int
    classes: int

    def __post_init__(self) -> None:
        if self.inputs < 1 or self.classes < 2:
            raise InputError(f"Expected at least 1 input and 2 classes, found {self.inputs} and {self.classes}.")

    def start(self, seed: int) -> Floats:
        """Zeros, whatever the seed: the loss is convex."""
        return np.zeros(self.trainable)

    def session(self, weights: Floats) -> Session:
        return LinearSession(self, weights)

    @property
    def outputs(self) -> int:
        return self.classes

    @property
    def trainable(self) -> int:
        return self.classes * (self.inputs + 1)

    @property
    def head(self) -> tuple[slice, slice]:
        return slice(0, self.classes * self.inputs), slice(self.classes * self.inputs, self.trainable)


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
