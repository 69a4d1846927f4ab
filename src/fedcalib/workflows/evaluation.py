"""Evaluate: measure all sites together, and single ones where the privacy model shows them.

Where the server sees each site's noisy answer anyway, asking the sites one by one costs a record no more than asking
them together: its own site's answer is the only one it is in. So each site is asked alone with the whole budget, and
the sum of the answers is what all sites say together. Where nothing is hidden, each site is measured exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Unpack, final

import numpy as np

from fedcalib import wire
from fedcalib.accounting.spending import Spending
from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.evaluation import ClientErrors, Curves, MetricsReport
from fedcalib.artifacts.saving import load
from fedcalib.cohort import MIN_RECORDS, Everyone, Participation
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.files import save_text
from fedcalib.loop import Agreement, Result, Runtime, conduct
from fedcalib.method import Method, drive
from fedcalib.methods.compose import Together
from fedcalib.methods.evaluation import FederatedMetrics, PerClientECE, ScoreCurves
from fedcalib.metrics.intervals import Measured
from fedcalib.planning import suited_tree
from fedcalib.privacy import Privacy
from fedcalib.privacy.open import Open
from fedcalib.query import Answer, Query
from fedcalib.records import Schema
from fedcalib.report.values import SiteRow
from fedcalib.runtimes import InProcess
from fedcalib.types import Ints
from fedcalib.workflows import documents
from fedcalib.workflows.budget import as_published, for_units, smallest_count
from fedcalib.workflows.reports import CURVE_FILES, curve_files
from fedcalib.workflows.session import At, Conductor, Data, Options, Phase, WorkflowSession, opening

NAMES: Final = CURVE_FILES
MOST: Final = 1000  # sites of a report, or that keep a transcript each
_FEW: Final = f"fewer than {MIN_RECORDS} records"


@final
@dataclass(frozen=True, eq=False)
class SiteMetrics:
    """The metrics of one site; None where it has too few records to be shown."""

    site: str
    records: int | None
    metrics: MetricsReport | None

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {"site": self.site, "records": self.records, "metrics": documents.metrics(self.metrics)}


def exact_sites(federation: Federation, at: At | None = None) -> tuple[SiteMetrics, ...]:
    """Measure each site exactly, for a privacy model that hides nothing."""
    agreed = Agreement.of(FederatedMetrics(), Open(), Everyone(), Schema(federation.schema.classes, 1))
    found, fewest = [], _fewest(federation.sizes)
    for index, records in enumerate(federation.clients()):
        shown = len(records) >= fewest
        report = conduct(agreed, InProcess(Federation.of([records]))).artifact if shown else None
        found.append(SiteMetrics(federation.name(index), len(records) if shown else None, report))
        if at is not None:
            at(index + 1, len(federation))
    return tuple(found)


def _fewest(sizes: Ints) -> int:
    """The records of the smallest site that is shown.

    Sites with fewer than the minimum are withheld. If all of these together have fewer, the total less the sites that
    are shown would tell how many, so the next larger site is withheld as well.
    """
    small, others = sizes[sizes < MIN_RECORDS], np.unique(sizes[sizes >= MIN_RECORDS])
    return int(others[0]) + 1 if 0 < small.sum() < MIN_RECORDS and len(others) else MIN_RECORDS


def site_rows(held: Federation | None, calibrator: Calibrator, privacy: Privacy) -> tuple[SiteRow, ...]:
    """Each site's calibration error before and after; none where the privacy model hides single sites."""
    if held is None or not isinstance(privacy, Open) or len(held) > MOST:
        return ()
    calibrated = replace(held, records=calibrator.over(held.records))
    pairs = zip(exact_sites(held), exact_sites(calibrated), strict=True)
    return tuple(
        SiteRow(before.site, _ece(before), _ece(after), before.records, too_few=before.metrics is None)
        for before, after in pairs
    )


def _ece(site: SiteMetrics) -> Measured | None:
    return None if site.metrics is None else site.metrics.ece


