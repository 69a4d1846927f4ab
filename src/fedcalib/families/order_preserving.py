"""Order-preserving families: no parameters can change which class is on top."""

from __future__ import annotations

from dataclasses import dataclass
from math import expm1, log
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.scaling import OrderPreservingNetwork, OrderPreservingVector, Sorted, softplus
from fedcalib.errors import InputError
from fedcalib.families import Derivatives, Family, GapDerivatives, bounded_logits, log_losses
from fedcalib.federation import Federation
from fedcalib.numeric import sigmoid
from fedcalib.randomness import Randomness
from fedcalib.records import softmax
from fedcalib.types import Floats, Ints

_SOFTPLUS_ONE = log(expm1(1.0))  # softplus of it is 1: the identity
_SOFTPLUS_HALF = log(expm1(0.5))
_MAX_PARAMETER = 1e6


def gap_loss(ranked: Sorted, raw: Floats, labels: Ints) -> tuple[float, Floats]:
    """The summed log loss of stretched gaps, and its gradient in softplus's arguments, shape (n, classes - 1).

    A gap lifts all classes above it, so its gradient adds up their residuals from the top down.
    """
    value, gradient = gap_losses(ranked, raw, labels)
    return float(value.sum()), gradient


def gap_losses(ranked: Sorted, raw: Floats, labels: Ints) -> tuple[Floats, Floats]:
    """Each record's log loss of stretched gaps, and the same gradient."""
    place = np.argmax(ranked.order == labels[:, None], axis=1)
    value, residual = log_losses(ranked.stretched(softplus(raw)), place)
    gradient: Floats = ranked.gaps * sigmoid(raw) * np.cumsum(residual, axis=1)[:, :-1]
    return value, gradient


@final
@dataclass(frozen=True)
class OrderPreservingVectorFamily(Family):
    """Two parameters per class stretch the gap below it: softplus(slope * logit + shift) times the gap."""

    def start(self, classes: int) -> Floats:
        return np.concatenate([np.zeros(classes), np.full(classes, _SOFTPLUS_ONE)])

    def soft_start(self, classes: int) -> Floats:
        return np.concatenate([np.zeros(classes), np.full(classes, _SOFTPLUS_HALF)])

    def loss(self, parameters: Floats, logits: Floats, labels: Ints) -> tuple[float, Floats]:
        classes = logits.shape[1]
        ranked = Sorted.of(logits)
        slope, shift = np.split(parameters, 2)
        above, values = ranked.order[:, :-1], ranked.values[:, :-1]
        value, lift = gap_loss(ranked, slope[above] * values + shift[above], labels)
        cells = above.reshape(-1)
        tilt = np.bincount(cells, (lift * values).reshape(-1), classes)
        return value, np.concatenate([tilt, np.bincount(cells, lift.reshape(-1), classes)])

    def derivatives(self, parameters: Floats, logits: Floats, labels: Ints) -> Derivatives:
        """A gap lifts the classes above it alike, so their summed probability is all that matters."""
        ranked = Sorted.of(logits)
        slope, shift = np.split(parameters, 2)
        over, values = ranked.order[:, :-1], ranked.values[:, :-1]
        raw = slope[over] * values + shift[over]
        place = np.argmax(ranked.order == labels[:, None], axis=1)
        stretched = ranked.stretched(softplus(raw))
        above = np.cumsum(softmax(stretched), axis=1)[:, :-1]
        rise = sigmoid(raw)
        lift, residual = ranked.gaps * rise, above - (place[:, None] <= np.arange(over.shape[1]))
        own = lift**2 * above * (1 - above) + lift * (1 - rise) * residual
        parts = (values, lift * residual, own, lift, above)
        covariate, gradient, curvature, lifts, likely = (ranked.by_class(part) for part in parts)
        loss = np.log(np.exp(stretched - stretched[:, :1]).sum(axis=1)) + stretched[:, 0]
        loss -= stretched[np.arange(len(labels)), place]
        squares = (lift**2 * (1 + values**2)).T
        return GapDerivatives(loss, covariate, gradient, curvature, lifts, likely, above.T, squares)

    def record_losses(self, parameters: Floats, logits: Floats, labels: Ints) -> tuple[Floats, Floats]:
        ranked = Sorted.of(logits)
        slope, shift = np.split(parameters, 2, axis=1)
        above, values = ranked.order[:, :-1], ranked.values[:, :-1]
        raw = np.take_along_axis(slope, above, axis=1) * values + np.take_along_axis(shift, above, axis=1)
        value, lift = gap_losses(ranked, raw, labels)
        out = np.zeros_like(parameters)
        np.put_along_axis(out, above, lift * values, axis=1)
        np.put_along_axis(out, above + logits.shape[1], lift, axis=1)
        return value, out

    def artifact(self, parameters: Floats, classes: int) -> Calibrator:
        slope, shift = np.split(np.clip(parameters, -_MAX_PARAMETER, _MAX_PARAMETER), 2)
        return OrderPreservingVector(tuple(slope.tolist()), tuple(shift.tolist()))


