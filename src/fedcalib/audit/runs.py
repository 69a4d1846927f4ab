"""Audits of a whole method: everything that a run releases, from the first question to the last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar, final

import numpy as np

from fedcalib.audit.evidence import Gaussian, Threshold, lower_epsilon
from fedcalib.audit.mechanisms import Contrast
from fedcalib.audit.result import Audit
from fedcalib.cohort import Everyone
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.loop import Agreement, Result, Runtime, Step, Total, conduct
from fedcalib.method import Method
from fedcalib.privacy.model import Privacy
from fedcalib.query import Query
from fedcalib.randomness import Randomness, Secure
from fedcalib.records import Schema
from fedcalib.runtimes.in_process import InProcess
from fedcalib.types import Floats

T = TypeVar("T")
Statistic: TypeAlias = Callable[[Result[Any]], float]


def audit_run(
    method: Method[T],
    present: Federation,
    absent: Federation,
    privacy: Privacy,
    *,
    runs: int = 1000,
    confidence: float = 0.999,
    statistic: Statistic | None = None,
    randomness: Randomness | None = None,
) -> Audit:
    """Bound from below the epsilon of whole runs over two federations that differ in one unit.

    A run is scored by all its answers at once, which is at least what its artifact tells; `statistic` scores a result
    in another way, for instance by the artifact alone.
    """
    if runs < 4:
        raise InputError(f"Expected at least 4 runs, found {runs}.")
    game = _Game(method, privacy, present, absent, statistic)
    stream = randomness or Secure()
    with_unit = np.array([game.score(present, stream.derive("present", i)) for i in range(runs)])
    without = np.array([game.score(absent, stream.derive("absent", i)) for i in range(runs)])
    delta = game.delta
    evidence = Gaussian(delta) if delta else Threshold()
    lower = lower_epsilon(with_unit, without, evidence, confidence)
    subject = f"{type(method).__name__} under {type(privacy).__name__}"
    return Audit(subject, lower, game.epsilon, delta, confidence, runs, evidence.name)


@final
@dataclass
class _Game:
    """Runs of a method whose answers are scored by how likely the unit is to be there."""

    method: Method[Any]
    privacy: Privacy
    present: Federation
    absent: Federation
    statistic: Statistic | None
    agreed: Agreement[Any] | None = None
    epsilon: float = 0.0
    delta: float = 0.0
    contrasts: dict[Query, Contrast] = field(default_factory=dict)

    def score(self, federation: Federation, randomness: Randomness) -> float:
        """Run once."""
        watched = _Watched(InProcess(federation))
        if self.agreed is None or self.agreed.schema != watched.schema:
            self.agreed = Agreement.of(self.method, self.privacy, Everyone(), watched.schema)
        result = conduct(self.agreed, watched, randomness=randomness)
        if result.privacy.epsilon is None:
            raise InputError(f"Expected a model that claims an epsilon, found {type(self.privacy).__name__}.")
        self.epsilon, self.delta = result.privacy.epsilon, result.privacy.delta or 0.0
        return self._told(result, watched.queries) if self.statistic is None else self.statistic(result)

    def _told(self, result: Result[Any], queries: list[Query]) -> float:
        """Add up what every answer tells; each question was answered with noise of its own."""
        told = 0.0
        for index, query in enumerate(queries):
            answer = result.transcript.recall(index, query)
            if answer is not None:
                values, variances = (_flat(parts) for parts in (answer.values, answer.variances))
                told += float(self._contrast(query).score(values, variances))
        return told

    def _contrast(self, query: Query) -> Contrast:
        if query not in self.contrasts:
            self.contrasts[query] = Contrast.of(query, self.present, self.absent, pure=self.delta == 0)
        return self.contrasts[query]


def _flat(parts: Any) -> Floats:
    return np.concatenate([np.asarray(part, dtype=np.float64).reshape(-1) for part in parts.values()])


@final
@dataclass
class _Watched(Runtime):
    """A runtime that remembers what it was asked."""

    inner: Runtime
    queries: list[Query] = field(default_factory=list)

    @property
    def schema(self) -> Schema:
        """Say what is public about the clients' data."""
        return self.inner.schema

    def total(self, step: Step) -> Total:
        """Remember the question and pass it on."""
        self.queries.append(step.query)
        return self.inner.total(step)