@final
@dataclass(frozen=True, eq=False)
class EvaluationResult:
    """What was measured, of all sites and of each where they can be seen, and what it cost."""

    metrics: MetricsReport
    curves: Curves | None  # of a binary classifier, where they were asked for
    per_client: ClientErrors | None  # the usual client's own error, where it was asked for
    sites: tuple[SiteMetrics, ...] | None  # None where the privacy model hides them
    privacy: Spending
    counts: Mapping[str, int | None]
    left_out: tuple[str, ...]  # what is said about records that were left out
    remarks: tuple[str, ...]  # what is said about metrics and sites that are not shown
    replayed: bool
    min_count: int | None = None  # the smallest count that tables and figures show, apart from 0; None under noise

    @property
    def warnings(self) -> tuple[str, ...]:
        """Everything that a reader has to know."""
        return (*self.left_out, *self.remarks)

    def to_json(self) -> dict[str, Any]:
        """The result as plain data, as `fedcalib evaluate --format json` prints it."""
        document = {
            "method": "federated-metrics",
            **self.counts,
            "privacy": asdict(self.privacy),
            "metrics": documents.metrics(self.metrics),
            "per_site": None if self.sites is None else [site.to_json() for site in self.sites],
            "per_client": None if self.per_client is None else self.per_client.to_json(),
            "warnings": list(self.warnings),
            "replayed": self.replayed,
            **documents.minimum(self.min_count),
        }
        if self.curves is not None:
            document["curves"] = {"figures": self.curves.to_json(), "warnings": list(self.curves.warnings)}
        return document

    def to_frame(self) -> Any:
        """A pandas frame of the metrics with their intervals; one row per metric."""
        return documents.frame(documents.by_metric({"measured": self.metrics}))

    def report(self, path: documents.Folder) -> None:
        """Write the report with the curves, one self-contained HTML page."""
        if self.curves is None:
            raise InputError("Expected an evaluation with curves, found none; evaluate with curves=True.")
        save_text(Path(path), self.files()["report.html"].decode())

    def files(self) -> dict[str, bytes]:
        """The report page with the curves and their pictures; none without curves."""
        if self.curves is None:
            return {}
        return curve_files(self.metrics, self.curves, self.privacy, self.to_json())

    def save(self, folder: documents.Folder) -> dict[str, str]:
        """Write the report and the pictures into a folder; say where each file is."""
        return documents.write_all(folder, self.files())


