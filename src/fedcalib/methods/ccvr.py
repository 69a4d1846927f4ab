"""CCVR: repair a federated classifier's last layer with virtual features, drawn from class-wise Gaussians."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.gaussians import ClassGaussians
from fedcalib.artifacts.networks import Head, Representation
from fedcalib.errors import InputError
from fedcalib.method import Flow, Method
from fedcalib.queries.moments import ClassMoments, unpacked
from fedcalib.query import Answer
from fedcalib.records import Schema, softmax
from fedcalib.types import Floats, Ints

_LARGEST = 1e6  # weights of a head, whatever noise it was made of


@final
@dataclass(frozen=True, eq=False)
class Axes:
    """Other coordinates for features: z = centre + w @ spread, and w = (z - centre) @ turn."""

    centre: Floats  # (features,)
    turn: Floats  # (features, features)
    spread: Floats  # (features, features): the inverse

    @classmethod
    def plain(cls, features: int) -> Axes:
        """Leave features as they are."""
        return cls(np.zeros(features), np.eye(features), np.eye(features))

    @classmethod
    def of(cls, features: Floats) -> Axes:
        """Choose axes along which these features vary alike and are not correlated."""
        centre = features.mean(axis=0)
        values, vectors = np.linalg.eigh((features - centre).T @ (features - centre) / len(features))
        lengths = np.sqrt(np.maximum(values, max(1e-6 * values[-1], 1e-30)))
        return cls(centre, vectors / lengths, (vectors * lengths).T)

    def along(self, features: Floats) -> Floats:
        """Give the coordinates of features."""
        return (features - self.centre) @ self.turn

    def into(self, matrix: Floats, shift: Floats) -> tuple[Floats, Floats]:
        """Give the head that scores coordinates as a head scores features."""
        return matrix @ self.spread.T, shift + matrix @ self.centre

    def back(self, matrix: Floats, shift: Floats) -> tuple[Floats, Floats]:
        """Give the head that scores features as a head scores coordinates."""
        plain = matrix @ self.turn.T
        return plain, shift - plain @ self.centre


class HeadFit(ABC):
    """How a head is made of class-wise Gaussians."""

    @abstractmethod
    def fit(self, gaussians: ClassGaussians, start: Head | None) -> Head:
        """Make a head, perhaps from one to start with."""


@final
@dataclass(frozen=True)
class Retrained(HeadFit):
    """Draw virtual features and train the head on them, as CCVR does.

    `samples` is the mean number of virtual features a class. Classes are drawn in proportion to their records, so that
    probabilities keep the class prior; `balanced` draws all alike. `rate` is relative to the features' mean squared
    length. `whitened` descends along directions in which the virtual features vary alike, which gets there in as many
    epochs; without it the descent is along the features themselves, as in the source, and stops far from the end where
    their variances differ much.
    """

    samples: int = 1000
    balanced: bool = False
    epochs: int = 20
    batch: int = 64
    rate: float = 2.0
    decay: float = 1e-4
    seed: int = 0
    whitened: bool = True

    def __post_init__(self) -> None:
        if self.samples < 1 or self.epochs < 1 or self.batch < 1 or not self.rate > 0 or not self.decay >= 0:
            raise InputError(
                "Expected samples, epochs, a batch and a rate above 0 and no negative decay, found others."
            )

    def fit(self, gaussians: ClassGaussians, start: Head | None) -> Head:
        """Train on virtual features."""
        rng = np.random.default_rng(self.seed)
        features, labels = gaussians.shrunk().sample(self._counts(gaussians), rng)
        classes, width = gaussians.means.shape
        old = Head(np.zeros((classes, width)), np.zeros(classes)) if start is None else start
        axes = Axes.of(features) if self.whitened and len(features) else Axes.plain(width)
        matrix, shift = axes.into(np.asarray(old.matrix, dtype=np.float64), np.asarray(old.shift, dtype=np.float64))
        self._train(matrix, shift, axes.along(features), labels, rng)
        matrix, shift = axes.back(matrix, shift)
        seen = np.isin(np.arange(classes), labels)
        return Head(
            np.where(seen[:, None], matrix, old.matrix), np.where(seen, shift, old.shift), gaussians.representation
        )

    def _counts(self, gaussians: ClassGaussians) -> Ints:
        present = gaussians.present
        held = np.where(present, 1.0 if self.balanced else gaussians.counts, 0.0)
        dealt: Ints = np.ceil(self.samples * present.sum() * held / max(held.sum(), 1e-300)).astype(np.int64)
        return dealt

    def _train(self, matrix: Floats, shift: Floats, features: Floats, labels: Ints, rng: np.random.Generator) -> None:
        """Descend by batches, at a rate that falls to zero; rows of absent classes stay."""
        present = np.isin(np.arange(len(shift)), labels)
        steps = max(self.epochs * -(-len(labels) // self.batch), 1)
        rate = self.rate / (1 + float(np.mean(np.sum(features**2, axis=1))) if len(features) else 1.0)
        for step, rows in enumerate(self._batches(len(labels), rng)):
            z, y = features[rows], labels[rows]
            residual = softmax(z @ matrix.T + shift)
            residual[np.arange(len(y)), y] -= 1
            now = rate * (1 - step / steps)
            matrix[present] -= now * (residual.T @ z / len(y) + self.decay * matrix)[present]
            shift[present] -= now * residual.mean(axis=0)[present]

    def _batches(self, records: int, rng: np.random.Generator) -> list[Ints]:
        orders = [rng.permutation(records) for _ in range(self.epochs)]
        return [order[at : at + self.batch] for order in orders for at in range(0, records, self.batch)]


@final
@dataclass(frozen=True)
class ClosedForm(HeadFit):
    """Take the head that is optimal for Gaussians of one common covariance; nothing is drawn or trained."""

    balanced: bool = False

    def fit(self, gaussians: ClassGaussians, start: Head | None) -> Head:
        """Solve."""
        return gaussians.shrunk().closed_form(balanced=self.balanced)


@final
@dataclass(frozen=True)
class FeatureGaussians(Method[ClassGaussians]):
    """Every class's mean and covariance of features, from sums over clients: no client's own ever leave it.

    `features` counts them (None: as many as classes, for features that are the logits). Under differential privacy
    the noise grows with `radius`, to which features are cut in L2; unit-length features need 1.
    """

    features: int | None = None
    radius: float = 100.0
    representation: Representation = Representation()
    shift: tuple[float, ...] | None = None
    diagonal: bool = False

    def protocol(self, schema: Schema) -> Flow[ClassGaussians]:
        """Ask once."""
        query = ClassMoments(
            schema.classes, self.features or schema.classes, self.radius, self.representation, self.shift, self.diagonal
        )
        answer = yield query
        return gaussians_of(query, answer)


@final
@dataclass(frozen=True)
class CCVR(Method[Head]):
    """Classifier calibration with virtual representations (Luo et al. 2021): one secure sum, then a new last layer.

    `start` is the head to repair; a class that nobody holds keeps its row. What is improved is accuracy under label
    skew: measure calibration error as well, and calibrate afterwards.
    """

    features: int | None = None
    fit: HeadFit = Retrained()
    radius: float = 100.0
    representation: Representation = Representation()
    shift: tuple[float, ...] | None = None
    diagonal: bool = False
    start: Head | None = None

    def protocol(self, schema: Schema) -> Flow[Head]:
        """Ask for sums, then work on the server alone."""
        asked = FeatureGaussians(self.features, self.radius, self.representation, self.shift, self.diagonal)
        gaussians = yield from asked.protocol(schema)
        start = self.start if self.start is None or self.start.representation == self.representation else None
        head = self.fit.fit(gaussians, start)
        absent = np.flatnonzero(~gaussians.present)
        told = (f"No client holds a record of the classes {absent.tolist()}; their rows were not trained.",)
        return Head(
            np.clip(head.matrix, -_LARGEST, _LARGEST),
            np.clip(head.shift, -_LARGEST, _LARGEST),
            self.representation,
            told if len(absent) else (),
        )


def gaussians_of(query: ClassMoments, answer: Answer) -> ClassGaussians:
    """Turn an answer about moments into Gaussians, in the features' own units."""
    seconds = answer["second"] if query.diagonal else unpacked(answer["second"], query.features)
    return ClassGaussians.of_sums(
        answer["count"].astype(np.float64),
        answer["sum"] * query.radius,
        seconds * query.radius**2,
        noise=answer.variance("second").mean(axis=1) * query.radius**4,
        shift=np.zeros(query.features) if query.shift is None else np.array(query.shift),
        representation=query.representation,
    )
