"""What training needs of a network: a vector of weights, and the gradient and logits that it gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.records import Records
from fedcalib.types import Array, Floats, Ints

BATCH = 1024  # records at a time where nothing is learnt


@final
@dataclass(frozen=True)
class Layout:
    """Where things lie in a network's vector."""

    outputs: int
    trainable: int
    matrix: slice
    shift: slice


class Session(ABC):
    """A network at work: its weights lie in one vector, which whoever trains changes in place."""

    weights: Floats  # (size,)

    @abstractmethod
    def gradient(self, inputs: Array, labels: Ints) -> Floats:
        """Give the gradient of the mean log loss over a batch, (size,), as a network that is being trained."""

    @abstractmethod
    def logits(self, inputs: Array) -> Floats:
        """Score records, (n, classes), as a network that is being used."""

    @abstractmethod
    def features(self, inputs: Array) -> Floats:
        """Give what the last linear layer is fed, (n, features)."""

    def scores(self, inputs: Array) -> tuple[Floats, Floats]:
        """Give logits and features together; override to work them out in one pass."""
        return self.logits(inputs), self.features(inputs)

    @abstractmethod
    def curvature(self, inputs: Array) -> Floats:
        """Give the diagonal of the Gauss-Newton matrix of the summed log loss, (size,)."""


class Network(ABC):
    """A frozen dataclass that names an architecture. It travels in queries; code never does."""

    @abstractmethod
    def start(self, seed: int) -> Floats:
        """Draw the weights that training starts from, (size,)."""

    @abstractmethod
    def session(self, weights: Floats) -> Session:
        """Put a copy of these weights to work."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Count the classes that it scores."""

    @property
    @abstractmethod
    def trainable(self) -> int:
        """Count the weights that gradients move; running averages come after them in the vector."""

    @property
    @abstractmethod
    def head(self) -> tuple[slice, slice]:
        """Say where the last linear layer's matrix and shift lie in the vector."""

    @property
    def unit(self) -> bool:
        """Say whether the last linear layer's rows count by their direction only."""
        return False


def inputs_of(records: Records, column: str | None) -> Array:
    """Give the column that a network reads; without one, the logits, kept to what arithmetic can bear."""
    if column is None:
        return np.clip(np.asarray(records.logits, dtype=np.float64), -1e6, 1e6)
    if column not in records.extra:
        raise InputError(
            f"Expected a column '{column}' beside the scores, found {sorted(records.extra) or 'none'}; "
            f"say Records.of_logits(..., {column}=...)."
        )
    return records.extra[column]


def in_batches(inputs: Array, score: Callable[[Array], Floats]) -> Floats:
    """Score inputs a batch at a time, so that hidden layers stay small."""
    parts = [np.asarray(score(inputs[at : at + BATCH])) for at in range(0, max(len(inputs), 1), BATCH)]
    return np.concatenate(parts)
