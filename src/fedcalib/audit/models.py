"""Audits of a privacy model: the worst unit there is, on a count and on a real number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from fedcalib.audit.mechanisms import audit_mechanism
from fedcalib.audit.result import Audit
from fedcalib.cohort import FEWEST_CLIENTS, Everyone, Participation
from fedcalib.errors import RefusedError
from fedcalib.method import Plan
from fedcalib.privacy.model import Mechanism, Privacy
from fedcalib.queries.histogram import LabelHistogram
from fedcalib.queries.temperature import TemperatureCurve
from fedcalib.query import Query
from fedcalib.randomness import Randomness
from fedcalib.records import Federation, Records


@final
@dataclass(frozen=True, eq=False)
class Case:
    """A question, the unit that it can show most of, and the one that looks least like it."""

    name: str
    query: Query
    unit: Records
    opposite: Records


def cases() -> Iterator[Case]:
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
    draws: int = 100_000,
    confidence: float = 1 - 1e-6,
    clients: int = FEWEST_CLIENTS,
    participation: Participation | None = None,
    randomness: Randomness | None = None,
    noise: Privacy | None = None,
    faithful: bool = False,
) -> list[Audit]:
    """Audit a privacy model on the worst unit for a count and for a real number.

    `noise` adds the noise of another model while the claim stays: a twin that is broken on purpose shows that the
    audit would notice.
    """
    drawn = participation or Everyone()
    audits = []
    for case in cases():
        cohort = drawn.cohort(clients)
        plan = Plan((case.query,))
        honest = _mechanism(privacy, case, clients, drawn)
        if honest is None:
            continue
        twin = honest if noise is None else _mechanism(noise, case, clients, drawn)
        spending = privacy.spending(plan, cohort, drawn)
        present, absent = _sides(case, clients if honest.modulus else 1, spending.adjacency == "replace-one")
        audits.append(
            audit_mechanism(
                twin or honest,
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
                subject=f"{spending.model}, {case.name}",
            )
        )
    return audits


def _mechanism(privacy: Privacy, case: Case, clients: int, drawn: Participation) -> Mechanism | None:
    try:
        return privacy.mechanism(case.query, Plan((case.query,)), drawn.cohort(clients), drawn)
    except RefusedError:
        return None  # a model that cannot serve a query has nothing to audit there


def _sides(case: Case, clients: int, replaced: bool) -> tuple[Federation, Federation]:
    """Put the unit beside clients that hold nothing, and take it away, or put its opposite in its place."""
    nothing = Records.empty(case.unit.classes)
    others = [nothing] * (clients - 1)
    return Federation.of([case.unit, *others]), Federation.of([case.opposite if replaced else nothing, *others])
