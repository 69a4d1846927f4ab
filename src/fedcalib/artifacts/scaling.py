"""Calibrators that scale logits.

Temperature, vector and matrix scaling act on the logits of any classifier; Platt and beta scaling on the log-odds of a
binary one. The order-preserving maps multiply the gaps between sorted logits by positive factors, so that the ranking
of the classes and ties between them never change. `TemperatureByDomain` holds one temperature per domain.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import Final, final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator, check_classes
from fedcalib.artifacts.saving import Artifact
from fedcalib.errors import InputError
from fedcalib.numeric import sigmoid
from fedcalib.records import one_score, softmax
from fedcalib.types import Array, Floats, Ints
from fedcalib.wire import ADDED


@final
@dataclass(frozen=True)
class Temperature(Calibrator):
    """Divide logits by a temperature: above 1 it softens an over-confident model; ranking never changes.

    Parameters
    ----------
    temperature
        A number above 0.
    warning
        What to know about how the temperature was found; empty if nothing.

    Examples
    --------
    >>> from fedcalib.artifacts.scaling import Temperature
    >>> Temperature(2.0)([[0.1, 0.9]]).round(2)
    array([[0.25, 0.75]])
    """

    temperature: float
    warning: str = ""

    def __post_init__(self) -> None:
        if not (isfinite(self.temperature) and self.temperature > 0):
            raise InputError(f"Expected a temperature above 0, found {self.temperature}.")

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        return softmax(logits / self.temperature)


@final
@dataclass(frozen=True)
class VectorScaling(Calibrator):
    """Multiply each class's logit by a factor and add a shift.

    Parameters
    ----------
    scale, shift
        One factor and one shift per class.

    Examples
    --------
    >>> from fedcalib.artifacts.scaling import VectorScaling
    >>> VectorScaling((0.5, 0.5), (0.0, 0.2)).from_logits([[0.0, 2.0]]).round(2)
    array([[0.23, 0.77]])
    """

    scale: tuple[float, ...]
    shift: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.scale) != len(self.shift) or not all(map(isfinite, (*self.scale, *self.shift))):
            raise InputError("Expected one finite factor and one finite shift per class, found others.")

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        check_classes(len(self.scale), logits)
        return softmax(np.array(self.scale) * one_score(logits) + np.array(self.shift))


@final
@dataclass(frozen=True)
class MatrixScaling(Calibrator):
    """Multiply the logits by a matrix and add a shift.

    Parameters
    ----------
    matrix
        A square matrix, by rows.
    shift
        One shift per class.

    Examples
    --------
    >>> from fedcalib.artifacts.scaling import MatrixScaling
    >>> MatrixScaling(((1.0, 0.0), (-0.5, 1.0)), (0.0, 0.0)).from_logits([[1.0, 2.0]]).round(2)
    array([[0.16, 0.84]])
    """

    matrix: tuple[tuple[float, ...], ...]
    shift: tuple[float, ...]

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.matrix}
        if widths != {len(self.shift)} or not all(map(isfinite, (*sum(self.matrix, ()), *self.shift))):
            raise InputError("Expected a finite square matrix and one finite shift per class, found others.")

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        check_classes(len(self.shift), logits)
        return softmax(one_score(logits) @ np.array(self.matrix).T + np.array(self.shift))


@final
@dataclass(frozen=True)
class Platt(Calibrator):
    """Platt scaling: the log-odds of class 1 times a slope, plus an intercept.

    Parameters
    ----------
    slope
        Above 0, so ranking never changes.
    intercept
        Any finite number.
    span
        The least and the greatest log-odds that were told apart when the line was fitted. What lies beyond was read as
        the nearer of the two, and so it is here, but for a hundredth of the distance, which keeps the ranking. None for
        no limit.

    Examples
    --------
    >>> from fedcalib.artifacts.scaling import Platt
    >>> Platt(0.5, 0.0)([0.1, 0.9]).round(2)
    array([0.25, 0.75])
    >>> Platt(0.5, 0.0, (-4.0, 4.0))([0.0, 1.0]).round(2)
    array([0.11, 0.89])
    """

    slope: float
    intercept: float
    span: tuple[float, float] | None = field(default=None, metadata=ADDED)

    def __post_init__(self) -> None:
        check_span(self.span)
        if not (isfinite(self.slope) and self.slope > 0 and isfinite(self.intercept)):
            raise InputError(
                f"Expected a slope above 0 and a finite intercept, found {self.slope} and {self.intercept}."
            )

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        binary(probs)
        return of_log_odds(self.slope * within_span(logits[:, 1] - logits[:, 0], self.span) + self.intercept)


@final
@dataclass(frozen=True)
class Beta(Calibrator):
    """Beta scaling: log-odds are a weighted sum of ln p and -ln(1 - p), plus an intercept.

    Equal weights are Platt scaling; unequal ones change the two ends of the curve differently. Weights are not
    negative, so ranking never changes.

    Parameters
    ----------
    low
        Weight of ln p, which shapes the curve near 0.
    high
        Weight of -ln(1 - p), which shapes it near 1.
    intercept
        Any finite number.
    span
        As in `Platt`.

    Examples
    --------
    >>> from fedcalib.artifacts.scaling import Beta
    >>> Beta(1.0, 0.5, 0.0)([0.1, 0.9]).round(2)
    array([0.1 , 0.74])
    """

    low: float
    high: float
    intercept: float
    span: tuple[float, float] | None = field(default=None, metadata=ADDED)

    def __post_init__(self) -> None:
        check_span(self.span)
        finite = all(isfinite(value) for value in (self.low, self.high, self.intercept))
        if not (finite and self.low >= 0 and self.high >= 0 and self.low + self.high > 0):
            raise InputError(f"Expected two weights of at least 0, not both 0, and a finite intercept, found {self}.")

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        binary(probs)
        odds = within_span(logits[:, 1] - logits[:, 0], self.span)
        rising, falling = -np.logaddexp(0.0, -odds), np.logaddexp(0.0, odds)  # ln p and -ln(1 - p)
        return of_log_odds(self.low * rising + self.high * falling + self.intercept)


@final
@dataclass(frozen=True)
class OddsCurve(Calibrator):
    """A curve from the log-odds of class 1 to calibrated ones, linear between nodes.

    Parameters
    ----------
    odds
        Log-odds of the nodes, increasing; at least two.
    values
        Calibrated log-odds at the nodes, increasing, so ranking never changes. Beyond the last node they rise by a
        hundredth of the distance.

    Examples
    --------
    >>> from fedcalib.artifacts.scaling import OddsCurve
    >>> OddsCurve((-28.0, 0.0, 28.0), (-14.0, 0.0, 28.0))([0.1, 0.5, 0.9]).round(2)
    array([0.25, 0.5 , 0.9 ])
    """

    odds: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        both = np.array([self.odds, self.values]) if len(self.odds) == len(self.values) else np.zeros((2, 0))
        if both.shape[1] < 2 or not np.isfinite(both).all() or not (np.diff(both, axis=1) > 0).all():
            raise InputError("Expected two or more increasing log-odds and as many increasing values, found others.")

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        binary(probs)
        odds = logits[:, 1] - logits[:, 0]
        inside = np.clip(odds, self.odds[0], self.odds[-1])
        return of_log_odds(np.interp(inside, self.odds, self.values) + BEYOND * (odds - inside))


BEYOND: Final = 0.01  # of the distance beyond the span of a fit


def within_span(odds: Floats, span: tuple[float, float] | None) -> Floats:
    """Log-odds as they were told apart when a line was fitted."""
    if span is None:
        return odds
    inside: Floats = np.clip(odds, *span)
    return inside + BEYOND * (odds - inside)


def check_span(span: tuple[float, float] | None) -> None:
    if span is not None and not (isfinite(span[0]) and isfinite(span[1]) and span[0] <= span[1]):
        raise InputError(f"Expected two finite log-odds, the lesser one first, found {span}.")


def binary(probs: Floats) -> None:
    """Raise an error unless there are two classes."""
    if probs.shape[1] != 2:
        raise InputError(f"Expected a binary classifier, found {probs.shape[1]} classes; use a multiclass calibrator.")


def of_log_odds(odds: Floats) -> Floats:
    """Probabilities of both classes, (n, 2), from the log-odds of class 1."""
    one = sigmoid(odds)
    return np.stack([1 - one, one], axis=1)


@final
@dataclass(frozen=True)
class TemperatureByDomain(Artifact):
    """One temperature per domain, and one for all other records.

    Parameters
    ----------
    overall
        The temperature for records of unknown domains.
    domains
        One temperature per domain, numbered from 0.

    Examples
    --------
    >>> from fedcalib.artifacts.scaling import Temperature, TemperatureByDomain
    >>> TemperatureByDomain(Temperature(1.2), (Temperature(1.0), Temperature(1.5))).of(1).temperature
    1.5
    """

    overall: Temperature
    domains: tuple[Temperature, ...]

    def of(self, domain: int) -> Temperature:
        """The calibrator of a domain."""
        if not 0 <= domain < len(self.domains):
            raise InputError(f"Expected a domain from 0 to {len(self.domains) - 1}, found {domain}; use `overall`.")
        return self.domains[domain]


@final
@dataclass(frozen=True, eq=False)
class Sorted:
    """Logits in decreasing order, with the gap below each; ties are ordered by class."""

    order: Ints  # (n, classes)
    values: Floats  # (n, classes)

    @classmethod
    def of(cls, logits: Floats) -> Sorted:
        order = np.argsort(-logits, axis=1, kind="stable")
        return cls(order, np.take_along_axis(logits, order, axis=1))

    @property
    def gaps(self) -> Floats:
        """The gap below each logit but the last, shape (n, classes - 1)."""
        differences: Floats = self.values[:, :-1] - self.values[:, 1:]
        return differences

    def stretched(self, factors: Floats) -> Floats:
        """Sorted logits whose gaps are multiplied by positive factors; the last logit is 0."""
        steps = self.gaps * factors
        out = np.zeros_like(self.values)
        out[:, :-1] = np.cumsum(steps[:, ::-1], axis=1)[:, ::-1]
        return out

    def restored(self, values: Floats) -> Floats:
        out = np.empty_like(values)
        np.put_along_axis(out, self.order, values, axis=1)
        return out

    def by_class(self, gaps: Floats) -> Floats:
        """Values per gap, assigned to the class above the gap, shape (classes, n); the lowest class gets 0."""
        out = np.zeros(self.values.shape)
        np.put_along_axis(out, self.order[:, :-1], gaps, axis=1)
        return np.ascontiguousarray(out.T)


def softplus(raw: Floats) -> Floats:
    """ln(1 + e^x), which is positive; 0.5413 becomes 1."""
    return np.logaddexp(0.0, raw)


@final
@dataclass(frozen=True)
class OrderPreservingVector(Calibrator):
    """Multiply the gap below a class's logit y by softplus(slope * y + shift).

    Parameters
    ----------
    slope, shift
        One slope and one shift per class.

    Examples
    --------
    >>> from fedcalib.artifacts.scaling import OrderPreservingVector
    >>> OrderPreservingVector((0.0, 0.0), (0.0, 0.0)).from_logits([[0.0, 2.0]]).round(2)
    array([[0.2, 0.8]])
    """

    slope: tuple[float, ...]
    shift: tuple[float, ...]

    def __post_init__(self) -> None:
        _check_finite(np.array(self.slope), np.array(self.shift))

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        check_classes(len(self.slope), logits)
        ranked = Sorted.of(one_score(logits))
        return softmax(ranked.restored(ranked.stretched(softplus(self.raw(ranked)))))

    def raw(self, ranked: Sorted) -> Floats:
        """The argument of softplus for each gap, shape (n, classes - 1)."""
        above, values = ranked.order[:, :-1], ranked.values[:, :-1]
        lines: Floats = np.array(self.slope)[above] * values + np.array(self.shift)[above]
        return lines


@final
@dataclass(frozen=True, eq=False)
class OrderPreservingNetwork(Calibrator):
    """Multiply gap i by the softplus of output i of a small network whose inputs are all logits.

    Parameters
    ----------
    weights
        One matrix per layer, of shape (out, in).
    biases
        One vector per layer.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcalib.artifacts.scaling import OrderPreservingNetwork
    >>> network = OrderPreservingNetwork((np.zeros((2, 2)),), (np.zeros(2),))
    >>> network.from_logits([[0.0, 2.0]]).round(2)
    array([[0.2, 0.8]])
    """

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]

    def __post_init__(self) -> None:
        _check_finite(*self.weights, *self.biases)

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        check_classes(self.weights[0].shape[1], logits)
        logits = one_score(logits)
        hidden = np.clip(logits, -1e6, 1e6)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            hidden = np.maximum(hidden @ weight.T + bias, 0.0)
        raw = np.clip(hidden @ self.weights[-1].T + self.biases[-1], -1e3, 1e3)
        ranked = Sorted.of(logits)
        return softmax(ranked.restored(ranked.stretched(softplus(raw[:, :-1]))))


def _check_finite(*arrays: Array) -> None:
    if not all(np.isfinite(array).all() for array in arrays):
        raise InputError("Expected finite parameters, found NaN or infinity.")
