"""RidgeVector and RidgeOPVector: scalings trained by summed gradients, as if all records lay in one place."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
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
from fedcalib.queries.scaling import FULL, WORST, ScalingGradient
from fedcalib.query import Answer
from fedcalib.records import Schema
from fedcalib.types import Floats

_FARTHEST = 100.0  # no factor or shift of a calibrator lies beyond, whatever the noise
_LONGEST = 2.0  # a step of a factor or shift
_ROUNDING = 1e-12
_ROUNDS = 8
_MEMORY = 20  # steps that tell how the loss bends
_CLOSE = 1.0  # a step that promises to lower the summed loss by less ends where it promises


@dataclass(frozen=True)
class RidgeScaling(Method[Calibrator]):
    """Minimise the pooled log loss by Newton steps on summed gradients, drawn toward the identity by `ridge`.

    Without noise this is the pooled optimum, whoever holds what: no client fits anything, so no client overfits. Up to
    32 classes clients send all curvature and eight rounds are enough; beyond, they send three numbers a class, the last
    steps tell the rest, and it takes sixteen. `rounds` None means as many as that. With noise each step is the
    posterior mean given how noisy the sums are, and fewer rounds are better.
    """

    rounds: int | None = None
    ridge: float = 10.0
    reach: float = 50.0

    def __post_init__(self) -> None:
        if (self.rounds is not None and self.rounds < 1) or not self.ridge > 0 or not self.reach > 0:
            raise InputError("Expected rounds, ridge and reach above 0, found others.")

    @abstractmethod
    def family(self) -> Family:
        """Say which scaling is trained."""

    def protocol(self, schema: Schema) -> Flow[Calibrator]:
        """Step for as many rounds as asked; a step that made the loss larger is taken back and shortened."""
        family = self.family()
        start = family.start(schema.classes)
        tried: Floats = family.soft_start(schema.classes) - start
        place: _Place | None = None
        for _ in range(self.rounds or (_ROUNDS if len(start) <= FULL else 2 * _ROUNDS)):
            query = ScalingGradient(family, tuple((start + tried).tolist()), self.reach)
            there = _Place(query, (yield query), tried, self.ridge, place)
            if place is None or there.loss <= place.loss + there.doubt:
                place = there
                tried = place.next()
            else:
                tried = place.shorter(there)
        ended = tried if place is None or place.before is None else place.last()
        return family.artifact(start + ended, schema.classes)


@final
@dataclass(frozen=True)
class RidgeVector(RidgeScaling):
    """A factor and a shift a class, at the pooled optimum; may change which class is on top."""

    def family(self) -> Family:
        """Train a vector scaling."""
        return VectorFamily()


@final
@dataclass(frozen=True)
class RidgeOPVector(RidgeScaling):
    """Two numbers a class that stretch the gaps between sorted logits, at a pooled optimum: the ranking stays."""

    def family(self) -> Family:
        """Train an order-preserving vector scaling."""
        return OrderPreservingVectorFamily()


@final
@dataclass(frozen=True, eq=False)
class _Place:
    """What was heard at some parameters, `moved` away from the start, and where to go from there."""

    query: ScalingGradient
    answer: Answer
    moved: Floats
    ridge: float
    before: _Place | None  # where the last step came from

    @property
    def exact(self) -> bool:
        """Whether sums carry no noise."""
        return not self.answer.variance("gradient").any()

    @cached_property
    def loss(self) -> float:
        """The summed loss and the pull toward the start."""
        return WORST * float(self.answer["loss"][0]) + self.ridge / 2 * float(self.moved @ self.moved)

    @property
    def doubt(self) -> float:
        """How much of a loss may be noise or rounding."""
        return 3 * WORST * sqrt(float(self.answer.variance("loss")[0])) + _ROUNDING * abs(self.loss)

    @cached_property
    def slope(self) -> Floats:
        """The gradient of the loss."""
        slope: Floats = self.answer["gradient"] * self.query.reach + self.ridge * self.moved
        return slope

    def next(self) -> Floats:
        """Take a step from here, within public limits."""
        step = self._step()
        step *= _LONGEST / max(float(np.abs(step).max(initial=0.0)), _LONGEST)
        there: Floats = np.clip(self.moved + step, -_FARTHEST, _FARTHEST)
        return there

    def shorter(self, there: _Place) -> Floats:
        """Go a part of a way that went too far: to where a cubic through both ends is lowest."""
        step = there.moved - self.moved
        first, last = float(self.slope @ step), float(there.slope @ step)
        bow = first + last - 3 * (there.loss - self.loss)
        root = sqrt(max(bow**2 - first * last, 0.0))
        across = last - first + 2 * root
        share = 1 - (last + root - bow) / across if across > 0 else 0.5
        shortened: Floats = self.moved + min(max(share, 0.1), 0.9) * step
        return shortened

    def last(self) -> Floats:
        """Take one more step that nobody will check, where sums are exact and it is sure to be a small gain."""
        there = self.next()
        return there if self.exact and -float(self.slope @ (there - self.moved)) / 2 < _CLOSE else self.moved

    def _step(self) -> Floats:
        """Take Newton's step; where not all curvature was sent, let the last steps tell the rest of it."""
        gradient, drawn = self.answer["gradient"] * self.query.reach, self.ridge * self.moved
        if len(self.moved) <= FULL or not self.exact:
            return _newton(self.query, self.answer, gradient, drawn, self.ridge)
        past, shares, left = list(self._past()), [], gradient + drawn
        for step, bend in past:
            shares.append(float(step @ left) / float(step @ bend))
            left = left - shares[-1] * bend
        way = _newton(self.query, self.answer, left, np.zeros_like(left), self.ridge)
        for (step, bend), share in zip(reversed(past), reversed(shares), strict=True):
            way = way - (share + float(bend @ way) / float(step @ bend)) * step
        return way

    def _past(self) -> Iterator[tuple[Floats, Floats]]:
        """Go back over the last steps and how the slope changed along them."""
        there: _Place = self
        for _ in range(_MEMORY):
            if there.before is None:
                return
            step, bend = there.moved - there.before.moved, there.slope - there.before.slope
            if step @ bend > 0:
                yield step, bend
            there = there.before


