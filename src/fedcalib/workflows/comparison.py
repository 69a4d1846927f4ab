"""Compare methods on one federation: by a simulation, before anybody is asked, or within a budget that is spent."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Final, TypeAlias, Unpack, final

import numpy as np

from fedcalib import wire
from fedcalib.accounting.spending import Spending
from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.performance_parts import PairedPerformance
from fedcalib.cohort import Disjoint, Everyone, Participation
from fedcalib.display import check_made
from fedcalib.errors import BudgetError, FedcalibError, InputError, RefusedError
from fedcalib.federation import Federation
from fedcalib.loop import Outline, Result, Runtime, Step, Total
from fedcalib.method import Method, drive
from fedcalib.methods.evaluation import FederatedMetrics
from fedcalib.methods.paired_evaluation import PairedMetrics, is_of_score
from fedcalib.metrics.table import shown_in
from fedcalib.privacy import Privacy
from fedcalib.privacy.secagg import SecAgg
from fedcalib.query import Answer, Query
from fedcalib.randomness import Randomness, Simulated
from fedcalib.records import Records, Schema
from fedcalib.registry import Registered, choices, kebab
from fedcalib.runtimes import InProcess, run
from fedcalib.workflows import documents
from fedcalib.workflows.budget import added, scaled, together
from fedcalib.workflows.comparison_result import ComparisonResult, MethodRow, exact_values, private_values
from fedcalib.workflows.documents import Measurement
from fedcalib.workflows.session import Conductor, Data, Options, Phase, State, WorkflowSession, opening

SIMULATION: Final = "Simulation: nothing here is private, and nothing was spent. Noise and splits follow from a seed."
_BASE: Final = "none"
Methods: TypeAlias = Mapping[str, Method[Calibrator]]
Figures: TypeAlias = Mapping[str, float]  # exact metrics, by name


@dataclass(frozen=True)
class Holdout(ABC):
    """How records to measure on are set apart from those to fit on; `share` of them are."""

    share: float = 0.3
    of: ClassVar[str]

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise InputError(f"Expected a share between 0 and 1 to hold out, found {self.share}.")

    @abstractmethod
    def part(self, federation: Federation, seed: int | bytes) -> tuple[Federation, Federation]:
        """The records to fit on and those that are held out."""


@final
@dataclass(frozen=True)
class ByRecord(Holdout):
    """Hold out records of every client: how well a calibrator serves the clients that fitted it."""

    of: ClassVar[str] = "record"

    def part(self, federation: Federation, seed: int | bytes) -> tuple[Federation, Federation]:
        """Toss a coin per record, which follows from the record itself."""
        return federation.split(self.share, seed)


@final
@dataclass(frozen=True)
class ByClient(Holdout):
    """Hold out whole clients: how well a calibrator serves new clients."""

    of: ClassVar[str] = "client"

    def part(self, federation: Federation, seed: int | bytes) -> tuple[Federation, Federation]:
        """Choose clients by keyed hashes of their names, with at least one on each side."""
        if len(federation) < 2:
            raise InputError("Expected at least two clients to hold some of them out, found one; hold out by record.")
        held = federation.held_out_clients(self.share, seed)
        return federation.subset(~held), federation.subset(held)


def compare(
    data: Any,
    methods: Methods | Sequence[Method[Calibrator]] | None = None,
    privacy: Privacy | None = None,
    *,
    participation: Participation | None = None,
    holdout: Holdout | None = None,
    repeats: int = 3,
    spend: bool = False,
    records_about: int | None = None,
    **options: Unpack[Options],
) -> ComparisonResult:
    """Run every method on the same records, and compare what each gives and takes.

    By default this is a simulation, which is not private: splits and noise follow from a seed, every method gets the
    whole budget, and the held-out records are measured exactly. With `spend`, the budget is split over the methods and
    their measurements, and really spent; of two classes, one measurement serves all methods.

    Parameters
    ----------
    data
        A federation, a pandas or Arrow frame, or files.
    methods
        Methods, or methods by the names to show; all that `fedcalib methods` lists if left out. One that does not apply
        is listed with the reason.
    privacy
        The privacy model with the whole budget; `SecAgg()` if left out.
    participation
        Who answers which query; everyone if left out.
    holdout
        How records to measure on are chosen; 30% of every client's records if left out.
    repeats
        How many splits a simulation averages over.
    spend
        Spend the budget instead of simulating.
    records_about
        With `spend`, a public guess of the number of records, held-out ones included, which sets the resolution of the
        measurement under noise.
    **options
        Columns, seeds (`simulate` is 0 if left out and nothing is spent), state, ledger and notices: see
        `fedcalib.workflows.session.Options`.

    Returns
    -------
    ComparisonResult
        The methods from best to worst.

    Examples
    --------
    >>> import numpy as np
    >>> import fedcalib as fc
    >>> from fedcalib.workflows import compare
    >>> rng = np.random.default_rng(0)
    >>> score = rng.random(2000)
    >>> records = fc.Records.of_scores(score, (rng.random(2000) < score**2).astype(int))
    >>> methods = {"platt": fc.PlattScaling(), "temperature": fc.OneShotTemperature()}
    >>> found = compare(fc.Federation.iid(records, clients=5, seed=0), methods, repeats=2)
    >>> [row.method for row in found.rows]
    ['platt', 'temperature']
    """
    source, session = opening(data, **options)
    model, who, apart = privacy or SecAgg(), participation or Everyone(), holdout or ByRecord()
    made, refused = (_by_name(methods), {}) if methods is not None else offered({})
    comparison = MethodComparison(source, made, model, who, apart, session, refused, records_about)
    return comparison.spend() if spend else comparison.simulate(repeats)


def _by_name(methods: Methods | Sequence[Method[Calibrator]]) -> Methods:
    if not isinstance(methods, Mapping | Sequence) or not methods:
        raise InputError(f"Expected methods in a list, or by name, found {repr(methods)[:80]}; name at least one.")
    named = methods if isinstance(methods, Mapping) else {documents.word(one): one for one in methods}
    for one in named.values():
        check_made(one, Method, "a method")
    return named


def offered(
    options: Mapping[str, Any], rows: Sequence[Registered] | None = None
) -> tuple[dict[str, Method[Calibrator]], dict[str, str]]:
    """Methods by their words, all that are registered if `rows` is left out, and why others cannot be made.

    Parameters
    ----------
    options
        Options of methods; each method takes those that it has.
    rows
        Rows of the registry.
    """
    made, refused = {}, {}
    for row in choices("method") if rows is None else rows:
        own = {name: value for name, value in options.items() if value is not None and name in row.options}
        try:
            made[row.word] = row.build(own)
        except FedcalibError as error:
            refused[row.word] = str(error)
    return made, refused


@final
@dataclass(frozen=True, eq=False)
class MethodComparison:
    """Everything that a comparison is told."""

    data: Data
    methods: Methods
    privacy: Privacy
    participation: Participation
    holdout: Holdout
    session: WorkflowSession
    refused: Mapping[str, str] = field(default_factory=dict)  # methods that could not be made, with the reasons
    records: int | None = None  # a public guess of the number of records, which sets the resolution under noise

    @property
    def _measurement(self) -> FederatedMetrics:
        """Settings of the measurement, of the share of the records that is held out."""
        share = self.holdout.share
        return FederatedMetrics(records=None if self.records is None else max(round(share * self.records), 1))

    def simulate(self, repeats: int = 3) -> ComparisonResult:
        """Run every method on the same splits, each with the whole budget, and measure exactly."""
        if repeats < 1:
            raise InputError(f"Expected at least one repeat, found {repeats}.")
        session = replace(self.session, simulate=self.session.simulate or 0)
        federation, _ = Conductor(session, session.forgotten()).read(self.data, True)
        splits = [self._split(federation, session.forgotten(), repeat) for repeat in range(repeats)]
        before = [split.before for split in splits]
        rows, refused = [], dict(self.refused)
        with self.session.notices.progress("comparing methods") as at:
            for place, (name, method) in enumerate(self.methods.items()):
                at(place, len(self.methods))
                try:
                    rows.append(_simulated(name, [split.trial(method) for split in splits], before))
                except FedcalibError as error:
                    refused[name] = str(error)
        base = MethodRow(_BASE, exact_values(before, before))
        how: dict[str, Any] = {"simulation": True, "repeats": repeats, "seed": session.simulate}
        first = next(iter(rows), base)
        return self._result(base, rows, refused, SIMULATION, {"epsilon": first.epsilon, "delta": first.delta}, **how)

    def spend(self) -> ComparisonResult:
        """Run every method on a share of the budget, measure privately, and pay for all of it beforehand."""
        if self.privacy.budget is None:
            raise InputError("Expected a budget to spend (--epsilon), found none: there is nothing to split.")
        with self.session.opened("compare", self._settings, self.data) as conductor:
            federation, _ = conductor.read(self.data, private=True)
            fitted, held = self.holdout.part(federation, conductor.state.derived("holdout"))
            phases = self._phases(fitted.schema, held.schema, self.privacy.budget.unit)
            conductor.pay(phases.total, *((fit, fitted) for fit in phases.fits.values()))
            base_result = conductor.run(phases.measure("base"), InProcess(held))
            before = base_result.artifact
            rows, refused = [], dict(phases.refused)
            for name in phases.fits:
                try:
                    rows.append(_spent(phases, name, (fitted, held), base_result, conductor))
                except (BudgetError, RefusedError) as error:  # what was released of the other methods is still shown
                    refused[name] = str(error)
            conductor.tell()
            spent, evidence = conductor.stated(phases.total), conductor.evidence()
        base, simulate = MethodRow(_BASE, private_values(before, before)), self.session.simulate
        paid = {"epsilon": spent.epsilon, "delta": spent.delta}
        how: dict[str, Any] = {"simulation": simulate is not None, "seed": simulate, "evidence": evidence}
        return self._result(base, rows, refused, spent.statement, paid, **how)

    def _result(
        self,
        base: MethodRow,
        rows: Sequence[MethodRow],
        refused: Mapping[str, str],
        statement: str,
        spent: Mapping[str, float | None],
        **how: Any,
    ) -> ComparisonResult:
        _check_some(rows, refused)
        order = tuple(sorted(rows, key=lambda row: row.error))
        privacy = {"model": type(self.privacy).__name__, "unit": order[0].unit, **spent}
        settings = {"participation": kebab(type(self.participation).__name__)}
        apart: dict[str, Any] = {"split": self.holdout.of, "holdout": self.holdout.share}
        return ComparisonResult(base, order, refused, statement, settings=settings, privacy=privacy, **apart, **how)

    @property
    def _settings(self) -> dict[str, Any]:
        methods = {name: wire.encode(method) for name, method in self.methods.items()}
        how = [wire.encode(self.privacy), wire.encode(self.participation), repr(self.holdout)]
        return {"methods": methods, "how": how, **({} if self.records is None else {"records": self.records})}

    def _split(self, federation: Federation, state: State, repeat: int) -> HeldOut:
        fitted, held = self.holdout.part(federation, state.derived(f"holdout {repeat}"))
        if not len(held.records) or not len(fitted.records):
            raise InputError(
                f"Expected records on both sides of the split, found {len(fitted.records)} to fit and "
                f"{len(held.records)} to measure on; change the share that is held out."
            )
        source = Simulated(state.secret).derive("compare", repeat)
        return HeldOut(fitted, held.records, self.privacy, self.participation, source)

    def _phases(self, fitted: Schema, held: Schema, unit: str) -> ComparisonPhases:
        """Share the budget evenly among the methods that can be run, and evenly among the measurements.

        Of two classes there is one measurement: the server knows where each calibrator takes the cells of its table.
        """
        parallel = unit == "record" or isinstance(self.holdout, ByClient)
        whole = 1.0 if parallel else 0.5
        fits, refused = self._fits(self.methods, whole, fitted, unit)
        refused = {**self.refused, **refused}
        _check_some(fits, refused)
        who = Everyone() if isinstance(self.participation, Disjoint) else self.participation
        times = 1 if held.classes == 2 else len(fits) + 1
        measure = Phase.of("measure", self._measurement, scaled(self.privacy, whole / times), who, held)
        if measure.spending.unit != unit:  # the queries bound another unit than the privacy model usually does
            return self._phases(fitted, held, measure.spending.unit)
        return ComparisonPhases(fits, measure, times, parallel, refused)

    def _fits(
        self, methods: Methods, whole: float, schema: Schema, unit: str
    ) -> tuple[dict[str, Phase[Calibrator]], dict[str, str]]:
        """Agree on every method with its share of the budget; the share of a refused one goes to the others."""
        fits, refused = {}, {}
        for name, method in methods.items():
            try:
                share = scaled(self.privacy, whole / len(methods))
                fits[name] = Phase.of(f"{name}-fit", method, share, self.participation, schema)
                if (found := fits[name].spending.unit) != unit:
                    del fits[name]
                    refused[name] = f"it protects the unit {found}, the measurements the unit {unit}"
            except FedcalibError as error:
                refused[name] = str(error)
        if not refused or not fits:
            return fits, refused
        fits, more = self._fits({name: methods[name] for name in fits}, whole, schema, unit)
        return fits, {**refused, **more}


@final
@dataclass(frozen=True, eq=False)
class ComparisonPhases:
    """What will be asked, each phase with its share of the budget."""

    fits: Mapping[str, Phase[Calibrator]]
    measured: Phase[Measurement]  # the same for the base model and for every method
    times: int  # how often it is run: once for all, or for the base model and for every method
    parallel: bool
    refused: Mapping[str, str]

    def measure(self, name: str) -> Phase[Measurement]:
        """The measurement of one method."""
        return replace(self.measured, name=f"{name}-measure")

    @property
    def total(self) -> Spending:
        """What all phases spend together."""
        spent = [phase.spending for phase in self.fits.values()]
        epsilon, delta = added(spent)
        told = f"{len(spent)} methods were fitted to the same records, so their costs add up. {spent[0].statement}"
        fitted = replace(spent[0], epsilon=epsilon, delta=delta, statement=told)
        return together(fitted, [self.measured.spending] * self.times, self.parallel)


@final
@dataclass(frozen=True)
class Trial:
    """One method on one split: its exact metrics, what a client sent, for how long it computed, and what it cost."""

    after: Figures
    bytes_per_client: int
    client_seconds: float  # of processor time, for all answers of a client of median size
    spending: Spending


@final
@dataclass(frozen=True, eq=False)
class HeldOut:
    """One split, the same for every method that is tried on it."""

    fitted: Federation
    held: Records
    privacy: Privacy
    participation: Participation
    randomness: Randomness

    @cached_property
    def before(self) -> Figures:
        """The metrics of the base model."""
        return figures(self.held)

    def trial(self, method: Method[Calibrator]) -> Trial:
        """Fit a method, and measure it on what was held out."""
        runtime = Timed(InProcess(self.fitted))
        result = run(method, runtime, self.privacy, participation=self.participation, randomness=self.randomness)
        after = figures(result.artifact.over(self.held))
        return Trial(after, result.bytes_per_client, runtime.seconds, result.privacy)


@final
class Timed(Runtime):
    """A runtime that also measures the processor time which a client of median size needs for its answers."""

    def __init__(self, inner: InProcess) -> None:
        self.inner = inner
        self.seconds = 0.0
        sizes = inner.federation.sizes
        typical = int(np.argsort(sizes, kind="stable")[len(sizes) // 2]) if len(sizes) else 0
        self._records = inner.federation.client(typical)

    @property
    def schema(self) -> Schema:
        """The public facts of the inner runtime."""
        return self.inner.schema

    def prepare(self, outline: Outline) -> None:
        """Prepare the inner runtime."""
        self.inner.prepare(outline)

    def total(self, step: Step) -> Total:
        """Time one client's answer and discard it, then ask as usual."""
        start = time.thread_time()
        step.mechanism.encode(step.query, self._records, step.randomness.derive("clock"))
        self.seconds += time.thread_time() - start
        return self.inner.total(step)


