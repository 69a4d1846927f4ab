"""Scorers: classifiers that clients can run on their own records.

`Trained` is a network with its weights, `Ensemble` averages several of them, and `Head` is a linear layer on features
that were computed before, after the transformation that a `Representation` describes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, prod
from typing import Any, final

import numpy as np

from fedcalib.artifacts.saving import Artifact
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.records import Records, softmax
from fedcalib.training.network import Network, inputs_of
from fedcalib.types import Array, Floats


@dataclass(frozen=True, eq=False)
class Scorer(Artifact):
    """A classifier that computes the scores of records from their other columns, such as inputs or features."""

    @abstractmethod
    def over(self, records: Records) -> Records:
        """The same records with this classifier's scores."""

    def across(self, federation: Federation) -> Federation:
        """The same federation, with every client's records scored by this classifier."""
        return Federation(self.over(federation.records), federation.offsets, federation.names)


@final
@dataclass(frozen=True, eq=False)
class Trained(Scorer):
    """A network with its weights; its scores are logits, and the last layer's features are kept beside them.

    Parameters
    ----------
    network
        The architecture.
    weights
        All weights as one vector, shape (size,).
    column
        The column of the records that holds the inputs; None if the scores themselves are the inputs.

    Examples
    --------
    >>> import fedcalib as fc
    >>> import numpy as np
    >>> from fedcalib.artifacts.networks import Trained
    >>> network = fc.training.SoftmaxRegression(3, 2)
    >>> trained = Trained(network, network.start(0))
    >>> records = fc.Records.of_logits(np.zeros((4, 2)), [0, 1, 0, 1], inputs=np.ones((4, 3)))
    >>> trained.over(records).logits.shape
    (4, 2)
    """

    network: Network
    weights: Floats
    column: str | None = "inputs"

    def __post_init__(self) -> None:
        if not np.isfinite(self.weights).all():
            raise InputError("Expected finite weights, found NaN or infinity; train with a smaller rate or clip.")

    def logits(self, inputs: Array) -> Floats:
        """Logits of inputs, shape (n, classes)."""
        return self.network.session(self.weights).logits(inputs)

    def features(self, inputs: Array) -> Floats:
        """Inputs of the last linear layer, shape (n, features)."""
        return self.network.session(self.weights).features(inputs)

    def over(self, records: Records) -> Records:
        """The same records with logits, and a column of features."""
        logits, features = self.network.session(self.weights).scores(inputs_of(records, self.column))
        extra: Mapping[str, Array] = {**records.extra, "features": features}
        return Records(logits.astype(np.float64, copy=False), records.labels, True, records.unit, extra)

    @property
    def head(self) -> Head:
        """The last linear layer, as a classifier of features; refused where the network changes its outputs."""
        if not self.network.ends_in_head:
            raise InputError("Expected a network that ends in a linear layer, found something after it.")
        matrix, shift = (self.weights[part].astype(np.float64) for part in self.network.head)
        classes = self.network.outputs
        head = Head(matrix.reshape(classes, -1), shift if len(shift) else np.zeros(classes))
        return head.normalised if self.network.unit else head


@final
@dataclass(frozen=True, eq=False)
class Ensemble(Scorer):
    """Networks whose probabilities are averaged; all of them are needed to predict.

    Parameters
    ----------
    members
        The networks.
    shares
        One weight per member, none negative, with sum 1.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.artifacts.networks import Ensemble, Trained
    >>> network = fc.training.SoftmaxRegression(3, 2)
    >>> Ensemble.of((Trained(network, network.start(0)), Trained(network, network.start(1))), (300, 100)).shares
    (0.75, 0.25)
    """

    members: tuple[Trained, ...]
    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        fine = all(isfinite(share) and share >= 0 for share in self.shares)
        if not self.members or len(self.members) != len(self.shares) or not fine or abs(sum(self.shares) - 1) > 1e-9:
            raise InputError("Expected one weight per member, none negative, with sum 1; found others.")

    @classmethod
    def of(cls, members: tuple[Trained, ...], sizes: tuple[float, ...] | None = None) -> Ensemble:
        """An ensemble with equal weights, or with weights in proportion to sizes, such as numbers of records."""
        sized = np.ones(len(members)) if sizes is None else np.asarray(sizes, dtype=np.float64)
        return cls(members, tuple((sized / sized.sum()).tolist()))

    def over(self, records: Records) -> Records:
        """The same records with averaged probabilities."""
        probs = np.zeros((len(records), records.classes))
        for member, share in zip(self.members, self.shares, strict=True):
            probs += share * member.over(records).probs
        return Records(probs / probs.sum(axis=1, keepdims=True), records.labels, False, records.unit, records.extra)


