"""RidgeVector and RidgeOPVector: scalings trained by summed gradients, as if all records lay in one place."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import inf, sqrt
from typing import final

import numpy as np

from fedcalib.answer import Answer
from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import InputError
from fedcalib.families.affine import VectorFamily
from fedcalib.families.family import Family
from fedcalib.families.order_preserving import OrderPreservingVectorFamily
from fedcalib.method import Flow, Method
from fedcalib.queries.scaling_gradient import FULL, WORST, ScalingGradient
from fedcalib.records import Schema
from fedcalib.types import Floats

_FARTHEST = 100.0  # no factor or shift of a calibrator lies beyond, whatever the noise


@dataclass(frozen=True)
class RidgeScaling(Method[Calibrator]):
    """Minimise the pooled log loss by Newton steps on summed gradients, drawn toward the identity by `ridge`.

    Without noise this is the pooled optimum, whoever holds what: no client fits anything, so no client overfits. With
    noise each step is the posterior mean given how noisy the sums are.
    """

    rounds: int = 8
    ridge: float = 10.0
    reach: float = 50.0

    def __post_init__(self) -> None:
        if self.rounds < 1 or not self.ridge > 0 or not self.reach > 0:
            raise InputError("Expected rounds, ridge and reach above 0, found others.")

    @abstractmethod
    def family(self) -> Family:
        """Say which scaling is trained."""

    def protocol(self, schema: Schema) -> Flow[Calibrator]:
        """Step for as many rounds as asked; a step that made the loss larger is taken back and shortened."""
        family = self.family()
        start = family.start(schema.classes)
        tried, best, damping = np.zeros_like(start), _Place(np.zeros_like(start), inf), 0.0
        for _ in range(self.rounds):
            query = ScalingGradient(family, tuple((start + tried).tolist()), self.reach)
            answer = yield query
            loss = WORST * float(answer["loss"][0]) + self.ridge / 2 * float(tried @ tried)
            slack = 3 * WORST * sqrt(float(answer.variance("loss")[0]))
            if loss <= best.loss + slack:
                damping = damping / 10 if damping > 1e-2 else 0.0
                best = _Place(tried, loss, query, answer)
            else:
                damping = max(10 * damping, 1.0)
            tried = best.next(self.ridge, damping)
        return family.artifact(start + best.moved, schema.classes)


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
    """Where the parameters are, relative to the start, and what was heard there."""

    moved: Floats
    loss: float
    query: ScalingGradient | None = None
    answer: Answer | None = None

    def next(self, ridge: float, damping: float) -> Floats:
        """Take a step from here, damped by a share of the mean curvature, within public limits."""
        if self.query is None or self.answer is None:
            return self.moved
        step = _step(self.query, self.answer, self.moved, ridge, damping)
        there: Floats = np.clip(self.moved + np.clip(np.nan_to_num(step), -1.0, 1.0), -_FARTHEST, _FARTHEST)
        return there


def _step(query: ScalingGradient, answer: Answer, moved: Floats, ridge: float, damping: float) -> Floats:
    """Solve (ridge + W H) step = -(W gradient + ridge moved), with W = H / (H + noise); W = 1 without noise."""
    gradient = answer["gradient"] * query.reach
    noise = float(answer.variance("gradient").max(initial=0.0)) * query.reach**2
    curvature = _matrices(query, answer["curvature"] * query.reach**2)
    blocks = len(curvature)
    pulls = gradient.reshape(-1, blocks).T if blocks > 1 else gradient[None]
    drawn = moved.reshape(-1, blocks).T if blocks > 1 else moved[None]
    values, vectors = np.linalg.eigh(curvature)
    values = np.maximum(values, 0.0)
    trust = np.divide(values, values + noise, out=np.zeros_like(values), where=values + noise > 0)
    turned = [np.einsum("bij,bi->bj", vectors, part) for part in (pulls, drawn)]
    stiffness = ridge + trust * values + damping * values.mean()
    along = -(trust * turned[0] + ridge * turned[1]) / stiffness
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
