"""Audits of one mechanism: a lower bound on the epsilon of a single release.

Audits need many independent releases of one answer. `Copies` repeats a query within one message, so that a mechanism
that adds noise cell by cell makes many releases at once; `Stacked` and `Reported` are the two ways to release, and
`Contrast` scores releases by how much they look as if the unit is present.
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
    """The same query many times in one message, with the bounds of one.

    A mechanism adds noise cell by cell, so every copy is an independent release. The bounds would be wrong for one
    release of all copies together, so this query is for audits alone.
    """

    one: Query
    copies: int

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {name: replace(block, shape=(self.copies, *block.shape)) for name, block in self.one.blocks.items()}

    def total(self, federation: Federation, randomness: Randomness, scale: Floats | None = None) -> Array:
        return self.repeat(self.one.total(federation, randomness, None if scale is None else self.by_copy(scale)[0]))

    def by_client(self, federation: Federation, randomness: Randomness) -> Iterator[ClientTerms]:
        cells = self.cells()  # (copies, size of one)
        for terms in self.one.by_client(federation, randomness):
            owner, value = np.tile(terms.owner, self.copies), np.tile(terms.value, self.copies)
            yield ClientTerms(terms.clients, owner, cells[:, terms.cell].reshape(-1), value)

    def rows(self, records: Records) -> Rows:
        rows = self.one.rows(records)
        cells = np.broadcast_to(np.arange(self.one.size), (len(records), self.one.size))
        cells = cells if rows.cells is None else rows.cells
        copied = np.concatenate([np.where(cells < 0, -1, copy[cells]) for copy in self.cells()], axis=1)
        return Rows(copied, None if rows.values is None else np.tile(rows.values, (1, self.copies)))

    def repeat(self, single: Array) -> Array:
        """The message of all copies, given that of one."""
        return np.concatenate([np.tile(part.reshape(-1), self.copies) for part in self.one.split(single).values()])

    def by_copy(self, message: Array) -> Array:
        """The message of each copy, shape (copies, size of one)."""
        return message[self.cells()]

    def cells(self) -> Array:
        """Where each copy's cells are in the message of all, shape (copies, size of one)."""
        edges = np.cumsum([0, *(block.size for block in self.one.blocks.values())])
        parts = [
            self.copies * start + np.arange(self.copies * (stop - start)).reshape(self.copies, -1)
            for start, stop in pairwise(edges)
        ]
        return np.concatenate(parts, axis=1)


_CHUNK_CELLS: Final = 1 << 17  # that are released at once
_REPORT_CELLS: Final = 1 << 22  # more, because equal reports are decoded once


class Releases(ABC):
    """A way to release the answer to a query again and again."""

    @abstractmethod
    def some(self, federation: Federation, draws: int, randomness: Randomness) -> Iterator[tuple[Floats, Floats]]:
        """Yield `draws` estimates and their variances in chunks, (n, size) each."""


