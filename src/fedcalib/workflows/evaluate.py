"""Single sites, where the server sees each one's noisy answer anyway.

Asking the sites one by one costs a record no more than asking them together: its own site's answer is the only one it
is in. So each site is asked alone with the whole budget, what all sites say together is the sum of the answers, and
everything else is computed from answers that have been paid for.

Site by site, before and after a calibrator, where nothing is hidden.

What `fedcalib evaluate` does: measure all sites together, and single ones where the model shows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, final

from fedcalib.accounting.spending import Spending
from fedcalib.artifacts import load
from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.evaluation import ClientErrors, Curves, MetricsReport
from fedcalib.cli.request import DataRequest, PrivacyRequest
from fedcalib.cli.voice import Voice
from fedcalib.cohort import MIN_RECORDS, Everyone, Participation
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.loop import Result, run
from fedcalib.method import Method, drive
from fedcalib.methods.compose import Together
from fedcalib.methods.evaluation import FederatedMetrics, PerClientECE, ScoreCurves
from fedcalib.metrics.intervals import Measured
from fedcalib.planning import suited_tree
from fedcalib.privacy import Privacy
from fedcalib.privacy.open import Open
from fedcalib.query import Answer, Query
from fedcalib.records import Records, Schema
from fedcalib.report.values import SiteRow
from fedcalib.runtimes import InProcess
from fedcalib.workflows import documents
from fedcalib.workflows import session as state
from fedcalib.workflows.budget import for_units
from fedcalib.workflows.session import Conductor, Phase, Purse

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
    shown = report.accuracy is not None and report.reliability.records >= MIN_RECORDS
    return {"site": name, "records": None, "metrics": documents.metrics(report) if shown else None}


MOST_ROWS: Final = 1000  # sites in one report


def site_rows(held: Federation | None, calibrator: Calibrator, model: Privacy) -> tuple[SiteRow, ...]:
    """Give each site's calibration error before and after; none where the model hides single sites."""
    if held is None or not isinstance(model, Open) or len(held) > MOST_ROWS:
        return ()
    return tuple(_row(held.name(k), held.client(k), calibrator) for k in range(len(held)))


def _row(name: str, records: Records, calibrator: Calibrator) -> SiteRow:
    if len(records) < MIN_RECORDS:
        return SiteRow(name, too_few=True)
    return SiteRow(name, _ece(records), _ece(calibrator.over(records)), len(records))


def _ece(records: Records) -> Measured | None:
    report: MetricsReport = run(FederatedMetrics(), InProcess(Federation.of([records])), Open()).artifact
    return report.ece


