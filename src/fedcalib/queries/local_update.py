"""One round of federated averaging: each client trains a network on its own records and sends the change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.queries import one_by_one
from fedcalib.query import Block, Bound, ClientQuery, ClientTerms
from fedcalib.randomness import Randomness
from fedcalib.records import Records
from fedcalib.training.local import LocalTraining
from fedcalib.training.network import Network, inputs_of
from fedcalib.types import Array, Floats


@final
@dataclass(frozen=True, eq=False)
class LocalUpdate(ClientQuery):
    """The change that training on a client's own records makes to weights, cut to the L2 norm `clip`, divided by it.

    So a client adds a vector of L2 norm at most 1, attained by any client that is cut; then L1 <= sqrt(size) and Linf
    <= 1. With `largest` a client counts by its records, up to so many: it adds w = min(n, largest) / largest, and w
    times the change, and both stay within 1. A client without records adds zero.
    """

    network: Network
    weights: Floats  # (size,)
    training: LocalTraining
    clip: float
    largest: int | None = None
    column: str | None = "inputs"

    def __post_init__(self) -> None:
        if not 0 < self.clip < float("inf") or not np.isfinite(self.weights).all():
            raise InputError(f"Expected finite weights and a clip above 0, found a clip of {self.clip}.")
        if self.largest is not None and self.largest < 1:
            raise InputError(f"Expected a client to count for at least one record, found {self.largest}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        """One cell a weight, and one for how much the client counts."""
        size = len(self.weights)
        change = Block((size,), Bound(sqrt(size), 1.0, 1.0, "client"), clip=1.0)
        if self.largest is None:
            return {"change": change}
        return {"change": change, "weight": Block((1,), Bound(1.0, 1.0, 1.0, "client"), weight=0.1, clip=1.0)}

    def term(self, records: Records, rng: np.random.Generator) -> Floats:
        """Train, and cut the change."""
        if not len(records):
            return np.zeros(self.size)
        trained = self.training.train(
            self.network, self.weights, inputs_of(records, self.column), records.labels, rng
        ).weights
        change = np.nan_to_num(trained.astype(np.float64) - self.weights, nan=0.0, posinf=0.0, neginf=0.0)
        change *= (1 - 1e-12) / max(float(np.linalg.norm(change)), self.clip)
        if self.largest is None:
            return change
        weight = min(len(records), self.largest) / self.largest
        return np.concatenate([weight * change, [weight]])

    def total(self, federation: Federation, randomness: Randomness, scale: Floats | None = None) -> Array:
        """Add up one client after the other."""
        return one_by_one.total(self, federation, randomness, scale)

    def by_client(self, federation: Federation, randomness: Randomness) -> Iterator[ClientTerms]:
        """Give one client after the other."""
        return one_by_one.by_client(self, federation, randomness)
