"""Distributed noise and secure sums: exact where they say so, and exactly as noisy as they say elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
import pytest
from scipy import stats

import fedcalib as fc
from fedcalib.accounting import epsilon, polya_epsilon
from fedcalib.errors import InputError, RefusedError, TooFewClients
from fedcalib.loop import Step
from fedcalib.privacy import Mechanism
from fedcalib.privacy.ring import MAX_SUM
from fedcalib.queries.class_tables import LabelHistogram
from fedcalib.query import ONE, Block, Bound, RecordQuery, Rows

CELLS = 4000


@final
@dataclass(frozen=True)
class Ones(RecordQuery):
    """Every record adds `value` to cell 0 of a long block, so that most cells show pure noise."""

    value: float = 1.0
    integral: bool = True
    cells: int = CELLS

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"cells": Block((self.cells,), ONE, integral=self.integral)}

    def rows(self, records: fc.Records) -> Rows:
        return Rows(np.zeros((len(records), 1), dtype=np.int64), np.full((len(records), 1), self.value))


def clients(count: int, each: int = 3) -> fc.Federation:
    records = fc.Records.of_scores(np.full(each, 0.5), np.zeros(each, int))
    return fc.Federation.of([records] * count)


def mechanism(privacy: fc.privacy.Privacy, query: fc.query.Query, count: int, dropout: float = 0.0) -> Mechanism:
    drawn = fc.Everyone(dropout)
    return privacy.mechanism(query, fc.method.Plan((query,)), drawn.cohort(count), drawn)


def released(
    privacy: fc.privacy.Privacy, query: fc.query.Query, held: fc.Federation, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    chosen = mechanism(privacy, query, len(held))
    total = chosen.gather(query, held, fc.Simulated(seed))
    return chosen.decode(query, total, len(held), fc.Simulated(seed))


MODELS = [fc.DistributedDP(1.0), fc.DistributedDP(0.1), fc.DistributedDP(1.0, 1e-5), fc.DistributedDP(8.0, 1e-6)]


@pytest.mark.parametrize("query", [Ones(), Ones(0.3, integral=False)], ids=["counts", "reals"])
@pytest.mark.parametrize("privacy", MODELS, ids=repr)
def test_noise_is_unbiased_and_as_wide_as_said(privacy: fc.privacy.Privacy, query: fc.query.Query) -> None:
    value, variance = released(privacy, query, clients(50))
    noise, width = value[1:], variance[1]
    assert abs(noise.mean()) < 5.5 * np.sqrt(width / len(noise))
    kurtosis = 6.5 if privacy.delta == 0 else 3.2  # of the widest law in question
    assert abs(noise.var() / width - 1) < 6 * np.sqrt((kurtosis - 1) / len(noise))
    assert value[0] == pytest.approx(150 * query.value, abs=6 * np.sqrt(width) + 1e-3)


@pytest.mark.parametrize("privacy", MODELS, ids=repr)
def test_the_law_of_the_sum_is_that_of_single_shares(privacy: fc.privacy.Privacy) -> None:
    """The fast path draws the sum of all shares at once; the faithful one adds each client's share up."""
    query, held = Ones(), clients(12)
    chosen = mechanism(privacy, query, 12)
    fast = chosen.gather(query, held, fc.Simulated(1)).view(np.int64)[1:]
    faithful = Mechanism.gather(chosen, query, held, fc.Simulated(2)).view(np.int64)[1:]
    assert stats.ks_2samp(fast, faithful).pvalue > 1e-6


def discrete_laplace(k: np.ndarray, a: float) -> np.ndarray:
    return np.tanh(a / 2) * np.exp(-a * np.abs(k))


@pytest.mark.parametrize("source", [fc.Simulated(5), fc.Secure()], ids=["simulated", "secure"])
def test_shares_sum_to_discrete_laplace(source: fc.Secure | fc.Simulated) -> None:
    query = Ones()
    chosen = mechanism(fc.DistributedDP(1.0), query, 7)
    noise = Mechanism.gather(chosen, query, clients(7), source).view(np.int64)[1:]
    edges = np.arange(-4, 5)
    observed = [(noise < -4).sum(), *[(noise == k).sum() for k in edges], (noise > 4).sum()]
    inner = discrete_laplace(edges, 1.0)
    tail = (1 - inner.sum()) / 2
    expected = len(noise) * np.array([tail, *inner, tail])
    assert stats.chisquare(observed, expected).pvalue > 1e-9


@pytest.mark.parametrize("lost", [0.1, 0.5])
def test_drop_outs_leave_at_least_the_promised_noise(lost: float) -> None:
    """Shares are sized for the fewest survivors: as many as allowed drop out, and discrete Laplace noise remains."""
    query, count = Ones(), 20
    chosen = mechanism(fc.DistributedDP(1.0), query, count, dropout=lost)
    survivors = round(count * (1 - lost))
    noise = chosen.gather(query, clients(survivors), fc.Simulated(3)).view(np.int64)[1:]
    edges = np.arange(-4, 5)
    observed = [(noise < -4).sum(), *[(noise == k).sum() for k in edges], (noise > 4).sum()]
    inner = discrete_laplace(edges, 1.0)
    tail = (1 - inner.sum()) / 2
    assert stats.chisquare(observed, len(noise) * np.array([tail, *inner, tail])).pvalue > 1e-6
    everybody = chosen.gather(query, clients(count), fc.Simulated(4)).view(np.int64)[1:]
    assert everybody.var() > noise.var()  # nobody dropped: more noise, never less
    # shares sized for everybody would have left this much epsilon instead of 1
    assert polya_epsilon(1 - lost, 1.0) > 1.05


