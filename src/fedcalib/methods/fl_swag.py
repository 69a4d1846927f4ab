"""FL-SWAG: clients send Gaussians over weights as natural parameters; their product is the global posterior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedcalib.artifacts.gaussians import WeightPosterior
from fedcalib.artifacts.networks import Trained
from fedcalib.errors import InputError
from fedcalib.method import Flow, Method
from fedcalib.queries.training import LocalPosterior
from fedcalib.query import Answer
from fedcalib.records import Schema
from fedcalib.training.network import Network
from fedcalib.training.posterior import Curvature, PosteriorRecipe, from_sketch, probes, solved
from fedcalib.types import Floats

_MAX_WEIGHT = 1e9


@final
@dataclass(frozen=True)
class FLSWAG(Method[WeightPosterior]):
    """Multiply the clients' posteriors over a network's weights, with the prior counted once.

    For a network with a frozen body, use the features' column and `SoftmaxRegression`.

    Parameters
    ----------
    network
        The network.
    recipe
        How a client obtains its Gaussian: `Trajectory` is SWAG, `Curvature` a Laplace approximation whose precisions
        add up.
    prior
        Precision of the prior.
    rounds
        Number of rounds; each starts from the mean of the one before.
    step
        Fraction of the step toward the new mean that a round takes.
    width
        Number of public directions along which low-rank parts are sent, so that they too pass through a secure sum;
        exact from clients times rank on.
    scatter
        Widen the product by how much clients' means disagree.
    most
        The largest precision that a client sends.
    reach
        The largest offset of a client's mean.
    samples
        Number of networks that a prediction averages.
    seed
        Seed of the initial weights, the directions and the samples.
    column
        The column of the records that holds the network's inputs; None for the logits.
    initial
        Trained weights to start from.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.training import SoftmaxRegression
    >>> method = fc.methods.FLSWAG(SoftmaxRegression(3, 3), column=None)
    >>> posterior = fc.run(method, fc.InProcess(fc.Federation.simulated(classes=3)), fc.SecAgg()).artifact
    >>> posterior.mean.shape, bool((posterior.precision > 0).all())
    ((12,), True)
    """

    network: Network
    recipe: PosteriorRecipe = Curvature()
    prior: float = 1.0
    rounds: int = 1
    step: float = 1.0
    width: int = 0
    scatter: bool = False
    most: float = 1e6
    reach: float = 10.0
    samples: int = 30
    seed: int = 0
    column: str | None = "inputs"
    initial: Trained | None = None

    def __post_init__(self) -> None:
        if self.rounds < 1 or not 0 < self.step <= 1 or not self.prior >= 0 or self.samples < 1:
            raise InputError("Expected rounds and samples above 0, a step above 0 and up to 1, and a prior from 0 up.")

    def protocol(self, schema: Schema) -> Flow[WeightPosterior]:
        if self.network.outputs != schema.classes:
            raise InputError(f"Expected a network for {schema.classes} classes, found one for {self.network.outputs}.")
        start = self.network.start(self.seed) if self.initial is None else self.initial.weights
        weights = start.astype(np.float64)
        for _ in range(self.rounds):
            limits = self.prior, self.most, self.reach
            query = LocalPosterior(self.network, weights, self.recipe, *limits, self.width, self.seed, self.column)
            answer = yield query
            found = self.posterior(query, answer)
            weights = np.clip(weights + self.step * (found.mean - weights), -_MAX_WEIGHT, _MAX_WEIGHT)
        return found

    def posterior(self, query: LocalPosterior, answer: Answer) -> WeightPosterior:
        """The product of the clients' Gaussians, without the prior that all but one of them counted too often."""
        clients = max(answer.clients or 0, 1)
        min_precision = max(self.prior, 1e-6)
        precision = np.maximum(answer["precision"] * self.most - (clients - 1) * self.prior, min_precision)
        natural_mean = answer["pull"] * self.most * self.reach + (clients - 1) * self.prior * query.weights
        factors = self._factors(answer, len(precision))
        mean = query.weights + solved(precision, factors, natural_mean)
        scatter = self._scatter(answer, clients) if self.scatter else np.zeros_like(mean)
        mean = np.clip(np.nan_to_num(mean), -_MAX_WEIGHT, _MAX_WEIGHT)
        gaussian = mean, precision, factors, scatter
        return WeightPosterior(self.network, *gaussian, 1.0, self.samples, self.seed, self.column)

    def _factors(self, answer: Answer, size: int) -> Floats:
        if not self.width:
            return np.zeros((size, 0))
        return from_sketch(answer["sketch"] * self.most, probes(size, self.width, self.seed))

    def _scatter(self, answer: Answer, clients: int) -> Floats:
        """Variance of a mean over clients whose means differ."""
        mean, square = answer["offset"] / clients, answer["square"] / clients
        return self.reach**2 * np.maximum(square - mean**2, 0) / clients
