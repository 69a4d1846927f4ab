"""The two ways to compare: as a simulation, or within a budget that is really spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from fedcalib.accounting.spending import Spending
from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.evaluation import MetricsReport
from fedcalib.cohort import Disjoint, Everyone, Participation
from fedcalib.errors import FedcalibError, InputError
from fedcalib.method import Method
from fedcalib.methods.evaluation import FederatedMetrics
from fedcalib.metrics.intervals import NOTHING, Measured
from fedcalib.metrics.table import shown_in
from fedcalib.privacy import Privacy
from fedcalib.records import Schema
from fedcalib.registry import Registered
from fedcalib.runtimes import InProcess
from fedcalib.workflows.budget import scaled, together
from fedcalib.workflows.compare import ByClient, Figures, Split, Standing, Trial, compare
from fedcalib.workflows.comparison import SIMULATION, Row, Side, builder, built, change_of
from fedcalib.workflows.session import Conductor, Data, Phase, Session


@final
@dataclass(frozen=True)
class Comparison:
    """Everything that a comparison was told."""

    chosen: tuple[Registered, ...]
    privacy: Privacy
    participation: Participation
    rounds: int | None
    clip: float | None  # of the methods, where the model takes none
    split: Split
    data: Data
    session: Session

    def simulate(self, repeats: int, seed: int) -> tuple[Side, str]:
        """Run every method on the same splits, each with the whole budget, and measure exactly."""
        federation, _ = Conductor(self.session, replace(self.session, seed=seed).forgotten()).read(self.data, True)
        methods, refused = built(self.chosen, builder(self.rounds, self.clip))
        with self.session.notices.progress("comparing methods") as at:
            standings = compare(
                methods, federation, self.privacy, participation=self.participation, split=self.split,
                repeats=repeats, seed=seed, watch=at,
            )  # fmt: skip
        refused |= {one.name: one.refused for one in standings if one.refused}
        rows = [_simulated(one) for one in standings if one.trials]
        if not rows:
            raise InputError(f"Expected a method that can be run, found all refused: {_listed(refused)}")
        trials = next(one.trials for one in standings if one.trials)
        return Side.of(_base([trial.before for trial in trials]), rows, refused), SIMULATION

    def spend(self, told: Mapping[str, Any]) -> tuple[Side, str]:
        """Run every method on a share of the budget, measure privately, and pay for all of it beforehand."""
        if self.privacy.budget is None:
            raise InputError("Expected --epsilon with --spend, found none; without a budget there is nothing to split.")
        with self.session.opened("compare", told, self.data) as conductor:
            federation, _ = conductor.read(self.data, private=True)
            fitted, held = self.split.part(federation, conductor.state.derived("holdout"))
            agenda = self._agenda(fitted.schema, held.schema)
            conductor.pay(agenda.total)
            before = conductor.run(agenda.measures[0], InProcess(held)).artifact
            rows = []
            for fit, measure in zip(agenda.fits, agenda.measures[1:], strict=True):
                found = conductor.run(fit, InProcess(fitted))
                calibrated = replace(held, records=found.artifact.over(held.records))
                after = conductor.run(measure, InProcess(calibrated)).artifact
                rows.append(_private(before, after, fit))
            conductor.tell()
        return Side.of(_measured("none", before, before), rows, agenda.refused), agenda.total.statement

    def _agenda(self, fitted: Schema, held: Schema) -> Agenda:
        """Share the budget among methods that are not refused, and among measurements of them and of the base model."""
        unit = self._measure("base-measure", 1.0, held).spending.unit
        parallel = unit == "record" or isinstance(self.split, ByClient)
        whole = 1.0 if parallel else 0.5
        methods, refused = self._accepted(fitted, unit, whole / len(self.chosen))
        if not methods:
            raise InputError(f"Expected a method that can be run, found all refused: {_listed(refused)}")
        share = whole / len(methods)
        fits = tuple(self._fit(word, method, share, fitted) for word, method in methods.items())
        names = ("base-measure", *(f"{word}-measure" for word in methods))
        measures = tuple(self._measure(name, whole / len(names), held) for name in names)
        return Agenda(fits, measures, _total(fits, measures, parallel), refused)

    def _accepted(
        self, schema: Schema, unit: str, share: float
    ) -> tuple[dict[str, Method[Calibrator]], dict[str, str]]:
        methods, refused = built(self.chosen, builder(self.rounds, self.clip))
        for word, method in list(methods.items()):
            try:
                found = self._fit(word, method, share, schema).spending.unit
                reason = "" if found == unit else f"it protects the unit {found}, the measurements the unit {unit}"
            except FedcalibError as error:
                reason = str(error)
            if reason:
                refused[word] = reason
                del methods[word]
        return methods, refused

    def _fit(self, word: str, method: Method[Calibrator], share: float, schema: Schema) -> Phase[Calibrator]:
        return Phase.of(f"{word}-fit", method, scaled(self.privacy, share), self.participation, schema)

    def _measure(self, name: str, share: float, schema: Schema) -> Phase[MetricsReport]:
        who = Everyone() if isinstance(self.participation, Disjoint) else self.participation
        return Phase.of(name, FederatedMetrics(), scaled(self.privacy, share), who, schema)


@final
@dataclass(frozen=True)
class Agenda:
    """What will be asked, and what all of it costs together."""

    fits: tuple[Phase[Calibrator], ...]
    measures: tuple[Phase[MetricsReport], ...]
    total: Spending
    refused: Mapping[str, str]


def _total(fits: Sequence[Phase[Any]], measures: Sequence[Phase[Any]], parallel: bool) -> Spending:
    spent = [phase.spending for phase in fits]
    epsilon, delta = sum(one.epsilon or 0.0 for one in spent), sum(one.delta or 0.0 for one in spent)
    said = f"{len(spent)} methods were fitted to the same records, so their costs add up. {spent[0].statement}"
    fitted = replace(spent[0], epsilon=epsilon, delta=delta, statement=said)
    return together(fitted, [phase.spending for phase in measures], parallel)


def _simulated(standing: Standing) -> Row:
    first = standing.trials[0]
    spent = first.spending
    return Row(
        standing.name,
        _ranges([trial.after for trial in standing.trials], [trial.before for trial in standing.trials]),
        first.bytes_per_client,
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


def _private(before: MetricsReport, after: MetricsReport, fit: Phase[Calibrator]) -> Row:
    spent = fit.spending
    plain = _measured(fit.name.removesuffix("-fit"), before, after)
    sent = fit.agreed.bytes_per_client
    return replace(plain, bytes_per_client=sent, epsilon=spent.epsilon, delta=spent.delta, unit=spent.unit)


def _measured(word: str, before: MetricsReport, after: MetricsReport) -> Row:
    """Read a private measurement; what drowned in noise stays empty."""
    values = {metric.name: getattr(after, metric.name) or Measured(NOTHING) for metric in shown_in("comparison")}
    for metric in shown_in("change"):
        new, old = (getattr(report, metric.name) or Measured(NOTHING) for report in (after, before))
        values[change_of(metric)] = Measured(100 * (new.value - old.value))
    return Row(word, values)


def _listed(refused: Mapping[str, str]) -> str:
    return " ".join(f"{name}: {reason}" for name, reason in refused.items())
