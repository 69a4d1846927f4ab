"""Scalings: maps that act on logits.

Two or three numbers on the log-odds of a binary classifier: Platt and beta scaling.

Temperatures by domain.

Order-preserving maps: the gaps between sorted logits are stretched, so ranking and ties never change.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import final

import numpy as np

from fedcalib.artifacts import Artifact
from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import InputError
from fedcalib.records import softmax
from fedcalib.types import Array, Floats, Ints


@final
@dataclass(frozen=True)
class Temperature(Calibrator):
    """Divide logits by a temperature: above 1 it softens an over-confident model; ranking never changes.

    `warning` says what to know about how it was found; empty if nothing.
    """

    temperature: float
    warning: str = ""

    def __post_init__(self) -> None:
        if not (isfinite(self.temperature) and self.temperature > 0):
            raise InputError(f"Expected a temperature above 0, found {self.temperature}.")

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Soften or sharpen."""
        return softmax(logits / self.temperature)


@final
@dataclass(frozen=True)
class VectorScaling(Calibrator):
    """Multiply each class's logit by its own factor and add its own shift."""

    scale: tuple[float, ...]
    shift: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.scale) != len(self.shift) or not all(map(isfinite, (*self.scale, *self.shift))):
            raise InputError("Expected a finite factor and shift a class, found others.")

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Scale and shift."""
        _check_classes(len(self.scale), logits)
        return softmax(np.array(self.scale) * logits + np.array(self.shift))


@final
@dataclass(frozen=True)
class MatrixScaling(Calibrator):
    """Multiply the logits by a matrix and add a shift."""

    matrix: tuple[tuple[float, ...], ...]
    shift: tuple[float, ...]

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.matrix}
        if widths != {len(self.shift)} or not all(map(isfinite, (*sum(self.matrix, ()), *self.shift))):
            raise InputError("Expected a finite square matrix and a shift a class, found others.")

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Multiply and shift."""
        _check_classes(len(self.shift), logits)
        return softmax(logits @ np.array(self.matrix).T + np.array(self.shift))


def _check_classes(expected: int, logits: Floats) -> None:
    if logits.shape[1] != expected:
        raise InputError(f"Expected {expected} classes, found {logits.shape[1]}.")


@final
@dataclass(frozen=True)
class Platt(Calibrator):
    """Stretch and shift the log-odds of class 1; the slope is above zero, so ranking never changes."""

    slope: float
    intercept: float

    def __post_init__(self) -> None:
        if not (isfinite(self.slope) and self.slope > 0 and isfinite(self.intercept)):
            raise InputError(
                f"Expected a slope above 0 and a finite intercept, found {self.slope} and {self.intercept}."
            )

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Stretch and shift."""
        binary(probs)
        return of_log_odds(self.slope * (logits[:, 1] - logits[:, 0]) + self.intercept)


@final
@dataclass(frozen=True)
class Beta(Calibrator):
    """Give ln p and -ln(1 - p) a weight each and add an intercept; weights are not negative, so ranking stays.

    Equal weights are Platt scaling; unequal ones bend the two ends of the curve differently.
    """

    low: float  # the weight of ln p, which bends the curve near 0
    high: float  # the weight of -ln(1 - p), which bends it near 1
    intercept: float

    def __post_init__(self) -> None:
        finite = all(isfinite(value) for value in (self.low, self.high, self.intercept))
        if not (finite and self.low >= 0 and self.high >= 0 and self.low + self.high > 0):
            raise InputError(f"Expected two weights of at least 0, not both 0, and a finite intercept, found {self}.")

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Bend and shift."""
        binary(probs)
        shifted = logits - np.logaddexp(logits[:, :1], logits[:, 1:])  # log-probabilities, whatever came in
        return of_log_odds(self.low * shifted[:, 1] - self.high * shifted[:, 0] + self.intercept)


def binary(probs: Floats) -> None:
    """Refuse records of more than two classes."""
    if probs.shape[1] != 2:
        raise InputError(f"Expected a binary classifier, found {probs.shape[1]} classes; use a multiclass calibrator.")


def of_log_odds(odds: Floats) -> Floats:
    """Turn the log-odds of class 1 into both classes' probabilities, (n, 2)."""
    one = 0.5 * (1 + np.tanh(odds / 2))
    return np.stack([1 - one, one], axis=1)


