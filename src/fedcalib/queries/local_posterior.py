"""What clients believe about weights, as natural parameters: these add up, so a sum is all that the server needs."""

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
from fedcalib.training.network import Network, inputs_of
from fedcalib.training.posterior import LocalGaussian, PosteriorRecipe
from fedcalib.training.product import probes
from fedcalib.types import Array, Floats


@final
@dataclass(frozen=True, eq=False)
class LocalPosterior(ClientQuery):
    """A client's Gaussian about shared weights: precisions, pulls, and where its mean lies.

    Precisions are cut to `most` and divided by it; offsets of the mean to `reach`, pulls to `most` * `reach`, likewise.
    So every cell is within 1: Linf <= 1, L2 <= sqrt(cells), L1 <= cells, attained by a client that is cut everywhere.
    With a `width` the low-rank part is told along so many public directions, divided by `most`.
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

    def __post_init__(self) -> None:
        if not self.prior >= 0 or not self.most > 0 or not self.reach > 0 or self.width < 0:
            raise InputError("Expected a prior of at least 0, and `most` and `reach` above 0, found others.")
        if not np.isfinite(self.weights).all():
            raise InputError("Expected finite weights, found NaN or infinity.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        """One cell a weight in each block, and one for each direction."""
        size = len(self.weights)
        shapes = dict.fromkeys(("precision", "pull", "offset", "square"), (size,))
        sketch = {"sketch": (size, self.width)} if self.width else {}
        return {name: _within_one(shape) for name, shape in {**shapes, **sketch}.items()}

    def term(self, records: Records, rng: np.random.Generator) -> Floats:
        """Find the client's Gaussian, and cut it."""
        found = self._found(records, rng)
        offset = np.clip(found.offset / self.reach, -1, 1)
        parts = [found.precision / self.most, found.pull / (self.most * self.reach), offset, offset**2]
        if self.width:
            directions = probes(len(self.weights), self.width, self.seed)
            parts.append((found.factors @ (found.factors.T @ directions)).reshape(-1) / self.most)
        cut: Floats = np.clip(np.nan_to_num(np.concatenate(parts), nan=0.0), -1, 1)
        return cut

    def _found(self, records: Records, rng: np.random.Generator) -> LocalGaussian:
        if not len(records):  # whoever has seen nothing believes the prior
            return LocalGaussian.around(-self.weights.astype(np.float64), np.full(len(self.weights), self.prior))
        inputs = inputs_of(records, self.column)
        return self.recipe.find(
            self.network, self.weights, inputs, records.labels, prior=self.prior, most=self.most, rng=rng
        )

    def total(self, federation: Federation, randomness: Randomness, scale: Floats | None = None) -> Array:
        """Add up one client after the other."""
        return one_by_one.total(self, federation, randomness, scale)

    def by_client(self, federation: Federation, randomness: Randomness) -> Iterator[ClientTerms]:
        """Give one client after the other."""
        return one_by_one.by_client(self, federation, randomness)


def _within_one(shape: tuple[int, ...]) -> Block:
    cells = float(np.prod(shape))
    return Block(shape, Bound(cells, sqrt(cells), 1.0, "client"))