@final
@dataclass(frozen=True, eq=False)
class Evaluation:
    """Everything that an evaluation is told."""

    data: Data
    privacy: Privacy = field(default_factory=Open)
    participation: Participation = field(default_factory=Everyone)
    calibrator: Calibrator | None = None  # applied before anything is measured
    curves: bool = False  # a binary classifier's curves as well, within the same budget
    per_client: bool = False  # the usual client's own error as well, within the same budget
    session: WorkflowSession = field(default_factory=WorkflowSession)
    min_count: int = MIN_RECORDS  # the smallest count that published tables of exact models show, apart from 0

    def __post_init__(self) -> None:
        smallest_count(self.privacy, self.min_count)

    def dry_run(self) -> documents.DryRun:
        """What would be asked and what it would cost; nothing is asked."""
        source, warnings = self._source(Conductor(self.session, self.session.forgotten()))
        phase = self._phase(source.schema)
        facts = documents.counts(source, self.privacy)
        return documents.DryRun(facts, (phase,), self.session.marked(phase.spending), warnings)

    def run(self) -> EvaluationResult:
        """Measure."""
        with self.session.opened("evaluate", self._settings, self.data) as conductor:
            if self.calibrator is not None and isinstance(self.data.source, Runtime):
                raise InputError("Expected records at hand to apply a calibrator to, found a runtime of sites.")
            source, left_out = self._source(conductor)
            phase = self._phase(source.schema)
            alone = self._alone(phase, source)
            conductor.pay((alone or phase).spending)
            found = self._measure(phase, alone, source, conductor)
            conductor.tell()
        smallest = smallest_count(self.privacy, self.min_count)
        spent = as_published(conductor.stated((alone or phase).spending), phase.agreed.numbers, smallest)
        return self._result(found, spent, source, left_out, conductor.replayed)

    def _result(
        self, found: _Found, spent: Spending, source: _Source, left_out: tuple[str, ...], replayed: bool
    ) -> EvaluationResult:
        artifact, sites = found
        metrics, curves, own = _parts(artifact)
        missing = documents.missing(source.schema.classes, metrics)
        return EvaluationResult(
            metrics=metrics,
            curves=curves,
            per_client=own,
            sites=sites,
            privacy=for_units(spent, self.data.columns.unit),
            counts=documents.counts(source, self.privacy),
            left_out=left_out,
            remarks=(*missing, *self._unseen(sites), *(() if own is None else own.warnings)),
            replayed=replayed,
            min_count=smallest_count(self.privacy, self.min_count),
        )

    @property
    def _settings(self) -> dict[str, Any]:
        parts = {"privacy": self.privacy, "participation": self.participation, "calibrator": self.calibrator}
        told = {name: wire.encode(part) for name, part in parts.items()}
        return {**told, "curves": self.curves, "per_client": self.per_client}

    def _source(self, conductor: Conductor) -> tuple[_Source, tuple[str, ...]]:
        """Sites at a distance, or the records with calibrated scores if a calibrator was given."""
        if isinstance(self.data.source, Runtime):
            return self.data.source, ()
        federation, warnings = conductor.read(self.data, self.privacy.private)
        if self.calibrator is None:
            return federation, warnings
        return replace(federation, records=self.calibrator.over(federation.records)), warnings

    def _phase(self, schema: Schema) -> Phase[Any]:
        budget = self.privacy.budget
        if self.per_client and budget is not None and budget.unit == "record":
            raise InputError(
                f"Expected --per-client with a model that hides whole clients or none (open, secagg, user), found "
                f"{type(self.privacy).__name__}: a client's own error is a fact about the client, and this model hides "
                "records."
            )
        curves = (ScoreCurves(suited_tree(self.privacy)),) if self.curves else ()
        methods: tuple[Method[Any], ...] = (FederatedMetrics(), *curves, *((PerClientECE(),) * self.per_client))
        method = methods[0] if len(methods) == 1 else Together(methods)
        return Phase.of("evaluation", method, self.privacy, self.participation, schema)

    def _alone(self, phase: Phase[Any], source: _Source) -> Phase[Any] | None:
        """What a single site is asked where sites are asked one by one; None where all are asked at once."""
        apart = isinstance(source, Federation) and _visible(phase)
        return self._phase(Schema(source.schema.classes, 1)) if apart else None

    def _apart(self, phase: Phase[Any], alone: Phase[Any], federation: Federation, conductor: Conductor) -> _Found:
        """Ask site by site; a record pays for its own site, so all of them cost what one does."""
        results = [
            conductor.run(replace(alone, name=f"{phase.name}-{index}"), InProcess(Federation.of([records])))
            for index, records in enumerate(federation.clients())
        ]
        sites = tuple(_shown(federation.name(k), _parts(one.artifact)[0]) for k, one in enumerate(results))
        return _together(phase.agreed, results), sites

    def _measure(self, phase: Phase[Any], alone: Phase[Any] | None, source: _Source, conductor: Conductor) -> _Found:
        """Ask all sites at once, unless they can be seen; where nothing is hidden, look at each site at hand too."""
        if alone is not None and isinstance(source, Federation):
            return self._apart(phase, alone, source, conductor)
        result = conductor.run(phase, source if isinstance(source, Runtime) else InProcess(source))
        if isinstance(source, Runtime) or not isinstance(self.privacy, Open):
            return result.artifact, None
        with self.session.notices.progress("sites") as at:
            return result.artifact, exact_sites(source, at)

    def _unseen(self, sites: tuple[SiteMetrics, ...] | None) -> list[str]:
        """Which sites are not shown, and why."""
        if sites is None:
            return [f"Single sites are left out: {type(self.privacy).__name__} hides them."]
        hidden = sum(site.metrics is None for site in sites)
        if not hidden:
            return []
        if self.privacy.private:
            return [f"Some sites are not shown: {_FEW} as far as the noise tells."]
        return [f"{hidden} of {len(sites)} sites are not shown: {_FEW}, or needed to hide such a site."]


_Source = Federation | Runtime
_Found = tuple[Any, tuple[SiteMetrics, ...] | None]


