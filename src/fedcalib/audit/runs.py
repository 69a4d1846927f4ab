"""Audits of a privacy model on worst cases, and of whole runs of a method.

`audit_model` audits single releases with the privacy unit that has the largest effect, for a count, a histogram and a
real number. `audit_run` audits everything that a run releases, from the first query to the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias, TypeVar, cast, final

import numpy as np

from fedcalib import accounting
from fedcalib.accounting import rho_for
from fedcalib.accounting.events import Concentrated
from fedcalib.accounting.spending import Spending
from fedcalib.audit.evidence import Audit, Evidence, Gaussian, SampledShift, Threshold, lower_epsilon
from fedcalib.audit.mechanisms import Contrast, audit_mechanism
from fedcalib.cohort import MIN_CLIENTS, Everyone, Participation
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.loop import Agreement, Result, Runtime, Step, Total, conduct
from fedcalib.method import Method, Plan
from fedcalib.privacy import Privacy
from fedcalib.queries.class_tables import LabelHistogram
from fedcalib.queries.temperature import TemperatureCurve
from fedcalib.query import Query
from fedcalib.randomness import Randomness, Secure
from fedcalib.records import Records, Schema
from fedcalib.runtimes import InProcess
from fedcalib.types import Bools, Floats


@final
@dataclass(frozen=True, eq=False)
class Case:
    """A query with the privacy unit that changes its answer most.

    Parameters
    ----------
    name
        Name for reports.
    query
        The query.
    unit
        Records of the unit.
    opposite
        Records whose answer differs most from the unit's, for privacy that replaces a unit instead of removing it.

    Examples
    --------
    >>> import fedcalib as fc
    >>> [case.name for case in fc.audit.worst_cases()]
    ['count', 'histogram', 'real']
    """

    name: str
    query: Query
    unit: Records
    opposite: Records


def worst_cases() -> Iterator[Case]:
    """Yield a count, a wide histogram and a real number, each with a unit whose contribution reaches its bound.

    Yields
    ------
    Case
        A query with its worst unit.

    Examples
    --------
    >>> import fedcalib as fc
    >>> next(fc.audit.worst_cases()).query.size
    2
    """
    certain_of_one, certain_of_zero = [[0.0, 50.0]], [[0.0, -50.0]]
    positive, negative = Records.of_logits(certain_of_one, [1]), Records.of_logits(certain_of_zero, [0])
    yield Case("count", LabelHistogram(2, 1, clip=1.0), positive, negative)
    yield Case("histogram", LabelHistogram(2, 6, clip=1.0), positive, negative)
    high, low = Records.of_logits(certain_of_one, [0]), Records.of_logits([[0.0, 1.25]], [1])
    yield Case(
        "real", TemperatureCurve((1.0,), 0.25, clip=1.0), high, low
    )  # gradients of 50 and -0.28, clipped to 1 and -1


def audit_model(
    privacy: Privacy,
    *,
    cases: Iterable[Case] | None = None,
    draws: int = 100_000,
    confidence: float = 1 - 1e-6,
    clients: int = MIN_CLIENTS,
    participation: Participation | None = None,
    randomness: Randomness | None = None,
    faithful: bool = False,
    twin: bool = False,
) -> list[Audit]:
    """Audit a privacy model on worst cases: a count, a histogram and a real number, or cases of your own.

    Parameters
    ----------
    privacy
        The privacy model.
    cases
        What to audit; by default `worst_cases()`.
    draws
        Number of releases on each side.
    confidence
        Confidence of each bound.
    clients
        Number of clients; all but one have no records.
    participation
        Who takes part in a step; by default all clients.
    randomness
        Source of randomness; by default the operating system's.
    faithful
        Draw each client's share of the noise separately, where otherwise their sum is drawn at once.
    twin
        Add half the noise without changing the claim: a broken model, which the audit should detect.

    Returns
    -------
    list of Audit
        One audit per case.

    Raises
    ------
    InputError
        If the privacy model claims no epsilon.

    Examples
    --------
    >>> import fedcalib as fc
    >>> audits = fc.audit.audit_model(fc.LocalDP(1.0), draws=2000, confidence=0.99, randomness=fc.Simulated(0))
    >>> [audit.passes for audit in audits]
    [True, True, True]
    """
    participants = participation or Everyone()
    cohort = participants.cohort(clients)
    audits = []
    for case in worst_cases() if cases is None else cases:
        plan = Plan((case.query,))
        spending = privacy.spending(plan, cohort, participants)
        if spending.epsilon is None:
            raise InputError(
                f"Expected a privacy model that claims an epsilon, found {spending.model}, which claims none."
            )
        noisy = with_half_the_noise(privacy, spending) if twin else privacy
        mechanism = noisy.mechanism(case.query, plan, cohort, participants)
        local = spending.adjacency == "replace-one"
        present, absent = _sides(case, 1 if mechanism.modulus is None else clients, local)
        audits.append(
            audit_mechanism(
                mechanism,
                case.query,
                present,
                absent,
                cohort=cohort,
                claimed=spending.epsilon,
                delta=spending.delta or 0.0,
                draws=draws,
                confidence=confidence,
                randomness=randomness,
                faithful=faithful,
                subject=f"{spending.model}, {case.name}{', half the noise' if twin else ''}",
            )
        )
    return audits


def with_half_the_noise(privacy: Privacy, spending: Spending) -> Privacy:
    """The privacy model with half the noise deviation: at twice the epsilon, or at four times the rho."""
    epsilon, delta = spending.epsilon or 0.0, spending.delta or 0.0
    larger = 2 * epsilon if delta == 0 else accounting.epsilon([Concentrated(4 * rho_for(epsilon, delta))], delta)
    twin: Any = replace(cast(Any, privacy), epsilon=larger)
    return cast(Privacy, twin)


def _sides(case: Case, clients: int, replaced: bool) -> tuple[Federation, Federation]:
    """The unit beside clients without records, and the same without it or with its opposite in its place."""
    nothing = Records.empty(case.unit.classes)
    others = [nothing] * (clients - 1)
    return Federation.of([case.unit, *others]), Federation.of([case.opposite if replaced else nothing, *others])


T = TypeVar("T")
_MAX_CONTRASTS = 1000  # kept in memory; the first query is the same in every run, later ones hardly ever are

Statistic: TypeAlias = Callable[[Result[Any]], float]


def audit_run(
    method: Method[T],
    present: Federation,
    absent: Federation,
    privacy: Privacy,
    *,
    participation: Participation | None = None,
    runs: int = 1000,
    confidence: float = 0.999,
    statistic: Statistic | None = None,
    randomness: Randomness | None = None,
) -> Audit:
    """Lower bound on the epsilon of whole runs of a method.

    A run is scored by all its answers together, which contain at least as much information as its artifact. The
    adversary knows who took part in which step, but not, under Poisson participation, whether the client that differs
    did.

    Parameters
    ----------
    method
        The method to run.
    present, absent
        Two federations that differ in one privacy unit.
    privacy
        The privacy model.
    participation
        Who takes part in a step; by default all clients.
    runs
        Number of runs on each side, at least 4.
    confidence
        Confidence of the bound.
    statistic
        Another score of a result, for instance of its artifact alone.
    randomness
        Source of randomness; by default the operating system's.

    Returns
    -------
    Audit
        The bound beside the claim.

    Raises
    ------
    InputError
        If there are fewer than 4 runs, or the privacy model claims no epsilon.

    Examples
    --------
    >>> import fedcalib as fc
    >>> unit = fc.Records.of_logits([[0.0, 2.0]], [0])
    >>> others = [fc.Records.of_logits([[0.0, -1.0], [0.0, 1.0]], [0, 1])] * 4
    >>> present = fc.Federation.of([unit, *others])
    >>> absent = fc.Federation.of([fc.Records.empty(2), *others])
    >>> audit = fc.audit.audit_run(
    ...     fc.FedBin(bins=2), present, absent, fc.DistributedDP(1.0), runs=20, randomness=fc.Simulated(0)
    ... )
    >>> audit.passes
    True
    """
    if runs < 4:
        raise InputError(f"Expected at least 4 runs, found {runs}.")
    scored = _ScoredRuns(method, privacy, participation or Everyone(), present, absent, statistic)
    stream = randomness or Secure()
    with_unit = np.array([scored.score(present, stream.derive("present", i)) for i in range(runs)])
    without = np.array([scored.score(absent, stream.derive("absent", i)) for i in range(runs)])
    evidence = scored.evidence
    # a log-likelihood ratio above 0 stands for the presence of the unit, so no runs are needed to choose a threshold
    threshold = 0.0 if statistic is None and scored.delta else None
    lower = lower_epsilon(with_unit, without, evidence, confidence, threshold)
    subject = f"{type(method).__name__} under {type(privacy).__name__}"
    return Audit(subject, lower, scored.epsilon, scored.delta, confidence, runs, evidence.name)


@final
@dataclass
class _ScoredRuns:
    """Runs of a method, scored by the log-likelihood ratio of their answers with and without the unit."""

    method: Method[Any]
    privacy: Privacy
    participation: Participation
    present: Federation
    absent: Federation
    statistic: Statistic | None
    agreed: Agreement[Any] | None = None
    epsilon: float = 0.0
    delta: float = 0.0
    contrasts: dict[tuple[Query, bytes], Contrast] = field(default_factory=dict)

    def score(self, federation: Federation, randomness: Randomness) -> float:
        """Score of one run."""
        watched = _Recording(InProcess(federation))
        if self.agreed is None or self.agreed.schema != watched.schema:
            self.agreed = Agreement.of(self.method, self.privacy, self.participation, watched.schema)
        result = conduct(self.agreed, watched, randomness=randomness)
        if result.privacy.epsilon is None:
            raise InputError(f"Expected a privacy model that claims an epsilon, found {type(self.privacy).__name__}.")
        self.epsilon, self.delta = result.privacy.epsilon, result.privacy.delta or 0.0
        return self._log_ratio(result, watched.steps) if self.statistic is None else self.statistic(result)

    @property
    def evidence(self) -> Evidence:
        """How error rates become an epsilon: by the noise that was added, to all clients or to samples."""
        if not self.delta or self.agreed is None:
            return Threshold()
        rate, steps = self.agreed.cohort.rate, len(self.agreed.plan.queries)
        return Gaussian(self.delta) if rate == 1 else SampledShift(self.delta, rate, steps)

    def _log_ratio(self, result: Result[Any], steps: list[Step]) -> float:
        """Sum of the scores of all answers, whose noise is independent."""
        total = 0.0
        for step in steps:
            answer = result.transcript.recall(step.index, step.query)
            if answer is not None:
                values, variances = (_flat(parts) for parts in (answer.values, answer.variances))
                total += _of_sample(float(self._contrast(step).score(values, variances)), step.cohort.rate)
        return total

    def _contrast(self, step: Step) -> Contrast:
        members = self._members(step)
        key = step.query, b"" if members is None else members.tobytes()
        if key not in self.contrasts:
            if len(self.contrasts) >= _MAX_CONTRASTS:
                self.contrasts.clear()
            sides = self.present, self.absent
            if members is not None:
                sides = self.present.subset(members), self.absent.subset(members)
            self.contrasts[key] = Contrast.of(step.mechanism, step.query, *sides, pure=self.delta == 0)
        return self.contrasts[key]

    def _members(self, step: Step) -> Bools | None:
        """Clients of a step; where sampling hides the client that differs, it is counted as one of them."""
        members = step.members
        return members if members is None or step.cohort.rate == 1 else members | self._differing

    @cached_property
    def _differing(self) -> Bools:
        if len(self.present) != len(self.absent):
            raise InputError(
                "Expected as many clients on both sides if clients are sampled; leave the absent one without records."
            )
        pairs = zip(self.present.clients(), self.absent.clients(), strict=True)
        return np.array([not _alike(one, other) for one, other in pairs])


def _of_sample(score: float, rate: float) -> float:
    """Log-likelihood ratio of a client that is sampled with probability `rate`, from that of one that takes part."""
    return score if rate == 1 else float(np.logaddexp(np.log1p(-rate), np.log(rate) + score))


def _alike(one: Records, other: Records) -> bool:
    return np.array_equal(one.given, other.given) and np.array_equal(one.labels, other.labels)


def _flat(parts: Any) -> Floats:
    return np.concatenate([np.asarray(part, dtype=np.float64).reshape(-1) for part in parts.values()])


@final
@dataclass
class _Recording(Runtime):
    """A runtime that records the steps of a run."""

    inner: Runtime
    steps: list[Step] = field(default_factory=list)

    @property
    def schema(self) -> Schema:
        return self.inner.schema

    def total(self, step: Step) -> Total:
        self.steps.append(step)
        return self.inner.total(step)
