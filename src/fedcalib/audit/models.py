"""Audits of a privacy model: the worst unit there is, on a count, a histogram and a real number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, cast, final

from fedcalib import accounting
from fedcalib.accounting import Concentrated, rho_for
from fedcalib.audit.mechanisms import audit_mechanism
from fedcalib.audit.result import Audit
from fedcalib.cohort import FEWEST_CLIENTS, Everyone, Participation
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.method import Plan
from fedcalib.privacy.model import Privacy, Spending
from fedcalib.queries.histogram import LabelHistogram
from fedcalib.queries.temperature import TemperatureCurve
from fedcalib.query import Query
from fedcalib.randomness import Randomness
from fedcalib.records import Records


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
    clients: int = FEWEST_CLIENTS,
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
