"""FL-SWAG: clients send Gaussians over weights as natural parameters; their product is the global posterior."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np

from fedcalib.artifacts.gaussians import WeightPosterior
from fedcalib.artifacts.networks import Trained
from fedcalib.errors import InputError
from fedcalib.method import Flow, Method
from fedcalib.queries.training import LocalPosterior
from fedcalib.query import Answer
from fedcalib.records import Schema
from fedcalib.training.network import SGD, LocalTraining, Network
from fedcalib.training.posterior import Curvature, PosteriorRecipe, Trajectory, from_sketch, probes, solved
from fedcalib.types import Floats

_MAX_WEIGHT = 1e9
_MIN_PRECISION = 1e-6


@final
@dataclass(frozen=True, eq=False)
class _Visit:
    """The posterior seen from some weights, the loss there, and the step to take."""

    weights: Floats
    found: WeightPosterior
    direction: Floats  # from the weights to the posterior's mean
    loss: float  # 0 where it is not known
    step: float  # the wanted fraction of the direction, or Polyak's if that is less
    prior: float

    def moved(self, factor: float) -> Floats:
        """The weights after a part of the step; one that no record determines goes to its prior mean at once."""
        step = np.where(self.found.precision <= self.prior * (1 + 1e-9), 1.0, factor * self.step)
        return np.clip(self.weights + step * self.direction, -_MAX_WEIGHT, _MAX_WEIGHT)


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
        Precision of the prior, whose mean is zero. With 0, as published for SWAG, a weight that no client's records
        determine keeps its start, and `most` is its precision. `Curvature` needs a prior: without one, weights that
        records hardly determine have no useful variance.
    rounds
        Number of rounds; each starts from the mean of the one before.
    step
        Fraction of the step toward the new mean that a round takes. Where means are Newton steps (`Curvature()`), a
        step is never longer than Polyak's: the gradient may promise to remove all of the loss and no more; and a step
        that raised the loss is taken back. Diagonal curvature overstates steps where inputs are correlated; a result
        whose last step had to be cut to less than a quarter carries a warning.
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

    @classmethod
    def as_published(
        cls, network: Network, *, rank: int = 0, clients: int = 10, initial: Trained | None = None, seed: int = 0
    ) -> FLSWAG:
        """FL-SWAG as in its slides: one round, SWAG on each client, the product of their Gaussians, no prior.

        Each client trains for 5 epochs and then collects 15, by stochastic gradient descent at rate 0.01 in batches of
        64. A variance below 1e-6 counts as that. Unlike the slides' code, a weight that a client's records never move
        does not count as certain there.

        Parameters
        ----------
        network
            The network.
        rank
            How many deviations add off-diagonal covariance; 0 for a diagonal covariance.
        clients
            Number of clients, for as many public directions as their low-rank parts need.
        initial
            Trained weights to start from.
        seed
            Seed of the initial weights, the directions and the samples.
        """
        local = LocalTraining(5, 64, SGD(0.01))
        recipe = Trajectory(local, 15, rank, floor=1e-12, shrink=0.0, weighted=False)
        return cls(network, recipe, prior=0.0, width=rank * clients, samples=30, seed=seed, initial=initial)

    def protocol(self, schema: Schema) -> Flow[WeightPosterior]:
        if self.network.outputs != schema.classes:
            raise InputError(f"Expected a network for {schema.classes} classes, found one for {self.network.outputs}.")
        start = self.network.start(self.seed) if self.initial is None else self.initial.weights
        best, factor = (yield from self._visit(start.astype(np.float64))), 1.0
        weights = best.moved(factor)
        for _ in range(self.rounds - 1):
            here = yield from self._visit(weights)
            if here.loss <= best.loss + 1e-9 * abs(best.loss):
                best, factor = here, min(1.5 * factor, 1.0)
            else:
                factor /= 4  # the last step went too far: take a shorter one from where it began
            weights = best.moved(factor)
        return replace(best.found, mean=weights, warnings=self._warnings(factor * best.step))

    def _visit(self, weights: Floats) -> Flow[_Visit]:
        """Ask the clients about some weights."""
        limits = self.prior, self.most, self.reach
        query = LocalPosterior(self.network, weights, self.recipe, *limits, self.width, self.seed, self.column)
        answer = yield query
        found = self.posterior(query, answer)
        direction = found.mean - weights
        if not self.recipe.newton:
            return _Visit(weights, found, direction, 0.0, self.step, self.prior)
        loss = float(answer["loss"][0]) * self.most + self.prior / 2 * float(weights @ weights)
        promised = float(self._information(query, answer) @ direction)
        step = min(self.step, loss / promised) if min(loss, promised) > 0 else self.step
        return _Visit(weights, found, direction, loss, step, self.prior)

    def _warnings(self, step: float) -> tuple[str, ...]:
        if step >= self.step / 4:
            return ()
        return (
            f"Not converged: the last step was shortened to {step:.2g} of a Newton step, because diagonal curvature "
            "overstates how far the weights can move. Use more rounds, or Curvature(LocalTraining(...)).",
        )

    def posterior(self, query: LocalPosterior, answer: Answer) -> WeightPosterior:
        """The product of the prior and of what each client's records add to it."""
        precision = np.maximum(answer["precision"] * self.most, 0.0) + query.priors
        precision = np.where(precision > _MIN_PRECISION, precision, self.most)  # neither data nor a prior determine it
        factors = self._factors(answer, len(precision))
        mean = query.weights + solved(precision, factors, self._information(query, answer))
        scatter = self._scatter(answer, max(answer.clients or 0, 1)) if self.scatter else np.zeros_like(mean)
        mean = np.clip(np.nan_to_num(mean), -_MAX_WEIGHT, _MAX_WEIGHT)
        gaussian = mean, precision, factors, scatter
        return WeightPosterior(self.network, *gaussian, 1.0, self.samples, self.seed, self.column)

    def _information(self, query: LocalPosterior, answer: Answer) -> Floats:
        """The sum of the clients' information and of the prior's."""
        information: Floats = answer["pull"] * self.most * self.reach - query.priors * query.weights
        return information

    def _factors(self, answer: Answer, size: int) -> Floats:
        if not self.width:
            return np.zeros((size, 0))
        return from_sketch(answer["sketch"] * self.most, probes(size, self.width, self.seed))

    def _scatter(self, answer: Answer, clients: int) -> Floats:
        """Variance of a mean over clients whose means differ."""
        mean, square = answer["offset"] / clients, answer["square"] / clients
        return self.reach**2 * np.maximum(square - mean**2, 0) / clients
