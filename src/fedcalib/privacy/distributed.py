"""Distributed differential privacy: clients add shares of noise, the server sees the noisy sum only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, log2, sqrt
from typing import final

from fedcalib.accounting import discrete_laplace_variance, distributed_gaussian_rho, rho_for
from fedcalib.accounting.events import Concentrated, Event, Pure
from fedcalib.accounting.spending import Spending
from fedcalib.cohort import Cohort, Participation
from fedcalib.errors import InputError, RefusedError
from fedcalib.federation import Federation
from fedcalib.method import Budget, Plan
from fedcalib.privacy import Mechanism, Privacy, protected
from fedcalib.privacy.ring import RingMechanism, check_positive, grid, grid_total, noise_a_block, unwrap, wrap
from fedcalib.query import Block, Query
from fedcalib.randomness import Randomness
from fedcalib.types import Array, Floats

_SMALLEST_SHARE = 4.0  # grid steps; a sum of such discrete Gaussians is one, but for less than 1e-60


@final
@dataclass(frozen=True)
class PolyaShares(RingMechanism):
    """Add Polya shares, of which `floor` make discrete Laplace noise; any more only add noise.

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
        check_positive(self.scales, self.widths)

    def gather(self, query: Query, federation: Federation, randomness: Randomness) -> Array:
        """Add as many shares as there are clients; their sum has the same law with all counts multiplied."""
        shares, stream = Fraction(len(federation), self.floor), randomness.derive("noise")
        noise = noise_a_block(query, self.widths, lambda width, size: stream.polya(shares, width, size))
        return wrap(grid_total(query, federation, randomness, self.scales) + noise)

    def decode(self, query: Query, total: Array, clients: int, randomness: Randomness) -> tuple[Floats, Floats]:
        """Take the ring sum out of fixed point; the noise of n shares is n / floor times as wide in variance."""
        variances = {
            name: clients / self.floor * discrete_laplace_variance(width) / self.scales[name] ** 2
            for name, width in self.widths.items()
        }
        return unwrap(total, query, self.scales), query.spread(variances)

    def event(self, query: Query, cohort: Cohort) -> Event | None:
        """Add up the blocks; fewer shares than `floor` would not make discrete Laplace noise."""
        _check_floor(cohort, self.floor)
        return Pure(sum(b.bound.l1 * self.scales[name] / self.widths[name] for name, b in query.blocks.items()))


@final
@dataclass(frozen=True)
class GaussianShares(RingMechanism):
    """Add discrete Gaussian shares of `sigmas[b]` grid steps each; `floor` of them make the promised noise.

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
        check_positive(self.scales, self.sigmas)

    def gather(self, query: Query, federation: Federation, randomness: Randomness) -> Array:
        """Add noise as wide as that of one share a client."""
        wider, stream = sqrt(len(federation)), randomness.derive("noise")
        noise = noise_a_block(query, self.sigmas, lambda sigma, size: stream.discrete_gaussian(sigma * wider, size))
        return wrap(grid_total(query, federation, randomness, self.scales) + noise)

    def decode(self, query: Query, total: Array, clients: int, randomness: Randomness) -> tuple[Floats, Floats]:
        """Take the ring sum out of fixed point."""
        variances = {name: clients * (sigma / self.scales[name]) ** 2 for name, sigma in self.sigmas.items()}
        return unwrap(total, query, self.scales), query.spread(variances)

    def event(self, query: Query, cohort: Cohort) -> Event | None:
        """Add up the blocks' zero-concentrated cost."""
        _check_floor(cohort, self.floor)
        return Concentrated(
            sum(
                _gaussian_rho(block, self.scales[name], self.sigmas[name], self.floor)
                for name, block in query.blocks.items()
            )
        )


@final
@dataclass(frozen=True)
class DistributedDP(Privacy):
    """Clients add shares of noise under secure aggregation; nobody, the server included, sees less noise than that.

    With delta 0 the noise is discrete Laplace and the promise pure epsilon; with delta above 0 it is a sum of discrete
    Gaussians, zero-concentrated and converted once. `epsilon` is the total of a run.
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < float("inf"):
            raise InputError(f"Expected epsilon above 0, found {self.epsilon}.")
        if not 0 <= self.delta < 1:
            raise InputError(f"Expected delta from 0 to below 1, found {self.delta}.")

    @property
    def budget(self) -> Budget:
        """Say that one noise covers the sum, for records unless a method's questions bound clients."""
        return Budget(self.epsilon, "record")

    @property
    def private(self) -> bool:
        """Hide exact counts."""
        return True

    def mechanism(self, query: Query, plan: Plan, cohort: Cohort, participation: Participation) -> Mechanism:
        """Size the shares for the fewest survivors that the cohort accepts."""
        shares = plan.shares(query, participation)
        return self._laplace(query, shares, cohort) if self.delta == 0 else self._gaussian(query, shares, cohort)

    def _laplace(self, query: Query, shares: Mapping[str, float], cohort: Cohort) -> PolyaShares:
        scales = {name: grid(block) for name, block in query.blocks.items()}
        widths = {
            name: block.bound.l1 * scales[name] / (self.epsilon * shares[name]) for name, block in query.blocks.items()
        }
        return PolyaShares(scales, widths, cohort.floor)

    def _gaussian(self, query: Query, shares: Mapping[str, float], cohort: Cohort) -> GaussianShares:
        rho = rho_for(self.epsilon, self.delta)
        scales, sigmas = {}, {}
        for name, block in query.blocks.items():
            share_of_one = block.bound.l2 / sqrt(2 * rho * shares[name] * cohort.floor)
            scales[name] = max(grid(block), 2.0 ** ceil(log2(_SMALLEST_SHARE / share_of_one)))
            sigma = share_of_one * scales[name]
            corrected = _gaussian_rho(block, scales[name], sigma, cohort.floor) / (rho * shares[name])
            sigmas[name] = sigma * sqrt(max(corrected, 1.0))
        return GaussianShares(scales, sigmas, cohort.floor)

    def spending(self, plan: Plan, cohort: Cohort, participation: Participation) -> Spending:
        """Promise the whole budget, whatever the number of queries."""
        law = "discrete Laplace" if self.delta == 0 else "discrete Gaussian"
        promise = f"epsilon = {self.epsilon:g}" + (f", delta = {self.delta:g}" if self.delta else " (pure)")
        statement = (
            f"Differential privacy with {promise} for {protected(plan.unit)} (add/remove): each client adds a share of "
            f"{law} noise before a secure sum, sized so that {cohort.floor} honest shares suffice. The server sees the "
            "noisy sum only. Assumes that at least that many clients add their share as agreed."
        )
        return Spending("DistributedDP", plan.unit, self.epsilon, self.delta, "add/remove", False, statement)


def _gaussian_rho(block: Block, scale: float, sigma: float, shares: int) -> float:
    return float(distributed_gaussian_rho(block.bound.l1 * scale, block.bound.l2 * scale, sigma, shares, block.size))


def _check_floor(cohort: Cohort, floor: int) -> None:
    if cohort.floor < floor:
        raise RefusedError(
            f"Expected noise shares sized for {cohort.floor} survivors, found shares that need {floor}; "
            "the sum would carry less noise than promised."
        )
