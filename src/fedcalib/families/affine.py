"""Temperature, vector and matrix scaling: logits times something, plus something."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.scaling import MatrixScaling, Temperature, VectorScaling
from fedcalib.errors import InputError
from fedcalib.families import Derivatives, Family, SoftmaxDerivatives, bounded_logits, log_loss, log_losses
from fedcalib.families.local_fits import Slice, best_log_temperatures, slices
from fedcalib.federation import Federation
from fedcalib.randomness import Randomness
from fedcalib.records import softmax
from fedcalib.types import Floats, Ints
from fedcalib.wire import ADDED


@final
@dataclass(frozen=True)
class TemperatureFamily(Family):
    """Logits divided by T. Clients exchange T, its logarithm, or its inverse as one reading of a paper has it.

    The loss is convex in 1/T, but the best T of a client whose answers are all right is zero: such clients dominate an
    average of 1/T and hardly affect one of T.
    """

    lowest: float = 0.05
    highest: float = 20.0
    logarithm: bool = False
    inverse: bool = field(default=False, metadata=ADDED)

    def __post_init__(self) -> None:
        if self.logarithm and self.inverse:
            raise InputError("Expected the logarithm of T or its inverse to be exchanged, found both.")

    def start(self, classes: int) -> Floats:
        return np.array([0.0 if self.logarithm else 1.0])

    def temperature(self, parameters: Floats) -> float:
        """T, clipped to its range whatever the noise."""
        given = float(parameters[0])
        if self.inverse:
            return 1 / float(np.clip(given, 1 / self.highest, 1 / self.lowest))
        return float(np.clip(np.exp(np.clip(given, -50, 50)) if self.logarithm else given, self.lowest, self.highest))

    def loss(self, parameters: Floats, logits: Floats, labels: Ints) -> tuple[float, Floats]:
        """The gradient in T is minus (gradient in the logits times logits) over T squared."""
        t = self.temperature(parameters)
        value, residual = log_loss(logits / t, labels)
        in_inverse = float(np.einsum("ij,ij->", residual, logits))
        return value, np.array([in_inverse if self.inverse else -in_inverse / t ** (1 if self.logarithm else 2)])

    def fit(
        self, parameters: Floats, logits: Floats, labels: Ints, *, ridge: float, steps: int, rng: np.random.Generator
    ) -> Floats:
        """The best T of one client, with a penalty of ridge / 2 on the squared change of ln T."""
        parts = list(slices(logits, labels, np.zeros(len(labels), dtype=np.int64)))
        found: Floats = self._best(parts, parameters, 1, ridge)[0]
        return found

    def fit_each(
        self, parameters: Floats, federation: Federation, *, ridge: float, steps: int, randomness: Randomness
    ) -> Floats:
        """All clients at once: one pass over all records per step."""
        parts = list(slices(bounded_logits(federation.records), federation.records.labels, federation.owner))
        fitted = self._best(parts, parameters, len(federation), ridge)
        return np.where(federation.sizes[:, None] > 0, fitted, parameters)

    def _best(self, parts: list[Slice], parameters: Floats, clients: int, ridge: float) -> Floats:
        start = np.full(clients, log(self.temperature(parameters)))
        best = best_log_temperatures(parts, start, ridge, log(self.lowest), log(self.highest))
        return (best if self.logarithm else np.exp(-best if self.inverse else best))[:, None]

    def artifact(self, parameters: Floats, classes: int) -> Calibrator:
        return Temperature(self.temperature(parameters))


@final
@dataclass(frozen=True)
class VectorFamily(Family):
    """Each class's logit times its own factor, plus its own shift."""

    def start(self, classes: int) -> Floats:
        return np.concatenate([np.ones(classes), np.zeros(classes)])

    def soft_start(self, classes: int) -> Floats:
        return self.start(classes) / 2

    def loss(self, parameters: Floats, logits: Floats, labels: Ints) -> tuple[float, Floats]:
        scale, shift = np.split(parameters, 2)
        value, residual = log_loss(scale * logits + shift, labels)
        return value, np.concatenate([np.einsum("ij,ij->j", residual, logits), residual.sum(axis=0)])

    def derivatives(self, parameters: Floats, logits: Floats, labels: Ints) -> Derivatives:
        """Each logit depends on its own factor and shift alone; class by class, since short rows are slow."""
        inputs = np.ascontiguousarray(logits.T)
        scale, shift = np.split(parameters, 2)
        probs = scale[:, None] * inputs + shift[:, None]
        probs -= probs.max(axis=0, initial=-np.inf)
        records = np.arange(len(labels))
        own = probs[labels, records]
        np.exp(probs, out=probs)
        mass = probs.sum(axis=0)
        probs /= mass
        residual = probs.copy()
        residual[labels, records] -= 1
        return SoftmaxDerivatives(np.log(mass) - own, inputs, residual, probs * (1 - probs), probs)

    @property
    def convex(self) -> bool:
        return True

    def curvature(self, parameters: Floats, logits: Floats, labels: Ints) -> Floats:
        return self.derivatives(parameters, logits, labels).summed_curvature(np.ones(len(labels)))

    def record_losses(self, parameters: Floats, logits: Floats, labels: Ints) -> tuple[Floats, Floats]:
        scale, shift = np.split(parameters, 2, axis=1)
        value, residual = log_losses(scale * logits + shift, labels)
        return value, np.concatenate([residual * logits, residual], axis=1)

    def artifact(self, parameters: Floats, classes: int) -> Calibrator:
        scale, shift = np.split(parameters, 2)
        return VectorScaling(tuple(scale.tolist()), tuple(shift.tolist()))


