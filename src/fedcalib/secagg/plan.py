"""The public terms of a setup: which sums it prepares and how many sites must stay."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, final

from fedcalib.errors import FedcalibError, WireError
from fedcalib.secagg.digest import digest
from fedcalib.secagg.graph import degree, threshold
from fedcalib.secagg.identity import check_name
from fedcalib.secagg.message import Message, require

MOST_SLOTS = 4096
LONGEST_VECTOR = 1 << 27  # words: one gibibyte


@final
@dataclass(frozen=True)
class Slot:
    """One attempt at one planned step, and the length of its vectors; it has its own masking keys and seeds."""

    step: int
    attempt: int
    length: int


@final
@dataclass(frozen=True)
class Plan(Message):
    """What one setup prepares: its slots, the quorum of each neighbourhood, the fewest survivors of a sum.

    `setup` counts the setups of a run. `degree` is the number of neighbours; None takes the rule of `graph.degree`.
    """

    kind: ClassVar[str] = "secagg.plan"

    run: str
    slots: tuple[Slot, ...]
    setup: int = 0
    quorum: Fraction = Fraction(2, 3)
    floor: int = 3
    degree: int | None = None

    def check(self) -> None:
        """Refuse terms that cannot make a protocol."""
        try:
            check_name(self.run)
        except FedcalibError as error:
            raise WireError(f"Expected a plan for a named run. {error}") from error
        require(0 < len(self.slots) <= MOST_SLOTS, f"1 to {MOST_SLOTS} slots in a plan", str(len(self.slots)))
        pairs = {(slot.step, slot.attempt) for slot in self.slots}
        require(len(pairs) == len(self.slots), "each attempt at a step once in a plan", "one repeated")
        fits = all(0 < slot.length <= LONGEST_VECTOR for slot in self.slots)
        require(fits, f"vectors of 1 to {LONGEST_VECTOR} words", "another length")
        exact = isinstance(self.quorum, Fraction)
        require(
            exact and Fraction(1, 2) <= self.quorum < 1, "a quorum as a Fraction from 1/2 to below 1", str(self.quorum)
        )
        require(self.floor >= 2, "a floor of at least 2 survivors", str(self.floor))
        odd = self.degree is not None and (self.degree < 2 or self.degree % 2 == 1)
        require(not odd, "an even degree of at least 2", str(self.degree))

    @property
    def digest(self) -> bytes:
        """The hash that stands for the plan in signatures."""
        flat = [number for slot in self.slots for number in (slot.step, slot.attempt, slot.length)]
        quorum = (self.quorum.numerator, self.quorum.denominator)
        return digest("plan", self.run, self.setup, *quorum, self.floor, self.degree or 0, *flat)

    def neighbours(self, clients: int) -> int:
        """Say how many neighbours a client has in a roster of this size."""
        return min(degree(clients, self.quorum) if self.degree is None else self.degree, clients - 1)

    def around(self, clients: int) -> int:
        """Say how many of a neighbourhood, the client itself included, must stay for its secrets to be rebuilt."""
        return threshold(self.quorum, self.neighbours(clients) + 1)

    def overall(self, clients: int) -> int:
        """Say how many of the whole roster must be in a sum."""
        return max(self.floor, threshold(self.quorum, clients))