def _newton(query: ScalingGradient, answer: Answer, gradient: Floats, drawn: Floats, ridge: float) -> Floats:
    """Solve (ridge + W H) step = -(W gradient + drawn), with W = H / (H + noise); W = 1 without noise.

    Where exact sums say that the loss bends down, a step goes as far as if it bent up as much: down the slope.
    """
    noise = float(answer.variance("gradient").max(initial=0.0)) * query.reach**2
    curvature = _matrices(query, answer["curvature"] * query.reach**2)
    blocks = len(curvature)
    values, vectors = np.linalg.eigh(curvature)
    values = np.maximum(values, 0.0) if noise else np.abs(values)
    trust = values / (values + noise) if noise else np.ones_like(values)
    parts = [part.reshape(-1, blocks).T if blocks > 1 else part[None] for part in (gradient, drawn)]
    turned = [np.einsum("bij,bi->bj", vectors, part) for part in parts]
    along = -(trust * turned[0] + turned[1]) / (ridge + trust * values)
    step: Floats = np.einsum("bij,bj->bi", vectors, along)
    return step.T.reshape(-1) if blocks > 1 else step[0]


def _matrices(query: ScalingGradient, values: Floats) -> Floats:
    """Put the curvature into symmetric matrices: one of all parameters, or one of two a class."""
    size = len(query.parameters)
    if size <= FULL:
        whole = np.zeros((size, size))
        whole[query.pairs] = values
        return (whole + whole.T - np.diag(np.diag(whole)))[None]
    first, cross, second = values.reshape(3, -1)
    return np.stack([np.stack([first, cross], axis=1), np.stack([cross, second], axis=1)], axis=1)
