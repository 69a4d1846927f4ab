"""What a client insists on, whatever the server proposes."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import final

from fedcalib.errors import InputError, PolicyError
from fedcalib.secagg.graph import degree
from fedcalib.secagg.plan import Plan


@final
@dataclass(frozen=True)
class Policy:
    """The weakest terms under which a client takes part.

    `floor` is the fewest survivors, `quorum` the smallest share of a neighbourhood that can unmask (above 2/3 the
    server cannot split the survivors even if it lies). `degree` is the fewest neighbours; None insists on the rule.
    `renewed` says that each attempt at a step brings fresh noise and is paid for, so a step may be asked again after
    this client confirmed an earlier attempt; without it the second answer could be subtracted from the first.
    """

    floor: int = 3
    quorum: Fraction = Fraction(2, 3)
    degree: int | None = None
    renewed: bool = False

    def __post_init__(self) -> None:
        if self.floor < 2 or not Fraction(1, 2) <= self.quorum < 1:
            raise InputError(
                f"Expected a floor of at least 2 and a quorum from 1/2 to below 1, "
                f"found {self.floor} and {self.quorum}."
            )

    def accept(self, plan: Plan) -> None:
        """Decline a plan whose terms are weaker than these."""
        if plan.floor < self.floor:
            raise PolicyError(
                f"Expected sums over at least {self.floor} sites, found a plan that allows {plan.floor}; "
                "raise the plan's floor or change this site's policy."
            )
        if plan.quorum < self.quorum:
            raise PolicyError(
                f"Expected a quorum of at least {self.quorum}, found {plan.quorum}; "
                "raise the plan's quorum or change this site's policy."
            )

    def accept_roster(self, plan: Plan, clients: int) -> None:
        """Decline a roster that is too small or a graph that is too thin for it."""
        if clients < self.floor:
            raise PolicyError(f"Expected at least {self.floor} sites in the roster, found {clients}; wait for more.")
        needed = degree(clients, plan.quorum) if self.degree is None else min(self.degree, clients - 1)
        if plan.neighbours(clients) < needed:
            raise PolicyError(
                f"Expected at least {needed} neighbours among {clients} sites, found {plan.neighbours(clients)}; "
                "leave the plan's degree empty to take the rule."
            )
