"""What a classifier says of itself: questions that need no label.

What recalibration after a domain shift asks of its sources, at some temperatures in one message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from typing import final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.metrics.binning import bin_index_unchecked
from fedcalib.query import Block, Bound, RecordQuery, Rows
from fedcalib.records import Records
from fedcalib.types import Bools, Floats


@final
@dataclass(frozen=True)
class Confidence(RecordQuery):
    """Summed top probability, and what it leaves to one; labels are not looked at.

    A record adds p to one cell and 1 - p to the other: L1 = 1, Linf <= 1 and L2 <= 1, attained by a certain record.
    Both cells together count the records, which therefore costs nothing extra.
    """

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Said to be right, said to be wrong."""
        return {"confidence": Block((2,), weight=0.25)}

    def rows(self, records: Records) -> Rows:
        """Touch both cells."""
        top = np.asarray(records.probs.max(axis=1, initial=0.0), dtype=np.float64)
        return Rows(None, np.stack([top, 1 - top], axis=1))


@final
@dataclass(frozen=True)
class Predictions(RecordQuery):
    """How often each class is predicted: one cell of one, so every norm is 1; labels are not looked at."""

    classes: int

    def __post_init__(self) -> None:
        _check_classes(self.classes)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """One cell a class."""
        return {"predictions": Block((self.classes,), integral=True, one_hot=True)}

    def rows(self, records: Records) -> Rows:
        """Touch the top class's cell."""
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
        """Touch one cell."""
        return Rows((records.probs.argmax(axis=1) * self.classes + records.labels)[:, None], None)


def _check_classes(classes: int) -> None:
    if not 2 <= classes <= 1 << 12:
        raise InputError(f"Expected 2 to 4096 classes, found {classes}.")


@final
@dataclass(frozen=True)
class ConfidenceGaps(RecordQuery):
    """How correct answers minus summed confidence rise with the temperature, over any number of rising temperatures.

    At temperature T a record's gap is 1[correct] minus its top probability, a number in (-1, 1 - 1/classes] that rises
    with T. With first gap a and last gap b a record adds (a + b) / 2 to the first cell and half of each rise between
    neighbours to the others, which together is |a + b| / 2 + (b - a) / 2 = max(|a|, |b|). So every norm is at most 1,
    however many temperatures there are, where gaps sent one by one would add up; a record that is wrong and certain
    at every temperature comes close.
    """

    temperatures: tuple[float, ...]

    def __post_init__(self) -> None:
        check_temperatures(self.temperatures)
        if any(b <= a for a, b in pairwise(self.temperatures)):
            raise InputError(f"Expected rising temperatures, found {self.temperatures[:5]}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        """The middle of the curve, then its half rises."""
        return {"curve": Block((len(self.temperatures),))}

    def rows(self, records: Records) -> Rows:
        """Touch every cell."""
        gaps = np.stack([right - confidence for right, confidence in _tops(records, self.temperatures)], axis=1)
        middle = (gaps[:, :1] + gaps[:, -1:]) / 2
        return Rows(None, np.concatenate([middle, np.diff(gaps, axis=1) / 2], axis=1))


def gaps_of(curve: Floats) -> Floats:
    """Put the cells of a curve of gaps together again, (temperatures,); a rise below zero can only be noise."""
    rises = 2 * np.maximum(curve[1:], 0.0)
    climbed = np.concatenate([[0.0], np.cumsum(rises)])
    gaps: Floats = curve[0] - climbed[-1] / 2 + climbed
    return gaps


@final
@dataclass(frozen=True)
class ClippedLosses(RecordQuery):
    """At each temperature: the summed log loss, each record's cut at `worst` and divided by it.

    A record adds a number in [0, 1] to each of the G cells, because the cut happens here, on the client, record by
    record: Linf <= 1, L1 <= G, L2 <= sqrt(G), attained by a record that is wrong and certain. `worst` is a public
    constant, never the largest loss that was seen.
    """

    temperatures: tuple[float, ...]
    worst: float

    def __post_init__(self) -> None:
        check_temperatures(self.temperatures)
        if not 0 < self.worst < 1e3:
            raise InputError(f"Expected a bound on the log loss above 0, found {self.worst}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        """One cell a temperature."""
        return {"loss": _looks(len(self.temperatures))}

    def rows(self, records: Records) -> Rows:
        """Touch every cell."""
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
        """A row of bins a temperature."""
        looks = _looks(len(self.temperatures))
        return {"gap": Block((len(self.temperatures), self.bins), looks.bound, weight=looks.weight)}

    def rows(self, records: Records) -> Rows:
        """Touch one bin a temperature."""
        cells, values = [], []
        for look, (right, confidence) in enumerate(_tops(records, self.temperatures)):
            cells.append(look * self.bins + bin_index_unchecked(confidence, self.bins))
            values.append(right - confidence)
        return Rows(np.stack(cells, axis=1), np.stack(values, axis=1))


@final
@dataclass(frozen=True)
class RightWrong(RecordQuery):
    """By bin of the top probability: how many records are right, and how many wrong.

    A record adds one to one of the 2 x bins cells: every norm is 1, where counting (right, all) would make it 2.
    """

    bins: int

    def __post_init__(self) -> None:
        if not 1 <= self.bins <= 1 << 20:
            raise InputError(f"Expected 1 to 2^20 bins, found {self.bins}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Right, then wrong, by bin."""
        return {"counts": Block((2, self.bins), integral=True, one_hot=True)}

    def rows(self, records: Records) -> Rows:
        """Touch one cell."""
        ((right, confidence),) = _tops(records, (1.0,))
        return Rows((bin_index_unchecked(confidence, self.bins) + self.bins * ~right)[:, None], None)


def _looks(count: int) -> Block:
    return Block((count,), Bound(float(count), sqrt(count), 1.0), weight=float(count))


def _tops(records: Records, temperatures: tuple[float, ...]) -> list[tuple[Bools, Floats]]:
    """Say of each record whether its top class is right, and how probable that class is at each temperature."""
    logits = _shifted(records)
    right: Bools = records.probs.argmax(axis=1) == records.labels
    return [(right, 1 / np.exp(logits / temperature).sum(axis=1)) for temperature in temperatures]


def _shifted(records: Records) -> Floats:
    """Give the logits with each record's largest at zero, so that exponentials stay within one."""
    logits = np.asarray(records.logits, dtype=np.float64)
    shifted: Floats = logits - logits.max(axis=1, keepdims=True, initial=-np.inf)
    return shifted


def check_temperatures(temperatures: tuple[float, ...]) -> None:
    """Refuse temperatures that are no positive numbers."""
    if not temperatures or not all(0 < temperature < 1e6 for temperature in temperatures):
        raise InputError(f"Expected temperatures above 0, found {temperatures[:5]}.")
