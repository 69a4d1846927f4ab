"""Each client's own verdict on temperatures, bounded whatever the client holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.queries.temperature import exponentials, shifted
from fedcalib.query import Block, Bound, ClientQuery
from fedcalib.randomness import Randomness
from fedcalib.records import Records
from fedcalib.types import Floats, Ints


@final
@dataclass(frozen=True)
class TemperatureScores(ClientQuery):
    """For each inverse temperature b: whether a client's labels call for a softer model (1) or a sharper one (-1).

    A record's score is the derivative of its log loss in ln b, cut to [-cut, cut] and centred, so that it averages to
    nothing were the model right at b. A client adds its records' sum S / sqrt(I + quiet), where I is the variance that
    the model at b gives S, cut to [-1, 1]: a verdict in standard deviations, faint from a client with little to say.
    So every cell lies in [-1, 1], and a client's norms are Linf = 1, L1 = G, L2 = sqrt(G) over G temperatures whatever
    and however much it holds, attained by a client that is badly wrong at every b. Nobody has to guess a client's size.
    """

    inverses: tuple[float, ...]
    cut: float = 2.0
    quiet: float = 2.0
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.inverses or not all(0 < b < 1e6 for b in self.inverses):
            raise InputError("Expected inverse temperatures above 0, found others.")
        if not 0 < self.cut < 1e6 or not 0 < self.quiet < 1e9 or not 0 < self.weight < 1e9:
            raise InputError("Expected cut, quiet and weight above 0, found others.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        """One cell an inverse temperature."""
        grid = len(self.inverses)
        bound = Bound(float(grid), sqrt(grid), 1.0, "client")
        return {"score": Block((grid,), bound, weight=self.weight)}

    def term(self, records: Records, rng: np.random.Generator) -> Floats:
        """Give one client's verdicts."""
        verdicts: Floats = self._verdicts(records, np.zeros(len(records), dtype=np.int64), 1)[0]
        return verdicts

    def terms(self, federation: Federation, randomness: Randomness) -> Floats:
        """Give all clients' verdicts in one pass over the records."""
        return self._verdicts(federation.records, federation.owner, len(federation))

    def _verdicts(self, records: Records, owner: Ints, clients: int) -> Floats:
        sums, spreads = np.zeros((2, len(self.inverses), clients))
        for part, below, _ in shifted(records):
            first, last = int(owner[part].min()), int(owner[part].max()) + 1  # a few clients of perhaps a million
            whose = owner[part] - first
            for row, weights in exponentials(below, self.inverses):
                score, variance = self._scores(self.inverses[row] * below, weights, records.labels[part])
                sums[row, first:last] += np.bincount(whose, score, last - first)
                spreads[row, first:last] += np.bincount(whose, variance, last - first)
        verdicts: Floats = np.clip(sums / np.sqrt(spreads + self.quiet), -1.0, 1.0).T
        return verdicts

    def _scores(self, steep: Floats, weights: Floats, labels: Ints) -> tuple[Floats, Floats]:
        """Work out a few records' cut and centred scores at one temperature, and the variances the model gives them."""
        probs = weights / weights.sum(axis=0)  # (classes, n)
        slopes = np.clip(np.einsum("ij,ij->j", probs, steep) - steep, -self.cut, self.cut)
        slopes -= np.einsum("ij,ij->j", probs, slopes)
        variance = np.einsum("ij,ij,ij->j", probs, slopes, slopes)
        return slopes[labels, np.arange(len(labels))], variance
