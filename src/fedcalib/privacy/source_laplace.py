"""Noise at the source: each client adds discrete Laplace noise of its own, and trusts nobody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from fedcalib.accounting import discrete_laplace_variance
from fedcalib.accounting.events import Event, Pure
from fedcalib.accounting.spending import Spending
from fedcalib.cohort import Cohort, Participation
from fedcalib.federation import Federation
from fedcalib.method import Budget, Plan
from fedcalib.privacy import Mechanism, Privacy, check_epsilon, protected_by_noise
from fedcalib.privacy.ring import check_noise, check_positive, grid, grid_total, noise_by_block
from fedcalib.query import Query
from fedcalib.randomness import Randomness
from fedcalib.records import Records
from fedcalib.types import Array, Floats


@final
@dataclass(frozen=True)
class LaplaceTerms(Mechanism):
    """Each source adds discrete Laplace noise of `widths[b]` grid steps to each cell of its own sum.

    A unit moves block b by at most l1_b * scale_b grid steps, since every term is truncated to integers toward zero on
    its own. So each source's message is (sum of l1_b * scale_b / width_b)-differentially private, whoever reads it.
    """

    unit = None
    adjacency = "add/remove"
    renewed = False

    scales: Mapping[str, float]
    widths: Mapping[str, float]

    def __post_init__(self) -> None:
        check_positive(self.scales)
        check_noise(self.widths)

    @property
    def modulus(self) -> int | None:
        return None

    def encode(self, query: Query, records: Records, randomness: Randomness) -> Array:
        noise = noise_by_block(query, self.widths, randomness.derive("noise").discrete_laplace)
        return grid_total(query, Federation.of([records]), randomness, self.scales) + noise

    def gather(self, query: Query, federation: Federation, randomness: Randomness) -> Array:
        """The noise of all sources at once: n discrete Laplace variables make a Polya variable of shape n."""
        total = grid_total(query, federation, randomness, self.scales)
        if not len(federation):
            return total
        stream = randomness.derive("noise")
        return total + noise_by_block(query, self.widths, lambda w, size: stream.polya(len(federation), w, size))

    def decode(self, query: Query, total: Array, clients: int, randomness: Randomness) -> tuple[Floats, Floats]:
        variances = {
            name: clients * discrete_laplace_variance(width) / self.scales[name] ** 2
            for name, width in self.widths.items()
        }
        return total / query.spread(self.scales), query.spread(variances)

    def event(self, query: Query, cohort: Cohort) -> Event | None:
        return Pure(sum(b.bound.l1 * self.scales[name] / self.widths[name] for name, b in query.blocks.items()))


@final
@dataclass(frozen=True)
class SourceLaplace(Privacy):
    """Each source adds discrete Laplace noise to its own sums: pure epsilon, and it holds whoever colludes.

    The server sees each source's noisy sums, so the noise of a total grows with the number of sources.

    Parameters
    ----------
    epsilon
        The privacy loss of a whole run, from 1e-9 to 1e6.

    Examples
    --------
    >>> import fedcalib as fc
    >>> federation = fc.Federation.simulated(classes=2, clients=10)
    >>> result = fc.run(fc.FedBin(), fc.InProcess(federation), fc.SourceLaplace(epsilon=1.0))
    >>> result.privacy.epsilon, result.privacy.delta
    (1.0, 0.0)
    """

    epsilon: float

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)

    @property
    def budget(self) -> Budget:
        """Every client adds noise of its own."""
        return Budget(self.epsilon, "record", alone="client")

    @property
    def private(self) -> bool:
        return True

    def mechanism(self, query: Query, plan: Plan, cohort: Cohort, participation: Participation) -> Mechanism:
        shares = plan.shares(query, participation)
        scales = {name: grid(block) for name, block in query.blocks.items()}
        widths = {
            name: block.bound.l1 * scales[name] / (self.epsilon * shares[name]) for name, block in query.blocks.items()
        }
        return LaplaceTerms(scales, widths)

    def spending(self, plan: Plan, cohort: Cohort, participation: Participation) -> Spending:
        statement = (
            f"Differential privacy with epsilon = {self.epsilon:g} (pure) for {protected_by_noise(plan.unit)}: each "
            "source adds discrete Laplace noise to its own sums before they leave. It holds whoever colludes, the "
            "server and all other sources included. A unit present at several sources pays at each of them."
        )
        return Spending("SourceLaplace", plan.unit, self.epsilon, 0.0, "add/remove", False, statement)
