"""Queries about temperatures: gradients of the log-likelihood, and bounded scores of whole clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import pairwise
from math import log2, sqrt
from typing import final

import numpy as np

from fedcalib.artifacts.calibrator import UNCHANGED, Calibrator, Identity
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.query import Block, Bound, ClientQuery, RecordQuery, Rows
from fedcalib.randomness import Randomness
from fedcalib.records import Records
from fedcalib.types import Floats, Ints
from fedcalib.wire import ADDED

_CACHED_LOGITS = 1 << 15  # logits that are worked on at a time, for the whole grid
_RELATIVE_ROUNDING = 1e-14  # within which two temperatures are equal
_MAX_DOUBLINGS = 4
_ROUNDING_SLACK = 1 - 1e-12  # keeps sums of increments within their bound


@final
@dataclass(frozen=True)
class TemperatureCurve(RecordQuery):
    """For each inverse temperature b: the derivative of the negative log-likelihood in b, in units of `reach`.

    A record adds (mean logit under softmax(b z)) - (logit of its label), clipped to [-reach, reach] and divided by it,
    to each of the G cells: Linf = 1, L1 = G, L2 = sqrt(G), attained by a record that is badly wrong at every b. `clip`
    is the L2 norm to which a client's sum is clipped when the client is the unit, in the same units.
    """

    inverses: tuple[float, ...]
    reach: float
    clip: float | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.inverses or not all(0 < b < 1e6 for b in self.inverses) or not 0 < self.reach < 1e9:
            raise InputError(f"Expected inverse temperatures and a reach above 0, found {self!r:.200}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        grid = len(self.inverses)
        bound = Bound(float(grid), sqrt(grid), 1.0)
        return {"slope": Block((grid,), bound, weight=self.weight, clip=self.clip)}

    def rows(self, records: Records) -> Rows:
        gradients = np.empty((len(self.inverses), len(records)))  # a temperature is one run of memory
        for part, below, own in shifted(records):
            for column, weights in exponentials(below, self.inverses):
                mean = np.einsum("ij,ij->j", weights, below)
                mean /= weights.sum(axis=0)
                np.subtract(mean, own, out=gradients[column, part])
        gradients /= self.reach
        return Rows(None, np.clip(gradients, -1.0, 1.0, out=gradients).T)


@final
@dataclass(frozen=True)
class GradientSteps(RecordQuery):
    """The curve of a `TemperatureCurve` over increasing inverse temperatures, as its middle and half of its increments.

    A record's gradient is a number in [-1, 1], in units of `reach`, that increases with b. With first gradient a and
    last gradient z it adds (a + z) / 2 to the first cell and half of each increase between neighbours to the others,
    which together is |a + z| / 2 + (z - a) / 2 = max(|a|, |z|). So every norm is at most 1, however many cells there
    are, attained by a record that is badly wrong at every b.
    """

    inverses: tuple[float, ...]
    reach: float
    weight: float = 1.0

    def __post_init__(self) -> None:
        TemperatureCurve(self.inverses, self.reach)
        if any(b <= a for a, b in pairwise(self.inverses)):
            raise InputError(f"Expected increasing inverse temperatures, found {self.inverses[:5]}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"steps": Block((len(self.inverses),), weight=self.weight)}

    def rows(self, records: Records) -> Rows:
        gradients = np.asarray(TemperatureCurve(self.inverses, self.reach).rows(records).values)
        increments = np.maximum(np.diff(gradients, axis=1), 0.0)  # less than 0 by rounding alone
        middle = gradients[:, :1] + increments.sum(axis=1, keepdims=True) / 2
        return Rows(None, np.concatenate([middle, increments / 2], axis=1) * _ROUNDING_SLACK)


@final
@dataclass(frozen=True)
class TemperatureSlope(RecordQuery):
    """At one inverse temperature b: the derivative of the negative log-likelihood in b, and its growth with ln b.

    A record adds to `slope` as to one cell of a `TemperatureCurve`: every norm is 1. To `bend` it adds the variance of
    b times its logits under softmax(b z), or nothing where its gradient is clipped and so does not change. The variance
    of log-probabilities among c classes is at most that of one class against c - 1 equal ones, at the best odds; see
    `max_variance`. That is attained.
    """

    inverse: float
    reach: float
    classes: int
    typical_records: float | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.inverse < 1e6 or not 0 < self.reach < 1e9 or self.classes < 2:
            raise InputError(f"Expected inverse temperature and reach above 0 and at least 2 classes, found {self}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        size, largest = self.typical_records, max_variance(self.classes)
        clips = (None, None) if size is None else (2 * sqrt(size) / self.reach, size * largest / 4)
        return {
            "slope": Block((1,), weight=0.8 * self.weight, clip=clips[0]),
            "bend": Block((1,), Bound(largest, largest, largest), weight=0.2 * self.weight, clip=clips[1]),
        }

    def rows(self, records: Records) -> Rows:
        records.check_classes(self.classes)
        both = np.empty((2, len(records)))  # each is one run of memory, which sums faster
        gradient, variance = both
        for part, below, own in shifted(records):
            gradient[part], variance[part] = self._moments(below, own)
        variance[np.abs(gradient) > 1.0] = 0.0
        np.clip(gradient, -1.0, 1.0, out=gradient)
        np.clip(variance, 0.0, max_variance(self.classes), out=variance)  # rounding alone goes beyond
        return Rows(None, both.T)

    def _moments(self, below: Floats, own: Floats) -> tuple[Floats, Floats]:
        """Gradients and variances of some records; overwrites `below` with what is below the mean."""
        _, weights = next(exponentials(below, (self.inverse,)))
        mass = weights.sum(axis=0)
        weights *= below
        mean = weights.sum(axis=0) / mass
        below -= mean
        square = np.einsum("ij,ij->j", weights, below) / mass  # E z (z - mean)
        return (mean - own) / self.reach, square * self.inverse**2


@cache
def max_variance(classes: int) -> float:
    """The largest variance that log-probabilities among so many classes can have.

    It is that of one class against all others, which are equally likely; the best odds are found on a grid.
    """
    others = np.exp(-np.linspace(0.0, 40.0, 400_001))  # the probability of all others together
    others = others[others < 1]
    gaps = np.log((1 - others) * (classes - 1) / others)
    return float((others * (1 - others) * gaps**2).max()) * (1 + 1e-8)  # the grid misses the top by less


def shifted(records: Records) -> Iterator[tuple[slice, Floats, Floats]]:
    """Some records at a time: their slice, their logits, shape (classes, n), and the labels' logits, shape (n,).

    Classes come first, because short rows would leave the processor's lanes empty. Each record's largest logit is
    subtracted, which moves mean and own logit alike. Each yielded array is overwritten by the next.
    """
    step = max(_CACHED_LOGITS // records.classes, 16)
    room = np.empty((records.classes, min(step, len(records))))
    for start in range(0, len(records), step):
        part = slice(start, min(start + step, len(records)))
        below, labels = room[:, : part.stop - start], records.labels[part]
        np.copyto(below, records.logits[part].T)
        below -= below.max(axis=0, initial=-np.inf)
        yield part, below, below[labels, np.arange(len(labels))]


def exponentials(below: Floats, inverses: tuple[float, ...]) -> Iterator[tuple[int, Floats]]:
    """exp(b z) for each inverse temperature b, with its index; each yielded array is overwritten by the next.

    exp(2 b z) is the square of exp(b z), and cheaper, so a temperature is followed by those it doubles to.
    """
    weights = np.empty_like(below)
    for column, doublings in _doubled(inverses):
        if doublings == 0:
            np.exp(np.multiply(below, inverses[column], out=weights), out=weights)
        for _ in range(doublings):
            np.square(weights, out=weights)
        yield column, weights


@lru_cache(maxsize=64)  # every Newton step has a new one
def _doubled(inverses: tuple[float, ...]) -> tuple[tuple[int, int], ...]:
    """Inverse temperatures, each after one that it is 2, 4, 8 or 16 times, with the number of doublings.

    No further: squaring doubles the relative rounding error of the exponential.
    """
    steps: list[tuple[int, int]] = []
    left = sorted(range(len(inverses)), key=lambda column: inverses[column])
    while left:
        first = inverses[left[0]]
        done = 0
        for column in tuple(left):
            inverse = inverses[column]
            times = round(log2(inverse / first))
            if times <= _MAX_DOUBLINGS and abs(inverse - 2**times * first) <= _RELATIVE_ROUNDING * inverse:
                steps.append((column, times - done))
                left.remove(column)
                done = times
    return tuple(steps)


@final
@dataclass(frozen=True)
class TemperatureScores(ClientQuery):
    """For each inverse temperature b: whether a client's labels call for a softer (1) or a sharper (-1) model.

    A record's score is the derivative of its log loss in ln b, clipped to [-cut, cut] and centred, so that its mean is
    zero if the classifier is calibrated at b. A client adds its records' sum S / sqrt(I + quiet), where I is the
    variance of S under the classifier at b, clipped to [-1, 1]: a score in standard deviations, near zero for a client
    with little evidence. So every cell lies in [-1, 1], and a client's norms are Linf = 1, L1 = G, L2 = sqrt(G) over G
    temperatures whatever and however much it holds, attained by a client that is badly wrong at every b. No guess at a
    client's size is needed. Clients apply the calibrator `before` first.
    """

    inverses: tuple[float, ...]
    cut: float = 2.0
    quiet: float = 2.0
    weight: float = 1.0
    before: Calibrator = field(default=UNCHANGED, metadata=ADDED)

    def __post_init__(self) -> None:
        if not self.inverses or not all(0 < b < 1e6 for b in self.inverses):
            raise InputError(f"Expected inverse temperatures above 0, found {self.inverses[:5]}.")
        if not 0 < self.cut < 1e6 or not 0 < self.quiet < 1e9 or not 0 < self.weight < 1e9:
            raise InputError(f"Expected cut, quiet and weight above 0, found {self.cut}, {self.quiet}, {self.weight}.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        grid = len(self.inverses)
        bound = Bound(float(grid), sqrt(grid), 1.0, "client")
        return {"score": Block((grid,), bound, weight=self.weight)}

    def term(self, records: Records, rng: np.random.Generator) -> Floats:
        scores: Floats = self._client_scores(records, np.zeros(len(records), dtype=np.int64), 1)[0]
        return scores

    def terms(self, federation: Federation, randomness: Randomness) -> Floats:
        return self._client_scores(federation.records, federation.owner, len(federation))

    def _client_scores(self, records: Records, owner: Ints, clients: int) -> Floats:
        sums, variances = np.zeros((2, len(self.inverses), clients))
        records = records if isinstance(self.before, Identity) else self.before.over(records)
        for part, below, _ in shifted(records):
            first, last = int(owner[part].min()), int(owner[part].max()) + 1  # a few clients of perhaps a million
            whose = owner[part] - first
            for row, weights in exponentials(below, self.inverses):
                score, variance = self._record_scores(self.inverses[row] * below, weights, records.labels[part])
                sums[row, first:last] += np.bincount(whose, score, last - first)
                variances[row, first:last] += np.bincount(whose, variance, last - first)
        return np.clip(sums / np.sqrt(variances + self.quiet), -1.0, 1.0).T

    def _record_scores(self, scaled: Floats, weights: Floats, labels: Ints) -> tuple[Floats, Floats]:
        """Clipped, centred scores of some records at one temperature, and their variances under the classifier."""
        probs = weights / weights.sum(axis=0)  # (classes, n)
        scores = np.clip(np.einsum("ij,ij->j", probs, scaled) - scaled, -self.cut, self.cut)
        scores -= np.einsum("ij,ij->j", probs, scores)
        variance = np.einsum("ij,ij,ij->j", probs, scores, scores)
        return scores[labels, np.arange(len(labels))], variance
