"""RidgeVector and RidgeOPVector: scalings at the pooled optimum, trained by summed gradients."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import sqrt
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import InputError
from fedcalib.families import Family
from fedcalib.families.affine import VectorFamily
from fedcalib.families.order_preserving import OrderPreservingVectorFamily
from fedcalib.method import Flow, Method
from fedcalib.queries.scaling import MAX_FULL_HESSIAN, MAX_LOSS, ScalingGradient
from fedcalib.query import Answer
from fedcalib.records import Schema
from fedcalib.types import Floats
from fedcalib.wire import ADDED

_MAX_PARAMETER = 100.0  # of a factor or shift, whatever the noise
_MAX_STEP = 2.0  # of a factor or shift
_ROUNDING = 1e-12  # relative error of a summed loss
_ROUNDS = 8
_MEMORY = 20  # earlier steps in an L-BFGS update
_MAX_UNCHECKED_GAIN = 1.0  # of the summed loss, by a last step that is not checked


@dataclass(frozen=True)
class RidgeScaling(Method[Calibrator]):
    """Minimise the pooled log loss by Newton steps on summed gradients, with a ridge toward the identity.

    Without noise this is the pooled optimum, whoever holds what: no client fits anything, so no client overfits. Up to
    32 classes clients send the whole Hessian and eight rounds are enough; beyond, they send three numbers per class,
    earlier steps supply the rest (L-BFGS), and it takes sixteen. With noise each step is the posterior mean given how
    noisy the sums are, and fewer rounds are better.

    Parameters
    ----------
    rounds
        Number of messages; None for eight or sixteen.
    ridge
        Penalty toward the identity.
    reach
        L2 norm to which a record's gradient is clipped.
    soft
        Start from softer probabilities, from which Newton steps do not overshoot, and not from the identity. After a
        temperature the identity is nearer, and three or four rounds are enough.
    """

    rounds: int | None = None
    ridge: float = 10.0
    reach: float = 50.0
    soft: bool = field(default=True, metadata=ADDED)

    def __post_init__(self) -> None:
        if (self.rounds is not None and self.rounds < 1) or not self.ridge > 0 or not self.reach > 0:
            raise InputError(f"Expected rounds, ridge and reach above 0, found {self}.")

    @abstractmethod
    def family(self) -> Family:
        """The scaling that is trained."""

    def protocol(self, schema: Schema) -> Flow[Calibrator]:
        """Step `rounds` times; a step that increased the loss is undone and shortened."""
        family = self.family()
        start = family.start(schema.classes)
        tried: Floats = (family.soft_start(schema.classes) if self.soft else start) - start
        best: _Iterate | None = None
        for _ in range(self.rounds or (_ROUNDS if len(start) <= MAX_FULL_HESSIAN else 2 * _ROUNDS)):
            query = ScalingGradient(family, tuple((start + tried).tolist()), self.reach)
            current = _Iterate(query, (yield query), tried, self.ridge, best)
            if best is None or current.loss <= best.loss + current.tolerance:
                best = current
                tried = best.next()
            else:
                tried = best.shortened(current)
        ended = tried if best is None or best.previous is None else best.last()
        return family.artifact(start + ended, schema.classes)


@final
@dataclass(frozen=True)
class RidgeVector(RidgeScaling):
    """Vector scaling at the pooled optimum: a factor and a shift per class; it may change which class is on top.

    Parameters
    ----------
    rounds
        Number of messages; None for eight, or sixteen beyond 32 classes.
    ridge
        Penalty toward the identity.
    reach
        L2 norm to which a record's gradient is clipped.
    soft
        Start from softer probabilities and not from the identity.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.metrics import classwise_ece
    >>> records = (federation := fc.Federation.simulated()).records
    >>> calibrator = fc.run(fc.methods.RidgeVector(), fc.InProcess(federation), fc.SecAgg()).artifact
    >>> [round(classwise_ece(probs, records.labels), 2) for probs in (records.probs, calibrator(records.probs))]
    [0.08, 0.03]
    """

    def family(self) -> Family:
        return VectorFamily()


@final
@dataclass(frozen=True)
class RidgeOPVector(RidgeScaling):
    """Order-preserving vector scaling at a pooled optimum: two numbers per class stretch gaps between sorted logits.

    Parameters
    ----------
    rounds, ridge, reach, soft
        As for `RidgeVector`.

    Examples
    --------
    >>> import fedcalib as fc
    >>> records = (federation := fc.Federation.simulated()).records
    >>> calibrator = fc.run(fc.methods.RidgeOPVector(), fc.InProcess(federation), fc.SecAgg()).artifact
    >>> bool((calibrator(records.probs).argmax(axis=1) == records.probs.argmax(axis=1)).all())  # the top class stays
    True
    """

    def family(self) -> Family:
        return OrderPreservingVectorFamily()


@final
@dataclass(frozen=True, eq=False)
class _Iterate:
    """The answer at some parameters, `offset` from the start, and where to go from there."""

    query: ScalingGradient
    answer: Answer
    offset: Floats
    ridge: float
    previous: _Iterate | None

    @property
    def exact(self) -> bool:
        """Whether sums carry no noise."""
        return not self.answer.variance("gradient").any()

    @cached_property
    def loss(self) -> float:
        """The summed loss with the ridge penalty."""
        return MAX_LOSS * float(self.answer["loss"][0]) + self.ridge / 2 * float(self.offset @ self.offset)

    @property
    def tolerance(self) -> float:
        """How much of a difference of losses may be noise or rounding."""
        return 3 * MAX_LOSS * sqrt(float(self.answer.variance("loss")[0])) + _ROUNDING * abs(self.loss)

    @cached_property
    def gradient(self) -> Floats:
        """The gradient of the loss."""
        return self.answer["gradient"] * self.query.reach + self.ridge * self.offset

    def next(self) -> Floats:
        """The next parameters, within public limits."""
        step = self._step()
        step *= _MAX_STEP / max(float(np.abs(step).max(initial=0.0)), _MAX_STEP)
        return np.clip(self.offset + step, -_MAX_PARAMETER, _MAX_PARAMETER)

    def shortened(self, end: _Iterate) -> Floats:
        """A part of a step that went too far: to the minimum of the cubic through both ends."""
        step = end.offset - self.offset
        first, last = float(self.gradient @ step), float(end.gradient @ step)
        middle = first + last - 3 * (end.loss - self.loss)
        root = sqrt(max(middle**2 - first * last, 0.0))
        denominator = last - first + 2 * root
        fraction = 1 - (last + root - middle) / denominator if denominator > 0 else 0.5
        return self.offset + min(max(fraction, 0.1), 0.9) * step

    def last(self) -> Floats:
        """One more step without a check, where sums are exact and it promises a small gain."""
        offset = self.next()
        gain = -float(self.gradient @ (offset - self.offset)) / 2
        return offset if self.exact and gain < _MAX_UNCHECKED_GAIN else self.offset

    def _step(self) -> Floats:
        """Newton's step; where the Hessian was sent in part, L-BFGS updates from earlier steps supply the rest."""
        gradient, penalty = self.answer["gradient"] * self.query.reach, self.ridge * self.offset
        if len(self.offset) <= MAX_FULL_HESSIAN or not self.exact:
            return _newton(self.query, self.answer, gradient, penalty, self.ridge)
        past, coefficients, rest = list(self._past()), [], gradient + penalty
        for step, change in past:
            coefficients.append(float(step @ rest) / float(step @ change))
            rest = rest - coefficients[-1] * change
        direction = _newton(self.query, self.answer, rest, np.zeros_like(rest), self.ridge)
        for (step, change), coefficient in zip(reversed(past), reversed(coefficients), strict=True):
            direction = direction - (coefficient + float(change @ direction) / float(step @ change)) * step
        return direction

    def _past(self) -> Iterator[tuple[Floats, Floats]]:
        """Earlier steps, latest first, and how the gradient changed along them."""
        current: _Iterate = self
        for _ in range(_MEMORY):
            if current.previous is None:
                return
            step = current.offset - current.previous.offset
            change = current.gradient - current.previous.gradient
            if step @ change > 0:
                yield step, change
            current = current.previous