@final
@dataclass(frozen=True)
class MatrixFamily(Family):
    """Logits times a matrix, plus a shift."""

    def start(self, classes: int) -> Floats:
        return np.concatenate([np.eye(classes).reshape(-1), np.zeros(classes)])

    def loss(self, parameters: Floats, logits: Floats, labels: Ints) -> tuple[float, Floats]:
        classes = logits.shape[1]
        matrix, shift = parameters[: classes * classes].reshape(classes, classes), parameters[classes * classes :]
        value, residual = log_loss(logits @ matrix.T + shift, labels)
        return value, np.concatenate([(residual.T @ logits).reshape(-1), residual.sum(axis=0)])

    @property
    def convex(self) -> bool:
        return True

    def curvature(self, parameters: Floats, logits: Floats, labels: Ints) -> Floats:
        """Blocks of classes p and q are -pq (p - p^2 where equal) times the outer product of (logits, 1)."""
        n, classes = logits.shape
        matrix, shift = parameters[: classes * classes].reshape(classes, classes), parameters[classes * classes :]
        probs = softmax(logits @ matrix.T + shift)
        inputs = np.concatenate([logits, np.ones((n, 1))], axis=1)
        weighted = (probs[:, :, None] * inputs[:, None, :]).reshape(n, len(parameters))
        hessian = -(weighted.T @ weighted).reshape(classes, classes + 1, classes, classes + 1)
        for label in range(classes):
            hessian[label, :, label] += (inputs.T * probs[:, label]) @ inputs
        order = np.arange(classes * (classes + 1)).reshape(classes, classes + 1)
        order = np.concatenate([order[:, :-1].reshape(-1), order[:, -1]])  # the matrix first, then the shifts
        summed: Floats = hessian.reshape(len(order), len(order))[np.ix_(order, order)]
        return summed

    def record_losses(self, parameters: Floats, logits: Floats, labels: Ints) -> tuple[Floats, Floats]:
        n, classes = logits.shape
        matrices = parameters[:, : classes * classes].reshape(n, classes, classes)
        moved = np.einsum("nij,nj->ni", matrices, logits) + parameters[:, classes * classes :]
        value, residual = log_losses(moved, labels)
        outer = (residual[:, :, None] * logits[:, None, :]).reshape(n, -1)
        return value, np.concatenate([outer, residual], axis=1)

    def artifact(self, parameters: Floats, classes: int) -> Calibrator:
        matrix = parameters[: classes * classes].reshape(classes, classes)
        return MatrixScaling(tuple(map(tuple, matrix.tolist())), tuple(parameters[classes * classes :].tolist()))
