"""The slope of the log-likelihood along a line of temperatures, or at one of them with its curvature.

Each client's own verdict on temperatures, bounded whatever the client holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from math import log2, sqrt
from typing import final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.query import Block, Bound, ClientQuery, RecordQuery, Rows
from fedcalib.randomness import Randomness
from fedcalib.records import Records
from fedcalib.types import Floats, Ints

_AT_ONCE = 1 << 15  # logits: what is worked on stays in cache for the whole grid
_ALIKE = 1e-14  # a few roundings
_DOUBLINGS = 4


@final
@dataclass(frozen=True)
class TemperatureCurve(RecordQuery):
    """For each inverse temperature b: the derivative of the negative log-likelihood in b, in units of `reach`.

    A record adds (mean logit under softmax(b z)) - (logit of its label), cut to [-reach, reach] and divided by it, to
    each of the G cells: Linf = 1, L1 = G, L2 = sqrt(G), attained by a record that is badly wrong at every b. `clip` is
    the L2 norm to which a client's sum is cut when the client is the unit, in the same units.
    """

    inverses: tuple[float, ...]
    reach: float
    clip: float | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.inverses or not all(0 < b < 1e6 for b in self.inverses) or not 0 < self.reach < 1e9:
            raise InputError("Expected inverse temperatures and a reach above 0, found others.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        """One cell an inverse temperature."""
        grid = len(self.inverses)
        bound = Bound(float(grid), sqrt(grid), 1.0)
        return {"slope": Block((grid,), bound, weight=self.weight, clip=self.clip)}

    def rows(self, records: Records) -> Rows:
        """Touch every cell."""
        slopes = np.empty((len(self.inverses), len(records)))  # a temperature is one run of memory
        for part, below, own in shifted(records):
            for column, weights in exponentials(below, self.inverses):
                mean = np.einsum("ij,ij->j", weights, below)
                mean /= weights.sum(axis=0)
                np.subtract(mean, own, out=slopes[column, part])
        slopes /= self.reach
        return Rows(None, np.clip(slopes, -1.0, 1.0, out=slopes).T)


@final
@dataclass(frozen=True)
class TemperatureSlope(RecordQuery):
    """At one inverse temperature b: the derivative of the negative log-likelihood in b, and how it grows with ln b.

    A record adds to the slope as to one cell of a `TemperatureCurve`: every norm is 1. It adds the variance of b times
    its logits under softmax(b z) to the bend, or nothing where its slope is cut and so does not change. A variance of
    log-probabilities among c classes is at most that of one class against c - 1 equal ones, at the best odds; see
    `most_bend`. That is attained.
    """

    inverse: float
    reach: float
    classes: int
    typical_records: float | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.inverse < 1e6 or not 0 < self.reach < 1e9 or self.classes < 2:
            raise InputError("Expected an inverse temperature and a reach above 0, and classes, found others.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        """One cell each."""
        size, most = self.typical_records, most_bend(self.classes)
        clips = (None, None) if size is None else (2 * sqrt(size) / self.reach, size * most / 4)
        return {
            "slope": Block((1,), weight=0.8 * self.weight, clip=clips[0]),
            "bend": Block((1,), Bound(most, most, most), weight=0.2 * self.weight, clip=clips[1]),
        }

    def rows(self, records: Records) -> Rows:
        """Touch both cells."""
        if records.classes != self.classes:
            raise InputError(f"Expected {self.classes} classes, found {records.classes}.")
        both = np.empty((2, len(records)))  # each is one run of memory, which sums faster
        slope, bend = both
        for part, below, own in shifted(records):
            slope[part], bend[part] = self._moments(below, own)
        bend[np.abs(slope) > 1.0] = 0.0
        np.clip(slope, -1.0, 1.0, out=slope)
        np.clip(bend, 0.0, most_bend(self.classes), out=bend)  # rounding alone goes beyond
        return Rows(None, both.T)

    def _moments(self, below: Floats, own: Floats) -> tuple[Floats, Floats]:
        """Work out a few records' slopes and bends; what is below becomes what is below the mean."""
        _, weights = next(exponentials(below, (self.inverse,)))
        mass = weights.sum(axis=0)
        weights *= below
        mean = weights.sum(axis=0) / mass
        below -= mean
        square = np.einsum("ij,ij->j", weights, below) / mass  # E z (z - mean)
        return (mean - own) / self.reach, square * self.inverse**2


@cache
def most_bend(classes: int) -> float:
    """Give the largest variance that log-probabilities among so many classes can have.

    It is that of one class with odds against all others together, which are equal; the best odds are searched for.
    """
    others = np.exp(-np.linspace(0.0, 40.0, 400_001))  # the probability of all others together
    others = others[others < 1]
    gaps = np.log((1 - others) * (classes - 1) / others)
    return float((others * (1 - others) * gaps**2).max()) * (1 + 1e-8)  # the grid misses the top by less


