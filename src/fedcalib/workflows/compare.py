"""Methods side by side on one federation: a simulation that tells which one to run, before anybody is asked."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, final

import numpy as np

from fedcalib.accounting.spending import Spending
from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.cohort import Participation
from fedcalib.errors import FedcalibError, InputError
from fedcalib.federation import Federation
from fedcalib.loop import Outline, Runtime, Step, Total, run
from fedcalib.method import Method
from fedcalib.metrics.table import shown_in
from fedcalib.privacy import Privacy
from fedcalib.randomness import Randomness, Simulated
from fedcalib.records import Records, Schema
from fedcalib.runtimes import InProcess


@dataclass(frozen=True)
class Split(ABC):
    """How records to measure on are set apart from those to fit on; `share` of them are."""

    share: float = 0.3

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise InputError(f"Expected a share between 0 and 1 to hold out, found {self.share}.")

    @abstractmethod
    def part(self, federation: Federation, seed: int) -> tuple[Federation, Federation]:
        """Give what is fitted and what is held out."""


@final
@dataclass(frozen=True)
class ByRecord(Split):
    """Hold records of every client out: how well a calibrator serves the clients that made it."""

    def part(self, federation: Federation, seed: int) -> tuple[Federation, Federation]:
        """Toss a coin a record."""
        held = np.random.default_rng(seed).random(len(federation.records)) < self.share
        return federation.where(~held), federation.where(held)


@final
@dataclass(frozen=True)
class ByClient(Split):
    """Hold whole clients out: how well a calibrator serves clients that it has never met."""

    def part(self, federation: Federation, seed: int) -> tuple[Federation, Federation]:
        """Toss a coin a client."""
        held = np.random.default_rng(seed).random(len(federation)) < self.share
        if held.all() or not held.any():
            raise InputError(
                f"Expected clients on both sides of the split, found all {len(federation)} on one; "
                "hold out by record, another share, or repeat with another seed."
            )
        return federation.subset(~held), federation.subset(held)


Figures: TypeAlias = Mapping[str, float]  # exact metrics, by name


def figures(records: Records) -> Figures:
    """Measure exactly what a comparison shows."""
    probs, labels = np.asarray(records.probs, dtype=np.float64), records.labels
    shown = (*shown_in("comparison"), *shown_in("change"))
    return {metric.name: metric.exact(probs, labels) for metric in shown}


@final
@dataclass(frozen=True)
class Trial:
    """One method on one split: before, after, and what it took."""

    before: Figures
    after: Figures
    bytes_per_client: int
    client_seconds: float  # of processor time, for all answers of a client of median size
    spending: Spending


@final
@dataclass(frozen=True)
class Standing:
    """A method with its trials, or the reason why it had none."""

    name: str
    trials: tuple[Trial, ...]
    refused: str = ""

    def mean(self, figure: Callable[[Trial], float]) -> float:
        """Average a figure over the trials."""
        return float(np.mean([figure(trial) for trial in self.trials]))


@final
class Timed(Runtime):
    """A runtime that also takes the time which a client of median size needs for its answers."""

    def __init__(self, inner: InProcess) -> None:
        self.inner = inner
        self.seconds = 0.0
        sizes = inner.federation.sizes
        typical = int(np.argsort(sizes, kind="stable")[len(sizes) // 2]) if len(sizes) else 0
        self._records = inner.federation.client(typical)

    @property
    def schema(self) -> Schema:
        """Say what is public."""
        return self.inner.schema

    def prepare(self, outline: Outline) -> None:
        """Get the inner runtime ready."""
        self.inner.prepare(outline)

    def total(self, step: Step) -> Total:
        """Let one client answer against the clock, throw that answer away, then ask as usual."""
        start = time.thread_time()
        step.mechanism.encode(step.query, self._records, step.randomness.derive("clock"))
        self.seconds += time.thread_time() - start
        return self.inner.total(step)


@final
@dataclass(frozen=True, eq=False)
class Arena:
    """One split, the same for every method that is tried on it."""

    fitted: Federation
    held: Records
    privacy: Privacy
    participation: Participation | None
    randomness: Randomness

    @cached_property
    def before(self) -> Figures:
        """Measure the base model."""
        return figures(self.held)

    def trial(self, method: Method[Calibrator]) -> Trial:
        """Fit a method and measure it on what was held out."""
        runtime = Timed(InProcess(self.fitted))
        result = run(method, runtime, self.privacy, participation=self.participation, randomness=self.randomness)
        after = figures(result.artifact.over(self.held))
        return Trial(self.before, after, result.bytes_per_client, runtime.seconds, result.privacy)


def compare(
    methods: Mapping[str, Method[Calibrator]],
    federation: Federation,
    privacy: Privacy,
    *,
    participation: Participation | None = None,
    split: Split | None = None,
    repeats: int = 3,
    seed: int = 0,
    watch: Callable[[int, int], None] | None = None,
) -> tuple[Standing, ...]:
    """Simulate every method on the same splits, in the order given; one that is refused says why.

    Nothing here is private: splits and noise follow from a seed, and the held-out records are measured exactly.
    """
    if repeats < 1:
        raise InputError(f"Expected at least one repeat, found {repeats}.")
    arenas = []
    for repeat in range(repeats):
        fitted, held = _parted(split or ByRecord(), federation, seed + repeat)
        source = Simulated(seed).derive("compare", repeat)
        arenas.append(Arena(fitted, held.records, privacy, participation, source))
    standings = []
    for place, (name, method) in enumerate(methods.items()):
        trials = []
        try:
            for repeat, arena in enumerate(arenas):
                if watch is not None:
                    watch(place * repeats + repeat, repeats * len(methods))
                trials.append(arena.trial(method))
            standings.append(Standing(name, tuple(trials)))
        except FedcalibError as error:
            standings.append(Standing(name, (), str(error)))
    return tuple(standings)


def _parted(split: Split, federation: Federation, seed: int) -> tuple[Federation, Federation]:
    fitted, held = split.part(federation, seed)
    if not len(held.records) or not len(fitted.records):
        raise InputError(
            f"Expected records on both sides of the split, found {len(fitted.records)} to fit and "
            f"{len(held.records)} to measure on; change the share that is held out."
        )
    return fitted, held
