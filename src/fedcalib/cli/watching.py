"""What `fedcalib monitor` does: cut records into windows of time, and ask window after window within one budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.review import Review
from fedcalib.cli import registry, state
from fedcalib.cli.budget import for_units
from fedcalib.cli.evaluation import load_calibrator
from fedcalib.cli.phases import Conductor, Phase, Rehearsal
from fedcalib.cli.request import DataRequest, PrivacyRequest
from fedcalib.cli.spending import Purse
from fedcalib.cli.voice import Voice
from fedcalib.cohort import Everyone
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.loop import Result
from fedcalib.method import Method
from fedcalib.methods.review_window import ReviewWindow
from fedcalib.monitoring import Monitor, Timeline, together
from fedcalib.records import Schema

_MOST = 1000  # windows; each keeps a transcript of its own


class Every(StrEnum):
    """How long a window is."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"

    @property
    def days(self) -> int:
        """Count its days; a month has 30."""
        return {Every.DAY: 1, Every.WEEK: 7, Every.MONTH: 30}[self]


@final
@dataclass(frozen=True, eq=False)
class Slices:
    """The records cut by time: each window by its name, with its first day."""

    windows: Mapping[str, Federation]
    first_days: Mapping[str, int]
    warnings: tuple[str, ...]

    @property
    def schema(self) -> Schema:
        """Say what is public; every window has the same clients."""
        return next(iter(self.windows.values())).schema


@final
@dataclass(frozen=True)
class Watching:
    """Everything that watching was told."""

    by: Every
    method: str | None
    recalibrate: bool
    false_alarms: float
    privacy: PrivacyRequest
    data: DataRequest
    files: tuple[Path, ...]
    seed: int | None
    purse: Purse
    voice: Voice
    calibrator: Path | None = None  # applied before anything is measured
    rounds: int | None = None  # the latest so many windows; None for all

    def __post_init__(self) -> None:
        if self.rounds is not None and self.rounds < 1:
            raise InputError(f"Expected at least one round of evaluation, found {self.rounds}.")

    def key(self, settings: Mapping[str, Any]) -> str:
        """Name this command for its state directory."""
        also = () if self.calibrator is None else (self.calibrator,)
        return state.key("monitor", settings, (*self.files, *also))

    def slices(self, kept: state.State) -> Slices:
        """Read the files and cut the records by time; windows start at the first day there is."""
        federation, warnings = self._read(kept)
        days = np.asarray(federation.records.extra["time"])
        first = int(days.min())
        place = (days - first) // self.by.days
        count = int(place.max()) + 1
        if count > _MOST:
            raise InputError(f"Expected at most {_MOST} windows, found {count}; use longer ones with --by.")
        wanted = range(max(count - (self.rounds or count), 0), count)
        names = {index: f"{self.by} {index + 1}" for index in wanted}
        windows = {name: federation.where(place == index) for index, name in names.items()}
        return Slices(windows, {name: first + self.by.days * index for index, name in names.items()}, warnings)

    def _read(self, kept: state.State) -> tuple[Federation, tuple[str, ...]]:
        """Read the files, and calibrate the scores if a calibrator was given."""
        map_ = None if self.calibrator is None else load_calibrator(self.calibrator)
        federation, warnings = self.data.read(self.files, kept, self.privacy.model().private)
        calibrated = federation if map_ is None else replace(federation, records=map_.over(federation.records))
        return calibrated, warnings

    def monitor(self, classes: int) -> Monitor:
        """Choose how to recalibrate: by the method that was named, or the usual one for so many classes."""
        if not self.recalibrate:
            return Monitor(self.false_alarms)
        usual = "platt-scaling" if classes == 2 else "acc-t"
        method: Method[Calibrator] = registry.method(self.method or usual, {})
        return Monitor(self.false_alarms, method)

    def rehearse(self, slices: Slices) -> Rehearsal:
        """Say what one window would ask and what all of them would cost."""
        one = self._phase("window", ReviewWindow(recalibration=self.monitor(slices.schema.classes).recalibration), 1.0)
        unit = one.rehearse(slices.schema).spending.unit
        share = 1.0 if unit == "record" else 1.0 / len(slices.windows)
        rehearsal = self._phase("window", one.method, share).rehearse(slices.schema)
        total = together([rehearsal.spending] * len(slices.windows))
        return Rehearsal("each window", rehearsal.plan, rehearsal.cohort, total)

    def run(self, slices: Slices, kept: state.State) -> Watched:
        """Ask window after window."""
        rehearsal = self.rehearse(slices)
        self.purse.pay(kept, rehearsal.spending)
        share = 1.0 if rehearsal.spending.unit == "record" else 1.0 / len(slices.windows)
        conductor = Conductor(kept, self.seed, self.voice, self.purse)

        def ask(label: str, method: ReviewWindow) -> Result[Review]:
            phase = self._phase(label.replace(" ", "-"), method, share)
            return conductor.run(phase, slices.windows[label])

        timeline = self.monitor(slices.schema.classes).watch(list(slices.windows), ask)
        conductor.tell()
        spent = for_units(timeline.spending, self.data.columns.unit)
        return Watched(Timeline(timeline.windows, spent, timeline.next), conductor.replayed)

    def _phase(self, name: str, method: Method[Review], share: float) -> Phase[Review]:
        return Phase(name, method, self.privacy.model(share), Everyone())


@final
@dataclass(frozen=True, eq=False)
class Watched:
    """What came of it."""

    timeline: Timeline
    replayed: bool
