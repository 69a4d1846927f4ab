"""What `fedcalib calibrate` does: fit on some records, measure before and after on others, within one budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from fedcalib.accounting.spending import Spending
from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.evaluation import MetricsReport
from fedcalib.cli.request import DataRequest, PrivacyRequest, split
from fedcalib.cli.voice import Voice
from fedcalib.cohort import Disjoint, Everyone, Participation
from fedcalib.errors import InputError, RefusedError
from fedcalib.federation import Federation
from fedcalib.loop import Result
from fedcalib.method import Method
from fedcalib.methods.evaluation import FederatedMetrics
from fedcalib.records import Schema
from fedcalib.workflows import documents
from fedcalib.workflows import reports as pages
from fedcalib.workflows import session as state
from fedcalib.workflows.budget import ALONE, Shares, for_units, shares, together
from fedcalib.workflows.evaluate import site_rows
from fedcalib.workflows.session import Conductor, Phase, Purse, Rehearsal


@final
@dataclass(frozen=True)
class Calibration:
    """Everything that a calibration was told."""

    word: str
    method: Method[Calibrator]
    privacy: PrivacyRequest
    participation: Participation
    data: DataRequest
    files: tuple[Path, ...]
    test: tuple[Path, ...]
    holdout: float
    seed: int | None
    purse: Purse
    voice: Voice

    @property
    def measured(self) -> bool:
        """Say whether there are records to measure on."""
        return bool(self.test) or self.holdout > 0

    def key(self, settings: Mapping[str, Any]) -> str:
        """Name this command for its state directory."""
        return state.key("calibrate", settings, (*self.files, *self.test))

    def records(self, kept: state.State) -> Records:
        """Read the files, and set apart what is to be measured."""
        private = self.privacy.model().private
        federation, warnings = self.data.read(self.files, kept, private)
        if self.test:
            held, more = self.data.read(self.test, kept, private)
            _check_alike(federation, held, self.test[0])
            return Records(federation, federation, held, warnings + more)
        if not self.measured:
            return Records(federation, federation, None, warnings)
        return Records(federation, *split(federation, self.holdout, kept), warnings)

    def plan(self, fitted: Schema, held: Schema | None) -> Phases:
        """Share the budget among the phases and rehearse them all, so that refusals come before any question."""
        unit = self._fit(ALONE).rehearse(fitted).spending.unit
        if held is None:
            return self._phases(ALONE, fitted, None, ())
        parts = shares(unit, held_out=not self.test)
        try:
            if self._measure("before", parts).rehearse(held).spending.unit == unit:
                return self._phases(parts, fitted, held, ())
            reason = "the method and the metrics protect different units under this model, which no budget can add up"
        except RefusedError as error:
            reason = str(error)
        return self._phases(ALONE, fitted, None, (f"Before and after were not measured: {reason}",))

    def _phases(self, parts: Shares, fitted: Schema, held: Schema | None, warnings: tuple[str, ...]) -> Phases:
        fit = self._fit(parts)
        measures = () if held is None else (self._measure("before", parts), self._measure("after", parts))
        rehearsed = [fit.rehearse(fitted), *(phase.rehearse(held) for phase in measures if held is not None)]
        return Phases(fit, measures, parts.parallel, tuple(rehearsed), warnings)

    def _fit(self, parts: Shares) -> Phase[Calibrator]:
        return Phase("calibration", self.method, self.privacy.model(parts.calibration), self.participation)

    def _measure(self, name: str, parts: Shares) -> Phase[MetricsReport]:
        # one question needs no cohorts of its own: everybody answers it
        who = Everyone() if isinstance(self.participation, Disjoint) else self.participation
        return Phase(name, FederatedMetrics(), self.privacy.model(parts.measurement), who)

    def run(self, records: Records, phases: Phases, kept: state.State) -> Outcome:
        """Ask, phase by phase."""
        self.purse.pay(kept, phases.total)
        conductor = Conductor(kept, self.seed, self.voice, self.purse)
        # where nothing can be measured, nothing needs to be held out
        fitted = conductor.run(phases.fit, records.fitted if phases.measures else records.all)
        measured = []
        if phases.measures and records.held is not None:
            held, before, after = records.held, *phases.measures
            measured.append(conductor.run(before, held))
            calibrated = replace(held, records=fitted.artifact.over(held.records))
            measured.append(conductor.run(after, calibrated))
        conductor.tell()
        return Outcome(fitted, tuple(measured), phases.parallel, conductor.replayed)

    def tell(self, records: Records, phases: Phases, outcome: Outcome, provenance: Mapping[str, object]) -> Told:
        """Put the outcome into words, data and files."""
        spent = for_units(outcome.spent, self.data.columns.unit)
        before, after = (result.artifact for result in outcome.measured) if outcome.measured else (None, None)
        model = self.privacy.model()
        warnings = [*records.warnings, *phases.warnings]
        if not self.measured:
            warnings.append("Before and after were not measured: no records were held out and no test files given.")
        for report in (before, after):
            warnings += documents.missing(report, records.fitted.schema.classes) if report is not None else ()
        document: dict[str, Any] = {
            "method": self.word,
            **documents.counts(records.all, model),
            "privacy": documents.spending(spent),
            "before": documents.metrics(before),
            "after": documents.metrics(after),
            "warnings": list(dict.fromkeys(warnings)),
            "phases": [rehearsal.cost() for rehearsal in phases.rehearsed],
            "replayed": outcome.replayed,
        }
        sites = site_rows(records.held if outcome.measured else None, outcome.fitted.artifact, model)
        unseen = () if sites or not outcome.measured else ("Single sites are left out: the model hides them.",)
        story = pages.Story(
            title=f"Calibration by {type(self.method).__name__}",
            summary=_summary(type(self.method).__name__, before, after),
            spent=spent,
            private=model.private,
            counts=documents.counts(records.all, model),
            before=before,
            after=after,
            warnings=(*document["warnings"], *unseen),
            provenance=provenance,
            sites=sites,
        )
        return Told(document, pages.files(story), spent)


@final
@dataclass(frozen=True, eq=False)
class Records:
    """All records, those to fit and those to measure on."""

    all: Federation
    fitted: Federation
    held: Federation | None
    warnings: tuple[str, ...]


@final
@dataclass(frozen=True)
class Phases:
    """What will be asked, with its share of the budget."""

    fit: Phase[Calibrator]
    measures: tuple[Phase[MetricsReport], ...]
    parallel: bool
    rehearsed: tuple[Rehearsal, ...]
    warnings: tuple[str, ...]

    @property
    def total(self) -> Spending:
        """Say what all phases spend together."""
        first, *others = (rehearsal.spending for rehearsal in self.rehearsed)
        return together(first, others, self.parallel)


@final
@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of it."""

    fitted: Result[Calibrator]
    measured: tuple[Result[MetricsReport], ...]
    parallel: bool
    replayed: bool

    @property
    def spent(self) -> Spending:
        """Say what was spent in the end, questions that had to be asked again included."""
        return together(self.fitted.privacy, [result.privacy for result in self.measured], self.parallel)


@final
@dataclass(frozen=True)
class Told:
    """A result as a document and as files."""

    document: dict[str, Any]
    files: dict[str, bytes]
    spent: Spending


def _check_alike(fitted: Federation, held: Federation, file: Path) -> None:
    kinds = [(f.records.classes, "logits" if f.records.are_logits else "probabilities") for f in (fitted, held)]
    if kinds[0] != kinds[1]:
        raise InputError(
            f"Expected {kinds[0][1]} of {kinds[0][0]} classes in --test as in the other files, "
            f"found {kinds[1][1]} of {kinds[1][0]} classes in {file}."
        )


def _summary(name: str, before: MetricsReport | None, after: MetricsReport | None) -> tuple[str, ...]:
    if before is None or after is None or before.ece is None or after.ece is None:
        return (f"{name} was fitted; its effect was not measured.",)
    return (
        f"The calibration error (ECE) went from {before.ece.value:.4f} to {after.ece.value:.4f}.",
        "Both were measured on records that were not fitted.",
    )