@final
@dataclass(frozen=True)
class Stacked(Releases):
    """Many copies in one message: for mechanisms that draw the noise of each cell independently.

    With `faithful`, each client's share of the noise is drawn separately, where otherwise their sum is drawn at once.
    """

    mechanism: Mechanism
    query: Query
    faithful: bool = False

    def some(self, federation: Federation, draws: int, randomness: Randomness) -> Iterator[tuple[Floats, Floats]]:
        size = max(_CHUNK_CELLS // self.query.size, 1)
        for start in range(0, draws, size):
            copies = Copies(self.query, min(size, draws - start))
            stream = randomness.derive(start)
            total = self._gathered(copies, federation, stream)
            values, variances = self.mechanism.decode(copies, total, len(federation), stream.derive("server"))
            yield copies.by_copy(values), copies.by_copy(variances)

    def _gathered(self, copies: Copies, federation: Federation, randomness: Randomness) -> Array:
        gather = Mechanism.gather if self.faithful else type(self.mechanism).gather
        many = gather(self.mechanism, copies, federation, randomness)
        each = copies.by_copy(many)
        if (each != each[0]).any():
            return many
        # no noise yet, so decoding adds it; a client that clips its sum must then clip one copy, not all together
        return copies.repeat(gather(self.mechanism, self.query, federation, randomness))


@final
@dataclass(frozen=True)
class Reported(Releases):
    """Many reports of the first client's one record: for mechanisms that randomise each record by itself."""

    mechanism: RandomisedReports
    query: Query

    def some(self, federation: Federation, draws: int, randomness: Randomness) -> Iterator[tuple[Floats, Floats]]:
        records, size = federation.client(0), max(_REPORT_CELLS // self.query.size, 1)
        if len(records) != 1:
            raise InputError(f"Expected a first client with one record to report, found {len(records)}.")
        for start in range(0, draws, size):
            same = records.take(np.zeros(min(size, draws - start), dtype=np.int64))
            shares = self.mechanism.reports(self.query, same, randomness.derive(start))
            reports, which = _distinct(shares)
            decoded = [self.mechanism.decode(self.query, report, 1, randomness) for report in reports]
            values, variances = (np.stack(part)[which] for part in zip(*decoded, strict=True))
            yield values, variances


def _distinct(rows: Ints) -> tuple[Ints, Ints]:
    """The distinct rows of small counts, and the index of each row among them.

    Rows are encoded as numbers, because sorting numbers is faster than sorting rows.
    """
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
    """The exact answers with and without a unit, and a score that distinguishes them under noise.

    Scores are log-likelihood ratios: of Gaussian noise, or, with `pure`, of Laplace noise, up to a constant.
    """

    present: Floats  # (size,)
    absent: Floats  # (size,)
    pure: bool

    @classmethod
    def of(cls, mechanism: Mechanism, query: Query, present: Federation, absent: Federation, pure: bool) -> Contrast:
        """The exact answers of a query on both sides; clients clip their sums where the mechanism demands it."""
        total = mechanism.exact if isinstance(mechanism, ClippedGaussian) else _unclipped
        source = Secure()  # for queries that are random themselves
        return cls(total(query, present, source), total(query, absent, source), pure)

    def score(self, values: Floats, variances: Floats) -> Floats:
        """Score of each release, (n, size), for the presence of the unit, shape (n,)."""
        difference = self.present - self.absent
        if not self.pure:
            middle = (self.present + self.absent) / 2
            return np.asarray(((values - middle) * difference / variances).sum(axis=-1))
        moved = np.clip((values - self.absent) * np.sign(difference), 0, np.abs(difference))
        widths = np.sqrt(variances, out=np.ones_like(variances), where=variances > 0)
        return np.asarray((moved / widths).sum(axis=-1))


def _unclipped(query: Query, federation: Federation, randomness: Randomness) -> Floats:
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
    """Lower bound on the epsilon of one release of a query's answer.

    Parameters
    ----------
    mechanism
        The mechanism, from `Privacy.mechanism`.
    query
        The query whose answer is released.
    present, absent
        Two federations that differ in one privacy unit: it is there or not, or, for local privacy, the first client's
        one record is one or another.
    cohort
        The clients of a step; by default all of `present`.
    claimed
        The epsilon to compare with; by default that of the mechanism's own privacy event.
    delta
        The delta of both.
    draws
        Number of releases on each side.
    confidence
        Confidence of the bound.
    randomness
        Source of randomness; by default the operating system's.
    faithful
        Draw each client's share of the noise separately, where otherwise their sum is drawn at once.
    subject
        Name of the audit.

    Returns
    -------
    Audit
        The bound beside the claim.

    Raises
    ------
    InputError
        If the mechanism claims no epsilon.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.audit import worst_cases
    >>> from fedcalib.method import Plan
    >>> case = next(worst_cases())
    >>> nothing = fc.Records.empty(2)
    >>> present = fc.Federation.of([case.unit, *[nothing] * 4])
    >>> absent = fc.Federation.of([nothing] * 5)
    >>> cohort, plan = fc.Everyone().cohort(5), Plan((case.query,))
    >>> mechanism = fc.DistributedDP(1.0).mechanism(case.query, plan, cohort, fc.Everyone())
    >>> audit = fc.audit.audit_mechanism(
    ...     mechanism, case.query, present, absent, cohort=cohort, draws=2000, confidence=0.99,
    ...     randomness=fc.Simulated(0),
    ... )
    >>> audit.passes, round(audit.claimed, 6)
    (True, 1.0)
    """
    members = cohort or Cohort(len(present), floor=len(present))
    event = mechanism.event(query, members)
    if event is None:
        raise InputError(f"Expected a mechanism that claims an epsilon, found {type(mechanism).__name__}.")
    evidence = evidence_for(event, delta)
    releases: Releases = Stacked(mechanism, query, faithful)
    if isinstance(mechanism, RandomisedReports):  # each record is randomised by itself
        releases = Reported(mechanism, query)
    scored = _ScoredReleases(releases, Contrast.of(mechanism, query, present, absent, isfinite(event.pure())), draws)
    stream = randomness or Secure()
    with_unit = scored.sampled(present, absent, members.rate, stream)
    without = scored.scores(absent, stream.derive("absent"))
    threshold = 0.0 if isinstance(evidence, Gaussian) else None  # its scores are log-likelihood ratios
    return Audit(
        subject or f"{type(mechanism).__name__} on {type(query).__name__}",
        lower_epsilon(with_unit, without, evidence, confidence, threshold),
        accounting.epsilon([event], delta) if claimed is None else claimed,
        delta,
        confidence,
        draws,
        evidence.name,
    )


def evidence_for(event: Event, delta: float) -> Evidence:
    """The Gaussian shift where the noise is Gaussian and all clients take part; a threshold event otherwise."""
    if isfinite(event.pure()):
        return Threshold()
    return Gaussian(delta) if isfinite(event.concentrated()) else Threshold(delta)


@final
@dataclass(frozen=True)
class _ScoredReleases:
    """Releases, and how they are scored."""

    releases: Releases
    contrast: Contrast
    draws: int

    def scores(self, federation: Federation, randomness: Randomness) -> Floats:
        chunks = self.releases.some(federation, self.draws, randomness)
        return np.concatenate([self.contrast.score(values, variances) for values, variances in chunks])

    def sampled(self, present: Federation, absent: Federation, rate: float, randomness: Randomness) -> Floats:
        """Scores of releases in which the unit takes part with probability `rate`, shape (draws,)."""
        inside = self.scores(present, randomness.derive("present"))
        if rate == 1:
            return inside
        outside = self.scores(absent, randomness.derive("unseen"))
        sampled = randomness.derive("sample").generator().random(self.draws) < rate
        return np.where(sampled, inside, outside)
