"""What is audited: pairs of frames that differ in one record or unit, the four workflows, and their broken twins.

A twin is the same workflow with one function replaced while it runs, or one with a small part of
its noise. Its claim is false, so an audit with enough power must refute it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, final

import numpy as np
import pyarrow as pa

import fedcalib as fc
from fedcalib import federation, wire
from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.method import Method
from fedcalib.privacy import Privacy
from fedcalib.workflows import calibrate, calibration, compare, documents, evaluate, monitor, monitoring
from fedcalib.workflows.budget import Shares
from fedcalib.workflows.session import Conductor, Notices

Document: TypeAlias = dict[str, Any]
CLAIMED = 1.0
DISTRIBUTED = fc.DistributedDP(CLAIMED)
SITES = ("a", "b", "c", "d")
FED_BIN = fc.FedBin(bins=5)
METHODS = {"fed-bin": FED_BIN, "platt-scaling": fc.PlattScaling()}


# pairs of frames


@final
@dataclass(frozen=True, eq=False)
class Pair:
    """Two neighbouring frames, and how their columns are to be read."""

    name: str
    present: pa.Table
    absent: pa.Table
    options: Mapping[str, Any] = field(default_factory=dict)
    start: int = 0  # the first day that is monitored
    until: int = 20  # the last
    method: Method[Calibrator] = FED_BIN


def _pair(name: str, rows: list[dict[str, Any]], others: list[dict[str, Any]], **options: Any) -> Pair:
    """The unit's rows in front of all others, and the others alone; the types of columns are the same."""
    present = pa.Table.from_pylist([*rows, *others])
    return Pair(name, present, present.slice(len(rows)), {"site": "site", "sites": SITES, **options})


def _others(rows: int, first_day: int = 7) -> list[dict[str, Any]]:
    """Ordinary records of two classes, from the second week on."""
    rng = np.random.default_rng(0)
    score = rng.uniform(0.1, 0.9, rows).round(3)
    label = (rng.random(rows) < score).astype(int)
    return [
        {"site": SITES[row % 4], "score": score[row], "label": label[row], "day": first_day + row % 14}
        for row in range(rows)
    ]


def everything() -> Pair:
    """One patient who is extreme in every way.

    The earliest date, the only record of its class, a score of 1e-300 where the class is 1, two records with the same
    name, and the eleventh patient of a site. All other patients have two records too, which differ.
    """
    first = {"site": "a", "score": 1e-300, "label": 1, "day": 0, "patient": "first"}
    others = [
        {"site": SITES[k % 4], "score": 0.25 + 0.5 * one, "label": 0, "day": 7 + k % 14, "patient": f"p{k}"}
        for k in range(40)
        for one in (0, 1)
    ]
    return _pair("everything", [first, first], others, unit="patient")


def extreme_score() -> Pair:
    """A record as sure as can be, and wrong."""
    return _pair("extreme score", [{"site": "a", "score": 1.0, "label": 0, "day": 8}], _others(40))


def minimum_count() -> Pair:
    """The eleventh record of all."""
    return _pair("minimum count", [{"site": "a", "score": 0.9, "label": 1, "day": 8}], _others(10))


def rare_class() -> Pair:
    """The only record of the third class."""
    others = [
        {"site": SITES[k % 4], "p0": 0.6, "p1": 0.3, "p2": 0.1, "label": k % 2, "day": 7 + k % 14} for k in range(40)
    ]
    unit = {"site": "a", "p0": 0.0, "p1": 0.0, "p2": 1.0, "label": 2, "day": 8}
    return _pair("rare class", [unit], others, probs=["p0", "p1", "p2"])


def huge_logit() -> Pair:
    """Logits of 1e308 for the wrong class."""
    others = [
        {"site": SITES[k % 4], "l0": 1.0, "l1": 0.5, "l2": 0.0, "label": k % 3, "day": 7 + k % 14} for k in range(40)
    ]
    unit = {"site": "a", "l0": 1e308, "l1": -1e308, "l2": 0.0, "label": 1, "day": 8}
    pair = _pair("huge logit", [unit], others, logits=["l0", "l1", "l2"])
    return replace(pair, method=fc.OneShotTemperature(points=4))


def early_date() -> Pair:
    """A record from long before the first day that counts."""
    pair = _pair("early date", [{"site": "a", "score": 1.0, "label": 0, "day": -400}], _others(40))
    return replace(pair, start=7)


