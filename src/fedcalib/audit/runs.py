"""Audits of a privacy model: the worst unit there is, on a count, a histogram and a real number.

Audits of a whole method: everything that a run releases, from the first question to the last.
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
    """A question, the unit that it can show most of, and the one that looks least like it."""

    name: str
    query: Query
    unit: Records
    opposite: Records


def worst_cases() -> Iterator[Case]:
    """Give a count, a wide histogram and a real number, each with a unit that uses its bound in full."""
    sure_and_wrong, sure_and_right = [[0.0, 50.0]], [[0.0, -50.0]]
    positive, negative = Records.of_logits(sure_and_wrong, [1]), Records.of_logits(sure_and_right, [0])
    yield Case("count", LabelHistogram(2, 1, clip=1.0), positive, negative)
    yield Case("histogram", LabelHistogram(2, 6, clip=1.0), positive, negative)
    high, low = Records.of_logits(sure_and_wrong, [0]), Records.of_logits([[0.0, 1.25]], [1])
    yield Case("real", TemperatureCurve((1.0,), 0.25, clip=1.0), high, low)  # slopes of 50 and -0.28, cut to 1 and -1


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
    """Audit a privacy model on the worst unit for a count, a histogram and a real number, or on cases of your own.

    `twin` adds half the noise and leaves the claim as it is: a model broken on purpose, which the audit should notice.
    """
    drawn = participation or Everyone()
    cohort = drawn.cohort(clients)
    audits = []
    for case in worst_cases() if cases is None else cases:
        plan = Plan((case.query,))
        spending = privacy.spending(plan, cohort, drawn)
        if spending.epsilon is None:
            raise InputError(f"Expected a model that claims an epsilon, found {spending.model}, which claims none.")
        noisy = with_half_the_noise(privacy, spending) if twin else privacy
        mechanism = noisy.mechanism(case.query, plan, cohort, drawn)
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
    """Give the model whose noise is half as wide: at twice the epsilon, or at four times the rho."""
    epsilon, delta = spending.epsilon or 0.0, spending.delta or 0.0
    wider = 2 * epsilon if delta == 0 else accounting.epsilon([Concentrated(4 * rho_for(epsilon, delta))], delta)
    twin: Any = replace(cast(Any, privacy), epsilon=wider)
    return cast(Privacy, twin)


def _sides(case: Case, clients: int, replaced: bool) -> tuple[Federation, Federation]:
    """Put the unit beside clients that hold nothing, and take it away, or put its opposite in its place."""
    nothing = Records.empty(case.unit.classes)
    others = [nothing] * (clients - 1)
    return Federation.of([case.unit, *others]), Federation.of([case.opposite if replaced else nothing, *others])


T = TypeVar("T")
_KEPT = 1000  # contrasts; the first question of every run is the same, later ones hardly ever are

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
    """Bound from below the epsilon of whole runs over two federations that differ in one unit.

    A run is scored by all its answers at once, which is at least what its artifact tells; `statistic` scores a result
    in another way, for instance by the artifact alone. The adversary knows who took part in which step, but not, under
    Poisson participation, whether the client that differs did.
    """
    if runs < 4:
        raise InputError(f"Expected at least 4 runs, found {runs}.")
    game = _Game(method, privacy, participation or Everyone(), present, absent, statistic)
    stream = randomness or Secure()
    with_unit = np.array([game.score(present, stream.derive("present", i)) for i in range(runs)])
    without = np.array([game.score(absent, stream.derive("absent", i)) for i in range(runs)])
    evidence = game.evidence
    # a log-likelihood ratio above 0 says that the unit is there: no score has to be spent on finding that out
    known = 0.0 if statistic is None and game.delta else None
    lower = lower_epsilon(with_unit, without, evidence, confidence, known)
    subject = f"{type(method).__name__} under {type(privacy).__name__}"
    return Audit(subject, lower, game.epsilon, game.delta, confidence, runs, evidence.name)


@final
@dataclass
class _Game:
    """Runs of a method whose answers are scored by how likely the unit is to be there."""

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
        """Run once."""
        watched = _Watched(InProcess(federation))
        if self.agreed is None or self.agreed.schema != watched.schema:
            self.agreed = Agreement.of(self.method, self.privacy, self.participation, watched.schema)
        result = conduct(self.agreed, watched, randomness=randomness)
        if result.privacy.epsilon is None:
            raise InputError(f"Expected a model that claims an epsilon, found {type(self.privacy).__name__}.")
        self.epsilon, self.delta = result.privacy.epsilon, result.privacy.delta or 0.0
        return self._told(result, watched.steps) if self.statistic is None else self.statistic(result)

    @property
    def evidence(self) -> Evidence:
        """Say how error rates are read: as those of the noise that was added, to everybody or to samples."""
        if not self.delta or self.agreed is None:
            return Threshold()
        rate, steps = self.agreed.cohort.rate, len(self.agreed.plan.queries)
        return Gaussian(self.delta) if rate == 1 else SampledShift(self.delta, rate, steps)

    def _told(self, result: Result[Any], steps: list[Step]) -> float:
        """Add up what every answer tells; each question was answered with noise of its own."""
        told = 0.0
        for step in steps:
            answer = result.transcript.recall(step.index, step.query)
            if answer is not None:
                values, variances = (_flat(parts) for parts in (answer.values, answer.variances))
                told += _perhaps(float(self._contrast(step).score(values, variances)), step.cohort.rate)
        return told

    def _contrast(self, step: Step) -> Contrast:
        drawn = self._known(step)
        key = step.query, b"" if drawn is None else drawn.tobytes()
        if key not in self.contrasts:
            if len(self.contrasts) >= _KEPT:
                self.contrasts.clear()
            sides = self.present, self.absent
            if drawn is not None:
                sides = self.present.subset(drawn), self.absent.subset(drawn)
            self.contrasts[key] = Contrast.of(step.mechanism, step.query, *sides, pure=self.delta == 0)
        return self.contrasts[key]

    def _known(self, step: Step) -> Bools | None:
        """Say who is known to be in a step; where the draw is what hides a client, who would be if it was drawn."""
        drawn = step.participation.members(len(self.present), step.index, step.run)
        return drawn if drawn is None or step.cohort.rate == 1 else drawn | self._differing

    @cached_property
    def _differing(self) -> Bools:
        """Find the client that differs."""
        if len(self.present) != len(self.absent):
            raise InputError("Expected as many clients on both sides where clients are drawn; let one hold nothing.")
        pairs = zip(self.present.clients(), self.absent.clients(), strict=True)
        return np.array([not _alike(one, other) for one, other in pairs])


def _perhaps(score: float, rate: float) -> float:
    """Turn the likelihood ratio of a client that is there into that of one that is drawn with a chance."""
    return score if rate == 1 else float(np.logaddexp(np.log1p(-rate), np.log(rate) + score))


def _alike(one: Records, other: Records) -> bool:
    return np.array_equal(one.given, other.given) and np.array_equal(one.labels, other.labels)


def _flat(parts: Any) -> Floats:
    return np.concatenate([np.asarray(part, dtype=np.float64).reshape(-1) for part in parts.values()])


@final
@dataclass
class _Watched(Runtime):
    """A runtime that remembers what it was asked."""

    inner: Runtime
    steps: list[Step] = field(default_factory=list)

    @property
    def schema(self) -> Schema:
        """Say what is public about the clients' data."""
        return self.inner.schema

    def total(self, step: Step) -> Total:
        """Remember the question and pass it on."""
        self.steps.append(step)
        return self.inner.total(step)