def shifted(records: Records) -> Iterator[tuple[slice, Floats, Floats]]:
    """Walk through a few records at a time: which, logits below each one's largest, (classes, n), the label's, (n,).

    Class by class: short rows would leave the processor's lanes empty. The shift moves mean and own logit alike. What
    is given is overwritten by the next.
    """
    step = max(_AT_ONCE // records.classes, 16)
    room = np.empty((records.classes, min(step, len(records))))
    for start in range(0, len(records), step):
        part = slice(start, min(start + step, len(records)))
        below, labels = room[:, : part.stop - start], records.labels[part]
        np.copyto(below, records.logits[part].T)
        below -= below.max(axis=0, initial=-np.inf)
        yield part, below, below[labels, np.arange(len(labels))]


def exponentials(below: Floats, inverses: tuple[float, ...]) -> Iterator[tuple[int, Floats]]:
    """Give exp(b z) for each inverse temperature b, by its number; the next one overwrites it.

    exp(2 b z) is the square of exp(b z), and cheaper, so a temperature is followed by those it doubles to.
    """
    weights = np.empty_like(below)
    for column, doublings in _doubled(inverses):
        if doublings == 0:
            np.exp(np.multiply(below, inverses[column], out=weights), out=weights)
        for _ in range(doublings):
            np.square(weights, out=weights)
        yield column, weights


@lru_cache(maxsize=64)  # Newton's steps ask for ever new ones
def _doubled(inverses: tuple[float, ...]) -> tuple[tuple[int, int], ...]:
    """Order inverse temperatures so that each follows what it is 2, 4, 8 or 16 times; say how many doublings.

    No further: squaring doubles what rounding did to the exponential.
    """
    steps: list[tuple[int, int]] = []
    left = sorted(range(len(inverses)), key=lambda column: inverses[column])
    while left:
        first = inverses[left[0]]
        done = 0
        for column in tuple(left):
            times = round(log2(inverses[column] / first))
            if times <= _DOUBLINGS and abs(inverses[column] - 2**times * first) <= _ALIKE * inverses[column]:
                steps.append((column, times - done))
                left.remove(column)
                done = times
    return tuple(steps)


@final
@dataclass(frozen=True)
class TemperatureScores(ClientQuery):
    """For each inverse temperature b: whether a client's labels call for a softer model (1) or a sharper one (-1).

    A record's score is the derivative of its log loss in ln b, cut to [-cut, cut] and centred, so that it averages to
    nothing were the model right at b. A client adds its records' sum S / sqrt(I + quiet), where I is the variance that
    the model at b gives S, cut to [-1, 1]: a verdict in standard deviations, faint from a client with little to say.
    So every cell lies in [-1, 1], and a client's norms are Linf = 1, L1 = G, L2 = sqrt(G) over G temperatures whatever
    and however much it holds, attained by a client that is badly wrong at every b. Nobody has to guess a client's size.
    """

    inverses: tuple[float, ...]
    cut: float = 2.0
    quiet: float = 2.0
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.inverses or not all(0 < b < 1e6 for b in self.inverses):
            raise InputError("Expected inverse temperatures above 0, found others.")
        if not 0 < self.cut < 1e6 or not 0 < self.quiet < 1e9 or not 0 < self.weight < 1e9:
            raise InputError("Expected cut, quiet and weight above 0, found others.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        """One cell an inverse temperature."""
        grid = len(self.inverses)
        bound = Bound(float(grid), sqrt(grid), 1.0, "client")
        return {"score": Block((grid,), bound, weight=self.weight)}

    def term(self, records: Records, rng: np.random.Generator) -> Floats:
        """Give one client's verdicts."""
        verdicts: Floats = self._verdicts(records, np.zeros(len(records), dtype=np.int64), 1)[0]
        return verdicts

    def terms(self, federation: Federation, randomness: Randomness) -> Floats:
        """Give all clients' verdicts in one pass over the records."""
        return self._verdicts(federation.records, federation.owner, len(federation))

    def _verdicts(self, records: Records, owner: Ints, clients: int) -> Floats:
        sums, spreads = np.zeros((2, len(self.inverses), clients))
        for part, below, _ in shifted(records):
            first, last = int(owner[part].min()), int(owner[part].max()) + 1  # a few clients of perhaps a million
            whose = owner[part] - first
            for row, weights in exponentials(below, self.inverses):
                score, variance = self._scores(self.inverses[row] * below, weights, records.labels[part])
                sums[row, first:last] += np.bincount(whose, score, last - first)
                spreads[row, first:last] += np.bincount(whose, variance, last - first)
        verdicts: Floats = np.clip(sums / np.sqrt(spreads + self.quiet), -1.0, 1.0).T
        return verdicts

    def _scores(self, steep: Floats, weights: Floats, labels: Ints) -> tuple[Floats, Floats]:
        """Work out a few records' cut and centred scores at one temperature, and the variances the model gives them."""
        probs = weights / weights.sum(axis=0)  # (classes, n)
        slopes = np.clip(np.einsum("ij,ij->j", probs, steep) - steep, -self.cut, self.cut)
        slopes -= np.einsum("ij,ij->j", probs, slopes)
        variance = np.einsum("ij,ij,ij->j", probs, slopes, slopes)
        return slopes[labels, np.arange(len(labels))], variance
