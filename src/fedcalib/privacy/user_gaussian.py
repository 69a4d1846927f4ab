"""Differential privacy for whole clients: each clips its own sum, and the aggregator adds Gaussian noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf, log2, sqrt
from typing import final

from fedcalib import accounting
from fedcalib.accounting import least_noise, rho_for
from fedcalib.accounting.events import Event, Repeated, SampledGaussian
from fedcalib.accounting.spending import EMPTY_CLIENT, Spending
from fedcalib.cohort import Cohort, Participation
from fedcalib.errors import InputError, RefusedError
from fedcalib.federation import Federation
from fedcalib.method import Budget, Plan
from fedcalib.numeric import ExactSum, unwarned
from fedcalib.privacy import Mechanism, Privacy, check_delta, check_epsilon, protected_by_noise
from fedcalib.privacy.ring import (
    MAX_SUM,
    RingMechanism,
    check_noise,
    check_positive,
    clipped,
    noise_by_block,
    unwrap,
    wrap,
)
from fedcalib.query import Block, Bound, Query
from fedcalib.randomness import Randomness
from fedcalib.types import Array, Floats

_CLIP_BITS = 30  # a clip spans at most 2^30 grid steps, so truncating a million clients costs at most 0.001 clips
_ROUNDING_SLACK = 1 + 2.0**-32  # above the rounding error of a norm in floating point, and covered by the noise


@final
@dataclass(frozen=True)
class ClippedGaussian(RingMechanism):
    """Clip each client's sum to public L2 norms, sum in the ring, and add discrete Gaussian noise to the total.

    A client moves block b by at most clip_b * scale_b grid steps in L2: its sum is clipped to the norm, and then
    truncated to integers toward zero, which only shortens it. So the sum has the privacy loss of one Gaussian release
    whose inverse multiplier, squared, is the sum over blocks of (clip_b * scale_b / sigma_b)^2.
    """

    unit = "client"
    adjacency = EMPTY_CLIENT
    renewed = False

    clips: Mapping[str, float]
    scales: Mapping[str, float]
    sigmas: Mapping[str, float]  # in grid steps
    separate: bool = False

    def __post_init__(self) -> None:
        check_positive(self.clips, self.scales)
        check_noise(self.sigmas)

    def gather(self, query: Query, federation: Federation, randomness: Randomness) -> Array:
        """Clip in floats, with one factor per client, and enforce the clip in integers."""
        clips = {name: self.clips[name] * _ROUNDING_SLACK for name in query.blocks}
        bounds = {
            name: Bound(clips[name] * block.size, clips[name], clips[name]) for name, block in query.blocks.items()
        }
        grid, total = query.grid_within(self.scales, bounds), ExactSum(query.size)
        with unwarned():
            for terms in query.by_client(federation, randomness):
                values = clipped(query, terms, self.clips, separate=self.separate)
                grid.add_terms(terms.clients, terms.owner, terms.cell, values, total)
        return wrap(total.value())

    def decode(self, query: Query, total: Array, clients: int, randomness: Randomness) -> tuple[Floats, Floats]:
        noise = noise_by_block(query, self.sigmas, randomness.derive("noise").discrete_gaussian)
        variances = {name: (sigma / self.scales[name]) ** 2 for name, sigma in self.sigmas.items()}
        return unwrap(total + wrap(noise), query, self.scales), query.spread(variances)

    def exact(self, query: Query, federation: Federation, randomness: Randomness) -> Floats:
        """The sum of the clipped terms without noise, for audits to compare releases with; never to be released."""
        return unwrap(self.gather(query, federation, randomness), query, self.scales)

    def event(self, query: Query, cohort: Cohort) -> Event | None:
        """All blocks count as one Gaussian release to a sample of clients."""
        sensitivities = {name: self.clips[name] * self.scales[name] * _ROUNDING_SLACK for name in query.blocks}
        information = sum((sensitivities[name] / self.sigmas[name]) ** 2 for name in query.blocks)
        return SampledGaussian(1 / sqrt(information), cohort.rate)


@final
@dataclass(frozen=True)
class UserGaussian(Privacy):
    """Each client with all its records is hidden by discrete Gaussian noise that the aggregator adds.

    Before anything leaves, a client clips its sum to public L2 norms. With Poisson participation the noise is sized
    for a secret sample, which protects against readers of the result and never against the server that samples. The
    secret is in a private file beside the transcript, and nowhere else.

    Parameters
    ----------
    epsilon, delta
        The privacy loss of a whole run: epsilon from 1e-9 to 1e6, delta from 1e-100 to 0.1.
    clip
        The public L2 norms: by the name of the block, or one number: how many records' worth a client may add, so that
        a block's norm is that many times its bound for one record. None takes the query's own clips.
    separate
        Whether to scale each block by a factor of its own; only to reproduce papers that do.

    Examples
    --------
    >>> import fedcalib as fc
    >>> federation = fc.Federation.simulated(classes=2, clients=10)
    >>> privacy = fc.UserGaussian(epsilon=8.0, delta=1e-5, clip=10)
    >>> result = fc.run(fc.FedBin(), fc.InProcess(federation), privacy)
    >>> result.privacy.epsilon, result.privacy.delta, result.privacy.unit
    (8.0, 1e-05, 'client')
    """

    epsilon: float
    delta: float
    clip: float | Mapping[str, float] | None = None
    separate: bool = False

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        given = self.clip.values() if isinstance(self.clip, Mapping) else [] if self.clip is None else [self.clip]
        if not all(0 < clip <= MAX_SUM for clip in given):
            raise InputError(f"Expected clips above 0, up to 2^62, found {self.clip}; 10 is ten records' worth.")

    @property
    def budget(self) -> Budget:
        """One noise covers the sum and protects whole clients."""
        return Budget(self.epsilon, "client")

    @property
    def private(self) -> bool:
        return True

    def mechanism(self, query: Query, plan: Plan, cohort: Cohort, participation: Participation) -> Mechanism:
        self._check_names(plan)
        shares = plan.shares(query, participation)
        information = self._information(plan, cohort, participation)
        clips = {name: self._clip(query, name, block) for name, block in query.blocks.items()}
        scales = {name: 2.0 ** (_CLIP_BITS - ceil(log2(clip))) for name, clip in clips.items()}
        sigmas = {
            name: clips[name] * scales[name] * _ROUNDING_SLACK / sqrt(information * shares[name]) for name in clips
        }
        return ClippedGaussian(clips, scales, sigmas, self.separate)

    def _information(self, plan: Plan, cohort: Cohort, participation: Participation) -> float:
        return _information(self.epsilon, self.delta, cohort.rate, plan.step_shares(participation))

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
                "what a client may add. Set UserGaussian(..., clip=10) for ten records' worth, or an L2 norm per block."
            )
        return clip

    def _check_names(self, plan: Plan) -> None:
        if not isinstance(self.clip, Mapping):
            return
        known = plan.names
        unknown = sorted(set(self.clip) - known)
        if unknown:
            raise InputError(f"Expected clips for the blocks {sorted(known)[:9]}, found one for {unknown[0]!r}.")

    def spending(self, plan: Plan, cohort: Cohort, participation: Participation) -> Spending:
        statement = (
            f"Differential privacy with epsilon = {self.epsilon:g}, delta = {self.delta:g} for "
            f"{protected_by_noise('client')}: each client clips its own sum to a public norm before a secure sum, and "
            "the aggregator adds discrete Gaussian noise. It is trusted to do so and sees the exact sum; the guarantee "
            "is against others."
        )
        statement += self._sampling(plan, cohort, participation)
        return Spending("UserGaussian", "client", self.epsilon, self.delta, EMPTY_CLIENT, False, statement)

    def _sampling(self, plan: Plan, cohort: Cohort, participation: Participation) -> str:
        if cohort.rate < 1:
            total = self._information(plan, cohort, participation)
            known = accounting.epsilon([SampledGaussian(1 / sqrt(total))], self.delta)
            return (
                f" Each client is in a step with probability {cohort.rate:g}. This epsilon assumes that the sample is "
                "secret: it holds against readers of the result, the ledger and the transcript, and against clients "
                "that know only whether they took part themselves. It does not hold against whoever knows the sample: "
                "the server and its operators, a site that is sent queries for several clients, whoever sees who is "
                "sent a query, and whoever can read the file of the run's secret beside the transcript. Against "
                f"them, epsilon = {known:.3g}."
            )
        if len(plan.queries) > 1 and participation.appearances(len(plan.queries)) == 1:
            return " Each client takes part in one of the steps only and counts once; no amplification by sampling."
        return ""


@lru_cache(maxsize=256)
def _information(epsilon: float, delta: float, rate: float, steps: tuple[tuple[float, int], ...]) -> float:
    """The largest sum of squared inverse multipliers over all steps that keeps the budget.

    Without sampling that is twice the rho of zero-concentrated differential privacy, converted once. Under sampling a
    step with a fraction s of it has the multiplier 1/sqrt(s * information), and Renyi divergences of integer order add
    up.
    """
    unsampled = 1 / sqrt(2 * rho_for(epsilon, delta))
    if rate == 1:
        return unsampled**-2

    def cost(noise: float) -> float:
        events = [Repeated(SampledGaussian(noise / sqrt(s), rate), times) for s, times in steps]
        return accounting.epsilon(events, delta)

    return least_noise(cost, epsilon, unsampled) ** -2