def _newton(query: ScalingGradient, answer: Answer, gradient: Floats, penalty: Floats, ridge: float) -> Floats:
    """Solve (ridge + W H) step = -(W gradient + penalty), with W = H / (H + noise); W = 1 without noise.

    Where exact sums show negative curvature, the step is as long as for positive curvature of the same size, and
    downhill.
    """
    noise = float(answer.variance("gradient").max(initial=0.0)) * query.reach**2
    hessian = _matrices(query, answer["curvature"] * query.reach**2)
    blocks = len(hessian)
    values, vectors = np.linalg.eigh(hessian)
    values = np.maximum(values, 0.0) if noise else np.abs(values)
    trust = values / (values + noise) if noise else np.ones_like(values)
    parts = [part.reshape(-1, blocks).T if blocks > 1 else part[None] for part in (gradient, penalty)]
    rotated = [np.einsum("bij,bi->bj", vectors, part) for part in parts]
    along = -(trust * rotated[0] + rotated[1]) / (ridge + trust * values)
    step: Floats = np.einsum("bij,bj->bi", vectors, along)
    return step.T.reshape(-1) if blocks > 1 else step[0]


def _matrices(query: ScalingGradient, values: Floats) -> Floats:
    """The Hessian as symmetric matrices: one of all parameters, or one of two parameters per class."""
    size = len(query.parameters)
    if size <= MAX_FULL_HESSIAN:
        whole = np.zeros((size, size))
        whole[query.pairs] = values
        return (whole + whole.T - np.diag(np.diag(whole)))[None]
    first, cross, second = values.reshape(3, -1)
    return np.stack([np.stack([first, cross], axis=1), np.stack([cross, second], axis=1)], axis=1)
