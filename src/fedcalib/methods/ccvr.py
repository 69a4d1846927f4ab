"""CCVR: repair a federated classifier's last layer with virtual features, sampled from class-wise Gaussians.

`FeatureGaussians` estimates the Gaussians from sums over clients; a `HeadFit` makes a head of them on the server, by
training on virtual features (`Retrained`) or in closed form (`ClosedForm`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
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
from fedcalib.wire import ADDED

_MAX_WEIGHT = 1e6  # of a head, whatever noise it was made of


@final
@dataclass(frozen=True, eq=False)
class Whitening:
    """Coordinates in which features vary alike: z = centre + w @ spread, and w = (z - centre) @ turn."""

    centre: Floats  # (features,)
    turn: Floats  # (features, features)
    spread: Floats  # (features, features): the inverse

    @classmethod
    def plain(cls, features: int) -> Whitening:
        """Coordinates that leave features as they are."""
        return cls(np.zeros(features), np.eye(features), np.eye(features))

    @classmethod
    def of(cls, features: Floats) -> Whitening:
        """Coordinates along which these features have variance 1 and are uncorrelated."""
        centre = features.mean(axis=0)
        values, vectors = np.linalg.eigh((features - centre).T @ (features - centre) / len(features))
        lengths = np.sqrt(np.maximum(values, max(1e-6 * values[-1], 1e-30)))
        return cls(centre, vectors / lengths, (vectors * lengths).T)

    def along(self, features: Floats) -> Floats:
        """Coordinates of features."""
        return (features - self.centre) @ self.turn

    def into(self, matrix: Floats, shift: Floats) -> tuple[Floats, Floats]:
        """The head that scores coordinates as this head scores features."""
        return matrix @ self.spread.T, shift + matrix @ self.centre

    def back(self, matrix: Floats, shift: Floats) -> tuple[Floats, Floats]:
        """The head that scores features as this head scores coordinates."""
        plain = matrix @ self.turn.T
        return plain, shift - plain @ self.centre


class HeadFit(ABC):
    """How a head is made of class-wise Gaussians."""

    @abstractmethod
    def fit(self, gaussians: ClassGaussians, start: Head | None) -> Head:
        """A head, perhaps from one to start with."""


@final
@dataclass(frozen=True)
class Retrained(HeadFit):
    """Sample virtual features and train the head on them, as CCVR does.

    Parameters
    ----------
    samples
        Mean number of virtual features per class.
    balanced
        Sample all classes alike. Otherwise classes are sampled in proportion to their records, so that probabilities
        keep the class prior.
    epochs, batch
        Passes over the virtual features, and the size of a batch.
    rate
        Learning rate, relative to the features' mean squared length.
    decay
        Weight decay.
    seed
        Seed of the virtual features and of the order of batches.
    whitened
        Descend along directions in which the virtual features vary alike, which converges in as many epochs. Without it
        the descent is along the features themselves, as published, and stops far from the optimum where variances
        differ much.
    shrunk
        Sample from shrunken covariances. Otherwise they are those of the sums, as published; a class with fewer records
        than features then has none across some directions.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fit = fc.methods.Retrained(samples=100, epochs=5)
    >>> method = fc.methods.CCVR(fit=fit, representation=fc.artifacts.Representation(column=None))
    >>> fc.run(method, fc.InProcess(fc.Federation.simulated(classes=3)), fc.SecAgg()).artifact.matrix.shape
    (3, 3)
    """

    samples: int = 1000
    balanced: bool = False
    epochs: int = 20
    batch: int = 64
    rate: float = 2.0
    decay: float = 1e-4
    seed: int = 0
    whitened: bool = True
    shrunk: bool = field(default=True, metadata=ADDED)

    def __post_init__(self) -> None:
        if self.samples < 1 or self.epochs < 1 or self.batch < 1 or not self.rate > 0 or not self.decay >= 0:
            raise InputError(f"Expected samples, epochs, batch and rate above 0 and decay of at least 0, found {self}.")

    def fit(self, gaussians: ClassGaussians, start: Head | None) -> Head:
        rng = np.random.default_rng(self.seed)
        source = gaussians.shrunk() if self.shrunk else gaussians
        features, labels = source.sample(self._counts(gaussians), rng)
        classes, width = gaussians.means.shape
        old = Head(np.zeros((classes, width)), np.zeros(classes)) if start is None else start
        whitening = Whitening.of(features) if self.whitened and len(features) else Whitening.plain(width)
        matrix, shift = whitening.into(*(np.asarray(part, dtype=np.float64) for part in (old.matrix, old.shift)))
        self._train(matrix, shift, whitening.along(features), labels, rng)
        matrix, shift = whitening.back(matrix, shift)
        seen = np.isin(np.arange(classes), labels)
        matrix, shift = np.where(seen[:, None], matrix, old.matrix), np.where(seen, shift, old.shift)
        return Head(matrix, shift, gaussians.representation)

    def _counts(self, gaussians: ClassGaussians) -> Ints:
        present = gaussians.present
        counts = np.where(present, 1.0 if self.balanced else gaussians.counts, 0.0)
        sizes: Ints = np.ceil(self.samples * present.sum() * counts / max(counts.sum(), 1e-300)).astype(np.int64)
        return sizes

    def _train(self, matrix: Floats, shift: Floats, features: Floats, labels: Ints, rng: np.random.Generator) -> None:
        """Descend by batches, at a rate that falls to zero; rows of absent classes stay."""
        present = np.isin(np.arange(len(shift)), labels)
        steps = max(self.epochs * -(-len(labels) // self.batch), 1)
        rate = self.rate / (1 + float(np.mean(np.sum(features**2, axis=1))) if len(features) else 1.0)
        for step, rows in enumerate(self._batches(len(labels), rng)):
            z, y = features[rows], labels[rows]
            residual = softmax(z @ matrix.T + shift)
            residual[np.arange(len(y)), y] -= 1
            current = rate * (1 - step / steps)
            matrix[present] -= current * (residual.T @ z / len(y) + self.decay * matrix)[present]
            shift[present] -= current * residual.mean(axis=0)[present]

    def _batches(self, records: int, rng: np.random.Generator) -> list[Ints]:
        orders = [rng.permutation(records) for _ in range(self.epochs)]
        return [order[at : at + self.batch] for order in orders for at in range(0, records, self.batch)]


@final
@dataclass(frozen=True)
class ClosedForm(HeadFit):
    """The head that is optimal for Gaussians with one common covariance; nothing is sampled or trained.

    Parameters
    ----------
    balanced
        Give all classes the same prior.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.methods.CCVR(fit=fc.methods.ClosedForm()).fit.balanced
    False
    """

    balanced: bool = False

    def fit(self, gaussians: ClassGaussians, start: Head | None) -> Head:
        return gaussians.shrunk().closed_form(balanced=self.balanced)


@final
@dataclass(frozen=True)
class FeatureGaussians(Method[ClassGaussians]):
    """Estimate every class's mean and covariance of features from sums over clients; no client's own leave it.

    Parameters
    ----------
    features
        Number of features; None for as many as classes, where the logits are the features.
    radius
        L2 norm to which features are clipped. Under differential privacy the noise grows with it; unit-length features
        need 1.
    representation
        Where a record's features come from.
    shift
        A public vector that is subtracted from the features first.
    diagonal
        Estimate variances only, not covariances.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.artifacts.networks import Representation
    >>> method = fc.methods.FeatureGaussians(radius=50.0, representation=Representation(column=None))
    >>> gaussians = fc.run(method, fc.InProcess(fc.Federation.simulated(classes=3)), fc.SecAgg()).artifact
    >>> gaussians.means.shape, int(gaussians.counts.sum())
    ((3, 3), 2000)
    """

    features: int | None = None
    radius: float = 100.0
    representation: Representation = Representation()
    shift: tuple[float, ...] | None = None
    diagonal: bool = False

    def protocol(self, schema: Schema) -> Flow[ClassGaussians]:
        query = ClassMoments(
            schema.classes, self.features or schema.classes, self.radius, self.representation, self.shift, self.diagonal
        )
        answer = yield query
        return gaussians_of(query, answer)


@final
@dataclass(frozen=True)
class CCVR(Method[Head]):
    """Classifier calibration with virtual representations (Luo et al. 2021): one secure sum, then a new last layer.

    It improves accuracy under label skew, not calibration: measure the calibration error as well, and calibrate
    afterwards.

    Parameters
    ----------
    features
        Number of features; None for as many as classes, where the logits are the features.
    fit
        How the head is made of class-wise Gaussians: `Retrained` or `ClosedForm`.
    radius, representation, shift, diagonal
        As for `FeatureGaussians`.
    start
        The head to repair; a class without records keeps its row.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.artifacts.networks import Representation
    >>> from fedcalib.methods.ccvr import ClosedForm
    >>> method = fc.methods.CCVR(fit=ClosedForm(), representation=Representation(column=None))
    >>> fc.run(method, fc.InProcess(fc.Federation.simulated(classes=3)), fc.SecAgg()).artifact.matrix.shape
    (3, 3)
    """

    features: int | None = None
    fit: HeadFit = Retrained()
    radius: float = 100.0
    representation: Representation = Representation()
    shift: tuple[float, ...] | None = None
    diagonal: bool = False
    start: Head | None = None

    @classmethod
    def as_published(
        cls, features: int | None = None, samples: int = 100, *, start: Head | None = None, seed: int = 0
    ) -> CCVR:
        """CCVR as in "No Fear of Heterogeneity": virtual features from the classes' own Gaussians, then SGD.

        Parameters
        ----------
        features
            Number of features; None for as many as classes, where the logits are the features.
        samples
            Mean number of virtual features per class: 100 for CIFAR-10, 500 for CIFAR-100, 1000 for CINIC-10.
        start
            The trained head, from which retraining starts.
        seed
            Seed of the virtual features.
        """
        fit = Retrained(samples, epochs=10, whitened=False, seed=seed, shrunk=False)
        representation = Representation() if features is not None else Representation(column=None)
        return cls(features, fit, representation=representation, start=start)

    def protocol(self, schema: Schema) -> Flow[Head]:
        estimate = FeatureGaussians(self.features, self.radius, self.representation, self.shift, self.diagonal)
        gaussians = yield from estimate.protocol(schema)
        start = self.start if self.start is None or self.start.representation == self.representation else None
        head = self.fit.fit(gaussians, start)
        absent = np.flatnonzero(~gaussians.present)
        warnings = (f"No client holds a record of the classes {absent.tolist()}; their rows were not trained.",)
        matrix, shift = (np.clip(part, -_MAX_WEIGHT, _MAX_WEIGHT) for part in (head.matrix, head.shift))
        return Head(matrix, shift, self.representation, warnings if len(absent) else ())


def gaussians_of(query: ClassMoments, answer: Answer) -> ClassGaussians:
    """Gaussians in the features' own units, from an answer about moments."""
    seconds = answer["second"] if query.diagonal else unpacked(answer["second"], query.features)
    return ClassGaussians.of_sums(
        answer["count"].astype(np.float64),
        answer["sum"] * query.radius,
        seconds * query.radius**2,
        noise=answer.variance("second").mean(axis=1) * query.radius**4,
        shift=np.zeros(query.features) if query.shift is None else np.array(query.shift),
        representation=query.representation,
    )
