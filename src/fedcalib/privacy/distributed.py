"""Distributed differential privacy: clients add shares of noise, the server sees the noisy sum only."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, inf, log2, log10, sqrt
from typing import final

from fedcalib import accounting
from fedcalib.accounting import discrete_laplace_variance, distributed_gaussian_rho, polya_epsilon, rho_for
from fedcalib.accounting.events import Composed, Concentrated, Event, Parallel, Pure
from fedcalib.accounting.spending import Spending
from fedcalib.cohort import MAX_CLIENTS, Cohort, Participation
from fedcalib.errors import InputError, RefusedError
from fedcalib.federation import Federation
from fedcalib.method import Budget, Plan
from fedcalib.privacy import Privacy, check_delta, check_epsilon, protected_by_noise
from fedcalib.privacy.ring import (
    RingMechanism,
    check_noise,
    check_positive,
    grid,
    grid_total,
    noise_by_block,
    unwrap,
    wrap,
)
from fedcalib.query import Block, Query
from fedcalib.randomness import Randomness
from fedcalib.types import Array, Floats
from fedcalib.wire import ADDED

_MAX_ALL_PAIRS = 50  # clients; beyond, each shares masks with some of the others only
_MAX_STATED = 100.0  # an epsilon that no longer says anything
_MIN_SHARE_SIGMA = 4.0  # grid steps; a sum of such discrete Gaussians is one up to less than 1e-60


class NoiseShares(RingMechanism):
    """Each client adds a share of the noise."""

    @abstractmethod
    def event_of_shares(self, query: Query, honest: int) -> Event:
        """The privacy loss against somebody who knows all noise but that of so many shares."""


@final
@dataclass(frozen=True)
class PolyaShares(NoiseShares):
    """Each client adds a Polya share; `floor` shares make discrete Laplace noise, and more of them only add noise.

    A unit moves block b by at most l1_b * scale_b grid steps, and the noise of `floor` shares is discrete Laplace with
    `widths[b]` grid steps, so the sum is (sum of l1_b * scale_b / width_b)-differentially private.
    """

    unit = None
    adjacency = "add/remove"
    renewed = True

    scales: Mapping[str, float]
    widths: Mapping[str, float]
    floor: int

    def __post_init__(self) -> None:
        check_positive(self.scales)
        check_noise(self.widths, self.floor)

    def gather(self, query: Query, federation: Federation, randomness: Randomness) -> Array:
        """The sum of n shares has the distribution of one share of n times the shape."""
        shares, stream = Fraction(len(federation), self.floor), randomness.derive("noise")
        noise = noise_by_block(query, self.widths, lambda width, size: stream.polya(shares, width, size))
        return wrap(grid_total(query, federation, randomness, self.scales) + noise)

    def decode(self, query: Query, total: Array, clients: int, randomness: Randomness) -> tuple[Floats, Floats]:
        """The estimate; the variance of the noise of n shares is n / floor times that of discrete Laplace noise."""
        variances = {
            name: clients / self.floor * discrete_laplace_variance(width) / self.scales[name] ** 2
            for name, width in self.widths.items()
        }
        return unwrap(total, query, self.scales), query.spread(variances)

    def event(self, query: Query, cohort: Cohort) -> Event | None:
        """The sum over blocks; a cohort below `floor` is refused, since its noise would not be discrete Laplace."""
        _check_floor(cohort, self.floor)
        return Pure(sum(b.bound.l1 * self.scales[name] / self.widths[name] for name, b in query.blocks.items()))

    def event_of_shares(self, query: Query, honest: int) -> Event:
        fraction = honest / self.floor
        return Pure(sum(self._epsilon(name, block, fraction) for name, block in query.blocks.items()))

    def _epsilon(self, name: str, block: Block, fraction: float) -> float:
        steps = max(ceil(block.bound.l1 * self.scales[name]), 1)
        return polya_epsilon(fraction, 1 / self.widths[name], steps, block.size)


@final
@dataclass(frozen=True)
class GaussianShares(NoiseShares):
    """Each client adds a discrete Gaussian share of `sigmas[b]` grid steps; `floor` shares make the promised noise.

    A unit moves block b by at most l2_b * scale_b grid steps in L2, and a sum of discrete Gaussians is one up to the
    correction term of Kairouz, Liu and Steinke (2021), which is accounted and negligible at this share width.
    """

    unit = None
    adjacency = "add/remove"
    renewed = True

    scales: Mapping[str, float]
    sigmas: Mapping[str, float]
    floor: int

    def __post_init__(self) -> None:
        check_positive(self.scales)
        check_noise(self.sigmas, self.floor)

    def gather(self, query: Query, federation: Federation, randomness: Randomness) -> Array:
        factor, stream = sqrt(len(federation)), randomness.derive("noise")
        noise = noise_by_block(query, self.sigmas, lambda sigma, size: stream.discrete_gaussian(sigma * factor, size))
        return wrap(grid_total(query, federation, randomness, self.scales) + noise)

    def decode(self, query: Query, total: Array, clients: int, randomness: Randomness) -> tuple[Floats, Floats]:
        variances = {name: clients * (sigma / self.scales[name]) ** 2 for name, sigma in self.sigmas.items()}
        return unwrap(total, query, self.scales), query.spread(variances)

    def event(self, query: Query, cohort: Cohort) -> Event | None:
        _check_floor(cohort, self.floor)
        return self.event_of_shares(query, self.floor)

    def event_of_shares(self, query: Query, honest: int) -> Event:
        return Concentrated(
            sum(
                _gaussian_rho(block, self.scales[name], self.sigmas[name], honest)
                for name, block in query.blocks.items()
            )
        )


@final
@dataclass(frozen=True)
class DistributedDP(Privacy):
    """Clients add shares of noise under secure aggregation, so that even the server sees the noisy sum only.

    With delta 0 the noise is discrete Laplace and the guarantee is pure epsilon; with delta above 0 it is a sum of
    discrete Gaussians, accounted as zero-concentrated differential privacy and converted once.

    Parameters
    ----------
    epsilon
        The privacy loss of a whole run, from 1e-9 to 1e6.
    delta
        0 for pure epsilon, or a small probability such as 1e-6.
    colluding
        How many clients may tell the server their shares of the noise: that of the others then suffices. The privacy
        statement has the epsilon against none, one and two such clients.

    Examples
    --------
    >>> import fedcalib as fc
    >>> federation = fc.Federation.simulated(classes=2, clients=10)
    >>> result = fc.run(fc.FedBin(), fc.InProcess(federation), fc.DistributedDP(epsilon=1.0))
    >>> result.privacy.epsilon, result.privacy.unit, result.privacy.adjacency
    (1.0, 'record', 'add/remove')
    >>> fc.DistributedDP(epsilon=1.0, colluding=2)
    DistributedDP(epsilon=1.0, delta=0.0, colluding=2)
    """

    epsilon: float
    delta: float = 0.0
    colluding: int = field(default=0, metadata=ADDED)

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if self.delta != 0:
            check_delta(self.delta)
        if not 0 <= self.colluding <= MAX_CLIENTS:
            raise InputError(f"Expected a number of colluding clients from 0 up, found {self.colluding}.")

    @property
    def budget(self) -> Budget:
        """One noise covers the sum; it protects records unless a method's queries bound clients."""
        return Budget(self.epsilon, "record")

    @property
    def private(self) -> bool:
        return True

    def mechanism(self, query: Query, plan: Plan, cohort: Cohort, participation: Participation) -> NoiseShares:
        """Noise shares, sized for the fewest survivors that the cohort accepts, less those that may collude."""
        shares, honest = plan.shares(query, participation), self._honest(cohort)
        return self._laplace(query, shares, honest) if self.delta == 0 else self._gaussian(query, shares, honest)

    def _honest(self, cohort: Cohort) -> int:
        """The number of shares that must suffice."""
        most = cohort.floor // 5 if cohort.expected > _MAX_ALL_PAIRS else (cohort.floor - 1) // 2
        if self.colluding > most:
            raise RefusedError(
                f"Expected colluding to be at most {most}, since the sum of {cohort.floor} clients may be read, found "
                f"{self.colluding}. The masks of a secure sum hold against fewer than half of the clients, and past "
                f"{_MAX_ALL_PAIRS} clients against a fifth. Add clients, or use SourceLaplace, where all others may "
                "collude."
            )
        return cohort.floor - self.colluding

    def _laplace(self, query: Query, shares: Mapping[str, float], honest: int) -> PolyaShares:
        scales = {name: grid(block) for name, block in query.blocks.items()}
        widths = {
            name: block.bound.l1 * scales[name] / (self.epsilon * shares[name]) for name, block in query.blocks.items()
        }
        return PolyaShares(scales, widths, honest)

    def _gaussian(self, query: Query, shares: Mapping[str, float], honest: int) -> GaussianShares:
        rho = rho_for(self.epsilon, self.delta)
        scales, sigmas = {}, {}
        for name, block in query.blocks.items():
            share_sigma = block.bound.l2 / sqrt(2 * rho * shares[name] * honest)
            scales[name] = max(grid(block), 2.0 ** ceil(log2(_MIN_SHARE_SIGMA / share_sigma)))
            sigma = share_sigma * scales[name]
            corrected = _gaussian_rho(block, scales[name], sigma, honest) / (rho * shares[name])
            sigmas[name] = sigma * sqrt(max(corrected, 1.0))
        return GaussianShares(scales, sigmas, honest)

    def spending(self, plan: Plan, cohort: Cohort, participation: Participation) -> Spending:
        law = "discrete Laplace" if self.delta == 0 else "discrete Gaussian"
        promise = f"epsilon = {self.epsilon:g}" + (f", delta = {self.delta:g}" if self.delta else " (pure)")
        statement = (
            f"Differential privacy with {promise} for {protected_by_noise(plan.unit)}: each client adds a share of "
            f"{law} noise before a secure sum, sized so that {self._honest(cohort)} honest shares suffice. The server "
            "sees the noisy sum only. Assumes that at least that many clients add their share as agreed and tell it to "
            f"nobody. {self._collusion(plan, cohort, participation)}"
        )
        return Spending("DistributedDP", plan.unit, self.epsilon, self.delta, "add/remove", False, statement)

    def _collusion(self, plan: Plan, cohort: Cohort, participation: Participation) -> str:
        """The epsilon against the server together with none, one and two clients, in words."""
        none, one, two = (_stated(self._against(n, plan, cohort, participation)) for n in range(3))
        return (
            f"Against the server alone: {none}; if one client tells it its share of the noise: {one}; if two clients "
            f"do: {two}."
        )

    def _against(self, colluders: int, plan: Plan, cohort: Cohort, participation: Participation) -> float:
        if colluders <= self.colluding:
            return self.epsilon
        honest = cohort.floor - colluders
        if honest < 1:
            return inf
        events = tuple(
            self.mechanism(query, plan, cohort, participation).event_of_shares(query, honest) for query in plan.queries
        )
        once = participation.appearances(len(plan.queries)) == 1
        return accounting.epsilon([Parallel(events) if once else Composed(events)], self.delta)


def _stated(epsilon: float) -> str:
    """An epsilon in words, rounded up to three digits; 0 where a method sends no query."""
    if epsilon == 0:
        return "epsilon = 0"
    if epsilon > _MAX_STATED:
        return "no guarantee" if epsilon == inf else f"no useful guarantee (epsilon above {_MAX_STATED:g})"
    step = 10.0 ** (ceil(log10(epsilon)) - 3)
    return f"epsilon = {ceil(epsilon / step - 1e-9) * step:.3g}"


def _gaussian_rho(block: Block, scale: float, sigma: float, shares: int) -> float:
    return float(distributed_gaussian_rho(block.bound.l1 * scale, block.bound.l2 * scale, sigma, shares, block.size))


def _check_floor(cohort: Cohort, floor: int) -> None:
    if cohort.floor < floor:
        raise RefusedError(
            f"Expected noise shares sized for {cohort.floor} survivors, found shares that need {floor}; "
            "the sum would carry less noise than promised."
        )
