"""Scorers: classifiers that clients can run on their own records.

A trained network: which one, and its weights.

Several classifiers whose probabilities are averaged.

A linear head: the last layer of a classifier, on features that anybody may have computed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, prod
from typing import Any, final

import numpy as np

from fedcalib.artifacts import Artifact
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.records import Records, softmax
from fedcalib.training.network import Network, inputs_of
from fedcalib.types import Array, Floats


@dataclass(frozen=True, eq=False)
class Scorer(Artifact):
    """A classifier: it gives records new scores, from columns beside the old ones."""

    @abstractmethod
    def over(self, records: Records) -> Records:
        """Give the same records with this classifier's scores."""

    def across(self, federation: Federation) -> Federation:
        """Let every client score its own records."""
        return Federation(self.over(federation.records), federation.offsets, federation.names)


@final
@dataclass(frozen=True, eq=False)
class Trained(Scorer):
    """A network with its weights; scores come as logits, with the last layer's features beside them."""

    network: Network
    weights: Floats  # (size,)
    column: str | None = "inputs"

    def __post_init__(self) -> None:
        if not np.isfinite(self.weights).all():
            raise InputError("Expected finite weights, found NaN or infinity; train with a smaller rate or clip.")

    def logits(self, inputs: Array) -> Floats:
        """Score inputs, (n, classes)."""
        return self.network.session(self.weights).logits(inputs)

    def features(self, inputs: Array) -> Floats:
        """Give what the last linear layer is fed, (n, features)."""
        return self.network.session(self.weights).features(inputs)

    def over(self, records: Records) -> Records:
        """Score records and put their features beside."""
        logits, features = self.network.session(self.weights).scores(inputs_of(records, self.column))
        extra: Mapping[str, Array] = {**records.extra, "features": features}
        return Records(logits.astype(np.float64, copy=False), records.labels, True, records.unit, extra)

    @property
    def head(self) -> Head:
        """Give the last linear layer as a classifier of features."""
        matrix, shift = (self.weights[place].astype(np.float64) for place in self.network.head)
        classes = self.network.outputs
        head = Head(matrix.reshape(classes, -1), shift if len(shift) else np.zeros(classes))
        return head.normalised if self.network.unit else head


@final
@dataclass(frozen=True, eq=False)
class Ensemble(Scorer):
    """Networks whose probabilities are averaged, by shares that sum to one; each is needed to predict."""

    members: tuple[Trained, ...]
    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        fine = all(isfinite(share) and share >= 0 for share in self.shares)
        if not self.members or len(self.members) != len(self.shares) or not fine or abs(sum(self.shares) - 1) > 1e-9:
            raise InputError("Expected a share for each member, none negative, summing to one, found others.")

    @classmethod
    def of(cls, members: tuple[Trained, ...], sizes: tuple[float, ...] | None = None) -> Ensemble:
        """Average all alike, or by sizes."""
        sized = np.ones(len(members)) if sizes is None else np.asarray(sizes, dtype=np.float64)
        return cls(members, tuple((sized / sized.sum()).tolist()))

    def over(self, records: Records) -> Records:
        """Score records with averaged probabilities."""
        probs = np.zeros((len(records), records.classes))
        for member, share in zip(self.members, self.shares, strict=True):
            probs += share * member.over(records).probs
        return Records(probs / probs.sum(axis=1, keepdims=True), records.labels, False, records.unit, records.extra)


@final
@dataclass(frozen=True)
class Representation:
    """What is done to features before anything else: a power for each (Tukey), then perhaps unit length.

    A power of 0.5 makes what a rectifier leaves more like a Gaussian; signs are kept. Without a column the logits are
    the features.
    """

    column: str | None = "features"
    power: float = 1.0
    unit: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.power <= 1:
            raise InputError(f"Expected a power above 0 and at most 1, found {self.power}.")

    def of(self, records: Records) -> Floats:
        """Read and represent the features of records, (n, features)."""
        if self.column is None:
            return self.apply(records.logits)
        if self.column not in records.extra:
            raise InputError(
                f"Expected a column '{self.column}' with features beside the scores, found "
                f"{sorted(records.extra) or 'none'}; score the records with the trained network first."
            )
        return self.apply(records.extra[self.column])

    def apply(self, features: Any) -> Floats:
        """Represent features, (n, features)."""
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
    """One linear layer from features to logits."""

    matrix: Floats  # (classes, features)
    shift: Floats  # (classes,)
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
        """Count the classes."""
        return int(self.matrix.shape[0])

    def logits(self, features: Any) -> Floats:
        """Score features, (n, classes)."""
        scored: Floats = self.representation.apply(features) @ self.matrix.T + self.shift
        return scored

    def __call__(self, features: Any) -> Floats:
        """Give probabilities, (n, classes)."""
        return softmax(self.logits(features))

    def over(self, records: Records) -> Records:
        """Score records that carry their features."""
        logits = self.representation.of(records) @ self.matrix.T + self.shift
        return Records(logits, records.labels, True, records.unit, records.extra)

    @property
    def normalised(self) -> Head:
        """Give each class's weights unit length, and no shift: the normalised classifier of the literature."""
        length = np.linalg.norm(self.matrix, axis=1, keepdims=True)
        unit = self.matrix / np.where(length > 0, length, 1)
        return Head(unit, np.zeros_like(self.shift), self.representation, self.warnings)
