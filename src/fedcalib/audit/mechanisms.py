"""One question, many times over in one message: as many draws of its noise for the price of one.

Many independent releases of one answer, as fast as the mechanism allows.

Audits of one mechanism: what a single release gives away about a unit that is there or not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isfinite
from typing import Final, final

import numpy as np

from fedcalib import accounting
from fedcalib.accounting.events import Event
from fedcalib.audit.evidence import Audit, Evidence, Gaussian, Threshold, lower_epsilon
from fedcalib.cohort import Cohort
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.privacy import Mechanism
from fedcalib.privacy.local import RandomisedReports
from fedcalib.privacy.user_gaussian import ClippedGaussian
from fedcalib.query import Block, ClientTerms, Query, Rows
from fedcalib.randomness import Randomness, Secure
from fedcalib.records import Records
from fedcalib.types import Array, Floats, Ints


@final
@dataclass(frozen=True)
class Copies(Query):
    """The same question many times, with the bounds of one.

    A mechanism draws noise cell by cell, so every copy is an independent release of its own. The bounds would be wrong
    for one release of all copies together; that is the point, and why this query is for audits alone.
    """

    one: Query
    copies: int

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Stack each block's copies."""
        return {name: replace(block, shape=(self.copies, *block.shape)) for name, block in self.one.blocks.items()}

    def total(self, federation: Federation, randomness: Randomness, scale: Floats | None = None) -> Array:
        """Ask once and repeat the answer."""
        return self.repeat(self.one.total(federation, randomness, None if scale is None else self.apart(scale)[0]))

    def by_client(self, federation: Federation, randomness: Randomness) -> Iterator[ClientTerms]:
        """Ask each client once and repeat what it says."""
        places = self.places()  # (copies, size of one)
        for terms in self.one.by_client(federation, randomness):
            owner, value = np.tile(terms.owner, self.copies), np.tile(terms.value, self.copies)
            yield ClientTerms(terms.clients, owner, places[:, terms.cell].reshape(-1), value)

    def rows(self, records: Records) -> Rows:
        """Ask each record once and repeat what it says."""
        rows = self.one.rows(records)
        cells = np.broadcast_to(np.arange(self.one.size), (len(records), self.one.size))
        cells = cells if rows.cells is None else rows.cells
        places = np.concatenate([np.where(cells < 0, -1, own[cells]) for own in self.places()], axis=1)
        return Rows(places, None if rows.values is None else np.tile(rows.values, (1, self.copies)))

    def repeat(self, single: Array) -> Array:
        """Lay out the answer to one question as that to many."""
        return np.concatenate([np.tile(part.reshape(-1), self.copies) for part in self.one.split(single).values()])

    def apart(self, message: Array) -> Array:
        """Take a message apart into the copies, (copies, size of one)."""
        return message[self.places()]

    def places(self) -> Array:
        """Say where each copy's cells are in the whole message, (copies, size of one)."""
        edges = np.cumsum([0, *(block.size for block in self.one.blocks.values())])
        parts = [
            self.copies * start + np.arange(self.copies * (stop - start)).reshape(self.copies, -1)
            for start, stop in pairwise(edges)
        ]
        return np.concatenate(parts, axis=1)


_CHUNK: Final = 1 << 17  # cells at a time
_REPORTS: Final = 1 << 22  # more where draws that look alike are read once


class Releases(ABC):
    """A way to release the answer to a query again and again."""

    @abstractmethod
    def some(self, federation: Federation, draws: int, randomness: Randomness) -> Iterator[tuple[Floats, Floats]]:
        """Give so many estimates and their variances, (n, size) each, some at a time."""


