"""What every mechanism states about itself, and that a site books by it and not by the mechanism's name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from tests.remote.places import GENEROUS

import fedcalib as fc
from fedcalib.accounting.events import Event, Pure
from fedcalib.accounting.spending import Spending
from fedcalib.loop import Outline
from fedcalib.privacy import Mechanism
from fedcalib.query import Query
from fedcalib.randomness import Randomness
from fedcalib.records import Records
from fedcalib.remote.policy import Policy
from fedcalib.types import Array, Floats

PLAN = fc.method.Plan.of(fc.FedBin(), fc.Schema(2, 5))
COHORT = fc.Everyone().cohort(5)

STATED = [
    (fc.Open(), None, "none", False),
    (fc.SecAgg(), None, "none", False),
    (fc.DistributedDP(1.0), None, "add/remove", True),
    (fc.DistributedDP(1.0, 1e-5), None, "add/remove", True),
    (fc.LocalDP(1.0), "record", "replace-one", False),
    (fc.SourceLaplace(1.0), None, "add/remove", False),
    (fc.UserGaussian(1.0, 1e-5, clip=10), "client", "replace by an empty client", False),
]


def mechanism(privacy: fc.privacy.Privacy) -> Mechanism:
    return privacy.mechanism(PLAN.queries[0], PLAN, COHORT, fc.Everyone())


def booked(privacy: fc.privacy.Privacy, policy: Policy = GENEROUS) -> tuple[str, str] | None:
    spending = policy.accept(Outline("run", PLAN.queries, privacy, COHORT, fc.Everyone()))
    return None if spending is None else (spending.unit, spending.adjacency)


@pytest.mark.parametrize(("privacy", "unit", "adjacency", "renewed"), STATED, ids=repr)
def test_mechanisms_state_what_a_site_books(
    privacy: fc.privacy.Privacy, unit: str, adjacency: str, renewed: bool
) -> None:
    one = mechanism(privacy)
    assert (one.unit, one.adjacency, one.renewed) == (unit, adjacency, renewed)
    assert booked(privacy) == (None if adjacency == "none" else (unit or "record", adjacency))
    declared = privacy.spending(PLAN, COHORT, fc.Everyone())
    assert declared.adjacency == adjacency
    assert declared.unit == ("none" if adjacency == "none" else unit or "record")


@pytest.mark.parametrize(
    "privacy", [fc.DistributedDP(1.0), fc.DistributedDP(1.0, 1e-5), fc.SourceLaplace(1.0), fc.UserGaussian(1.0, 1e-5)],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("who", [fc.Everyone(), fc.Disjoint(1)], ids=repr)
def test_client_level_adjacency_is_called_by_its_name(
    privacy: fc.privacy.Privacy, who: fc.cohort.Participation
) -> None:
    """With a public number of clients, "add/remove" of a client would be a promise that nobody makes."""
    plan, cohort = fc.method.Plan.of(fc.FedTemp(rounds=1), fc.Schema(2, 5)), who.cohort(5)
    declared = privacy.spending(plan, cohort, who)
    assert (declared.unit, declared.adjacency) == ("client", "replace by an empty client")
    assert "replace by an empty client; the number of clients is public" in declared.statement
    assert "add/remove" not in declared.statement
    spending = GENEROUS.accept(Outline("run", plan.queries, privacy, cohort, who))
    assert spending is not None and spending.adjacency == declared.adjacency


class Silent(Mechanism):
    """A mechanism whose author forgot what it protects."""

    modulus = None

    def encode(self, query: Query, records: Records, randomness: Randomness) -> Array:
        return np.zeros(query.size)

    def decode(self, query: Query, total: Array, clients: int, randomness: Randomness) -> tuple[Floats, Floats]:
        return total, np.zeros(query.size)

    def event(self, query: Query, cohort: fc.cohort.Cohort) -> Event | None:
        return Pure(0.5)


@dataclass(frozen=True)
class Stated(Silent):
    unit = "client"
    adjacency = "replace-one"
    renewed = False


def test_a_mechanism_has_to_state_them() -> None:
    with pytest.raises(TypeError, match=r"adjacency.*renewed.*unit"):
        Silent()  # type: ignore[abstract]


@dataclass(frozen=True)
class Strange(fc.privacy.Privacy):
    """A privacy model of somebody else's package."""

    budget = None
    private = True

    def mechanism(self, query: Query, plan: fc.method.Plan, *run: object) -> Mechanism:
        return Stated()

    def spending(self, *plan: object) -> Spending:
        raise NotImplementedError  # a site counts for itself


def test_a_site_books_a_mechanism_that_it_has_never_seen_by_what_it_states() -> None:
    assert booked(Strange(), Policy(privacy_models=("Strange",))) == ("client", "replace-one")