def test_too_few_survivors_are_refused() -> None:
    runtime = fc.InProcess(clients(10))
    query = Ones()
    drawn = fc.Poisson(0.2)
    cohort = fc.cohort.Cohort(10, 1.0, 9)
    chosen = fc.DistributedDP(1.0).mechanism(query, fc.method.Plan((query,)), cohort, fc.Everyone())
    few = drawn.members(10, 0, bytes(32))
    step = Step("run", 0, 0, query, chosen, cohort, drawn, fc.Simulated(0), few)
    with pytest.raises(TooFewClients, match="at least 9 clients"):
        runtime.total(step)


def test_a_floor_below_the_shares_is_refused() -> None:
    query = Ones()
    chosen = mechanism(fc.DistributedDP(1.0), query, 20)
    with pytest.raises(RefusedError, match="less noise"):
        chosen.event(query, fc.cohort.Cohort(20, 1.0, 10))


@pytest.mark.parametrize("privacy", [*MODELS, fc.DistributedDP(0.3, 1e-9)], ids=repr)
def test_the_mechanisms_cost_what_the_model_promises(privacy: fc.DistributedDP) -> None:
    """Whatever the number of queries, blocks and weights, their events add up to the budget and no more."""
    queries = (LabelHistogram(5, 8), Ones(0.5, integral=False), fc.query.Join((Ones(), LabelHistogram(3, 4))))
    plan, everyone = fc.method.Plan(queries), fc.Everyone()
    cohort = everyone.cohort(30)
    events = [privacy.mechanism(query, plan, cohort, everyone).event(query, cohort) for query in queries]
    total = epsilon([event for event in events if event is not None], privacy.delta)
    assert total <= privacy.epsilon * (1 + 1e-9)
    assert total > 0.97 * privacy.epsilon


def test_disjoint_cohorts_have_the_whole_budget_each() -> None:
    queries = (Ones(), Ones())
    drawn = fc.Disjoint(2)
    cohort = drawn.cohort(30)
    plan = fc.method.Plan(queries)
    once = fc.DistributedDP(1.0).mechanism(queries[0], plan, cohort, drawn)
    both = fc.DistributedDP(1.0).mechanism(queries[0], plan, cohort, fc.Everyone())
    assert both.widths["cells"] == 2 * once.widths["cells"]


def test_many_clients_still_get_gaussian_noise_of_the_right_width() -> None:
    """With a million clients a share is far narrower than one count; the grid is made finer, so that it is not zero."""
    query = Ones(cells=64)
    chosen = mechanism(fc.DistributedDP(1.0, 1e-6), query, 1_000_000)
    assert chosen.sigmas["cells"] >= 4
    assert chosen.scales["cells"] > 1


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_nonsense_budgets_are_refused(bad: float) -> None:
    with pytest.raises(InputError, match="epsilon"):
        fc.DistributedDP(bad)
    with pytest.raises(InputError, match="delta"):
        fc.DistributedDP(1.0, 1.0)


def test_secure_sums_are_exact_over_the_whole_range() -> None:
    @final
    @dataclass(frozen=True)
    class Large(RecordQuery):
        value: int

        @property
        def blocks(self) -> Mapping[str, Block]:
            return {"cell": Block((1,), Bound(2.0**62, 2.0**62, 2.0**62), integral=True)}

        def pooled(self, records: fc.Records, scale: object = None) -> np.ndarray:
            return np.array([len(records) * self.value], dtype=np.int64)

        def rows(self, records: fc.Records) -> Rows:
            return Rows(None, np.full((len(records), 1), float(self.value)))

    held = clients(4, each=1)
    for value in (1, -1, (MAX_SUM >> 2) - 1, -(MAX_SUM >> 2) + 1):
        chosen = mechanism(fc.SecAgg(), Large(value), 4)
        shares = [chosen.encode(Large(value), records, fc.Simulated(0)) for records in held.clients()]
        total = np.sum(shares, axis=0, dtype=np.uint64)
        assert int(total.view(np.int64)[0]) == 4 * value
    beyond = Large(MAX_SUM)
    with pytest.raises(RefusedError, match="not sent"):
        mechanism(fc.SecAgg(), beyond, 4).encode(beyond, held.client(0), fc.Simulated(0))


def test_secure_fixed_point_is_off_by_less_than_a_step_a_record() -> None:
    query, held = Ones(0.123456789, integral=False), clients(50)
    value, variance = released(fc.SecAgg(bits=20), query, held)
    assert 0 <= 150 * 0.123456789 - value[0] < 150 * 2.0**-20
    assert not variance.any()
    with pytest.raises(InputError, match="bits"):
        fc.SecAgg(bits=0)
