"""FedAvg: clients train a shared network on their own records, and the server averages the changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import cast, final

import numpy as np

from fedcalib.artifacts.networks import Trained
from fedcalib.errors import InputError
from fedcalib.method import Budget, Flow, Method, drive
from fedcalib.metrics import accuracy, nll
from fedcalib.queries.training import LocalUpdate
from fedcalib.query import Answer, Query
from fedcalib.records import Records, Schema
from fedcalib.training.network import SGD, LocalTraining, Network
from fedcalib.types import Floats

_MAX_WEIGHT = 1e9


@final
@dataclass(frozen=True)
class FedAvg(Method[Trained]):
    """Train a network by rounds of local training on clients (McMahan et al. 2017).

    The run's participation decides who takes part in a round; under `UserGaussian` this is DP-FedAvg.

    Parameters
    ----------
    network
        The network to train.
    rounds
        Number of rounds.
    training
        How a client trains on its own records.
    rate
        The server's step along the mean change.
    clip
        The most that one client may move the weights in a round, in L2; infinite for no limit, without privacy.
    largest
        Weigh clients by their number of records, up to this many; None weighs all alike.
    seed
        Seed of the initial weights.
    column
        The column of the records that holds the network's inputs; None for the logits.
    initial
        Trained weights to continue from.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.training import SoftmaxRegression
    >>> federation = fc.Federation.simulated(classes=3)
    >>> method = fc.methods.FedAvg(SoftmaxRegression(3, 3), rounds=2, column=None)
    >>> trained = fc.run(method, fc.InProcess(federation), fc.SecAgg()).artifact
    >>> trained.weights.shape
    (12,)
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
            raise InputError(f"Expected rounds, rate and clip above 0, found {self.rounds}, {self.rate}, {self.clip}.")

    @classmethod
    def as_published(
        cls, network: Network, rounds: int = 1, training: LocalTraining | None = None, *,
        largest: int | None = None, initial: Trained | None = None, seed: int = 0,
    ) -> FedAvg:  # fmt: skip
        """Federated averaging as the sources run it: local SGD at rate 0.01 in batches of 64, no clip, server rate 1.

        Parameters
        ----------
        network
            The network to train.
        rounds
            1 for FedAvg and wFedAvg of the FL-SWAG slides; the calibration paper trains its networks in many.
        training
            How a client trains, if not for one epoch.
        largest
            The largest client's number of records for wFedAvg, which weighs clients by theirs; None for FedAvg.
        initial, seed
            Trained weights to continue from, or the seed of new ones.
        """
        local = LocalTraining(1, 64, SGD(0.01)) if training is None else training
        return cls(network, rounds, local, 1.0, inf, largest, seed, initial=initial)

    def with_budget(self, budget: Budget) -> FedAvg:
        """This method; a private run needs a limit on what one client may change."""
        if self.clip == inf:
            raise InputError("Expected a finite clip under differential privacy, found infinity; 1 is usual.")
        return self

    def protocol(self, schema: Schema) -> Flow[Trained]:
        if self.network.outputs != schema.classes:
            raise InputError(f"Expected a network for {schema.classes} classes, found one for {self.network.outputs}.")
        weights = self.network.start(self.seed) if self.initial is None else self.initial.weights
        for _ in range(self.rounds):
            query = LocalUpdate(self.network, weights, self.training, self.clip, self.largest, self.column)
            answer = yield query
            counted = float(answer["weight"][0]) if self.largest is not None else float(answer.clients or 0)
            weights = self._moved(weights, query.unit_of_change * answer["change"], counted)
        return Trained(self.network, weights, self.column)

    def _moved(self, weights: Floats, change: Floats, counted: float) -> Floats:
        """Take the server's step; a sum over next to nobody moves nothing."""
        if counted <= 1e-6:
            return weights
        moved = weights + self.rate * change / counted
        return np.clip(moved, -_MAX_WEIGHT, _MAX_WEIGHT).astype(weights.dtype)


@final
@dataclass(frozen=True)
class TrainingRound:
    """How far a round of training moved the weights, and how good they were afterwards.

    Parameters
    ----------
    number
        The round; 0 is the start.
    update
        L2 norm of the change of the weights.
    loss, accuracy
        Mean log loss and accuracy on held-out records; None where none may be read.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.methods.TrainingRound(3, update=0.5, loss=0.7, accuracy=0.8).number
    3
    """

    number: int
    update: float
    loss: float | None = None
    accuracy: float | None = None


def rounds_of(
    method: FedAvg, schema: Schema, answers: Callable[[int, Query], Answer], held: Records | None
) -> tuple[TrainingRound, ...]:
    """The rounds of a training that has ended, from its recorded answers; nothing is sent.

    Parameters
    ----------
    method, schema
        The training, and the schema that it was run for.
    answers
        The recorded answer to a step, such as a transcript's `recall`.
    held
        Records to measure the weights on; None under differential privacy, where exact figures would leak.
    """
    log: list[TrainingRound] = []
    before = method.network.start(method.seed) if method.initial is None else method.initial.weights

    def note(weights: Floats) -> None:
        nonlocal before
        change = float(np.linalg.norm(weights.astype(np.float64) - before))
        log.append(TrainingRound(len(log), change, *_quality(Trained(method.network, weights, method.column), held)))
        before = weights

    def ask(step: int, query: Query) -> Answer:
        note(cast(LocalUpdate, query).weights)
        return answers(step, query)

    note(drive(method, schema, ask).weights)
    return tuple(log)


def _quality(trained: Trained, held: Records | None) -> tuple[float | None, float | None]:
    if held is None or not len(held):
        return None, None
    scored = trained.over(held)
    return nll(scored.probs, scored.labels), accuracy(scored.probs, scored.labels)


def divergence(rounds: Sequence[TrainingRound]) -> tuple[str, ...]:
    """A warning where training made the loss on held-out records worse, or where updates kept growing."""
    losses = [(one.loss, one.number) for one in rounds if one.loss is not None]
    advice = "use a smaller learning rate, scale the inputs, or clip updates"
    if losses and losses[-1][0] > max(1.5 * min(losses)[0], min(losses)[0] + 0.1):
        (low, at), (last, _) = min(losses), losses[-1]
        return (
            f"Training diverged: the held-out log loss was {low:.3g} after round {at} and is {last:.3g}; {advice}.",
        )
    updates = [one.update for one in rounds[1:]]
    if len(updates) >= 4 and updates[-1] > 2 * max(updates[:2]):
        return (f"Training may diverge: updates grew from {updates[0]:.3g} to {updates[-1]:.3g}; {advice}.",)
    return ()
