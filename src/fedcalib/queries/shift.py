"""Queries about shifts: what a classifier predicts without labels, and its confidence gaps at several temperatures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import sqrt
from typing import final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.metrics.binning import bin_index_unchecked
from fedcalib.query import Block, Bound, RecordQuery, Rows
from fedcalib.records import Records
from fedcalib.types import Bools, Floats
from fedcalib.wire import ADDED


@final
@dataclass(frozen=True)
class Confidence(RecordQuery):
    """Summed top probability, and its complement; labels are not used.

    A record adds p to one cell and 1 - p to the other: L1 = 1, Linf <= 1 and L2 <= 1, attained by a certain record.
    Both cells together count the records, which therefore costs nothing extra.
    """

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"confidence": Block((2,), weight=0.25)}

    def rows(self, records: Records) -> Rows:
        top = np.asarray(records.probs.max(axis=1, initial=0.0), dtype=np.float64)
        return Rows(None, np.stack([top, 1 - top], axis=1))


@final
@dataclass(frozen=True)
class Predictions(RecordQuery):
    """How often each class is predicted: one cell of one, so every norm is 1; labels are not used."""

    classes: int

    def __post_init__(self) -> None:
        _check_classes(self.classes)

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"predictions": Block((self.classes,), integral=True, one_hot=True)}

    def rows(self, records: Records) -> Rows:
        return Rows(records.probs.argmax(axis=1)[:, None], None)


@final
@dataclass(frozen=True)
class ConfusionCounts(RecordQuery):
    """How often each class is predicted for each true class: one of classes^2 cells of one, so every norm is 1."""

    classes: int

    def __post_init__(self) -> None:
        _check_classes(self.classes)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Predicted class by true class."""
        return {"confusion": Block((self.classes, self.classes), integral=True, one_hot=True)}

    def rows(self, records: Records) -> Rows:
        return Rows((records.probs.argmax(axis=1) * self.classes + records.labels)[:, None], None)


def _check_classes(classes: int) -> None:
    if not 2 <= classes <= 1 << 12:
        raise InputError(f"Expected 2 to 4096 classes, found {classes}.")


