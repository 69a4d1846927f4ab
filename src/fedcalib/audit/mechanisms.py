"""Audits of one mechanism: what a single release gives away about a unit that is there or not."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import final

import numpy as np

from fedcalib import accounting
from fedcalib.audit.evidence import Evidence, Gaussian, Threshold, lower_epsilon
from fedcalib.audit.releases import Releases, Reported, Stacked
from fedcalib.audit.result import Audit
from fedcalib.cohort import Cohort
from fedcalib.errors import InputError
from fedcalib.events import Event
from fedcalib.federation import Federation
from fedcalib.privacy.local import RandomisedReports
from fedcalib.privacy.model import Mechanism
from fedcalib.privacy.user_gaussian import ClippedGaussian
from fedcalib.query import Query
from fedcalib.randomness import Randomness, Secure
from fedcalib.types import Floats


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
