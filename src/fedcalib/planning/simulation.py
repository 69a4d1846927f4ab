"""Simulated studies: counts sampled from a model of scores, with the noise of a privacy model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Final, final

import numpy as np

from fedcalib.cohort import Everyone
from fedcalib.errors import InputError, PlanError
from fedcalib.estimation.score_sheet import ScoreSheet
from fedcalib.method import Flow, Plan
from fedcalib.methods.evaluation import FederatedMetrics, Resolution
from fedcalib.metrics.binning import bin_edges
from fedcalib.numeric import log_odds, sigmoid
from fedcalib.privacy import Mechanism, Privacy
from fedcalib.privacy.local import RandomisedReports
from fedcalib.queries.scores import ScoreTree
from fedcalib.query import Answer, Query
from fedcalib.randomness import Randomness, Simulated
from fedcalib.records import Schema
from fedcalib.types import Array, Floats, Ints


@final
@dataclass(frozen=True)
class ScoreModel:
    """A model of a binary classifier's scores.

    Log-odds of negatives and positives are normal with the same variance and a distance that gives the AUC.

    Parameters
    ----------
    positive_rate
        Fraction of positives.
    auc
        Area under the ROC curve, above 0.5.
    confidence
        With 1 the scores are calibrated; above 1 the log-odds are that many times too large.

    Examples
    --------
    >>> import numpy as np
    >>> import fedcalib as fc
    >>> model = fc.planning.ScoreModel(positive_rate=0.2, auc=0.9)
    >>> scores, labels = model.draw(50_000, np.random.default_rng(0))
    >>> round(fc.metrics.roc_auc(scores, labels), 2)
    0.9
    """

    positive_rate: float = 0.3
    auc: float = 0.75
    confidence: float = 1.5

    def __post_init__(self) -> None:
        if not 0 < self.positive_rate < 1 or not 0.5 < self.auc < 1 or not 0 < self.confidence < 100:
            raise InputError(
                "Expected a positive rate inside (0, 1), an AUC inside (0.5, 1) and a confidence above 0, found "
                f"{self.positive_rate}, {self.auc} and {self.confidence}."
            )

    @cached_property
    def _distance(self) -> float:
        from statistics import NormalDist

        return float(np.sqrt(2.0)) * NormalDist().inv_cdf(self.auc)

    def chances(self, cells: int) -> Floats:
        """Probability of each label and cell, shape (2, cells), for cells of equal width."""
        return self.between(bin_edges(cells))

    def between(self, edges: Floats) -> Floats:
        """Probability of each label between scores from 0 to 1, shape (2, edges - 1)."""
        from scipy.special import ndtr

        odds = log_odds(edges[1:-1], 1e-15) / self.confidence
        base = np.log(self.positive_rate / (1 - self.positive_rate))
        z = (odds - base) / self._distance + self._distance / 2  # the standard normal variable of a negative
        below = np.stack([ndtr(z), ndtr(z - self._distance)])
        cumulative = np.concatenate([np.zeros((2, 1)), below, np.ones((2, 1))], axis=1)
        chances: Floats = np.diff(cumulative, axis=1) * np.array([[1 - self.positive_rate], [self.positive_rate]])
        return chances

    def draw(self, records: int, rng: np.random.Generator) -> tuple[Floats, Ints]:
        """Random scores and labels, shape (records,) each."""
        labels = (rng.random(records) < self.positive_rate).astype(np.int64)
        normal = rng.normal(self._distance * labels - self._distance / 2)
        odds = self.confidence * (self._distance * normal + np.log(self.positive_rate / (1 - self.positive_rate)))
        scores: Floats = sigmoid(odds)
        return scores, labels


_SEED: Final = 20231
_MOST_REPORTS: Final = 1 << 21  # of more records than these, noise is normal: sampling them one by one takes too long


@final
@dataclass(frozen=True)
class SimulatedEvaluation:
    """An evaluation that nobody has run yet: `FederatedMetrics` as a run would adapt it to the privacy model.

    Parameters
    ----------
    scores
        The expected scores.
    privacy
        The privacy model.
    records
        Number of records of all sites together; the evaluation is told this number.
    """

    scores: ScoreModel
    privacy: Privacy
    records: int

    @cached_property
    def resolution(self) -> Resolution:
        """The table that the evaluation would request."""
        method, budget = FederatedMetrics(records=self.records), self.privacy.budget
        return Resolution.of(method if budget is None else method.with_budget(budget), Schema(2, self.records))

    def sheets(self, runs: int, seed: int = _SEED) -> Iterator[ScoreSheet]:
        """The tables of many runs, each with records of its own and the noise of the privacy model."""
        rng, query = np.random.default_rng(seed), next(self.resolution.sheet())
        chances = self.scores.between(self.resolution.axis.edges(self.resolution.cells))
        noise = self._noise(query, chances)
        for run in range(runs):
            counts = rng.multinomial(self.records, chances.reshape(-1)).reshape(chances.shape)
            value, variance = noise.added(counts, rng, Simulated(seed).derive(str(run)))
            yield _returned(self.resolution.sheet(), Answer.of(query, value, variance, None))

    def _noise(self, query: Query, chances: Floats) -> _Noise:
        everyone = Everyone()
        mechanism = self.privacy.mechanism(query, Plan((query,)), everyone.cohort(self.records), everyone)
        if isinstance(mechanism, RandomisedReports) and self.records <= _MOST_REPORTS:
            return _Reports(query, mechanism)
        total = _expected_total(mechanism, query, self.records, chances)
        return _Normal(query, mechanism.decode(query, total, self.records, Simulated(0))[1])


class _Noise(ABC):
    """How counts of leaves become an answer."""

    @abstractmethod
    def added(self, counts: Ints, rng: np.random.Generator, randomness: Randomness) -> tuple[Floats, Floats]:
        """The numbers of the answer and their noise variances, (size,) each, from counts, (2, leaves)."""


@final
@dataclass(frozen=True, eq=False)
class _Normal(_Noise):
    """Normal noise of known variances, which is close to discrete noise once it is summed over cells."""

    query: Query
    variance: Floats  # (size,)

    def added(self, counts: Ints, rng: np.random.Generator, randomness: Randomness) -> tuple[Floats, Floats]:
        exact = np.concatenate([level.reshape(-1) for level in _levels(counts, self.query)])
        return exact + np.sqrt(self.variance) * rng.normal(size=len(exact)), self.variance


@final
@dataclass(frozen=True, eq=False)
class _Reports(_Noise):
    """Reports of single records, sampled from the law of their sum: noise on one cell depends on that on others."""

    query: Query
    mechanism: RandomisedReports

    def added(self, counts: Ints, rng: np.random.Generator, randomness: Randomness) -> tuple[Floats, Floats]:
        left, chance, parts = counts, 1.0, []
        for depth, (name, coder) in enumerate(self.mechanism.coders.items()):
            own = left  # where every record reports every level
            if self.mechanism.chances is not None:
                own = rng.binomial(left, min(self.mechanism.chances[name] / chance, 1.0))
                left, chance = left - own, chance - self.mechanism.chances[name]
            level = _levels(own, self.query)[depth].reshape(-1)
            reported = coder.encoder.total(np.append(level, 0), randomness.derive(name))
            parts.append(np.append(reported, level.sum()))
        return self.mechanism.decode(self.query, np.concatenate(parts), int(counts.sum()), randomness)


def _returned(flow: Flow[ScoreSheet], answer: Answer) -> ScoreSheet:
    """What a flow of one query returns."""
    next(flow)
    try:
        flow.send(answer)
    except StopIteration as end:
        found: ScoreSheet = end.value
        return found
    raise PlanError("Expected an evaluation of one query, found more.")


def _expected_total(mechanism: Mechanism, query: Query, records: int, chances: Floats) -> Array:
    """The total that a mechanism decodes on average; only the noise of local reports depends on it."""
    if not isinstance(mechanism, RandomisedReports):
        return np.zeros(mechanism.width(query), dtype=np.uint64)
    parts = []
    for (name, coder), level in zip(mechanism.coders.items(), _levels(chances, query), strict=True):
        reports = round(records * (1.0 if mechanism.chances is None else mechanism.chances[name]))
        own, other = coder.encoder.probabilities(coder.symbols.count)
        parts.append(np.append(reports * (level.reshape(-1) * (own - other) + other), reports))
    return np.concatenate(parts)


def _levels(leaves: Array, query: Query) -> list[Array]:
    """Sums of leaves, (2, leaves), at every level that a query counts, from coarse to fine."""
    if not isinstance(query, ScoreTree):
        return [leaves]
    steps = [leaves] + [query.arity] * (query.height - 1)
    levels = accumulate(steps, lambda cells, arity: cells.reshape(2, -1, arity).sum(axis=2))
    return list(levels)[::-1]