@final
@dataclass(frozen=True)
class Evaluation:
    """Everything that an evaluation was told."""

    privacy: PrivacyRequest
    participation: Participation
    data: DataRequest
    files: tuple[Path, ...]
    calibrator: Path | None
    seed: int | None
    purse: Purse
    voice: Voice
    curves: bool = False  # a binary classifier's curves as well, within the same budget
    per_client: bool = False  # the usual client's own error as well, within the same budget

    @property
    def phase(self) -> Phase[Any]:
        """Say what is asked."""
        model = self.privacy.model()
        if self.per_client and model.budget is not None and model.budget.unit == "record":
            raise InputError(
                f"Expected --per-client with a model that hides whole clients or none (open, secagg, user), found "
                f"'{self.privacy.word}': a client's own error is a fact about the client, and this model hides records."
            )
        curves = (ScoreCurves(suited_tree(model)),) if self.curves else ()
        methods: tuple[Method[Any], ...] = (FederatedMetrics(), *curves, *((PerClientECE(),) * self.per_client))
        return Phase("evaluation", methods[0] if len(methods) == 1 else Together(methods), model, self.participation)

    def key(self, settings: Mapping[str, Any]) -> str:
        """Name this command for its state directory."""
        also = () if self.calibrator is None else (self.calibrator,)
        return state.key("evaluate", settings, (*self.files, *also))

    def records(self, kept: state.State) -> tuple[Federation, tuple[str, ...]]:
        """Read the files, and calibrate the scores if a calibrator was given."""
        map_ = None if self.calibrator is None else load_calibrator(self.calibrator)
        federation, warnings = self.data.read(self.files, kept, self.privacy.model().private)
        if map_ is None:
            return federation, warnings
        return replace(federation, records=map_.over(federation.records)), warnings

    def measure(self, federation: Federation, kept: state.State) -> tuple[dict[str, Any], Found]:
        """Ask, and put the answer into plain data too."""
        self.purse.pay(kept, self.phase.rehearse(federation.schema).spending)
        conductor = Conductor(kept, self.seed, self.voice, self.purse)
        found = self._apart(federation, conductor) or self._whole(federation, conductor)
        conductor.tell()
        document = {
            "method": "federated-metrics",
            **documents.counts(federation, self.privacy.model()),
            "privacy": documents.spending(for_units(found.spent, self.data.columns.unit)),
            "metrics": documents.metrics(found.report),
            "per_site": found.sites,
            "per_client": None if found.own is None else found.own.to_json(),
            "warnings": [
                *documents.missing(found.report, federation.schema.classes),
                *self._unseen(found.sites),
                *(() if found.own is None else found.own.warnings),
            ],
            "replayed": conductor.replayed,
        }
        return document, found

    def _unseen(self, sites: list[dict[str, Any]] | None) -> list[str]:
        """Say which sites are not shown, and why."""
        if sites is None:
            return [f"Single sites are left out: the model '{self.privacy.word}' hides them."]
        hidden = sum(site["metrics"] is None for site in sites)
        if not hidden:
            return []
        few = f"fewer than {MIN_RECORDS} records"
        if self.privacy.model().private:
            return [f"Some sites are not shown: {few} as far as the noise tells."]
        return [f"{hidden} of {len(sites)} sites are not shown: {few}."]

    def _apart(self, federation: Federation, conductor: Conductor) -> Found | None:
        """Ask site by site, where the server sees each noisy answer anyway."""
        if not visible(self.phase, federation.schema):
            return None
        results = ask_each(self.phase, federation, conductor)
        whole = _parts(together(self.phase, results, federation.schema))
        rows = [row(federation.name(k), _parts(one.artifact)[0]) for k, one in enumerate(results)]
        return Found(spending(results), rows, *whole)

    def _whole(self, federation: Federation, conductor: Conductor) -> Found:
        """Ask all sites at once; where nothing is hidden, look at each one too."""
        result = conductor.run(self.phase, federation)
        whole = _parts(result.artifact)
        if not isinstance(self.privacy.model(), Open):
            return Found(result.privacy, None, *whole)
        with self.voice.meter("sites") as meter:
            rows = []
            for index in range(len(federation)):
                rows.append(_site(federation, index))
                meter.at(index + 1, len(federation))
        return Found(result.privacy, rows, *whole)


@final
@dataclass(frozen=True, eq=False)
class Found:
    """What was measured, of all sites and of each where they can be seen, and what it cost."""

    spent: Spending
    sites: list[dict[str, Any]] | None
    report: MetricsReport
    curves: Curves | None
    own: ClientErrors | None


def _parts(artifact: Any) -> tuple[MetricsReport, Curves | None, ClientErrors | None]:
    """Tell the metrics from the curves and from clients' own errors, where these were asked too."""
    parts = artifact if isinstance(artifact, tuple) else (artifact,)
    curves = next((part for part in parts if isinstance(part, Curves)), None)
    return parts[0], curves, next((part for part in parts if isinstance(part, ClientErrors)), None)


def _site(federation: Federation, index: int) -> dict[str, Any]:
    records = federation.client(index)
    if len(records) < MIN_RECORDS:
        return {"site": federation.name(index), "records": None, "metrics": None}
    result = run(FederatedMetrics(), InProcess(Federation.of([records])), Open())
    return {
        "site": federation.name(index),
        "records": len(records),
        "metrics": documents.metrics(result.artifact),
    }


def load_calibrator(path: Path) -> Calibrator:
    """Read a calibrator, or say what the file holds instead."""
    artifact = load(path)
    if not isinstance(artifact, Calibrator):
        raise InputError(f"Expected a calibrator in {path}, found a {type(artifact).__name__}.")
    return artifact
