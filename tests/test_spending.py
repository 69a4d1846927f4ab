"""What a run costs when queries are sent more than once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedcalib as fc
from fedcalib import wire
from fedcalib.accounting.spending import RunCost, Spending


def cost(method: fc.Method[object], privacy: fc.privacy.Privacy, who: fc.Everyone | fc.Disjoint) -> RunCost:
    plan = fc.method.Plan.of(method, fc.Schema(2, 12))
    cohort = who.cohort(12)
    events = tuple(privacy.mechanism(query, plan, cohort, who).event(query, cohort) for query in plan.queries)
    once = who.appearances(len(plan.queries)) == 1
    return RunCost(privacy.spending(plan, cohort, who), events, once)


THREE = fc.FedBin(rounds=3)


@pytest.mark.parametrize("sent", [(1, 1, 1), (0, 0, 0), (1, 0, 0)])
def test_a_run_without_repeats_costs_what_was_declared(sent: tuple[int, ...]) -> None:
    one = cost(THREE, fc.DistributedDP(1.0), fc.Everyone())
    assert one.after(sent) == one.declared


def test_each_repeat_of_a_step_costs_its_share_again() -> None:
    one = cost(THREE, fc.DistributedDP(1.0), fc.Everyone())
    assert one.after((3, 1, 2)).epsilon == pytest.approx(2.0)
    assert "sent again 3 times" in one.after((3, 1, 2)).statement


def test_where_each_client_answers_one_query_the_most_expensive_counts() -> None:
    one = cost(THREE, fc.DistributedDP(1.0), fc.Disjoint(3))
    assert one.after((2, 2, 1)).epsilon == pytest.approx(2.0)
    assert one.after((3, 1, 1)).epsilon == pytest.approx(3.0)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=6), st.sampled_from([0.0, 1e-5]))
def test_repeats_paid_one_by_one_add_up_to_the_total(steps: list[int], delta: float) -> None:
    one = cost(THREE, fc.DistributedDP(1.0, delta), fc.Everyone())
    sent, paid = [1, 1, 1], [one.declared.epsilon]
    for number, step in enumerate(steps, 1):
        repeat, more = one.repeat(sent, step)
        assert repeat == number
        assert more.delta == 0
        paid.append(more.epsilon)
        sent[step] += 1
    assert np.sum(paid) == pytest.approx(one.after(sent).epsilon)
    assert np.min(paid) >= 0


def test_a_model_that_claims_nothing_costs_nothing_more() -> None:
    one = cost(THREE, fc.SecAgg(), fc.Everyone())
    assert one.after((2, 1, 1)) == one.declared
    assert one.repeat((1, 1, 1), 0) == (1, one.declared)


@pytest.mark.parametrize(
    ("unit", "written", "read"),
    [
        ("client", "add/remove", "replace by an empty client"),
        ("client", "replace by an empty client", "replace by an empty client"),
        ("record", "add/remove", "add/remove"),
        ("record", "replace-one", "replace-one"),
        ("none", "none", "none"),
    ],
)
def test_client_level_adjacency_has_its_right_name_also_in_old_files(unit: str, written: str, read: str) -> None:
    """The number of clients is public, so no client is ever removed: its records are."""
    text = wire.dumps(Spending("UserGaussian", unit, 1.0, 1e-5, "add/remove", False, "Said."))
    fields = wire.parse(text)["fields"] | {"adjacency": written}
    assert wire.decode({"type": "Spending", "fields": fields}).adjacency == read