@final
@dataclass(frozen=True)
class Stacked(Releases):
    """Ask for many copies in one message: for mechanisms that draw the noise of each cell on its own.

    `faithful` draws each client's share on its own too, where the law of the sum is drawn otherwise.
    """

    mechanism: Mechanism
    query: Query
    faithful: bool = False

    def some(self, federation: Federation, draws: int, randomness: Randomness) -> Iterator[tuple[Floats, Floats]]:
        """Release as many copies at a time as fit in cache."""
        most = max(_CHUNK // self.query.size, 1)
        for start in range(0, draws, most):
            copies = Copies(self.query, min(most, draws - start))
            stream = randomness.derive(start)
            total = self._gathered(copies, federation, stream)
            values, variances = self.mechanism.decode(copies, total, len(federation), stream.derive("server"))
            yield copies.apart(values), copies.apart(variances)

    def _gathered(self, copies: Copies, federation: Federation, randomness: Randomness) -> Array:
        gather = Mechanism.gather if self.faithful else type(self.mechanism).gather
        many = gather(self.mechanism, copies, federation, randomness)
        apart = copies.apart(many)
        if (apart != apart[0]).any():
            return many
        # no noise yet, so it comes with decoding; a client that cuts its sum must then see one copy of it, not all
        return copies.repeat(gather(self.mechanism, self.query, federation, randomness))


@final
@dataclass(frozen=True)
class Reported(Releases):
    """Let the first client's record report again and again: for a mechanism that hides each record by itself."""

    mechanism: RandomisedReports
    query: Query

    def some(self, federation: Federation, draws: int, randomness: Randomness) -> Iterator[tuple[Floats, Floats]]:
        """Report many times at once, and decode each different report once."""
        records, most = federation.client(0), max(_REPORTS // self.query.size, 1)
        if len(records) != 1:
            raise InputError(f"Expected a first client with one record to report, found {len(records)}.")
        for start in range(0, draws, most):
            same = records.take(np.zeros(min(most, draws - start), dtype=np.int64))
            shares = self.mechanism.reports(self.query, same, randomness.derive(start))
            reports, which = _distinct(shares)
            decoded = [self.mechanism.decode(self.query, report, 1, randomness) for report in reports]
            values, variances = (np.stack(part)[which] for part in zip(*decoded, strict=True))
            yield values, variances


def _distinct(rows: Ints) -> tuple[Ints, Ints]:
    """Give the different rows of small counts, and say of each row which it is; sorting numbers beats sorting rows."""
    keys, span = np.zeros(len(rows), dtype=np.int64), 1
    for column in rows.T:
        base = int(column.max(initial=0)) + 1
        if span * base >= 1 << 62:
            keys = np.unique(keys, return_inverse=True)[1]
            span = len(rows)
        keys, span = keys * base + column, span * base
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    return rows[first], which


@final
@dataclass(frozen=True, eq=False)
class Contrast:
    """The exact answers with and without a unit, and how to tell them apart in noise.

    Scores are log-likelihood ratios: of Gaussian noise, or, where `pure`, of Laplace noise, up to a constant.
    """

    present: Floats  # (size,)
    absent: Floats  # (size,)
    pure: bool

    @classmethod
    def of(cls, mechanism: Mechanism, query: Query, present: Federation, absent: Federation, pure: bool) -> Contrast:
        """Answer a query exactly, twice; clients cut their sums where the mechanism says so."""
        total = mechanism.exact if isinstance(mechanism, ClippedGaussian) else _uncut
        exact = Secure()  # for what a query draws itself
        return cls(total(query, present, exact), total(query, absent, exact), pure)

    def score(self, values: Floats, variances: Floats) -> Floats:
        """Say of each release, (n, size), how much it looks like the unit is there, (n,)."""
        difference = self.present - self.absent
        if not self.pure:
            middle = (self.present + self.absent) / 2
            return np.asarray(((values - middle) * difference / variances).sum(axis=-1))
        moved = np.clip((values - self.absent) * np.sign(difference), 0, np.abs(difference))
        widths = np.sqrt(variances, out=np.ones_like(variances), where=variances > 0)
        return np.asarray((moved / widths).sum(axis=-1))


def _uncut(query: Query, federation: Federation, randomness: Randomness) -> Floats:
    return query.total(federation, randomness)


def audit_mechanism(
    mechanism: Mechanism,
    query: Query,
    present: Federation,
    absent: Federation,
    *,
    cohort: Cohort | None = None,
    claimed: float | None = None,
    delta: float = 0.0,
    draws: int = 100_000,
    confidence: float = 1 - 1e-6,
    randomness: Randomness | None = None,
    faithful: bool = False,
    subject: str | None = None,
) -> Audit:
    """Bound from below the epsilon of releasing a query's answer, at a given delta.

    `present` and `absent` differ in one unit: it is there or not, or, for local privacy, it is one record or another.
    The claim is what the mechanism's own event costs, unless another is given. `faithful` draws each client's share on
    its own, where the law of the sum is drawn otherwise. Under local privacy the first client's one record is audited.
    """
    members = cohort or Cohort(len(present), floor=len(present))
    event = mechanism.event(query, members)
    if event is None:
        raise InputError(f"Expected a mechanism that claims an epsilon, found {type(mechanism).__name__}.")
    evidence = evidence_for(event, delta)
    releases = _releases(mechanism, query, faithful)
    game = _Game(releases, Contrast.of(mechanism, query, present, absent, isfinite(event.pure())), draws)
    stream = randomness or Secure()
    with_unit = game.sampled(present, absent, members.rate, stream)
    without = game.scores(absent, stream.derive("absent"))
    known = 0.0 if isinstance(evidence, Gaussian) else None  # scores are log-likelihood ratios then
    return Audit(
        subject or f"{type(mechanism).__name__} on {type(query).__name__}",
        lower_epsilon(with_unit, without, evidence, confidence, known),
        accounting.epsilon([event], delta) if claimed is None else claimed,
        delta,
        confidence,
        draws,
        evidence.name,
    )


def _releases(mechanism: Mechanism, query: Query, faithful: bool) -> Releases:
    """Draw record by record where records hide by themselves, and cell by cell everywhere else."""
    if isinstance(mechanism, RandomisedReports):
        return Reported(mechanism, query)
    return Stacked(mechanism, query, faithful)


def evidence_for(event: Event, delta: float) -> Evidence:
    """Look at the Gaussian shift where the noise is Gaussian and everybody takes part, and at events otherwise."""
    if isfinite(event.pure()):
        return Threshold()
    return Gaussian(delta) if isfinite(event.concentrated()) else Threshold(delta)


@final
@dataclass(frozen=True)
class _Game:
    """Releases, and how to score them."""

    releases: Releases
    contrast: Contrast
    draws: int

    def scores(self, federation: Federation, randomness: Randomness) -> Floats:
        """Release and score, (draws,)."""
        drawn = self.releases.some(federation, self.draws, randomness)
        return np.concatenate([self.contrast.score(values, variances) for values, variances in drawn])

    def sampled(self, present: Federation, absent: Federation, rate: float, randomness: Randomness) -> Floats:
        """Score releases in which the unit is drawn with a chance; where it is not, its absence is what is seen."""
        seen = self.scores(present, randomness.derive("present"))
        if rate == 1:
            return seen
        unseen = self.scores(absent, randomness.derive("unseen"))
        drawn = randomness.derive("sample").generator().random(self.draws) < rate
        return np.where(drawn, seen, unseen)