def chosen_units(patients: int = 1200) -> Pair:
    """Patients whose record with a high score would be kept by a fixed seed and the position of rows.

    With another patient in front, all rows move, and half of the choices with them.
    """
    rows = 2 * patients
    rank = np.argsort(np.random.default_rng(0).permutation(rows))
    kept = [2 * k + int(rank[2 * k + 1] < rank[2 * k]) for k in range(patients)]
    score = np.where(np.isin(np.arange(rows), kept), 0.9, 0.1)
    others = [
        {"site": SITES[row * 4 // rows], "score": score[row], "label": 0, "day": 7, "patient": f"p{row // 2}"}
        for row in range(rows)
    ]
    first = {"site": "a", "score": 0.5, "label": 0, "day": 7, "patient": "first"}
    return _pair("chosen units", [first, first], others, unit="patient")


def held_rows(rows: int = 2400) -> Pair:
    """Records with a high score where a fixed seed and the position of rows would hold them out."""
    held = np.random.default_rng(0).permutation(rows) < 0.3 * rows
    others = [
        {"site": SITES[row * 4 // rows], "score": 0.9 if held[row] else 0.1, "label": 0, "day": 7}
        for row in range(rows)
    ]
    return _pair("held rows", [{"site": "a", "score": 0.5, "label": 0, "day": 7}], others)


def replaced() -> Pair:
    """An extreme record instead of an ordinary one, for privacy models that hide what a record holds."""
    one, other = extreme_score(), {"site": "a", "score": 0.5, "label": 1, "day": 8}
    absent = pa.Table.from_pylist([other, *one.absent.to_pylist()], schema=one.present.schema)
    return replace(one, name="replaced", absent=absent)


# workflows

Release: TypeAlias = Callable[[pa.Table, Pair, Privacy, Mapping[str, Any]], Document]


@final
class Quiet(Notices):
    """Drops notices: they are for the terminal of whoever holds the records, and are written nowhere."""

    def note(self, text: str) -> None:
        """Drop it."""

    def warn(self, text: str) -> None:
        """Drop it."""

    def progress(self, what: str) -> AbstractContextManager[Any]:
        """Follow nothing."""
        return nullcontext(lambda *_: None)


@contextmanager
def swapped(owner: Any, name: str, new: Any) -> Iterator[None]:
    """Replace an attribute for a while."""
    old = vars(owner)[name]
    setattr(owner, name, new)
    try:
        yield
    finally:
        setattr(owner, name, old)


@contextmanager
def _answers() -> Iterator[list[Document]]:
    """All noisy answers of a workflow, which a curious server sees."""
    kept: list[Document] = []
    run = Conductor.run

    def recorded(conductor: Any, phase: Any, *args: Any) -> Any:
        result = run(conductor, phase, *args)
        values = [wire.decode(line["value"]) for line in result.transcript.lines if line["state"] == "answered"]
        kept.append({"phase": phase.name, "values": [value.tolist() for value in values]})
        return result

    with swapped(Conductor, "run", recorded):
        yield kept


def _calibrated(frame: pa.Table, pair: Pair, privacy: Privacy, options: Mapping[str, Any]) -> Document:
    done = calibrate(frame, pair.method, privacy, **options)
    return {
        "result": done.to_json(),
        "calibrator": json.loads(done.calibrator.dumps(done.privacy)),
        "sites": str(done.sites),
        "provenance": {name: str(value) for name, value in done.provenance.items()},
    }


def _evaluated(frame: pa.Table, pair: Pair, privacy: Privacy, options: Mapping[str, Any]) -> Document:
    return {"result": evaluate(frame, privacy, **options).to_json()}


def _evaluated_with_curves(frame: pa.Table, pair: Pair, privacy: Privacy, options: Mapping[str, Any]) -> Document:
    return {"result": evaluate(frame, privacy, **options).to_json()}


def _monitored(frame: pa.Table, pair: Pair, privacy: Privacy, options: Mapping[str, Any]) -> Document:
    done = monitor(frame, privacy, by="week", start=pair.start, until=pair.until, **options)
    return {"result": done.to_json(), "summary": list(done.findings), "provenance": str(done.provenance)}


def _recalibrated(frame: pa.Table, pair: Pair, privacy: Privacy, options: Mapping[str, Any]) -> Document:
    done = monitor(frame, privacy, by="week", start=pair.start, until=pair.until, recalibrate=True, **options)
    served = json.loads(done.timeline.next.dumps(done.timeline.spending))
    provenance = {name: str(value) for name, value in done.provenance.items()}
    return {"result": done.to_json(), "calibrator": served, "summary": list(done.findings), "provenance": provenance}


def _compared(frame: pa.Table, pair: Pair, privacy: Privacy, options: Mapping[str, Any]) -> Document:
    return {"result": compare(frame, METHODS, privacy, spend=True, **options).to_json()}


WORKFLOWS: Mapping[str, Release] = {
    "evaluate": _evaluated,
    "evaluate --curves": _evaluated_with_curves,
    "calibrate": _calibrated,
    "monitor": _monitored,
    "monitor --recalibrate": _recalibrated,
    "compare": _compared,
}


# broken twins


def _exact_counts() -> AbstractContextManager[None]:
    """Exact numbers of sites and records beside noisy metrics."""

    def counts(source: Any, privacy: Privacy) -> dict[str, int | None]:
        return {"sites": len(source), "records": len(source.records)}

    return swapped(documents, "counts", counts)


def _by_position() -> AbstractContextManager[None]:
    """The record of a unit that a fixed seed chooses by the position of rows."""

    def chosen(records: fc.Records, secret: Any, owner: Any = None) -> Any:
        order = np.random.default_rng(0).permutation(len(records))
        keys = np.stack([records.unit, np.zeros(len(records), np.int64) if owner is None else owner], axis=1)
        return np.sort(order[np.unique(keys[order], axis=0, return_index=True)[1]])

    return swapped(federation, "chosen_per_unit", chosen)


def _windows_of_records() -> AbstractContextManager[None]:
    """Windows from the day of the earliest record to that of the latest."""
    between = monitoring.windows_between
    return swapped(monitoring, "windows_between", lambda by, days, start, until: between(by, days, None, None))


def _split_by_position() -> AbstractContextManager[None]:
    """Records that are held out by a fixed seed and their position."""

    def split(whole: fc.Federation, holdout: float, seed: Any) -> tuple[fc.Federation, fc.Federation]:
        held = np.random.default_rng(0).permutation(len(whole.records)) < holdout * len(whole.records)
        return whole.where(~held), whole.where(held)

    return swapped(fc.Federation, "split", split)


def _careless_measurements() -> AbstractContextManager[None]:
    """Before and after are measured with an eighth of the noise; the claim counts the calibration alone."""
    return swapped(calibration, "shares", lambda unit, held_out: Shares(1.0, 4.0, parallel=True))


@final
@dataclass(frozen=True)
class Twin:
    """A way to break a workflow: what is replaced while it runs, or how much of the noise is left."""

    name: str
    broken: Callable[[], AbstractContextManager[None]] = nullcontext
    noise: float = 1.0


HONEST = Twin("none")
QUARTER_OF_NOISE = Twin("a quarter of the noise", noise=1 / 4)
TENTH_OF_NOISE = Twin("a tenth of the noise", noise=1 / 10)
EXACT_COUNTS = Twin("exact counts", _exact_counts)
UNITS_BY_POSITION = Twin("units by position", _by_position)
WINDOWS_OF_RECORDS = Twin("windows of the records", _windows_of_records)
SPLIT_BY_POSITION = Twin("split by position", _split_by_position)
CARELESS_MEASUREMENTS = Twin("careless measurements", _careless_measurements)


@final
@dataclass(frozen=True, eq=False)
class Case:
    """One workflow on one pair under one privacy model, as it is or as a broken twin."""

    workflow: str
    pair: Pair
    privacy: Privacy = DISTRIBUTED
    twin: Twin = HONEST
    split_seed: int | None = None

    @property
    def name(self) -> str:
        """A name for files and progress."""
        parts = (self.workflow, self.pair.name, type(self.privacy).__name__, self.twin.name, self.split_seed)
        return " ".join(str(part) for part in parts).replace(" ", "-")

    def document(self, frame: pa.Table) -> Document:
        """Everything that one run writes, and every noisy answer that it was computed from."""
        epsilon = vars(self.privacy)["epsilon"] / self.twin.noise
        privacy = replace(self.privacy, epsilon=epsilon)  # type: ignore[type-var]
        options = {**self.pair.options, "split_seed": self.split_seed, "notices": Quiet()}
        with self.twin.broken(), _answers() as answers:
            return {**WORKFLOWS[self.workflow](frame, self.pair, privacy, options), "answers": answers}
