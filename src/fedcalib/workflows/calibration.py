"""Calibrate: fit a calibrator on some records and measure before and after on others, within one budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Final, Unpack, final

from fedcalib import wire
from fedcalib.accounting.spending import Spending
from fedcalib.artifacts.calibrator import UNCHANGED, Calibrator, Identity
from fedcalib.artifacts.evaluation import Fitted
from fedcalib.artifacts.performance import Performance
from fedcalib.artifacts.performance_parts import PairedPerformance
from fedcalib.artifacts.saving import with_disclosure
from fedcalib.cohort import MIN_RECORDS, Disjoint, Everyone, Participation
from fedcalib.data.checks import wording
from fedcalib.display import check_made
from fedcalib.errors import BudgetError, InputError, RefusedError
from fedcalib.federation import Federation
from fedcalib.loop import Result, Runtime
from fedcalib.method import Method
from fedcalib.methods.auto import Auto
from fedcalib.methods.compose import FitAndMeasure, before_and_after
from fedcalib.methods.evaluation import FederatedMetrics
from fedcalib.metrics.intervals import Measured
from fedcalib.metrics.table import ECE, METRICS, OBSERVED_EXPECTED
from fedcalib.privacy import Privacy
from fedcalib.privacy.secagg import SecAgg
from fedcalib.records import Schema
from fedcalib.report.canvas import Figures
from fedcalib.report.explorer import Explorer
from fedcalib.report.page import Page
from fedcalib.report.values import SiteRow
from fedcalib.runtimes import InProcess
from fedcalib.workflows import documents, reports, verdicts
from fedcalib.workflows.budget import (
    ALONE,
    Shares,
    as_published,
    for_units,
    scaled,
    shares,
    smallest_count,
    together,
)
from fedcalib.workflows.class_reports import class_section
from fedcalib.workflows.documents import Measurement
from fedcalib.workflows.evaluation import site_rows
from fedcalib.workflows.evidence import made
from fedcalib.workflows.facts import UNKNOWN, About, Trail, call, meaning, stated
from fedcalib.workflows.result import WorkflowResult
from fedcalib.workflows.session import Conductor, Data, Options, Phase, WorkflowSession, opening

_PICTURES: Final = ("reliability.svg",)
NAMES: Final = ("calibrator.json", "result.json", "report.html", *_PICTURES)
_HIDDEN = "Single sites are not shown: the privacy model hides them."
_LIMITS: Final = (
    "The records are taken as independent of each other. If many belong to one patient, intervals are too narrow.",
)
_BY_CLASS: Final = "By class, after calibration"
_CALL: Final = "calibrate(...) in Python"
_UNMEASURED = "Before and after were not measured: "


@final
@dataclass(frozen=True, eq=False)
class Split:
    """All records, those to fit and those to measure on."""

    all: Federation
    fitted: Federation
    held: Federation | None
    warnings: tuple[str, ...]


@final
@dataclass(frozen=True)
class Phases:
    """What will be asked, each phase with its share of the budget."""

    fit: Phase[Calibrator]
    measure: Phase[PairedPerformance] | None
    parallel: bool
    warnings: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[Phase[Any], ...]:
        """The phases in order."""
        return (self.fit,) if self.measure is None else (self.fit, self.measure)

    @property
    def total(self) -> Spending:
        """What all phases spend together."""
        return together(self.fit.spending, [phase.spending for phase in self.all[1:]], self.parallel)


@final
@dataclass(frozen=True, eq=False, repr=False)
class CalibrationResult(WorkflowResult):
    """A calibrator, what it changes, and what it cost."""

    command: ClassVar[str] = "calibrate"
    method: Method[Calibrator]
    calibrator: Calibrator
    before: Measurement | None
    after: Measurement | None
    privacy: Spending
    private: bool  # no exact count is shown
    counts: Mapping[str, int | None]
    phases: tuple[Phase[Any], ...]
    remarks: tuple[str, ...]  # what is said about metrics that are not shown
    replayed: bool
    sites: tuple[SiteRow, ...] = ()
    left_out: tuple[str, ...] = ()  # what is said about records that were left out
    held_out: bool = True  # measured on records that were not fitted
    min_count: int | None = None  # the smallest count that tables and figures show, apart from 0; None under noise
    provenance: Mapping[str, object] = field(default_factory=dict)
    change: Mapping[str, Measured] = field(default_factory=dict)  # after less before, with paired intervals
    evidence: Trail = field(default_factory=Trail)
    call: str = ""  # the command or call that made it

    @classmethod
    def at_sites(cls, phase: Phase[Fitted], result: Result[Fitted], replayed: bool) -> CalibrationResult:
        """The result of fitting and measuring sites at a distance in one conversation, on the same records."""
        fitted, agreed = result.artifact, phase.agreed
        smallest = smallest_count(agreed.privacy, MIN_RECORDS)
        spent = as_published(result.privacy, agreed.numbers, smallest)
        return cls(
            method=agreed.method.fit,  # type: ignore[attr-defined]
            calibrator=fitted.calibrator,
            before=fitted.before,
            after=fitted.after,
            change=fitted.change or {},
            privacy=with_disclosure(spent, fitted.calibrator),
            min_count=smallest,
            private=agreed.privacy.private,
            counts=documents.counts(agreed.schema, agreed.privacy),
            phases=(phase,),
            remarks=documents.missing(fitted.before, fitted.after),
            replayed=replayed,
            held_out=False,
        )

    @cached_property  # published tables are merged for it, which takes time
    def warnings(self) -> tuple[str, ...]:
        """Everything that a reader has to know."""
        hidden = [text for one in self._sides.values() for text in documents.missing(one)]
        return tuple(dict.fromkeys((*self.left_out, *self.remarks, *hidden)))

    @property
    def verdicts(self) -> dict[str, str]:
        """Whether each metric is better, worse or not clearly changed, by its paired change."""
        return documents.verdicts(self.before, self.after, self.change)

    def to_json(self) -> dict[str, Any]:
        """The result as plain data, as `fedcalib calibrate --format json` prints it."""
        return {
            "command": self.command,
            "method": documents.word(self.method),
            **self.counts,
            "privacy": asdict(self.privacy),
            "before": documents.metrics(self.before),
            "after": documents.metrics(self.after),
            "change": None if self.before is None else documents.changes(self.before, self.after, self.change),
            "verdicts": self.verdicts,
            "unmeasurable": {
                "before": documents.unmeasurable(self.before),
                "after": documents.unmeasurable(self.after),
            },
            "warnings": list(self.warnings),
            "phases": [phase.cost() for phase in self.phases],
            "replayed": self.replayed,
            **documents.minimum(self.min_count),
        }

    def to_frame(self) -> Any:
        """A pandas frame of the metrics before and after and their change, with intervals; one row per metric."""
        rows = documents.by_metric({"before": self.before, "after": self.after})
        change, verdicts = documents.changes(self.before, self.after, self.change), self.verdicts
        return documents.frame(
            [{**row, "change": change.get(row["metric"]), "verdict": verdicts.get(row["metric"])} for row in rows]
        )

    @property
    def headline(self) -> str:
        """The verdict on the calibration error."""
        return self._summary(type(self.method).__name__)[0]

    @property
    def sentences(self) -> tuple[str, ...]:
        """On which records it was measured, the privacy statement, and the warnings."""
        more = (text for text in self.warnings if text != self.headline)
        return (*self._summary(type(self.method).__name__)[1:], self.privacy.statement, *more)

    def tables(self) -> list[documents.TextTable]:
        """The result for people."""
        document = self.to_json()
        tables = [documents.facts_table("Privacy", document["privacy"])]
        if self.before is None:
            return tables
        where = "records that were not fitted" if self.held_out else "the records that were fitted"
        columns = {name: document[name] for name in ("before", "after", "change")} | {"verdict": document["verdicts"]}
        reasons = document["unmeasurable"]
        measured = documents.metrics_table(f"Measured on {where}", columns, reasons)
        return [measured, *documents.reasons_table(*reasons.values()), *tables]

    def document(self) -> dict[str, Any]:
        """The result as `result.json` holds it: with decisions at many thresholds where there are two classes."""
        explored = self._explorer
        return {**self.to_json(), **({} if explored is None else {"thresholds": explored.to_json()})}

    def plot(self, name: str | None = None) -> Any:
        """The figures, which show themselves in a notebook, or the one of a name such as "reliability"."""
        drawn = self._figures
        return drawn if name is None else drawn[name]

    @cached_property
    def _sides(self) -> dict[str, Measurement]:
        """What curves are drawn of, as it may be published."""
        sides = {"before": self.before, "after": self.after}
        return {name: one.published(self.min_count or 1) for name, one in sides.items() if one is not None}

    @cached_property
    def _figures(self) -> Figures:
        return reports.figures(self._sides)

    @cached_property
    def _explorer(self) -> Explorer | None:
        return reports.explorer(self._sides) if self._sides else None

    def contents(self, about: About = UNKNOWN) -> Page:
        """The contents of the report."""
        name, drawn = type(self.method).__name__, self._figures.pictures
        return Page(
            title=f"Calibration of {about.named} by {name}",
            asked=f"Does {name} make the predicted probabilities of {about.named} agree better with what happens?",
            summary=self._summary(name),
            gains=verdicts.movement([(row.site, row.before, row.after) for row in self.sites], "calibration error"),
            next_steps=self._next_steps,
            facts=stated(about, self.call) | self._measured_on,
            privacy=(self.privacy.statement,),
            meaning=(*meaning(self.privacy), *self.evidence.remainder),
            private=self.private,
            simulation=self.privacy.simulation,
            records=self.counts["records"],
            clients=self.counts["sites"],
            metrics=reports.metric_rows(self.before, self.after, self.change),
            reliability=drawn.get("reliability") if "bins" in drawn else None,
            before=reports.diagram("before", self._sides.get("before"), None),
            after=reports.diagram("after", self._sides.get("after"), None),
            curves=tuple(drawn[one] for one in ("decision", "roc", "pr") if one in drawn),
            explorer=self._explorer,
            sites=self.sites,
            site_metric=ECE.title,
            sections=class_section(self._sides.get("after"), self.calibrator.class_names, _BY_CLASS),
            warnings=self._limits,
            provenance=made({**self.provenance, **self._costs}, self.evidence),
            data=documents.text(self.document()),
        )

    def pages(self, about: About = UNKNOWN) -> dict[str, bytes]:
        """The report page, and the pictures beside it where there are any."""
        return {name: part for name, part in self.files(about).items() if name in ("report.html", *_PICTURES)}

    def files(self, about: About = UNKNOWN) -> dict[str, bytes]:
        """The calibrator, the result, the report page, and the pictures beside it where there are any."""
        page = self.contents(about)
        contents = {"calibrator.json": self.calibrator.dumps(self.privacy).encode(), "result.json": page.data.encode()}
        contents |= reports.files(page, self._figures.pictures)
        return {name: part for name, part in contents.items() if name in NAMES}

    @property
    def _measured_on(self) -> dict[str, str]:
        if self.before is None:
            return {}
        where = "records that were held out" if self.held_out else "the records that were fitted"
        if not self.private and isinstance(self.before, Performance) and self.before.records >= MIN_RECORDS:
            where = f"{round(self.before.records):,} {where}"
        return {"Measured on": where}

    @property
    def _limits(self) -> tuple[str, ...]:
        hidden = (_HIDDEN,) if self.before is not None and not self.sites else ()
        return (*self.warnings, *hidden, *_LIMITS)

    @property
    def _costs(self) -> dict[str, object]:
        """What each phase sent and spent."""
        told: dict[str, object] = {}
        for one in (phase.cost() for phase in self.phases):
            spent = "" if one["epsilon"] is None else f", epsilon = {one['epsilon']:.4g}"
            told[f"phase {one['phase']}"] = f"{one['bytes_per_client']:,} bytes per client{spent}"
        return told

    @property
    def _next_steps(self) -> tuple[str, ...]:
        if self.after is None:
            return ("Measure the calibrator before it is used: name files with --test, or hold records out.",)
        known = verdicts.known(self.after)
        return verdicts.after_calibration(self.verdicts, known)

    def _summary(self, name: str) -> tuple[str, ...]:
        if self.before is None or self.after is None or self.before.ece is None or self.after.ece is None:
            return (f"{name} was fitted; its effect was not measured.",)
        where = (
            "records that were not fitted" if self.held_out else "the records that were fitted, which flatters a little"
        )
        known = verdicts.known(self.after)
        said = (verdicts.calibration(known),) if OBSERVED_EXPECTED.name in known else ()
        changed = not isinstance(self.calibrator, Identity)
        state = (f"After calibration, {_lower(text)}" if changed else text for text in said)
        return (self._effect, *state, f"Both were measured on {where}. Verdicts follow from the paired change.")

    @property
    def _effect(self) -> str:
        """The headline: the verdict on the calibration error, and what got worse; or why nothing was changed."""
        if isinstance(self.calibrator, Identity):
            return _kept(self.calibrator)[0]
        before, after = (documents.metrics(one) or {} for one in (self.before, self.after))
        titles = {metric.name: metric.title for metric in METRICS}
        worse = [titles[name] for name, verdict in self.verdicts.items() if verdict == "worse"]
        verdict = self.verdicts.get(ECE.name) or "not compared"
        said = (
            f"The calibration error (ECE) went from {before[ECE.name]['value']:.4f} to {after[ECE.name]['value']:.4f}: "
        )
        return f"{said}{verdict}." + (f" Worse: {', '.join(worse)}." if worse else " No metric is clearly worse.")


def _kept(calibrator: Calibrator) -> tuple[str, ...]:
    """Why a classifier was left as it is, if it was."""
    if not isinstance(calibrator, Identity):
        return ()
    reason = calibrator.reason.removeprefix("nothing was changed: ")
    return ("The classifier was left as it is" + (f": {reason}." if reason else "."),)


def _compared(found: PairedPerformance, calibrator: Calibrator) -> PairedPerformance:
    """What was measured; where nothing was changed, two estimates of one figure must not look like a change."""
    if not isinstance(calibrator, Identity):
        return found
    return replace(found, after=found.before, change=dict.fromkeys(found.change, Measured(0.0, 0.0, 0.0)))


def _lower(sentence: str) -> str:
    return f"{sentence[:1].lower()}{sentence[1:]}"


@final
@dataclass(frozen=True, eq=False)
class Calibration:
    """Everything that a calibration is told."""

    data: Data
    method: Method[Calibrator]
    privacy: Privacy
    participation: Participation = field(default_factory=Everyone)
    test: Data | None = None  # records to measure on, instead of holding some out
    holdout: float = 0.3  # share of records to measure on; 0 for none
    session: WorkflowSession = field(default_factory=WorkflowSession)
    min_count: int = MIN_RECORDS  # the smallest count that published tables of exact models show, apart from 0
    records: int | None = None  # a public guess of the number of records, which sets the resolution under noise

    def __post_init__(self) -> None:
        check_made(self.method, Method, "a method")
        check_made(self.privacy, Privacy, "a privacy model")
        smallest_count(self.privacy, self.min_count)

    def dry_run(self) -> documents.DryRun:
        """What would be asked and what it would cost; nothing is asked."""
        if isinstance(self.data.source, Runtime):
            schema = self.data.source.schema
            phase = self._at_sites(schema)
            facts = {"method": documents.word(self.method), **documents.counts(schema, self.privacy)}
            return documents.DryRun(facts, (phase,), self.session.marked(phase.spending), ())
        split = self._split(Conductor(self.session, self.session.forgotten()))
        phases = self._phases(split)
        facts = {"method": documents.word(self.method), **documents.counts(split.all, self.privacy)}
        warnings = (*split.warnings, *phases.warnings)
        return documents.DryRun(facts, phases.all, self.session.marked(phases.total), warnings)

    def run(self) -> CalibrationResult:
        """Fit, and measure before and after."""
        sources = (self.data,) if self.test is None else (self.data, self.test)
        with self.session.opened("calibrate", self._settings, *sources) as conductor:
            if isinstance(self.data.source, Runtime):
                phase = self._at_sites(self.data.source.schema)
                conductor.pay(phase.spending)
                result = conductor.run(phase, self.data.source)
                conductor.tell()
                done = CalibrationResult.at_sites(phase, result, conductor.replayed)
                return replace(done, provenance=self._provenance, evidence=conductor.evidence(), call=call(_CALL))
            split = self._split(conductor)
            phases = self._phases(split)
            conductor.pay(phases.total, (phases.fit, split.fitted))
            # where nothing can be measured, nothing needs to be held out
            fitted = conductor.run(phases.fit, InProcess(split.fitted if phases.measure else split.all))
            measured, missed = self._measured(conductor, phases, split.held, fitted.artifact)
            conductor.tell()
            evidence = conductor.evidence()
        done = self._result(split, replace(phases, warnings=(*phases.warnings, *missed)), fitted, measured, conductor)
        return replace(done, evidence=evidence, call=call(_CALL))

    def _at_sites(self, schema: Schema) -> Phase[Fitted]:
        """Fit and measure in one conversation: sites at a distance hold no records out by a server's coin."""
        method = FitAndMeasure(self.method, FederatedMetrics(records=self.records))
        return Phase.of("calibration", method, self.privacy, self.participation, schema)

    @property
    def _measurement(self) -> FederatedMetrics:
        """Settings of the measurement, of the share of the records that is held out."""
        held = 1.0 if self.test is not None or not self.holdout else self.holdout
        return FederatedMetrics(records=None if self.records is None else max(round(held * self.records), 1))

    @property
    def _settings(self) -> dict[str, Any]:
        parts = {"method": self.method, "privacy": self.privacy, "participation": self.participation}
        told = {} if self.records is None else {"records": self.records}
        return {**{name: wire.encode(part) for name, part in parts.items()}, "holdout": self.holdout, **told}

    def _split(self, conductor: Conductor) -> Split:
        """Read the records, and set apart what is to be measured."""
        federation, warnings = conductor.read(self.data, self.privacy.private)
        if self.test is not None:
            _check_new(self.data, self.test)
            held, more = conductor.read(self.test, self.privacy.private)
            _check_alike(federation, held, self.test)
            return Split(federation, federation, held, warnings + more)
        if not self.holdout:
            return Split(federation, federation, None, warnings)
        return Split(federation, *conductor.state.split(federation, self.holdout), warnings)

    def _phases(self, split: Split) -> Phases:
        """Share the budget among the phases and agree on them all, so that refusals come before any query is sent."""
        if split.held is None:
            reason = "no records were held out and no test files given."
        else:
            try:
                return self._with_measures(split.fitted.schema, split.held.schema)
            except RefusedError as error:
                reason = str(error)
        return Phases(self._fit(ALONE, split.all.schema), None, True, (f"{_UNMEASURED}{reason}",))

    def _with_measures(self, fitted: Schema, held: Schema) -> Phases:
        held_out, budget = self.test is None, self.privacy.budget
        parts = shares("none" if budget is None else budget.unit, held_out)
        fit = self._fit(parts, fitted)
        if parts != (actual := shares(fit.spending.unit, held_out)):
            # the method's queries bound another unit than the privacy model usually does
            parts, fit = actual, self._fit(actual, fitted)
        measure = self._measure(UNCHANGED, scaled(self.privacy, parts.measurement), held)
        if measure.spending.unit != fit.spending.unit:
            raise RefusedError(
                "the method and the metrics protect different units under this privacy model, which no budget can add "
                "up"
            )
        return Phases(fit, measure, parts.parallel)

    def _fit(self, parts: Shares, schema: Schema) -> Phase[Calibrator]:
        privacy = scaled(self.privacy, parts.calibration)
        return Phase.of("calibration", self.method, privacy, self.participation, schema)

    def _measure(self, calibrator: Calibrator, privacy: Privacy, schema: Schema) -> Phase[PairedPerformance]:
        # one query needs no cohorts of its own: everybody answers it
        who = Everyone() if isinstance(self.participation, Disjoint) else self.participation
        method = before_and_after(calibrator, schema.classes, self._measurement)
        return Phase.of("measurement", method, privacy, who, schema)

    def _measured(
        self, conductor: Conductor, phases: Phases, held: Federation | None, calibrator: Calibrator
    ) -> tuple[PairedPerformance | None, tuple[str, ...]]:
        """Measure before and after; a measurement that cannot be paid again leaves the calibrator as it is.

        What is sent may depend on the calibrator, which is known by now; its share of the budget does not.
        """
        if held is None or phases.measure is None:
            return None, ()
        phase = self._measure(calibrator, phases.measure.agreed.privacy, held.schema)
        try:
            return conductor.run(phase, InProcess(held)).artifact, ()
        except BudgetError as error:
            return None, (f"{_UNMEASURED}{error}",)

    def _result(
        self,
        split: Split,
        phases: Phases,
        fitted: Result[Calibrator],
        found: PairedPerformance | None,
        conductor: Conductor,
    ) -> CalibrationResult:
        smallest = smallest_count(self.privacy, self.min_count)
        numbers = sum(phase.agreed.numbers for phase in phases.all)
        spent = for_units(as_published(conductor.stated(phases.total), numbers, smallest), self.data.columns.unit)
        found = None if found is None else _compared(found, fitted.artifact)
        missing = () if found is None else documents.missing(found.before, found.after, found)
        return CalibrationResult(
            method=self.method,
            calibrator=fitted.artifact.with_class_names(conductor.class_names),
            before=None if found is None else found.before,
            after=None if found is None else found.after,
            change={} if found is None else found.change,
            privacy=with_disclosure(spent, fitted.artifact),
            min_count=smallest,
            private=self.privacy.private,
            counts=documents.counts(split.all, self.privacy),
            sites=site_rows(split.held if found else None, fitted.artifact, self.privacy),
            phases=phases.all,
            left_out=split.warnings,
            remarks=(*_kept(fitted.artifact), *phases.warnings, *missing),
            replayed=conductor.replayed,
            provenance=self._provenance,
        )

    @property
    def _provenance(self) -> dict[str, object]:
        facts = {
            "method": repr(self.method),
            "privacy model": repr(self.privacy),
            "participation": repr(self.participation),
            "split_seed": self.session.split_seed,
            "simulate": self.session.simulate,
            "holdout": None if self.test else self.holdout,
            "records about": self.records,
            "files": ", ".join(path.name for path in (*self.data.files, *(self.test.files if self.test else ()))),
        }
        return {name: value for name, value in facts.items() if value not in (None, "")}