@final
@dataclass(frozen=True)
class ConfidenceGaps(RecordQuery):
    """The curve of correct answers minus summed confidence over any number of increasing temperatures.

    At temperature T a record's gap is 1[correct] minus its top probability, a number in (-1, 1 - 1/classes] that
    increases with T. With first gap a and last gap b a record adds (a + b) / 2 to the first cell and half of each
    increase between neighbours to the others, which together is |a + b| / 2 + (b - a) / 2 = max(|a|, |b|). So every
    norm is at most 1, however many temperatures there are, where gaps sent one by one would add up; a record that is
    wrong and certain at every temperature comes close.
    """

    temperatures: tuple[float, ...]

    def __post_init__(self) -> None:
        check_temperatures(self.temperatures)
        if any(b <= a for a, b in pairwise(self.temperatures)):
            raise InputError(f"Expected increasing temperatures, found {self.temperatures[:5]}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        """The middle of the curve, then its half increments."""
        return {"curve": Block((len(self.temperatures),))}

    def rows(self, records: Records) -> Rows:
        gaps = np.stack([right - confidence for right, confidence in _tops(records, self.temperatures)], axis=1)
        middle = (gaps[:, :1] + gaps[:, -1:]) / 2
        return Rows(None, np.concatenate([middle, np.diff(gaps, axis=1) / 2], axis=1))


def gaps_of(curve: Floats) -> Floats:
    """The gaps of a curve's cells, shape (temperatures,); a negative increment can only be noise and counts as 0."""
    increments = 2 * np.maximum(curve[1:], 0.0)
    rise = np.concatenate([[0.0], np.cumsum(increments)])
    gaps: Floats = curve[0] - rise[-1] / 2 + rise
    return gaps


@final
@dataclass(frozen=True)
class ClippedLosses(RecordQuery):
    """At each temperature: the summed log loss, each record's clipped at `worst` and divided by it.

    The client clips record by record, so a record adds a number in [0, 1] to each of the G cells: Linf <= 1, L1 <= G,
    L2 <= sqrt(G), attained by a record that is wrong and certain. `worst` is a public constant, never the largest loss
    observed.
    """

    temperatures: tuple[float, ...]
    worst: float

    def __post_init__(self) -> None:
        check_temperatures(self.temperatures)
        if not 0 < self.worst < 1e3:
            raise InputError(f"Expected a bound on the log loss above 0, found {self.worst}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"loss": _per_temperature(len(self.temperatures))}

    def rows(self, records: Records) -> Rows:
        logits = _shifted(records)
        own = logits[np.arange(len(logits)), records.labels]
        columns = [
            np.log(np.exp(logits / temperature).sum(axis=1)) - own / temperature for temperature in self.temperatures
        ]
        return Rows(None, np.clip(np.stack(columns, axis=1) / self.worst, 0.0, 1.0))


@final
@dataclass(frozen=True)
class BinnedGaps(RecordQuery):
    """At each temperature, by bin of the top probability: correct answers minus summed confidence.

    At each of the G temperatures a record adds one number in (-1, 1) to one bin: Linf <= 1, L1 <= G, L2 <= sqrt(G),
    approached by a record that is wrong and certain at every temperature.
    """

    temperatures: tuple[float, ...]
    bins: int

    def __post_init__(self) -> None:
        check_temperatures(self.temperatures)
        if not 1 <= self.bins <= 1 << 16:
            raise InputError(f"Expected 1 to 2^16 bins, found {self.bins}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        block = _per_temperature(len(self.temperatures))
        return {"gap": Block((len(self.temperatures), self.bins), block.bound, weight=block.weight)}

    def rows(self, records: Records) -> Rows:
        cells, values = [], []
        for index, (right, confidence) in enumerate(_tops(records, self.temperatures)):
            cells.append(index * self.bins + bin_index_unchecked(confidence, self.bins))
            values.append(right - confidence)
        lanes = self.bins * np.arange(len(self.temperatures) + 1)
        return Rows(np.stack(cells, axis=1), np.stack(values, axis=1), lanes)


@final
@dataclass(frozen=True)
class RightWrong(RecordQuery):
    """By bin of the top probability: numbers of right and of wrong records.

    A record adds one to one of the 2 x bins cells: every norm is 1. With `totals` the second row counts all records,
    right or wrong: a right record then adds one to two cells, so L1 = 2, L2 = sqrt(2) and Linf = 1.
    """

    bins: int
    totals: bool = field(default=False, metadata=ADDED)

    def __post_init__(self) -> None:
        if not 1 <= self.bins <= 1 << 20:
            raise InputError(f"Expected 1 to 2^20 bins, found {self.bins}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        if self.totals:
            return {"counts": Block((2, self.bins), Bound(2.0, sqrt(2.0), 1.0), integral=True)}
        return {"counts": Block((2, self.bins), integral=True, one_hot=True)}

    def rows(self, records: Records) -> Rows:
        ((right, confidence),) = _tops(records, (1.0,))
        if self.totals:
            bins = bin_index_unchecked(confidence, self.bins)
            return Rows(np.stack([bins, bins + self.bins], axis=1), np.stack([right, np.ones_like(right)], axis=1))
        return Rows((bin_index_unchecked(confidence, self.bins) + self.bins * ~right)[:, None], None)


def _per_temperature(count: int) -> Block:
    return Block((count,), Bound(float(count), sqrt(count), 1.0), weight=float(count))


def _tops(records: Records, temperatures: tuple[float, ...]) -> list[tuple[Bools, Floats]]:
    """For each temperature: whether each record's top class is right, and how probable that class is."""
    logits = _shifted(records)
    right: Bools = records.probs.argmax(axis=1) == records.labels
    return [(right, 1 / np.exp(logits / temperature).sum(axis=1)) for temperature in temperatures]


def _shifted(records: Records) -> Floats:
    """The logits with each record's largest at zero, so that exponentials are at most one."""
    logits = np.asarray(records.logits, dtype=np.float64)
    shifted: Floats = logits - logits.max(axis=1, keepdims=True, initial=-np.inf)
    return shifted


def check_temperatures(temperatures: tuple[float, ...]) -> None:
    if not temperatures or not all(0 < temperature < 1e6 for temperature in temperatures):
        raise InputError(f"Expected temperatures above 0, found {temperatures[:5]}.")
