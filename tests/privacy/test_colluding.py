"""Clients that tell the server their share of the noise: what remains, in numbers and in draws."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy import stats
from tests.contract.subjects import federation

import fedcalib as fc
from fedcalib import wire
from fedcalib.accounting import distributed_gaussian_rho, epsilon
from fedcalib.accounting.events import Concentrated
from fedcalib.audit import worst_cases
from fedcalib.audit.mechanisms import audit_mechanism
from fedcalib.errors import InputError, RefusedError
from fedcalib.loop import Agreement
from fedcalib.method import Plan
from fedcalib.privacy.distributed import GaussianShares, PolyaShares
from fedcalib.queries.class_tables import LabelHistogram

COUNT = next(worst_cases()).query
EVERYONE = fc.Everyone()


def stated(privacy: fc.DistributedDP, clients: int, *queries: fc.query.Query) -> list[str]:
    """What the statement says about the server alone, with one client and with two."""
    plan = Plan(queries or (COUNT,))
    statement = privacy.spending(plan, EVERYONE.cohort(clients), EVERYONE).statement
    found = re.search(r"server alone: (.*?); if one client .*?noise: (.*?); if two clients do: (.*)\.$", statement)
    assert found is not None, statement
    return [text.removeprefix("epsilon = ") for text in found.groups()]


@pytest.mark.parametrize(
    ("promised", "clients", "said"),
    [
        (1.0, 3, ["1", "1.39", "2.09"]),
        (0.1, 3, ["0.1", "0.343", "1.04"]),
        (1.0, 2, ["1", "1.68", "no guarantee"]),
        (1.0, 1, ["1", "no guarantee", "no guarantee"]),
    ],
)
def test_p13_the_statement_has_the_epsilon_against_colluders(promised: float, clients: int, said: list[str]) -> None:
    """Finding p13: with three sites one colluder turns 0.1 into 0.34 and two turn it into 1.04; nothing said so."""
    assert stated(fc.DistributedDP(promised), clients) == said


@pytest.mark.parametrize(("promised", "clients"), [(1.0, 5), (0.1, 10), (2.0, 3)])
def test_the_numbers_are_those_of_the_probabilities_themselves(promised: float, clients: int) -> None:
    """A step away from zero has the largest ratio; its probabilities are summed up here without any integral."""
    k = np.arange(100_000)
    for colluders, said in enumerate(stated(fc.DistributedDP(promised), clients)):
        single = stats.nbinom.pmf(k, (clients - colluders) / clients, -np.expm1(-promised))
        ratio = np.log((single @ single) / (single[1:] @ single[:-1]))
        assert ratio * (1 - 1e-9) <= float(said) <= ratio * 1.01


def test_the_statement_of_gaussian_noise_follows_from_fewer_shares() -> None:
    privacy = fc.DistributedDP(1.0, 1e-5)
    cohort = EVERYONE.cohort(6)
    shares = privacy.mechanism(COUNT, Plan((COUNT,)), cohort, EVERYONE)
    assert isinstance(shares, GaussianShares)
    [(name, block)] = COUNT.blocks.items()
    moved = block.bound.l2 * shares.scales[name]
    for honest, said in zip((6, 5, 4), stated(privacy, 6), strict=True):
        rho = distributed_gaussian_rho(moved, moved, shares.sigmas[name], honest, block.size)
        assert float(said) == pytest.approx(epsilon([Concentrated(rho)], 1e-5), rel=0.01)


def test_numbers_are_rounded_up_and_add_up_over_queries() -> None:
    [_, one, _] = stated(fc.DistributedDP(1.0), 3, COUNT, COUNT)
    [_, half, _] = stated(fc.DistributedDP(0.5), 3)
    assert float(one) == pytest.approx(2 * float(half), abs=0.02)
    assert stated(fc.DistributedDP(1.0), 3, LabelHistogram(200, 40))[2].startswith("no useful guarantee")


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_more_colluders_than_planned_for_cost_more_and_fewer_do_not(delta: float) -> None:
    assert stated(fc.DistributedDP(1.0, delta, colluding=2), 9) == ["1", "1", "1"]
    none, one, two = stated(fc.DistributedDP(1.0, delta, colluding=1), 9)
    assert (none, one) == ("1", "1") and float(two) > 1
    assert float(two) < float(stated(fc.DistributedDP(1.0, delta), 9)[2])


@pytest.mark.parametrize("privacy", [fc.DistributedDP(1.0), fc.DistributedDP(1.0, 1e-5)], ids=repr)
def test_noise_is_sized_for_the_honest_shares(privacy: fc.DistributedDP) -> None:
    careful = fc.DistributedDP(privacy.epsilon, privacy.delta, colluding=2)
    plan = Plan((COUNT,))
    for model, honest in ((privacy, 8), (careful, 6)):
        shares = model.mechanism(COUNT, plan, EVERYONE.cohort(8), EVERYONE)
        assert isinstance(shares, PolyaShares | GaussianShares)
        assert shares.floor == honest
        event = shares.event(COUNT, EVERYONE.cohort(8))
        assert event is not None and epsilon([event], privacy.delta) == pytest.approx(1.0, rel=0.03)
        assert shares.event_of_shares(COUNT, honest) == event or privacy.delta


def left_to_the_honest(model: fc.DistributedDP, seed: int) -> fc.audit.Audit:
    """Audit what is left of three clients' noise when the server knows the share of one."""
    [case] = [case for case in worst_cases() if case.name == "count"]
    shares = model.mechanism(case.query, Plan((case.query,)), EVERYONE.cohort(3), EVERYONE)
    nothing = fc.Records.empty(2)
    present, absent = fc.Federation.of([case.unit, nothing]), fc.Federation.of([nothing, nothing])
    return audit_mechanism(
        shares, case.query, present, absent, cohort=EVERYONE.cohort(3), claimed=model.epsilon, delta=model.delta,
        draws=100_000, confidence=1 - 1e-6, randomness=fc.Simulated(seed), faithful=True,
    )  # fmt: skip


