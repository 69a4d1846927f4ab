"""FedAvg: clients train a shared network on their own records, and the server averages the changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.networks import Trained
from fedcalib.errors import InputError
from fedcalib.method import Flow, Method
from fedcalib.queries.training import LocalUpdate
from fedcalib.records import Schema
from fedcalib.training.local import LocalTraining
from fedcalib.training.network import Network
from fedcalib.types import Floats

_FARTHEST = 1e9


@final
@dataclass(frozen=True)
class FedAvg(Method[Trained]):
    """Train a network by rounds of local training (McMahan et al. 2017).

    `rate` is the server's step along the mean change; `clip` the most that one client may move the weights in a round,
    in L2. With `largest` clients count by their records, up to so many; otherwise all count the same. Who takes part in
    a round is a matter of the run's participation; under `UserGaussian` this is DP-FedAvg. `initial` continues from
    trained weights.
    """

    network: Network
    rounds: int = 10
    training: LocalTraining = LocalTraining()
    rate: float = 1.0
    clip: float = 10.0
    largest: int | None = None
    seed: int = 0
    column: str | None = "inputs"
    initial: Trained | None = None

    def __post_init__(self) -> None:
        if self.rounds < 1 or not self.rate > 0 or not self.clip > 0:
            raise InputError("Expected rounds, a rate and a clip above 0, found others.")

    def protocol(self, schema: Schema) -> Flow[Trained]:
        """Average for as many rounds as asked."""
        if self.network.outputs != schema.classes:
            raise InputError(f"Expected a network for {schema.classes} classes, found one for {self.network.outputs}.")
        weights = self.network.start(self.seed) if self.initial is None else self.initial.weights
        for _ in range(self.rounds):
            answer = yield LocalUpdate(self.network, weights, self.training, self.clip, self.largest, self.column)
            counted = float(answer["weight"][0]) if self.largest is not None else float(answer.clients or 0)
            weights = self._moved(weights, answer["change"], counted)
        return Trained(self.network, weights, self.column)

    def _moved(self, weights: Floats, change: Floats, counted: float) -> Floats:
        """Take the server's step; a sum over next to nobody moves nothing."""
        if counted <= 1e-6:
            return weights
        moved = weights + self.rate * self.clip * change / counted
        return np.clip(moved, -_FARTHEST, _FARTHEST).astype(weights.dtype)
