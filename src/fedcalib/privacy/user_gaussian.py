"""Differential privacy for whole clients: each cuts its own sum, and the aggregator adds Gaussian noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import ceil, inf, log2, sqrt
from typing import final

import numpy as np

from fedcalib import accounting
from fedcalib.accounting import least_noise, rho_for
from fedcalib.accounting.events import Event, Repeated, SampledGaussian
from fedcalib.accounting.spending import Spending
from fedcalib.cohort import Cohort, Participation
from fedcalib.errors import InputError, RefusedError
from fedcalib.federation import Federation
from fedcalib.method import Budget, Plan
from fedcalib.privacy import Mechanism, Privacy, protected
from fedcalib.privacy.ring import RingMechanism, check_positive, clipped, noise_a_block, unwrap, wrap
from fedcalib.query import Block, ClientTerms, Query
from fedcalib.randomness import Randomness
from fedcalib.types import Array, Floats, Ints

_BITS = 30  # a clip spans at most 2^30 grid steps, so the cut of a million clients to the grid is 0.001 clips
_SLICE = 1 << 20  # entries at a time; so many of at most 2^30 each add up exactly in a float
_SLACK = 1 + 2.0**-32  # more than the rounding of a norm in floating point, and paid for by the noise


@final
@dataclass(frozen=True)
class ClippedGaussian(RingMechanism):
    """Cut each client's sum to public L2 norms, sum in the ring, and add discrete Gaussian noise to the total.

    A client moves block b by at most clip_b * scale_b grid steps in L2: its sum is cut to the norm, and then to
    integers toward zero, which only shortens it. So the sum has the cost of one Gaussian release whose inverse
    multiplier, squared, is the sum over blocks of (clip_b * scale_b / sigma_b)^2.
    """

    unit = "client"
    adjacency = "add/remove"
    renewed = False

    clips: Mapping[str, float]
    scales: Mapping[str, float]
    sigmas: Mapping[str, float]  # in grid steps
    separate: bool = False

    def __post_init__(self) -> None:
        check_positive(self.clips, self.scales, self.sigmas)

    def gather(self, query: Query, federation: Federation, randomness: Randomness) -> Array:
        """Cut each client's sum, some clients at a time, and add them up."""
        total = np.zeros(query.size, dtype=np.int64)
        for terms in query.by_client(federation, randomness):
            total += self._sum(query, terms)
        return wrap(total)

    def _sum(self, query: Query, terms: ClientTerms) -> Ints:
        values = clipped(query, terms, self.clips, separate=self.separate)
        whole = np.trunc(values * query.spread(self.scales)[terms.cell])
        total = np.zeros(query.size, dtype=np.int64)
        for start in range(0, len(whole), _SLICE):
            part = slice(start, start + _SLICE)
            total += np.bincount(terms.cell[part], whole[part], query.size).astype(np.int64)
        return total

    def decode(self, query: Query, total: Array, clients: int, randomness: Randomness) -> tuple[Floats, Floats]:
        """Add the noise, then take the sum out of fixed point."""
        noise = noise_a_block(query, self.sigmas, randomness.derive("noise").discrete_gaussian)
        variances = {name: (sigma / self.scales[name]) ** 2 for name, sigma in self.sigmas.items()}
        return unwrap(total + wrap(noise), query, self.scales), query.spread(variances)

    def exact(self, query: Query, federation: Federation, randomness: Randomness) -> Floats:
        """Give the sum of the cut terms without noise: what an audit compares releases with, never to be released."""
        return unwrap(self.gather(query, federation, randomness), query, self.scales)

    def event(self, query: Query, cohort: Cohort) -> Event | None:
        """Count all blocks as one Gaussian release to a sample of clients."""
        reach = {name: self.clips[name] * self.scales[name] * _SLACK for name in query.blocks}
        information = sum((reach[name] / self.sigmas[name]) ** 2 for name in query.blocks)
        return SampledGaussian(1 / sqrt(information), cohort.rate)