def _visible(phase: Phase[Any]) -> bool:
    """Whether the server sees noisy answers of single sites, all of them, and few enough to list."""
    agreed = phase.agreed
    everybody = isinstance(agreed.participation, Everyone) and agreed.schema.clients <= MOST
    seen = all(mechanism.modulus is None for mechanism in agreed.mechanisms)
    return agreed.privacy.private and everybody and seen


def _together(agreed: Agreement[Any], results: Sequence[Result[Any]]) -> Any:
    """What all sites say together: the same conversation, answered by the sum of their answers."""

    def ask(step: int, query: Query) -> Answer:
        answers = [answer for result in results if (answer := result.transcript.recall(step, query)) is not None]
        return Answer(
            {name: sum(answer[name] for answer in answers) for name in query.blocks},  # type: ignore[misc]
            {name: sum(answer.variance(name) for answer in answers) for name in query.blocks},  # type: ignore[misc]
            agreed.schema.clients,
        )

    return drive(agreed.method, agreed.schema, ask)


def _shown(site: str, report: MetricsReport) -> SiteMetrics:
    """A site as it may be shown: its noisy count has to be large enough."""
    enough = report.accuracy is not None and report.reliability.records >= MIN_RECORDS
    return SiteMetrics(site, None, report if enough else None)


def _parts(artifact: Any) -> tuple[MetricsReport, Curves | None, ClientErrors | None]:
    """The metrics, and the curves and the clients' own errors where these were queried too."""
    parts = artifact if isinstance(artifact, tuple) else (artifact,)
    curves = next((part for part in parts if isinstance(part, Curves)), None)
    return parts[0], curves, next((part for part in parts if isinstance(part, ClientErrors)), None)


def load_calibrator(path: Path) -> Calibrator:
    """Read a calibrator, or say what the file holds instead."""
    artifact = load(path)
    if not isinstance(artifact, Calibrator):
        raise InputError(f"Expected a calibrator in {path}, found a {type(artifact).__name__}.")
    return artifact


def evaluate(
    data: Any,
    privacy: Privacy | None = None,
    *,
    calibrator: Calibrator | None = None,
    participation: Participation | None = None,
    curves: bool = False,
    per_client: bool = False,
    min_count: int = MIN_RECORDS,
    **options: Unpack[Options],
) -> EvaluationResult:
    """Measure a classifier across sites without pooling their records, perhaps after a calibrator.

    `fedcalib evaluate` does the same from the shell.

    Parameters
    ----------
    data
        A `Federation`, a pandas or Arrow frame, one or several files (patterns are written out), or a `Runtime` of
        sites at a distance.
    privacy
        The privacy model with the whole budget; `Open()` if left out.
    calibrator
        Applied to the scores before anything is measured.
    participation
        Who takes part; everyone if left out.
    curves
        Of a binary classifier, release ROC, precision-recall and reliability curves too, within the same budget.
    per_client
        Measure how badly calibrated the usual client is too, within the same budget.
    min_count
        The smallest count of records, apart from 0, that published tables and figures of an exact model show.
    **options
        Columns, seeds, state, ledger and notices: see `fedcalib.workflows.session.Options`.

    Returns
    -------
    EvaluationResult
        The metrics with their intervals, single sites where the privacy model shows them, and what was spent.

    Raises
    ------
    InputError
        If the data cannot be read, or `per_client` is asked of a privacy model that hides records.
    BudgetError
        If the ledger's account does not hold the total.

    Examples
    --------
    >>> import numpy as np
    >>> import fedcalib as fc
    >>> from fedcalib.workflows import evaluate
    >>> rng = np.random.default_rng(0)
    >>> score = rng.random(900)
    >>> label = rng.random(900) < score
    >>> hospital = rng.choice(["east", "north", "west"], 900)
    >>> federation = fc.Federation.by_site(fc.Records.of_scores(score, label), hospital)
    >>> done = evaluate(federation)
    >>> round(done.metrics.auc.value, 2)
    0.83
    >>> [site.site for site in done.sites]
    ['east', 'north', 'west']
    """
    source, session = opening(data, **options)
    who = participation or Everyone()
    model = privacy or Open()
    return Evaluation(source, model, who, calibrator, curves, per_client, session, min_count).run()
