"""Single sites, where the server sees each one's noisy answer anyway.

Asking the sites one by one costs a record no more than asking them together: its own site's answer is the only one it
is in. So each site is asked alone with the whole budget, what all sites say together is the sum of the answers, and
everything else is computed from answers that have been paid for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from fedcalib.answer import Answer
from fedcalib.artifacts.metrics_report import MetricsReport
from fedcalib.cli import documents
from fedcalib.cli.phases import Conductor, Phase
from fedcalib.cohort import FEWEST_RECORDS, Everyone
from fedcalib.federation import Federation
from fedcalib.loop import Result
from fedcalib.method import drive
from fedcalib.privacy.model import Spending
from fedcalib.query import Query
from fedcalib.records import Schema

MOST: Final = 1000  # sites; each keeps a transcript of its own


def visible(phase: Phase[MetricsReport], schema: Schema) -> bool:
    """Say whether the server sees noisy answers of single sites, all of them, and few enough to list."""
    plan = phase.rehearse(schema).plan
    cohort = phase.participation.cohort(schema.clients)
    mechanisms = [phase.privacy.mechanism(query, plan, cohort, phase.participation) for query in plan.queries]
    everybody = isinstance(phase.participation, Everyone) and schema.clients <= MOST
    return phase.privacy.private and everybody and all(mechanism.modulus is None for mechanism in mechanisms)


def ask_each(phase: Phase[MetricsReport], federation: Federation, conductor: Conductor) -> list[Result[MetricsReport]]:
    """Ask every site alone."""
    return [
        conductor.run(replace(phase, name=f"{phase.name}-{index}"), Federation.of([records]))
        for index, records in enumerate(federation.clients())
    ]


def together(phase: Phase[MetricsReport], results: Sequence[Result[MetricsReport]], schema: Schema) -> MetricsReport:
    """Read off the sum of the answers what all sites say together."""

    def ask(step: int, query: Query) -> Answer:
        answers = [answer for result in results if (answer := result.transcript.recall(step, query)) is not None]
        return Answer(
            {name: sum(answer[name] for answer in answers) for name in query.blocks},  # type: ignore[misc]
            {name: sum(answer.variance(name) for answer in answers) for name in query.blocks},  # type: ignore[misc]
            schema.clients,
        )

    return drive(phase.method, schema, ask)


def spending(results: Sequence[Result[MetricsReport]]) -> Spending:
    """Say what was spent: a record pays for its own site, so the dearest one counts."""
    return max((result.privacy for result in results), key=lambda spent: spent.epsilon or 0.0)


def row(name: str, report: MetricsReport) -> dict[str, Any]:
    """Show a site whose noisy count is large enough."""
    shown = report.accuracy is not None and report.reliability.records >= FEWEST_RECORDS
    return {"site": name, "records": None, "metrics": documents.metrics(report) if shown else None}