@pytest.mark.parametrize(("promised", "delta"), [(0.5, 0.0), (2.0, 1e-5)])
def test_the_noise_of_the_honest_keeps_the_promise_only_if_it_was_sized_for_it(promised: float, delta: float) -> None:
    careful = left_to_the_honest(fc.DistributedDP(promised, delta, colluding=1), 1)
    assert careful.passes and careful.power > 0.6
    careless = left_to_the_honest(fc.DistributedDP(promised, delta), 2)
    assert not careless.passes


@pytest.mark.parametrize(("clients", "most"), [(3, 1), (4, 1), (10, 4), (50, 24), (51, 10), (1000, 200)])
def test_more_colluders_than_masks_withstand_are_refused(clients: int, most: int) -> None:
    cohort, plan = EVERYONE.cohort(clients), Plan((COUNT,))
    fc.DistributedDP(1.0, colluding=most).mechanism(COUNT, plan, cohort, EVERYONE)
    with pytest.raises(RefusedError, match=rf"at most {most},.*masks.*SourceLaplace"):
        fc.DistributedDP(1.0, colluding=most + 1).mechanism(COUNT, plan, cohort, EVERYONE)


def test_a_negative_number_of_colluders_is_refused() -> None:
    with pytest.raises(InputError, match="colluding clients from 0"):
        fc.DistributedDP(1.0, colluding=-1)


def test_a_run_takes_colluders_into_account_and_files_without_them_stay_the_same() -> None:
    data = fc.InProcess(federation(2, clients=9))
    few, many = (
        fc.run(fc.FedBin(bins=4), data, privacy, randomness=fc.Simulated(0))
        for privacy in (fc.DistributedDP(1.0), fc.DistributedDP(1.0, colluding=4))
    )
    variances = [
        np.mean(wire.decode(next(line for line in run.transcript.lines if line["state"] == "answered")["variance"]))
        for run in (few, many)
    ]
    assert variances[1] / variances[0] == pytest.approx(9 / 5)
    assert wire.encode(fc.DistributedDP(1.0))["fields"] == {"epsilon": 1.0, "delta": 0.0}
    assert wire.loads(wire.dumps(fc.DistributedDP(1.0, colluding=4))) == fc.DistributedDP(1.0, colluding=4)


def test_a_method_that_sends_nothing_is_stated_to_cost_nothing() -> None:
    agreed = Agreement.of(fc.Auto(), fc.DistributedDP(0.01), fc.Everyone(), fc.Schema(classes=2, clients=4))
    assert not agreed.plan.queries
    assert "if two clients do: epsilon = 0." in agreed.spending.statement