@final
@dataclass(frozen=True)
class OrderPreservingNetworkFamily(Family):
    """A network classes-hidden-hidden-classes whose outputs stretch the gaps; trained by stochastic gradients.

    The last layer starts at the identity and the others at the same random numbers everywhere, drawn from `seed`: an
    average of networks means something only if they started as one.
    """

    hidden: int = 64
    epochs: int = 3
    batch: int = 32
    rate: float = 5e-3
    seed: int = 0

    def __post_init__(self) -> None:
        if self.hidden < 1 or self.epochs < 1 or self.batch < 1 or not self.rate > 0:
            raise InputError(f"Expected hidden, epochs, batch and rate above 0, found {self}.")

    def shapes(self, classes: int) -> tuple[tuple[int, int], ...]:
        """The layers' shapes, (out, in)."""
        return (self.hidden, classes), (self.hidden, self.hidden), (classes, self.hidden)

    def start(self, classes: int) -> Floats:
        rng = np.random.default_rng(self.seed)
        parts = []
        for layer, (out, into) in enumerate(self.shapes(classes)):
            last = layer == 2
            parts += [np.zeros(out * into) if last else rng.normal(0, (2 / into) ** 0.5, out * into)]
            parts += [np.full(out, _SOFTPLUS_ONE if last else 0.0)]
        return np.concatenate(parts)

    def layers(self, parameters: Floats, classes: int) -> list[tuple[Floats, Floats]]:
        """Matrices and biases of a parameter vector."""
        cut, start = [], 0
        for out, into in self.shapes(classes):
            matrix = parameters[start : start + out * into].reshape(out, into)
            start += out * into
            cut.append((matrix, parameters[start : start + out]))
            start += out
        return cut

    def loss(self, parameters: Floats, logits: Floats, labels: Ints) -> tuple[float, Floats]:
        layers = self.layers(parameters, logits.shape[1])
        inputs = [logits]
        for matrix, bias in layers[:-1]:
            inputs.append(np.maximum(inputs[-1] @ matrix.T + bias, 0.0))
        raw = inputs[-1] @ layers[-1][0].T + layers[-1][1]
        value, lift = gap_loss(Sorted.of(logits), raw[:, :-1], labels)
        back = np.concatenate([lift, np.zeros((len(logits), 1))], axis=1)
        parts: list[Floats] = []
        for (matrix, _), given in zip(reversed(layers), reversed(inputs), strict=True):
            parts = [(back.T @ given).reshape(-1), back.sum(axis=0), *parts]
            back = (back @ matrix) * (given > 0)
        return value, np.concatenate(parts)

    def fit_each(
        self, parameters: Floats, federation: Federation, *, ridge: float, steps: int, randomness: Randomness
    ) -> Floats:
        """Train each client's network in turn, on batches that the client draws itself."""
        fitted = np.tile(parameters, (len(federation), 1))
        for client, records in enumerate(federation.clients()):
            if len(records):
                rng = randomness.derive("term", client).generator()
                logits = bounded_logits(records)
                fitted[client] = self.fit(parameters, logits, records.labels, ridge=ridge, steps=steps, rng=rng)
        return fitted

    def fit(
        self, parameters: Floats, logits: Floats, labels: Ints, *, ridge: float, steps: int, rng: np.random.Generator
    ) -> Floats:
        moved = parameters.copy()
        for _ in range(self.epochs):
            shuffled = rng.permutation(len(labels))
            for start in range(0, len(labels), self.batch):
                rows = shuffled[start : start + self.batch]
                gradient = self.loss(moved, logits[rows], labels[rows])[1] / len(rows)
                moved -= self.rate * (gradient + ridge / len(labels) * (moved - parameters))
        return moved

    def artifact(self, parameters: Floats, classes: int) -> Calibrator:
        layers = self.layers(np.clip(parameters, -_MAX_PARAMETER, _MAX_PARAMETER), classes)
        return OrderPreservingNetwork(tuple(matrix for matrix, _ in layers), tuple(bias for _, bias in layers))