@final
@dataclass(frozen=True)
class UserGaussian(Privacy):
    """Each client with all its records is hidden by discrete Gaussian noise that the aggregator adds.

    Before anything leaves, a client cuts its sum to public L2 norms. `clip` gives them by the name of the block, or as
    one number: how many records' worth a client may add, so that a block's norm is that many times its bound for one
    record. Without it the query's own clips hold. `separate` cuts each block by its own factor, only to reproduce
    papers that do. `epsilon` and `delta` are the total of a run. With Poisson participation the noise is sized for a
    secret sample, which protects against readers of the result and never against the server that samples.
    """

    epsilon: float
    delta: float
    clip: float | Mapping[str, float] | None = None
    separate: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < inf:
            raise InputError(f"Expected epsilon above 0, found {self.epsilon}.")
        if not 0 < self.delta < 1:
            raise InputError(f"Expected delta above 0 and below 1, found {self.delta}; 1e-5 is usual.")
        given = self.clip.values() if isinstance(self.clip, Mapping) else [] if self.clip is None else [self.clip]
        if not all(0 < clip < inf for clip in given):
            raise InputError(f"Expected clips above 0, found {self.clip}.")

    @property
    def budget(self) -> Budget:
        """Say that one noise covers the sum, for whole clients."""
        return Budget(self.epsilon, "client")

    @property
    def private(self) -> bool:
        """Hide exact counts."""
        return True

    def mechanism(self, query: Query, plan: Plan, cohort: Cohort, participation: Participation) -> Mechanism:
        """Share the plan's information among its blocks, by weight."""
        self._check_names(plan)
        shares = plan.shares(query, participation)
        information = self._information(plan, cohort, participation)
        clips = {name: self._clip(query, name, block) for name, block in query.blocks.items()}
        scales = {name: 2.0 ** (_BITS - ceil(log2(clip))) for name, clip in clips.items()}
        sigmas = {name: clips[name] * scales[name] * _SLACK / sqrt(information * shares[name]) for name in clips}
        return ClippedGaussian(clips, scales, sigmas, self.separate)

    def _information(self, plan: Plan, cohort: Cohort, participation: Participation) -> float:
        steps = tuple(sum(plan.shares(query, participation).values()) for query in plan.queries)
        return _information(self.epsilon, self.delta, cohort.rate, steps)

    def _clip(self, query: Query, name: str, block: Block) -> float:
        clip = block.clip
        if isinstance(self.clip, Mapping):
            clip = self.clip.get(name, clip)
        elif self.clip is not None:
            clip = self.clip * block.bound.l2
        if block.bound.unit == "client":
            return min(clip or inf, block.bound.l2)
        if clip is None:
            raise RefusedError(
                f"UserGaussian needs a clip for the block '{name}' of {type(query).__name__}: a public limit to "
                "what a client may add. Say UserGaussian(..., clip=10) for ten records' worth, or an L2 norm a block."
            )
        return clip

    def _check_names(self, plan: Plan) -> None:
        known = {name for query in plan.queries for name in query.blocks}
        unknown = sorted(set(self.clip) - known) if isinstance(self.clip, Mapping) else []
        if unknown:
            raise InputError(f"Expected clips for the blocks {sorted(known)[:9]}, found one for {unknown[0]!r}.")

    def spending(self, plan: Plan, cohort: Cohort, participation: Participation) -> Spending:
        """Promise the whole budget, whatever the number of queries."""
        statement = (
            f"Differential privacy with epsilon = {self.epsilon:g}, delta = {self.delta:g} for {protected('client')} "
            "(add/remove): each client cuts its own sum to a public norm before a secure sum, and the aggregator adds "
            "discrete Gaussian noise. It is trusted to do so and sees the exact sum; the promise is to all others."
        )
        statement += self._sampling(plan, cohort, participation)
        return Spending("UserGaussian", "client", self.epsilon, self.delta, "add/remove", False, statement)

    def _sampling(self, plan: Plan, cohort: Cohort, participation: Participation) -> str:
        if cohort.rate < 1:
            total = self._information(plan, cohort, participation)
            known = accounting.epsilon([SampledGaussian(1 / sqrt(total))], self.delta)
            return (
                f" Each client is in a step with probability {cohort.rate:g}. That the sample is secret is counted in, "
                "which protects against readers of the result and never against the server that samples: whoever "
                f"knows who was drawn faces epsilon = {known:.3g}."
            )
        if len(plan.queries) > 1 and participation.appearances(len(plan.queries)) == 1:
            return " Each client is dealt into one of the steps and counts once; no amplification by sampling."
        return ""


@cache
def _information(epsilon: float, delta: float, rate: float, steps: tuple[float, ...]) -> float:
    """Find the most that all steps together may tell: the sum of their inverse multipliers, squared.

    Where everybody takes part that is twice the rho of zero-concentrated privacy, converted once. Under sampling a step
    with share s of it has the multiplier 1/sqrt(s * information), and Renyi divergences of integer order add up.
    """
    widest = 1 / sqrt(2 * rho_for(epsilon, delta))
    if rate == 1:
        return widest**-2

    def cost(noise: float) -> float:
        events = [Repeated(SampledGaussian(noise / sqrt(s), rate), times) for s, times in Counter(steps).items()]
        return accounting.epsilon(events, delta)

    return least_noise(cost, epsilon, widest) ** -2
