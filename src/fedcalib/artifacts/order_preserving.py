"""Order-preserving maps: the gaps between sorted logits are stretched, so ranking and ties never change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import InputError
from fedcalib.records import softmax
from fedcalib.types import Array, Floats, Ints


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
