"""The two ways to compare: as a simulation, or within a budget that is really spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np

from fedcalib.accounting.spending import Spending
from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.evaluation import MetricsReport
from fedcalib.cli.request import DataRequest, PrivacyRequest, derived
from fedcalib.cli.voice import Voice
from fedcalib.cohort import Disjoint, Everyone, Participation
from fedcalib.errors import FedcalibError, InputError
from fedcalib.method import Method
from fedcalib.methods.evaluation import FederatedMetrics
from fedcalib.metrics.intervals import NOTHING, Measured
from fedcalib.metrics.table import shown_in
from fedcalib.records import Schema
from fedcalib.registry import Registered
from fedcalib.workflows import session as state
from fedcalib.workflows.budget import together
from fedcalib.workflows.compare import ByClient, Figures, Split, Standing, Trial, compare
from fedcalib.workflows.comparison import SIMULATION, Row, Side, builder, built, change_of
from fedcalib.workflows.session import Conductor, Phase, Purse, Rehearsal


@final
@dataclass(frozen=True)
class Comparison:
    """Everything that a comparison was told."""

    chosen: tuple[Registered, ...]
    privacy: PrivacyRequest
    participation: Participation
    rounds: int | None
    clip: float | None  # of the methods, where the model takes none
    split: Split
    data: DataRequest
    files: tuple[Path, ...]
    purse: Purse
    voice: Voice

    def simulate(self, repeats: int, seed: int) -> tuple[Side, str]:
        """Run every method on the same splits, each with the whole budget, and measure exactly."""
        federation, _ = self.data.read(self.files, state.forgotten(seed), self.privacy.model().private)
        methods, refused = built(self.chosen, builder(self.rounds, self.clip))
        with self.voice.meter("comparing methods") as meter:
            standings = compare(
                methods, federation, self.privacy.model(), participation=self.participation, split=self.split,
                repeats=repeats, seed=seed, watch=meter.at,
            )  # fmt: skip
        refused |= {one.name: one.refused for one in standings if one.refused}
        rows = [_simulated(one) for one in standings if one.trials]
        if not rows:
            raise InputError(f"Expected a method that can be run, found all refused: {_listed(refused)}")
        trials = next(one.trials for one in standings if one.trials)
        return Side.of(_base([trial.before for trial in trials]), rows, refused), SIMULATION

    def spend(self, kept: state.State) -> tuple[Side, str]:
        """Run every method on a share of the budget, measure privately, and pay for all of it beforehand."""
        if self.privacy.epsilon is None:
            raise InputError("Expected --epsilon with --spend, found none; without a budget there is nothing to split.")
        federation, _ = self.data.read(self.files, kept, private=True)
        fitted, held = self.split.part(federation, derived(kept, "holdout"))
        agenda = self._agenda(fitted.schema, held.schema)
        self.purse.pay(kept, agenda.total)
        conductor = Conductor(kept, None, self.voice, self.purse)
        before = conductor.run(agenda.measures[0], held).artifact
        rows, asked = [], zip(agenda.fits, agenda.rehearsed, agenda.measures[1:], strict=True)
        for fit, rehearsal, measure in asked:
            found = conductor.run(fit, fitted)
            after = conductor.run(measure, replace(held, records=found.artifact.over(held.records))).artifact
            rows.append(_private(fit.name.removesuffix("-fit"), before, after, rehearsal))
        conductor.tell()
        return Side.of(_measured("none", before, before), rows, agenda.refused), agenda.total.statement

    def _agenda(self, fitted: Schema, held: Schema) -> Agenda:
        """Share the budget among methods that are not refused, and among measurements of them and of the base model."""
        unit = self._measure("base-measure", 1.0).rehearse(held).spending.unit
        parallel = unit == "record" or isinstance(self.split, ByClient)
        whole = 1.0 if parallel else 0.5
        methods, refused = self._accepted(fitted, unit, whole / len(self.chosen))
        if not methods:
            raise InputError(f"Expected a method that can be run, found all refused: {_listed(refused)}")
        share = whole / len(methods)
        fits = tuple(self._fit(word, method, share) for word, method in methods.items())
        names = ("base-measure", *(f"{word}-measure" for word in methods))
        measures = tuple(self._measure(name, whole / len(names)) for name in names)
        rehearsed = tuple(fit.rehearse(fitted) for fit in fits)
        measured = [measure.rehearse(held).spending for measure in measures]
        return Agenda(fits, measures, rehearsed, _total(rehearsed, measured, parallel), refused)

    def _accepted(
        self, schema: Schema, unit: str, share: float
    ) -> tuple[dict[str, Method[Calibrator]], dict[str, str]]:
        methods, refused = built(self.chosen, builder(self.rounds, self.clip))
        for word, method in list(methods.items()):
            try:
                found = self._fit(word, method, share).rehearse(schema).spending.unit
                reason = "" if found == unit else f"it protects the unit {found}, the measurements the unit {unit}"
            except FedcalibError as error:
                reason = str(error)
            if reason:
                refused[word] = reason
                del methods[word]
        return methods, refused

    def _fit(self, word: str, method: Method[Calibrator], share: float) -> Phase[Calibrator]:
        return Phase(f"{word}-fit", method, self.privacy.model(share), self.participation)

    def _measure(self, name: str, share: float) -> Phase[MetricsReport]:
        who = Everyone() if isinstance(self.participation, Disjoint) else self.participation
        return Phase(name, FederatedMetrics(), self.privacy.model(share), who)


@final
@dataclass(frozen=True)
class Agenda:
    """What will be asked, and what all of it costs together."""

    fits: tuple[Phase[Calibrator], ...]
    measures: tuple[Phase[MetricsReport], ...]
    rehearsed: tuple[Rehearsal, ...]
    total: Spending
    refused: Mapping[str, str]


def _total(rehearsed: Sequence[Rehearsal], measured: Sequence[Spending], parallel: bool) -> Spending:
    spent = [rehearsal.spending for rehearsal in rehearsed]
    epsilon, delta = sum(one.epsilon or 0.0 for one in spent), sum(one.delta or 0.0 for one in spent)
    said = f"{len(spent)} methods were fitted to the same records, so their costs add up. {spent[0].statement}"
    return together(replace(spent[0], epsilon=epsilon, delta=delta, statement=said), measured, parallel)


def _simulated(standing: Standing) -> Row:
    first = standing.trials[0]
    spent = first.spending
    return Row(
        standing.name,
        _ranges([trial.after for trial in standing.trials], [trial.before for trial in standing.trials]),
        first.bytes_a_client,
        standing.mean(_seconds),
        spent.epsilon,
        spent.delta,
        spent.unit,
    )


def _seconds(trial: Trial) -> float:
    return trial.client_seconds


def _base(before: Sequence[Figures]) -> Row:
    return Row("none", _ranges(before, before))


def _ranges(after: Sequence[Figures], before: Sequence[Figures]) -> dict[str, Measured]:
    """Average over repeats, give or take their standard deviation where there are several."""
    columns = {metric.name: [one[metric.name] for one in after] for metric in shown_in("comparison")}
    for metric in shown_in("change"):
        pairs = zip(after, before, strict=True)
        columns[change_of(metric)] = [100 * (new[metric.name] - old[metric.name]) for new, old in pairs]
    return {name: _range(np.array(values)) for name, values in columns.items()}


def _range(values: np.ndarray[Any, Any]) -> Measured:
    middle = float(values.mean())
    if len(values) == 1:
        return Measured(middle)
    off = float(values.std(ddof=1))
    return Measured(middle, middle - off, middle + off)


def _private(word: str, before: MetricsReport, after: MetricsReport, rehearsal: Rehearsal) -> Row:
    spent = rehearsal.spending
    plain = _measured(word, before, after)
    return replace(
        plain,
        bytes_a_client=rehearsal.bytes_a_client,
        epsilon=spent.epsilon,
        delta=spent.delta,
        unit=spent.unit,
    )


def _measured(word: str, before: MetricsReport, after: MetricsReport) -> Row:
    """Read a private measurement; what drowned in noise stays empty."""
    values = {metric.name: getattr(after, metric.name) or Measured(NOTHING) for metric in shown_in("comparison")}
    for metric in shown_in("change"):
        new, old = (getattr(report, metric.name) or Measured(NOTHING) for report in (after, before))
        values[change_of(metric)] = Measured(100 * (new.value - old.value))
    return Row(word, values)


def _listed(refused: Mapping[str, str]) -> str:
    return " ".join(f"{name}: {reason}" for name, reason in refused.items())