@final
@dataclass(frozen=True)
class Representation:
    """How features are transformed before use: a power of each (Tukey), then optionally unit length.

    Parameters
    ----------
    column
        The column of the records that holds the features; None if the logits are the features.
    power
        Exponent above 0 and at most 1; signs are kept. 0.5 makes the outputs of a rectifier more like a Gaussian.
    unit
        Whether each record's features are scaled to unit length.

    Examples
    --------
    >>> from fedcalib.artifacts.networks import Representation
    >>> Representation(power=0.5).apply([[4.0, -9.0]])
    array([[ 2., -3.]])
    """

    column: str | None = "features"
    power: float = 1.0
    unit: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.power <= 1:
            raise InputError(f"Expected a power above 0 and at most 1, found {self.power}.")

    def of(self, records: Records) -> Floats:
        """Transformed features of records, shape (n, features)."""
        if self.column is None:
            return self.apply(records.logits)
        if self.column not in records.extra:
            raise InputError(
                f"Expected a column '{self.column}' with features beside the scores, found "
                f"{sorted(records.extra) or 'none'}; score the records with the trained network first."
            )
        return self.apply(records.extra[self.column])

    def apply(self, features: Any) -> Floats:
        """Transformed features, shape (n, features)."""
        given = np.asarray(features, dtype=np.float64)
        values = given.reshape(len(given), prod(given.shape[1:]))
        if self.power != 1:
            values = np.sign(values) * np.abs(values) ** self.power
        if self.unit:
            length = np.linalg.norm(values, axis=1, keepdims=True)
            values = values / np.where(length > 0, length, 1)
        return values


@final
@dataclass(frozen=True, eq=False)
class Head(Scorer):
    """A linear layer from features to logits.

    Parameters
    ----------
    matrix
        Weights, shape (classes, features).
    shift
        Biases, shape (classes,).
    representation
        How features are transformed first.
    warnings
        What to know about how the head was found.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcalib.artifacts.networks import Head
    >>> Head(np.eye(2), np.zeros(2))([[2.0, 0.0]]).round(2)
    array([[0.88, 0.12]])
    """

    matrix: Floats
    shift: Floats
    representation: Representation = Representation()
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.matrix.ndim != 2 or self.shift.shape != self.matrix.shape[:1]:
            raise InputError(
                f"Expected a matrix (classes, features) and a shift (classes,), found {self.matrix.shape} and "
                f"{self.shift.shape}."
            )
        if not (np.isfinite(self.matrix).all() and np.isfinite(self.shift).all()):
            raise InputError("Expected a finite head, found NaN or infinity.")

    @property
    def classes(self) -> int:
        return int(self.matrix.shape[0])

    def logits(self, features: Any) -> Floats:
        """Logits of features, shape (n, classes)."""
        scored: Floats = self.representation.apply(features) @ self.matrix.T + self.shift
        return scored

    def __call__(self, features: Any) -> Floats:
        """Probabilities of features, shape (n, classes)."""
        return softmax(self.logits(features))

    def over(self, records: Records) -> Records:
        """The same records with logits from their features."""
        logits = self.representation.of(records) @ self.matrix.T + self.shift
        return Records(logits, records.labels, True, records.unit, records.extra)

    @property
    def normalised(self) -> Head:
        """The normalised classifier of the literature: each class's weights have unit length, and there is no shift."""
        length = np.linalg.norm(self.matrix, axis=1, keepdims=True)
        unit = self.matrix / np.where(length > 0, length, 1)
        return Head(unit, np.zeros_like(self.shift), self.representation, self.warnings)