def figures(records: Records) -> Figures:
    """The exact metrics that a comparison shows."""
    probs, labels = np.asarray(records.probs, dtype=np.float64), records.labels
    shown = (*shown_in("comparison"), *shown_in("change"))
    return {metric.name: metric.exact(probs, labels) for metric in shown}


def _spent(
    phases: ComparisonPhases,
    name: str,
    sides: tuple[Federation, Federation],
    base: Result[Measurement],
    by: Conductor,
) -> MethodRow:
    """Fit one method and measure it; its epsilon is what its fit was debited."""
    fit, (fitted, held) = phases.fits[name], sides
    found = by.run(fit, InProcess(fitted))
    cost = {**fit.agreed.cost(), "epsilon": found.privacy.epsilon}
    if phases.times == 1:
        paired = _read_again(phases.measured, base, found.artifact)
        return MethodRow(name, private_values(paired.after, base.artifact, paired.change), **cost)
    calibrated = replace(held, records=found.artifact.over(held.records))
    after = by.run(phases.measure(name), InProcess(calibrated)).artifact
    return MethodRow(name, private_values(after, base.artifact), **cost)


def _read_again(phase: Phase[Measurement], base: Result[Measurement], calibrator: Calibrator) -> PairedPerformance:
    """Before and after a calibrator, from the answer that the evaluation of the base model had."""
    if not is_of_score(calibrator):
        raise RefusedError("its calibrator needs more than the score, so that one table of scores cannot measure it")

    def recall(step: int, query: Query) -> Answer:
        answer = base.transcript.recall(step, query)
        if answer is None:
            raise RefusedError("the table of scores of the base model does not measure it")
        return answer

    method = PairedMetrics(calibrator, measure=phase.agreed.method, cut=False)  # type: ignore[arg-type]
    return drive(method, phase.agreed.schema, recall)


def _simulated(name: str, trials: Sequence[Trial], before: Sequence[Figures]) -> MethodRow:
    first, seconds = trials[0], float(np.mean([trial.client_seconds for trial in trials]))
    values = exact_values([trial.after for trial in trials], before)
    spent = first.spending
    return MethodRow(name, values, first.bytes_per_client, seconds, spent.epsilon, spent.delta, spent.unit)


def _check_some(runnable: Sized, refused: Mapping[str, str]) -> None:
    if not runnable:
        named: dict[str, list[str]] = {}
        for name, reason in refused.items():
            named.setdefault(reason, []).append(name)
        reasons = " ".join(f"{', '.join(names)}: {reason}" for reason, names in named.items())
        raise InputError(f"Expected a method that can be run, found all refused. {reasons}")
