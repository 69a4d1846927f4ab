"""A trained network: which one, and its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.head import Head
from fedcalib.artifacts.scorer import Scorer
from fedcalib.errors import InputError
from fedcalib.records import Records
from fedcalib.training.network import Network, inputs_of
from fedcalib.types import Array, Floats


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
