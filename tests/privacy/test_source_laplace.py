from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats
from tests.privacy.small_queries import Values, answered, one_by_one, scored, served, with_values
from tests.strategies import federations

import fedcalib as fc
from fedcalib import accounting
from fedcalib.errors import InputError
from fedcalib.queries.class_tables import LabelHistogram
from fedcalib.queries.reliability import ClasswiseResiduals, Losses, TopLabelTable
from fedcalib.query import Join

JOINED = Join((LabelHistogram(3, 4), ClasswiseResiduals(3, 4), Losses(6.0)))


@given(federations(3), st.integers(0, 10**6), st.floats(0.1, 10))
def test_taking_one_record_away_costs_at_most_epsilon(federation, which, epsilon):
    assume(len(federation.records))
    mechanism = served(fc.SourceLaplace(epsilon), JOINED)
    scale, width = JOINED.spread(mechanism.scales), JOINED.spread(mechanism.widths)
    rest = np.ones(len(federation.records), dtype=bool)
    rest[which % len(rest)] = False
    moved = JOINED.total(federation, fc.Simulated(0), scale) - JOINED.total(
        federation.where(rest), fc.Simulated(0), scale
    )
    assert (np.abs(moved) / width).sum() <= epsilon * (1 + 1e-12)
    assert mechanism.event(JOINED, fc.cohort.Cohort(3)).pure() == pytest.approx(epsilon, rel=1e-12)


def test_the_law_of_the_sum_is_that_of_the_sources_one_by_one():
    query = Values(cells=20_000)
    federation = with_values(np.zeros(5), clients=5)
    mechanism = served(fc.SourceLaplace(20_000.0), query)  # one per cell
    coarse = type(mechanism)({"values": 2.0}, {"values": 2.0})
    together = coarse.gather(query, federation, fc.Simulated(1))
    apart = one_by_one(coarse, query, federation, fc.Simulated(2))
    values = np.arange(-12, 13)
    table = [[np.count_nonzero(np.clip(sample, -12, 12) == value) for value in values] for sample in (together, apart)]
    assert stats.chi2_contingency(table).pvalue > 1e-6
    assert stats.ks_2samp(together, apart, method="asymp").pvalue > 1e-6


@pytest.mark.parametrize("randomness", [fc.Simulated(3), fc.Secure()], ids=["simulated", "secure"])
@pytest.mark.parametrize("cells", [1500])
def test_noise_is_centred_and_as_wide_as_reported(randomness, cells):
    query = Values(cells)
    federation = with_values(np.linspace(-1, 1, 50), clients=4)
    mechanism = served(fc.SourceLaplace(500.0), query)
    value, variance = answered(mechanism, query, federation, randomness)
    z = (value - np.linspace(-1, 1, 50).sum()) / np.sqrt(variance)
    kurtosis = 3 + 3 / 4  # four Laplace variables have an excess of 3/4
    assert abs(z.sum()) / sqrt(cells) < 6.1  # less likely than 1e-9
    assert abs((z**2).sum() - cells) / sqrt(cells * (kurtosis - 1)) < 6.5


def test_a_simulation_says_so_and_the_statement_names_the_trust():
    federation = scored(0, 200, 5)
    run = fc.run(fc.FedBin(), fc.InProcess(federation), fc.SourceLaplace(2.0), randomness=fc.Simulated(0))
    assert run.privacy.statement.startswith("Simulation: not private")
    assert "whoever colludes" in run.privacy.statement
    assert (run.privacy.epsilon, run.privacy.delta, run.privacy.unit) == (2.0, 0.0, "record")


def test_terms_are_cut_toward_zero_record_by_record():
    query = Values()
    mechanism = type(served(fc.SourceLaplace(1.0), query))({"values": 4.0}, {"values": 1e-3})  # hardly any noise
    federation = with_values([0.24, 0.24, 0.24, -0.49, 0.51])
    value, _ = answered(mechanism, query, federation, fc.Simulated(0))
    assert value == [-0.25 + 0.5]  # 0.24 is less than a step of 0.25, however often


def test_released_values_lie_on_the_grid():
    query = ClasswiseResiduals(3, 5)
    mechanism = served(fc.SourceLaplace(1.0), query)
    value, _ = answered(mechanism, query, scored(3, 200, 20, classes=3), fc.Secure())
    steps = value * query.spread(mechanism.scales)
    assert (steps == np.rint(steps)).all()


def test_two_questions_share_epsilon_and_disjoint_cohorts_do_not():
    plan = fc.method.Plan((TopLabelTable(4), TopLabelTable(4)))

    def cost(drawn):
        cohort = drawn.cohort(30)
        model = fc.SourceLaplace(1.0)
        events = [model.mechanism(query, plan, cohort, drawn).event(query, cohort) for query in plan.queries]
        return accounting.epsilon(events, 0.0)

    assert cost(fc.Everyone()) == pytest.approx(1.0)
    assert cost(fc.Disjoint(2)) == pytest.approx(2.0)  # 1 in each of two steps, and nobody is in both


def test_an_empty_cohort_is_an_empty_sum():
    query = LabelHistogram(2, 3)
    nobody = scored(0, 20, 4).subset(np.zeros(4, dtype=bool))
    assert not served(fc.SourceLaplace(1.0), query).gather(query, nobody, fc.Simulated(0)).any()


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("inf"), float("nan")])
def test_epsilon_is_checked(epsilon):
    with pytest.raises(InputError):
        fc.SourceLaplace(epsilon)
