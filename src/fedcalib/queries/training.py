"""Queries about local training: changes of weights, and Gaussians over weights as natural parameters, which add up.

Their vectors are long, so sums run over one client after the other and hold one vector at a time.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Any, Final, final

import numpy as np

from fedcalib.display import brief
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.numeric import ExactSum, finite
from fedcalib.query import Block, Bound, ClientQuery, ClientTerms
from fedcalib.randomness import Randomness
from fedcalib.records import Records, softmax
from fedcalib.training.network import LocalTraining, Network, inputs_of
from fedcalib.training.posterior import PosteriorRecipe, probes
from fedcalib.types import Array, Floats

MAX_CHANGE: Final = 1e6  # of weights by one client in a round, where no clip is set


class LongQuery(ClientQuery, ABC):
    """A query whose vectors are long: sums run over one client after the other."""

    def total(self, federation: Federation, randomness: Randomness, scale: Floats | None = None) -> Array:
        terms = self._each(federation, randomness)
        if scale is None:
            return sum(terms, np.zeros(self.size))
        grid, summed = self.grid(scale), ExactSum(self.size)
        for term in terms:
            grid.add_dense(term[None], summed)
        return summed.value()

    def by_client(self, federation: Federation, randomness: Randomness) -> Iterator[ClientTerms]:
        for term in self._each(federation, randomness):
            yield ClientTerms(1, np.zeros(self.size, dtype=np.int64), np.arange(self.size), term)

    def _each(self, federation: Federation, randomness: Randomness) -> Iterator[Floats]:
        for client, records in enumerate(federation.clients()):
            yield finite(self.term(records, randomness.derive("term", client).generator()))


@final
@dataclass(frozen=True, eq=False)
class LocalUpdate(LongQuery):
    """The change that training on a client's own records makes to weights, clipped to the L2 norm `clip`.

    It is divided by `clip`, so a client adds a vector of L2 norm at most 1, attained by any client that is clipped;
    then L1 <= sqrt(size) and Linf <= 1. With `largest` a client counts by its records, up to so many: it adds w =
    min(n, largest) / largest, and w times the change, and both stay within 1. A client without records adds zero. An
    infinite `clip` is for runs without privacy: changes are in units of 1, and limited to `MAX_CHANGE` only so that
    sums stay finite.
    """

    network: Network
    weights: Floats  # (size,)
    training: LocalTraining
    clip: float
    largest: int | None = None
    column: str | None = "inputs"

    def __repr__(self) -> str:
        return brief(self)

    def __post_init__(self) -> None:
        if not self.clip > 0 or not np.isfinite(self.weights).all():
            raise InputError(f"Expected finite weights and a clip above 0, found a clip of {self.clip}.")
        if self.largest is not None and self.largest < 1:
            raise InputError(f"Expected a client to count for at least one record, found {self.largest}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        size, most = len(self.weights), 1.0 if self.clip < inf else MAX_CHANGE
        change = Block((size,), Bound(sqrt(size) * most, most, most, "client"), clip=most)
        if self.largest is None:
            return {"change": change}
        return {"change": change, "weight": Block((1,), Bound(1.0, 1.0, 1.0, "client"), weight=0.1, clip=1.0)}

    @property
    def unit_of_change(self) -> float:
        """What a change of 1 in the answer stands for."""
        return self.clip if self.clip < inf else 1.0

    def term(self, records: Records, rng: np.random.Generator) -> Floats:
        if not len(records):
            return np.zeros(self.size)
        inputs = inputs_of(records, self.column)
        trained = self.training.train(self.network, self.weights, inputs, records.labels, rng).weights
        change = np.nan_to_num(trained.astype(np.float64) - self.weights, nan=0.0, posinf=0.0, neginf=0.0)
        limit = self.clip if self.clip < inf else MAX_CHANGE
        change *= (1 - 1e-12) * (limit / self.unit_of_change) / max(float(np.linalg.norm(change)), limit)
        if self.largest is None:
            return change
        weight = min(len(records), self.largest) / self.largest
        return np.concatenate([weight * change, [weight]])


@final
@dataclass(frozen=True, eq=False)
class LocalPosterior(LongQuery):
    """A client's Gaussian about shared weights: precisions, precisions times means, and where its mean lies.

    Precisions and precisions times means are what the records add to the prior, so a client without records adds
    zero, and replacing a client by an empty one moves the sum by one client's term. Precisions are clipped to `most`
    and divided by it; offsets of the mean to `reach`, precisions times means (`pull`) to `most` * `reach`, likewise.
    So every cell is within 1: Linf <= 1, L2 <= sqrt(cells), L1 <= cells, attained by a client that is clipped
    everywhere. With a `width` the low-rank part is sent along so many public directions, divided by `most`. Where
    means are Newton steps, the summed log loss at the shared weights, clipped to `most` and divided by it, is sent
    too: one number within 1, by which the server limits its step.
    """

    network: Network
    weights: Floats  # (size,)
    recipe: PosteriorRecipe
    prior: float
    most: float
    reach: float
    width: int = 0
    seed: int = 0
    column: str | None = "inputs"

    def __repr__(self) -> str:
        return brief(self)

    def __post_init__(self) -> None:
        if not self.prior >= 0 or not self.most > 0 or not self.reach > 0 or self.width < 0:
            raise InputError(f"Expected prior and width of at least 0 and most and reach above 0, found {self!r:.200}.")
        if not np.isfinite(self.weights).all():
            raise InputError("Expected finite weights, found NaN or infinity.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        size = len(self.weights)
        shapes = dict.fromkeys(("precision", "pull", "offset", "square"), (size,))
        sketch = {"sketch": (size, self.width)} if self.width else {}
        blocks = {name: _within_one(shape) for name, shape in {**shapes, **sketch}.items()}
        return {**blocks, "loss": replace(_within_one((1,)), weight=0.1)} if self.recipe.newton else blocks

    def term(self, records: Records, rng: np.random.Generator) -> Floats:
        if not len(records):
            return np.zeros(self.size)
        inputs = inputs_of(records, self.column)
        limits: dict[str, Any] = {"prior": self.prior, "most": self.most, "rng": rng}
        found = self.recipe.find(self.network, self.weights, inputs, records.labels, **limits)
        found = found.with_averages(self.network.trainable, self.most)
        offset, prior = np.clip(found.offset / self.reach, -1, 1), self.priors
        added = [(found.precision - prior) / self.most, (found.information + prior * self.weights) / self.most]
        parts = [added[0], added[1] / self.reach, offset, offset**2]
        if self.width:
            directions = probes(len(self.weights), self.width, self.seed)
            parts.append((found.factors @ (found.factors.T @ directions)).reshape(-1) / self.most)
        if self.recipe.newton:
            parts.append(np.array([self._loss(records) / self.most]))
        cut: Floats = np.clip(np.nan_to_num(np.concatenate(parts), nan=0.0), -1, 1)
        return cut

    def _loss(self, records: Records) -> float:
        """The summed log loss at the shared weights."""
        logits = self.network.session(self.weights).logits(inputs_of(records, self.column)).astype(np.float64)
        return float(-np.log(np.maximum(softmax(logits)[np.arange(len(logits)), records.labels], 1e-300)).sum())

    @property
    def priors(self) -> Floats:
        """The prior's precision of each weight; running averages, which come after the weights, have none."""
        return np.where(np.arange(len(self.weights)) < self.network.trainable, self.prior, 0.0)


def _within_one(shape: tuple[int, ...]) -> Block:
    cells = float(np.prod(shape))
    return Block(shape, Bound(cells, sqrt(cells), 1.0, "client"))