@final
@dataclass(frozen=True)
class TemperatureByDomain(Artifact):
    """One temperature a domain, and one for everybody else."""

    overall: Temperature
    domains: tuple[Temperature, ...]

    def of(self, domain: int) -> Temperature:
        """Give a domain's own calibrator."""
        if not 0 <= domain < len(self.domains):
            raise InputError(f"Expected a domain from 0 to {len(self.domains) - 1}, found {domain}; use `overall`.")
        return self.domains[domain]


@final
@dataclass(frozen=True, eq=False)
class Sorted:
    """Logits in falling order, with the gap below each; ties go by class."""

    order: Ints  # (n, classes)
    values: Floats  # (n, classes)

    @classmethod
    def of(cls, logits: Floats) -> Sorted:
        """Sort each record's logits."""
        order = np.argsort(-logits, axis=1, kind="stable")
        return cls(order, np.take_along_axis(logits, order, axis=1))

    @property
    def gaps(self) -> Floats:
        """Give the gap below each logit but the last, (n, classes - 1)."""
        differences: Floats = self.values[:, :-1] - self.values[:, 1:]
        return differences

    def stretched(self, factors: Floats) -> Floats:
        """Multiply the gaps by positive factors and add them up again, still sorted; the last logit becomes 0."""
        steps = self.gaps * factors
        out = np.zeros_like(self.values)
        out[:, :-1] = np.cumsum(steps[:, ::-1], axis=1)[:, ::-1]
        return out

    def restored(self, values: Floats) -> Floats:
        """Put sorted values back to their classes."""
        out = np.empty_like(values)
        np.put_along_axis(out, self.order, values, axis=1)
        return out

    def by_class(self, gaps: Floats) -> Floats:
        """Put what belongs to each gap to the class above it, (classes, n); the lowest class gets 0."""
        out = np.zeros(self.values.shape)
        np.put_along_axis(out, self.order[:, :-1], gaps, axis=1)
        return np.ascontiguousarray(out.T)


def softplus(raw: Floats) -> Floats:
    """Map any number to a positive one; 0.5413 becomes 1."""
    return np.logaddexp(0.0, raw)


@final
@dataclass(frozen=True)
class OrderPreservingVector(Calibrator):
    """Stretch the gap below a class's logit y by softplus(slope * y + shift), with the class's own two numbers."""

    slope: tuple[float, ...]
    shift: tuple[float, ...]

    def __post_init__(self) -> None:
        _check_finite(np.array(self.slope), np.array(self.shift))

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Stretch, and turn into probabilities."""
        if logits.shape[1] != len(self.slope):
            raise InputError(f"Expected {len(self.slope)} classes, found {logits.shape[1]}.")
        ranked = Sorted.of(logits)
        return softmax(ranked.restored(ranked.stretched(softplus(self.raw(ranked)))))

    def raw(self, ranked: Sorted) -> Floats:
        """Give what softplus is taken of, for each gap."""
        above, values = ranked.order[:, :-1], ranked.values[:, :-1]
        lines: Floats = np.array(self.slope)[above] * values + np.array(self.shift)[above]
        return lines


@final
@dataclass(frozen=True, eq=False)
class OrderPreservingNetwork(Calibrator):
    """Stretch gap i by softplus of output i of a small network that sees all logits."""

    weights: tuple[Array, ...]  # one matrix a layer, (out, in)
    biases: tuple[Array, ...]

    def __post_init__(self) -> None:
        _check_finite(*self.weights, *self.biases)

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        """Run the network, stretch, and turn into probabilities."""
        if logits.shape[1] != self.weights[0].shape[1]:
            raise InputError(f"Expected {self.weights[0].shape[1]} classes, found {logits.shape[1]}.")
        hidden = np.clip(logits, -1e6, 1e6)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            hidden = np.maximum(hidden @ weight.T + bias, 0.0)
        raw = np.clip(hidden @ self.weights[-1].T + self.biases[-1], -1e3, 1e3)
        ranked = Sorted.of(logits)
        return softmax(ranked.restored(ranked.stretched(softplus(raw[:, :-1]))))


def _check_finite(*arrays: Array) -> None:
    if not all(np.isfinite(array).all() for array in arrays):
        raise InputError("Expected finite parameters, found NaN or infinity.")