def _check_new(fitted: Data, test: Data) -> None:
    """Refuse to measure on the records that were fitted: the result would flatter, and say that it does not."""
    if fitted.shares(test):
        raise InputError(
            "Expected other records in test (--test) than those that are fitted, found the same file or frame in both; "
            "leave test (--test) out, and some records are held out."
        )


def _check_alike(fitted: Federation, held: Federation, test: Data) -> None:
    expected, found = wording(fitted.records), wording(held.records)
    if expected != found:
        where = f" in {test.files[0]}" if test.files else ""
        raise InputError(f"Expected {expected} in --test as in the other files, found {found}{where}.")


def calibrate(
    data: Any,
    method: Method[Calibrator] | None = None,
    privacy: Privacy | None = None,
    *,
    participation: Participation | None = None,
    test: Any = None,
    holdout: float = 0.3,
    min_count: int = MIN_RECORDS,
    records_about: int | None = None,
    **options: Unpack[Options],
) -> CalibrationResult:
    """Fit a calibrator across sites without pooling their records, and measure what it changes.

    Records to measure on are held out by a coin each, so fitting and measuring can use the same budget where the
    privacy unit is a record. `fedcalib calibrate` does the same from the shell.

    Parameters
    ----------
    data
        A `Federation`, a pandas or Arrow frame, one or several files (patterns are written out), or a `Runtime` of
        sites at a distance, which are fitted and measured on the same records in one conversation.
    method
        How to calibrate; `Auto()` if left out.
    privacy
        The privacy model with the whole budget of everything that is released; `SecAgg()` if left out.
    participation
        Who takes part; everyone if left out.
    test
        Records to measure on, as for `data`, instead of holding some out.
    holdout
        Share of records to measure on instead of fitting; 0 for none.
    min_count
        The smallest count of records, apart from 0, that published tables and figures of an exact model show.
    records_about
        A public guess of the number of records, held-out ones included, which sets the resolution of the measurement
        under noise; 2,000 or the number of clients if left out.
    **options
        Columns, seeds, state, ledger and notices: see `fedcalib.workflows.session.Options`.

    Returns
    -------
    CalibrationResult
        The calibrator, the metrics before and after, and what was spent.

    Raises
    ------
    InputError
        If the data cannot be read.
    RefusedError
        If the privacy model cannot serve the method.
    BudgetError
        If the ledger's account does not hold the total.

    Examples
    --------
    >>> import numpy as np
    >>> import fedcalib as fc
    >>> from fedcalib.workflows import calibrate
    >>> rng = np.random.default_rng(0)
    >>> score = rng.random(900)
    >>> label = rng.random(900) < score**2
    >>> hospital = rng.choice(["east", "north", "west"], 900)
    >>> federation = fc.Federation.by_site(fc.Records.of_scores(score, label), hospital)
    >>> done = calibrate(federation, fc.FedBin(), fc.SecAgg())
    >>> done.after.ece.value < done.before.ece.value
    True
    """
    source, session = opening(data, **options)
    tested = None if test is None else Data.of(test, source.columns)
    who, model = participation or Everyone(), privacy or SecAgg()
    return Calibration(source, method or Auto(), model, who, tested, holdout, session, min_count, records_about).run()
