"""What each client's labels say about the log-odds of a binary score, as one bounded vector per client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Final, final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.metrics.binning import EvenLogOdds
from fedcalib.numeric import sigmoid
from fedcalib.query import Block, Bound, ClientQuery
from fedcalib.randomness import Randomness
from fedcalib.records import Records
from fedcalib.types import Floats, Ints

AXIS: Final = EvenLogOdds(6.0)
_CHUNK: Final = 1 << 16  # records


@final
@dataclass(frozen=True)
class ScoreResiduals(ClientQuery):
    """By cell of the log-odds: a client's labels less its scores, in standard deviations, and how steeply they answer.

    Let a client's residuals sum to r in each cell and p (1 - p) to w, with total W over the cells. Its `score` is
    r / (reach sqrt(W + quiet)) and its `slope`, the change of the score per unit of log-odds, w over the same divisor.
    A client whose slope is longer than `largest` is scaled down as a whole; then a score longer than 1 is clipped. So
    the L2 norms are 1 and `largest` whatever a client holds, attained by a client that is badly wrong and by a large
    one; L1 is at most the square root of the cells times that.

    Parameters
    ----------
    cells
        Number of cells.
    before
        The calibrator that clients apply first.
    axis
        Where the cells lie.
    reach
        Standard deviations of a client's score at which it is clipped.
    quiet
        Variance that is added, so that a client with little evidence has a score near zero.
    largest
        L2 norm of a client's slope at which the client is scaled down.
    weight
        The query's part of a method's budget.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.queries.score_residuals import ScoreResiduals
    >>> query = ScoreResiduals(2, fc.artifacts.Identity())
    >>> total = query.total(fc.Federation.of([fc.Records.of_scores([0.8] * 20, [0] * 20)]), fc.Simulated(0))
    >>> query.split(total)["score"].round(2).tolist()
    [0.0, -1.0]
    """

    cells: int
    before: Calibrator
    axis: EvenLogOdds = AXIS
    reach: float = 1.5
    quiet: float = 2.0
    largest: float = 2.0
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 2 <= self.cells <= 1 << 10:
            raise InputError(f"Expected 2 to 1024 cells, found {self.cells}.")
        if not all(0 < number < 1e9 for number in (self.reach, self.quiet, self.largest, self.weight)):
            raise InputError(f"Expected reach, quiet, largest and weight above 0, found {self}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        root, most = sqrt(self.cells), self.largest
        return {
            "score": Block((self.cells,), Bound(root, 1.0, 1.0, "client"), weight=0.6 * self.weight),
            "slope": Block((self.cells,), Bound(root * most, most, most, "client"), weight=0.4 * self.weight),
        }

    def term(self, records: Records, rng: np.random.Generator) -> Floats:
        vector: Floats = self._vectors(records, np.zeros(len(records), dtype=np.int64), 1)[0]
        return vector

    def terms(self, federation: Federation, randomness: Randomness) -> Floats:
        return self._vectors(federation.records, federation.owner, len(federation))

    def _vectors(self, records: Records, owner: Ints, clients: int) -> Floats:
        residual, spread = np.zeros((2, clients * self.cells))
        for chunk, owners, score in _scored(self.before, records, owner):
            cell = owners * self.cells + self.axis.cells(score, self.cells)
            residual += np.bincount(cell, chunk.labels - score, clients * self.cells)
            spread += np.bincount(cell, score * (1 - score), clients * self.cells)
        return self._bounded(residual.reshape(clients, -1), spread.reshape(clients, -1))

    def _bounded(self, residual: Floats, spread: Floats) -> Floats:
        divisor = self.reach * np.sqrt(spread.sum(axis=1, keepdims=True) + self.quiet)
        score, slope = np.nan_to_num(residual / divisor), np.nan_to_num(spread / divisor)
        shrunk = 1 / np.maximum(np.linalg.norm(slope, axis=1, keepdims=True) / self.largest, 1.0)
        score = score * shrunk
        score /= np.maximum(np.linalg.norm(score, axis=1, keepdims=True), 1.0)
        return np.concatenate([score, slope * shrunk], axis=1) * (1 - 1e-12)


@final
@dataclass(frozen=True)
class EndLabels(ClientQuery):
    """How often each client's labels agree with scores near 0 and near 1, as one bounded vector per client.

    Residuals say little about such scores, since p (1 - p) is next to nothing there. Of the records whose log-odds are
    below -`limit` (the first side) or above it (the second), a client counts negatives and positives, and sums up how
    many of the rarer label the scores claim. On either side it divides by the L2 norm of its two counts plus `quiet`.
    So the `labels` of a side have L2 norm 1 at most, whatever a client holds, attained as its records grow; both sides
    together have sqrt(2). Two counts sum to at most sqrt(2) times their norm, and each record claims at most
    1 / (1 + exp(limit)), so the `claims` of a side are at most sqrt(2) times that.

    Parameters
    ----------
    before
        The calibrator that clients apply first.
    limit
        Log-odds from which on a score is near 0 or 1.
    quiet
        Records that are added to a norm, so that a client with few records adds little.
    weight
        The query's part of a method's budget.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.queries.score_residuals import EndLabels
    >>> query = EndLabels(fc.artifacts.Identity())
    >>> total = query.total(fc.Federation.of([fc.Records.of_scores([0.99, 0.99, 0.5], [0, 0, 1])]), fc.Simulated(0))
    >>> query.split(total)["labels"].round(2).tolist()
    [[0.0, 0.67], [0.0, 0.0]]
    """

    before: Calibrator
    limit: float = 2.0
    quiet: float = 1.0
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.limit <= 30 or not all(0 < number < 1e9 for number in (self.quiet, self.weight)):
            raise InputError(f"Expected quiet and weight above 0 and a limit from 0 to 30, found {self}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        root, claimed = sqrt(2.0), sqrt(2.0) * self.largest_claim
        return {
            "labels": Block((2, 2), Bound(2 * root, root, 1.0, "client"), weight=0.9 * self.weight),
            "claims": Block((2,), Bound(2 * claimed, root * claimed, claimed, "client"), weight=0.1 * self.weight),
        }

    @property
    def largest_claim(self) -> float:
        """The probability of the rarer label at the limit."""
        return float(sigmoid(-self.limit))

    def term(self, records: Records, rng: np.random.Generator) -> Floats:
        vector: Floats = self._vectors(records, np.zeros(len(records), dtype=np.int64), 1)[0]
        return vector

    def terms(self, federation: Federation, randomness: Randomness) -> Floats:
        return self._vectors(federation.records, federation.owner, len(federation))

    def _vectors(self, records: Records, owner: Ints, clients: int) -> Floats:
        counts, claims = np.zeros((2, 2, clients)), np.zeros((2, clients))  # label, side, client
        for chunk, owners, score in _scored(self.before, records, owner):
            for side, rarer in enumerate((score, 1 - score)):
                near = rarer < self.largest_claim
                whose = owners[near]
                claims[side] += np.bincount(whose, rarer[near], clients)
                for label in (0, 1):
                    counts[label, side] += np.bincount(whose[chunk.labels[near] == label], minlength=clients)
        divisor = np.linalg.norm(counts, axis=0) + self.quiet
        vectors = np.concatenate([(counts / divisor).reshape(4, clients), claims / divisor])
        return vectors.T * (1 - 1e-12)


def _scored(before: Calibrator, records: Records, owner: Ints) -> Iterator[tuple[Records, Ints, Floats]]:
    """Records in chunks, with the clients that hold them and their calibrated scores."""
    for start in range(0, len(records), _CHUNK):
        part = slice(start, start + _CHUNK)
        chunk = records.take(part)
        yield chunk, owner[part], np.asarray(before.over(chunk).score, dtype=np.float64)
