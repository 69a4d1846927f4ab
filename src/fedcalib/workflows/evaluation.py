"""Evaluate: measure all sites together, and single ones where the privacy model shows them.

Where the server sees each site's noisy answer anyway, asking the sites one by one costs a record no more than asking
them together: its own site's answer is the only one it is in. So each site is asked alone with the whole budget, and
the sum of the answers is what all sites say together. Where nothing is hidden, each site is measured exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Unpack, final

import numpy as np

from fedcalib import wire
from fedcalib.accounting.spending import Spending
from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.evaluation import ClientErrors
from fedcalib.artifacts.performance import BinaryPerformance, Performance
from fedcalib.artifacts.performance_parts import GroupedPerformance, PairedPerformance
from fedcalib.artifacts.saving import load
from fedcalib.cohort import MIN_RECORDS, Everyone, Participation
from fedcalib.display import check_made
from fedcalib.errors import InputError
from fedcalib.estimation.score_figures import DECISIONS, BinaryFigures
from fedcalib.federation import Federation
from fedcalib.loop import Agreement, Result, Runtime, conduct
from fedcalib.method import Method, drive
from fedcalib.methods.compose import Together
from fedcalib.methods.evaluation import FederatedMetrics, PerClientECE
from fedcalib.methods.paired_evaluation import GroupedMetrics, PairedMetrics
from fedcalib.metrics.intervals import Measured
from fedcalib.metrics.table import NET_BENEFIT, SENSITIVITY
from fedcalib.privacy import Privacy
from fedcalib.privacy.open import Open
from fedcalib.privacy.secagg import SecAgg
from fedcalib.query import Answer, Query
from fedcalib.records import Schema
from fedcalib.report.values import SiteRow
from fedcalib.runtimes import InProcess
from fedcalib.types import Ints
from fedcalib.workflows import documents
from fedcalib.workflows.budget import as_published, for_units, smallest_count
from fedcalib.workflows.documents import Measurement
from fedcalib.workflows.drift import Day, Every
from fedcalib.workflows.evaluation_result import EvaluationResult, SiteMetrics
from fedcalib.workflows.facts import call
from fedcalib.workflows.groups import Groupings, GroupResult
from fedcalib.workflows.session import At, Conductor, Data, Options, Phase, WorkflowSession, opening

MOST: Final = 1000  # sites of a report, or that keep a transcript each
_FEW: Final = f"fewer than {MIN_RECORDS} records"


def exact_sites(
    federation: Federation, at: At | None = None, method: Method[Any] | None = None
) -> tuple[SiteMetrics, ...]:
    """Measure each site exactly, for a privacy model that hides nothing."""
    agreed = Agreement.of(method or FederatedMetrics(), Open(), Everyone(), Schema(federation.schema.classes, 1))
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
@dataclass(frozen=True)
class Decision:
    """At which threshold decisions are measured: a number, or the one that reaches a target in the released table.

    Parameters
    ----------
    threshold
        A record is called positive if it scores at least that.
    sensitivity
        Instead, the highest threshold with at least this sensitivity.
    net_benefit
        Instead, the lowest threshold at which the model has more net benefit than calling everybody or nobody positive.

    Examples
    --------
    >>> from fedcalib.workflows.evaluation import Decision
    >>> Decision.of("sensitivity=0.9")
    Decision(threshold=0.5, sensitivity=0.9, net_benefit=False)
    """

    threshold: float = 0.5
    sensitivity: float | None = None
    net_benefit: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.threshold < 1:
            raise InputError(f"Expected a threshold from 0 to below 1, found {self.threshold}.")
        if self.sensitivity is not None and not 0 < self.sensitivity <= 1:
            raise InputError(f"Expected a target sensitivity above 0 and at most 1, found {self.sensitivity}.")

    @classmethod
    def of(cls, target: str | None, threshold: float | None = None) -> Decision:
        """A threshold, or a target in words: "sensitivity=0.9" or "net-benefit"."""
        if target is None:
            return cls(0.5 if threshold is None else threshold)
        if threshold is not None:
            raise InputError(f"Expected a threshold or a target for it, found {threshold} and '{target}'.")
        name, _, value = target.partition("=")
        try:
            if name.replace("-", "_") == NET_BENEFIT.name and not value:
                return cls(net_benefit=True)
            if name == SENSITIVITY.name:
                return cls(sensitivity=float(value))
        except ValueError:
            pass
        raise InputError(f"Expected the target sensitivity=0.9 (or another number) or net-benefit, found '{target}'.")

    @property
    def targeted(self) -> bool:
        """Whether the threshold follows from the released table."""
        return self.net_benefit or self.sensitivity is not None

    def chosen(self, found: Measurement) -> tuple[float | None, tuple[str, ...]]:
        """The threshold that reaches the target, or None if there is none, and what there is to say about it."""
        if not self.targeted:
            return None, ()
        if not isinstance(found, BinaryPerformance):
            raise InputError("Expected two classes for a threshold, found more.")
        threshold = found.threshold_for(sensitivity=self.sensitivity, net_benefit=self.net_benefit)
        if not 0 <= threshold < 1:
            return None, (f"No threshold reaches the target; decisions are at {found.threshold:g}.",)
        told = (
            f"The threshold {threshold:.4g} was chosen from the released table, on the records that it is measured on."
        )
        return threshold, (told,)


def _decided(found: Any, threshold: float | None, epsilon: float | None) -> Any:
    """The evaluation with decisions at another threshold, read off the same table."""
    if threshold is None or not isinstance(found, BinaryPerformance):
        return found
    figures = BinaryFigures(found.sheet, threshold, found.bins, None, epsilon)
    decisions = {name: figures.all[name] for name in DECISIONS}
    reasons = {name: why for name, why in found.reasons.items() if name not in decisions}
    reasons |= {name: why for name in decisions if (why := figures.reason(name))}
    return replace(found, threshold=threshold, figures={**found.figures, **decisions}, reasons=reasons)


@final
@dataclass(frozen=True, eq=False)
class Evaluation:
    """Everything that an evaluation is told."""

    data: Data
    privacy: Privacy = field(default_factory=SecAgg)
    participation: Participation = field(default_factory=Everyone)
    calibrator: Calibrator | None = None  # applied before anything is measured
    per_client: bool = False  # the usual client's own error as well, within the same budget
    session: WorkflowSession = field(default_factory=WorkflowSession)
    min_count: int = MIN_RECORDS  # the smallest count that published tables of exact models show, apart from 0
    decision: Decision = field(default_factory=Decision)
    scores: tuple[float, ...] = ()  # the public list of all scores that the classifier gives, if they are few
    records: int | None = None  # a public guess of the number of records, which sets the resolution under noise
    groups: Groupings = field(default_factory=Groupings)
    rival: str = ""  # the column of another model's scores, to be compared on the same records
    class_auc: bool | None = None  # of several classes: count scores by class; None for where sums are exact
    confusion: bool | None = None  # and records by actual and predicted class

    def __post_init__(self) -> None:
        check_made(self.privacy, Privacy, "a privacy model")
        _check_calibrator(self.calibrator)
        smallest_count(self.privacy, self.min_count)
        if self.rival and self.decision.targeted:
            raise InputError("Expected --threshold with --rival, found a target for the threshold; state a number.")

    @property
    def _method(self) -> FederatedMetrics:
        return FederatedMetrics(
            records=self.records,
            scores=self.scores,
            threshold=self.decision.threshold,
            class_auc=self.class_auc,
            confusion=self.confusion,
        )

    @property
    def _methods(self) -> tuple[Method[Any], ...]:
        """What is measured, side by side; each of them has the same share of the budget."""
        model = PairedMetrics(column=self.rival, measure=self._method) if self.rival else self._method
        groups = [
            GroupedMetrics(one.column, one.groups, replace(self._method, records=_each(self.records, one.groups)))
            for one in self.groups.groupings
        ]
        return (model, *groups, *((PerClientECE(),) * self.per_client))

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
            asked = ((phase, source),) if isinstance(source, Federation) else ()
            conductor.pay((alone or phase).spending, *asked)
            found = self._measure(phase, alone, source, conductor)
            conductor.tell()
            evidence = conductor.evidence()
        smallest = smallest_count(self.privacy, self.min_count)
        spent = as_published(conductor.stated((alone or phase).spending), phase.agreed.numbers, smallest)
        done = self._result(found, spent, source, left_out, conductor.replayed)
        named = replace(done, call=call("evaluate(...) in Python"), class_names=conductor.class_names)
        return replace(named, evidence=evidence, provenance=self._provenance)

    @property
    def _provenance(self) -> dict[str, object]:
        facts = {
            "method": ", ".join(dict.fromkeys(type(one).__name__ for one in self._methods)),
            "privacy model": repr(self.privacy),
            "participation": repr(self.participation),
            "calibrator": "" if self.calibrator is None else type(self.calibrator).__name__,
            "groups": "; ".join(f"{one.column}: {', '.join(one.groups)}" for one in self.groups.columns),
            "share of the budget per measurement": 1 / len(self._methods) if self.privacy.budget else None,
            "files": ", ".join(path.name for path in self.data.files),
        }
        return {name: value for name, value in facts.items() if value not in (None, "")}

    def _result(
        self, found: _Found, spent: Spending, source: _Source, left_out: tuple[str, ...], replayed: bool
    ) -> EvaluationResult:
        parts, sites = _Parts.of(found[0]), found[1]
        budget, smallest = self.privacy.budget, smallest_count(self.privacy, self.min_count)
        threshold, chosen = self.decision.chosen(parts.metrics)
        epsilon = None if budget is None else budget.epsilon
        metrics = _decided(parts.metrics, threshold, epsilon)
        own, share = parts.own, None if budget is None else 1 / len(self._methods)
        grouped = [
            replace(one, groups={name: _decided(found, threshold, epsilon) for name, found in one.groups.items()})
            for one in parts.groups
        ]
        size = float(getattr(metrics, "records", 0.0))
        groups = tuple(GroupResult.of(one, share, size, smallest) for one in grouped)
        return EvaluationResult(
            metrics=metrics,
            groups=groups,
            rival=parts.rival,
            per_client=own,
            sites=sites,
            privacy=for_units(spent, self.data.columns.unit),
            counts=documents.counts(source, self.privacy),
            left_out=left_out,
            remarks=(
                *documents.missing(metrics, *((parts.rival,) if parts.rival else ())),
                *chosen,
                *self._unseen(sites),
                *(text for one in groups for text in one.warnings),
                *(() if own is None else own.warnings),
            ),
            replayed=replayed,
            min_count=smallest,
        )

    @property
    def _settings(self) -> dict[str, Any]:
        parts = {"privacy": self.privacy, "participation": self.participation, "calibrator": self.calibrator}
        told = {name: wire.encode(part) for name, part in parts.items()}
        return {**told, "methods": [wire.encode(method) for method in self._methods]}

    def _source(self, conductor: Conductor) -> tuple[_Source, tuple[str, ...]]:
        """Sites at a distance, or the records with calibrated scores if a calibrator was given."""
        if isinstance(self.data.source, Runtime):
            return self.data.source, ()
        federation, warnings = conductor.read(self.data.named_by(self.calibrator), self.privacy.private)
        federation = self.groups.over(federation)
        if self.calibrator is None:
            return federation, warnings
        return replace(federation, records=self.calibrator.over(federation.records)), warnings

    def _phase(self, schema: Schema) -> Phase[Any]:
        budget = self.privacy.budget
        if self.per_client and budget is not None and budget.unit == "record":
            raise InputError(
                "Expected --per-client with a privacy model that protects whole clients, or none (open, secagg, user), "
                f"found {type(self.privacy).__name__}, which protects records: a client's own error is a fact about "
                "the client."
            )
        methods = self._methods
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
        sites = tuple(_shown(federation.name(k), _Parts.of(one.artifact).metrics) for k, one in enumerate(results))
        return _together(alone.agreed, results), sites

    def _measure(self, phase: Phase[Any], alone: Phase[Any] | None, source: _Source, conductor: Conductor) -> _Found:
        """Ask all sites at once, unless they can be seen; where nothing is hidden, look at each site at hand too."""
        if alone is not None and isinstance(source, Federation):
            return self._apart(phase, alone, source, conductor)
        result = conductor.run(phase, source if isinstance(source, Runtime) else InProcess(source))
        if isinstance(source, Runtime) or not isinstance(self.privacy, Open):
            return result.artifact, None
        with self.session.notices.progress("sites") as at:
            return result.artifact, exact_sites(source, at, self._method)

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
    """What all sites say together: the conversation that each of them had, answered by the sum of their answers."""

    def ask(step: int, query: Query) -> Answer:
        answers = [answer for result in results if (answer := result.transcript.recall(step, query)) is not None]
        return Answer(
            {name: sum(answer[name] for answer in answers) for name in query.blocks},  # type: ignore[misc]
            {name: sum(answer.variance(name) for answer in answers) for name in query.blocks},  # type: ignore[misc]
            len(results),
        )

    return drive(agreed.method, agreed.schema, ask)


def _shown(site: str, found: Measurement) -> SiteMetrics:
    """A site as it may be shown: its noisy count has to be large enough."""
    records = found.records if isinstance(found, Performance) else found.reliability.records
    return SiteMetrics(site, None, found if found.accuracy is not None and records >= MIN_RECORDS else None)


@final
@dataclass(frozen=True, eq=False)
class _Parts:
    """What an evaluation found, part by part."""

    metrics: Measurement
    rival: PairedPerformance | None
    groups: tuple[GroupedPerformance, ...]
    own: ClientErrors | None

    @classmethod
    def of(cls, artifact: Any) -> _Parts:
        parts = artifact if isinstance(artifact, tuple) else (artifact,)
        rival = parts[0] if isinstance(parts[0], PairedPerformance) else None
        groups = tuple(part for part in parts if isinstance(part, GroupedPerformance))
        own = next((part for part in parts if isinstance(part, ClientErrors)), None)
        return cls(parts[0] if rival is None else rival.before, rival, groups, own)


def _check_calibrator(given: Any) -> None:
    """Refuse the path of a calibrator, or the result that holds one, in its place."""
    if given is None or isinstance(given, Calibrator):
        return
    advice = "; load it with fc.load(...)" if isinstance(given, str | Path) else ""
    if hasattr(given, "calibrator"):
        advice = "; pass its .calibrator"
    raise InputError(f"Expected a calibrator, found {type(given).__name__}{advice}.")


def _each(records: int | None, groups: Sequence[str]) -> int | None:
    """The number of records of a typical group."""
    return None if records is None else max(records // len(groups), 1)


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
    per_client: bool = False,
    min_count: int = MIN_RECORDS,
    threshold: float | None = None,
    threshold_for: str | None = None,
    scores_are: Sequence[float] = (),
    records_about: int | None = None,
    groups: Mapping[str, Sequence[Any]] | None = None,
    by: Every | str | None = None,
    start: Day | str | None = None,
    until: Day | str | None = None,
    rival: str = "",
    class_auc: bool | None = None,
    confusion: bool | None = None,
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
        The privacy model with the whole budget; `SecAgg()` if left out, which hides single sites.
    calibrator
        Applied to the scores before anything is measured.
    participation
        Who takes part; everyone if left out.
    per_client
        Also measure the mean calibration error of single clients, within the same budget.
    min_count
        The smallest count of records, apart from 0, that published tables and figures of an exact model show.
    threshold
        Of two classes: sensitivity, net benefit and other metrics of decisions are for calling records positive that
        score at least that; 0.5 if left out.
    threshold_for
        Instead, a target that chooses the threshold from the released table: "sensitivity=0.9" or "net-benefit".
    scores_are
        Of two classes: all scores that the classifier gives, if they are few and public, so that ties are known as
        ties.
    records_about
        A public guess of the number of records, which sets the resolution under noise; 2,000 if left out.
    groups
        Of two classes: measure each group too, by public lists such as `{"sex": ["F", "M"]}`. Each column takes one
        share of the budget. Records with other values are in no group; a small group is withheld.
    by, start, until
        Groups by calendar windows: "day", "week" or "month" from one day until another; with `groups`, each group in
        each window. Needs a column of days (`time`).
    rival
        Of two classes: the column of another model's scores, to compare both on the same records.
    class_auc
        Of several classes: whether to measure the AUC of each class against the rest. If left out, where sums are
        exact; under noise it takes half of the budget.
    confusion
        Of several classes: whether to count records by actual and predicted class. If left out, where sums are exact
        up to 64 classes, under noise up to five.
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
    >>> done = evaluate(federation, fc.Open())
    >>> print(f"{done.metrics.auc:.2f}")
    0.83
    >>> [site.site for site in done.sites]
    ['east', 'north', 'west']
    """
    if by is not None:
        options.setdefault("time", "day")
    told, session = opening(data, **options)
    wanted = Groupings.of(groups, by, start, until)
    return Evaluation(
        data=replace(told, columns=replace(told.columns, groups=wanted.names, rival=rival or None)),
        groups=wanted,
        rival=rival,
        privacy=privacy or SecAgg(),
        participation=participation or Everyone(),
        calibrator=calibrator,
        per_client=per_client,
        session=session,
        min_count=min_count,
        decision=Decision.of(threshold_for, threshold),
        scores=tuple(scores_are),
        records=records_about,
        class_auc=class_auc,
        confusion=confusion,
    ).run()
