from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tests.privacy.small_queries import Sizes, Values, answered, one_by_one, scored, served, with_values
from tests.strategies import federations

import fedcalib as fc
from fedcalib import accounting, registry, wire
from fedcalib.accounting import rho_for
from fedcalib.accounting.events import SampledGaussian
from fedcalib.errors import InputError, RefusedError, TooFewClients
from fedcalib.loop import Runtime, Step, Total
from fedcalib.privacy.ring import clipped, norms, unwrap
from fedcalib.privacy.user_gaussian import ClippedGaussian
from fedcalib.queries.class_tables import LabelHistogram
from fedcalib.queries.reliability import Losses, TopLabelTable
from fedcalib.queries.temperature import TemperatureCurve
from fedcalib.query import ClientTerms, Join

QUERIES = [LabelHistogram(3, 4), TopLabelTable(5), Losses(6.0), TemperatureCurve((0.5, 1.0, 2.0), 10.0)]
JOINED = Join(tuple(QUERIES))


@given(federations(3), st.sampled_from([1e-3, 0.7, 1.0, 25.0, 1e4]), st.booleans())
def test_a_share_never_exceeds_the_clip_in_any_block(federation, clip, separate):
    mechanism = served(fc.UserGaussian(1.0, 1e-5, clip, separate), JOINED)
    for records in federation.clients():
        share = unwrap(mechanism.encode(JOINED, records, fc.Simulated(0)), JOINED, mechanism.scales)
        for name, part in JOINED.split(share).items():
            assert np.linalg.norm(part) <= mechanism.clips[name] * (1 + 2**-32)


@given(federations(3))
def test_together_and_apart_give_the_same_words(federation):
    mechanism = served(fc.UserGaussian(1.0, 1e-5, 2.0), JOINED)
    together = mechanism.gather(JOINED, federation, fc.Simulated(0))
    assert (together == one_by_one(mechanism, JOINED, federation, fc.Simulated(0))).all()


def test_one_factor_keeps_ratios_between_blocks_and_separate_ones_do_not():
    records = scored(0, 500, 1, classes=3).records
    exact = JOINED.total(fc.Federation.of([records]), fc.Simulated(0))

    def shares(separate):
        mechanism = served(fc.UserGaussian(1.0, 1e-5, 3.0, separate), JOINED)
        return unwrap(mechanism.encode(JOINED, records, fc.Simulated(0)), JOINED, mechanism.scales)

    touched = np.abs(exact) > 1
    joint, separate = shares(False)[touched] / exact[touched], shares(True)[touched] / exact[touched]
    assert np.ptp(joint) < 1e-6 * joint[0] < 1e-6
    assert np.ptp(separate) > 0.1 * separate[0]


def test_clients_within_the_clip_are_summed_exactly():
    federation = scored(1, 300, 40)
    query = LabelHistogram(2, 5)
    mechanism = served(fc.UserGaussian(1.0, 1e-5, clip=300.0), query)
    total = unwrap(mechanism.gather(query, federation, fc.Simulated(0)), query, mechanism.scales)
    assert (total == query.total(federation, fc.Simulated(0))).all()


def test_the_cut_of_many_clients_to_the_grid_is_far_below_the_noise():
    federation = scored(1, 9_000, 3_000, classes=3)
    query = TopLabelTable(5)
    mechanism = served(fc.UserGaussian(1.0, 1e-5, clip=1.0), query)
    total = unwrap(mechanism.gather(query, federation, fc.Simulated(0)), query, mechanism.scales)
    exact = sum(
        (
            np.array(term) * min(1.0, *(1 / np.linalg.norm(part) for part in query.split(term).values() if part.any()))
            for term in (query.pooled(records) for records in federation.clients() if len(records))
        ),
        np.zeros(query.size),
    )
    assert np.abs(total - exact).max() < 3e-4


@dataclass(frozen=True, eq=False)
class Watched(Runtime):
    """A runtime that keeps what it hands to the server."""

    inner: fc.InProcess
    seen: list

    @property
    def schema(self):
        return self.inner.schema

    def total(self, step: Step) -> Total:
        self.seen.append((step, self.inner.total(step)))
        return self.seen[-1][1]


def test_the_server_never_receives_an_unclipped_sum():
    records = fc.Records.of_scores(np.full(100, 0.9), np.ones(100, dtype=int))
    runtime = Watched(fc.InProcess(fc.Federation.of([records] * 4)), [])
    fc.run(fc.FedBin(bins=5, clip=2.0), runtime, fc.UserGaussian(1.0, 1e-5), randomness=fc.Simulated(0))
    [(step, total)] = runtime.seen
    received = unwrap(total.value, step.query, step.mechanism.scales)
    assert received.max() == pytest.approx(4 * 2.0, rel=1e-6)  # four clients of norm 2, not of norm 100
    shares = [step.mechanism.encode(step.query, records, step.randomness) for _ in range(4)]
    assert (total.value == sum(shares)).all()


@pytest.mark.parametrize("randomness", [fc.Simulated(3), fc.Secure()], ids=["simulated", "secure"])
def test_noise_is_centred_and_as_wide_as_reported(randomness):
    query = Join((LabelHistogram(2, 500, clip=4.0), LabelHistogram(2, 250, clip=0.5)))
    mechanism = served(fc.UserGaussian(0.8, 1e-6), query)
    federation = scored(2, 400, 30)
    clipped = unwrap(mechanism.gather(query, federation, randomness), query, mechanism.scales)
    value, variance = answered(mechanism, query, federation, randomness)
    for name, part in query.split((value - clipped) / np.sqrt(variance)).items():
        assert stats.norm.sf(abs(part.sum()) / sqrt(part.size)) > 1e-9, name
        assert 1e-9 < stats.chi2.cdf((part**2).sum(), part.size) < 1 - 1e-9, name


def test_released_values_lie_on_the_grid():
    query = TemperatureCurve((0.5, 1.0, 2.0), 10.0, clip=3.0)
    mechanism = served(fc.UserGaussian(1.0, 1e-5), query)
    value, _ = answered(mechanism, query, scored(3, 200, 20), fc.Secure())
    steps = value * mechanism.scales["slope"]
    assert (steps == np.rint(steps)).all() and np.log2(mechanism.scales["slope"]).is_integer()


def test_everyone_shares_rho_by_weight_and_converts_once():
    plan = fc.method.Plan((TopLabelTable(5), Losses(6.0), TopLabelTable(5)))
    drawn = fc.Everyone()
    cohort = drawn.cohort(50)
    model = fc.UserGaussian(1.0, 1e-5, clip=2.0)
    events = [model.mechanism(query, plan, cohort, drawn).event(query, cohort) for query in plan.queries]
    assert sum(event.concentrated() for event in events) == pytest.approx(rho_for(1.0, 1e-5), rel=1e-9)
    assert accounting.epsilon(events, 1e-5) == pytest.approx(1.0, abs=1e-6)
    assert accounting.epsilon(events, 1e-5) <= 1.0
    assert events[0].concentrated() == pytest.approx(3 * events[1].concentrated(), rel=1e-9)


@pytest.mark.parametrize(("rounds", "rate"), [(1, 0.1), (12, 0.1), (30, 0.5)])
def test_sampled_noise_is_what_an_independent_accountant_asks_for(rounds, rate):
    import dp_accounting as dpa
    from dp_accounting.rdp import RdpAccountant

    drawn = fc.Poisson(rate)
    cohort = drawn.cohort(1000)
    plan = fc.method.Plan.of(fc.FedBin(rounds=rounds, clip=5.0), fc.Schema(2, 1000))
    model = fc.UserGaussian(1.0, 1e-5)
    events = [model.mechanism(query, plan, cohort, drawn).event(query, cohort) for query in plan.queries]
    [multiplier] = {event.multiplier for event in events}
    accountant = RdpAccountant(orders=accounting.ORDERS.tolist())
    accountant.compose(dpa.PoissonSampledDpEvent(rate, dpa.GaussianDpEvent(multiplier)), rounds)
    assert accountant.get_epsilon(1e-5) == pytest.approx(1.0, abs=1e-3)
    assert accounting.epsilon(events, 1e-5) <= 1.0


def test_sampled_steps_of_unequal_weight_keep_the_budget():
    drawn = fc.Poisson(0.2)
    cohort = drawn.cohort(1000)
    plan = fc.method.Plan((Sizes(0.1), Sizes(1.0), Sizes(1.0)))
    model = fc.UserGaussian(2.0, 1e-6)
    events = [model.mechanism(query, plan, cohort, drawn).event(query, cohort) for query in plan.queries]
    assert events[0].multiplier == pytest.approx(events[1].multiplier * sqrt(10), rel=1e-6)
    assert 2.0 - 1e-3 < accounting.epsilon(events, 1e-6) <= 2.0


def test_blocks_of_one_query_count_as_one_gaussian():
    query = TopLabelTable(5)
    mechanism = ClippedGaussian({"counts": 2.0, "gap": 1.0}, {"counts": 1.0, "gap": 1.0}, {"counts": 4.0, "gap": 4.0})
    event = mechanism.event(query, fc.cohort.Cohort(10))
    assert isinstance(event, SampledGaussian)
    assert event.multiplier == pytest.approx(1 / sqrt(0.25 + 0.0625), rel=1e-9)


@pytest.mark.parametrize("rounds", [1, 6])
def test_disjoint_cohorts_have_the_stated_noise(rounds):
    federation = scored(5, 3000, 300)
    method, clip = fc.FedBin(bins=400, rounds=rounds, clip=1000.0, smoothing=0.0), 1000.0
    drawn = fc.Disjoint(rounds)
    model = fc.UserGaussian(1.0, 1e-5)
    run = fc.run(method, fc.InProcess(federation), model, participation=drawn, randomness=fc.Simulated(8))
    answers = [line for line in run.transcript.lines if line["state"] == "answered"]
    summed = sum(wire.decode(line["value"]) for line in answers)
    exact = LabelHistogram(2, 400).total(federation, fc.Simulated(0))
    variance = rounds * clip**2 / (2 * rho_for(1.0, 1e-5))  # each cohort has the whole budget: nobody is in two
    z = (summed - exact) / sqrt(variance)
    assert len(answers) == rounds
    assert ("counts once; no amplification" in run.privacy.statement) == (rounds > 1)
    assert stats.norm.sf(abs(z.sum()) / sqrt(z.size)) > 1e-6
    assert 1e-6 < stats.chi2.cdf((z**2).sum(), z.size) < 1 - 1e-6


@dataclass(frozen=True)
class AskSizes(fc.Method[tuple[float, int]]):
    """Ask one question of clients and say how many were expected."""

    def protocol(self, schema):
        answer = yield Sizes()
        return float(answer["size"][0]), answer.clients


def test_poisson_participation_divides_by_the_expected_cohort():
    records = fc.Records.of_scores(np.full(200, 0.5), np.zeros(200, dtype=int))
    federation = fc.Federation.grouped(records.take(np.zeros(400, dtype=int)), np.repeat(np.arange(4), 100), 4)
    federation = fc.Federation.of(list(federation.clients()) * 500)
    for cls in (AskSizes, Sizes):
        if cls.__name__ not in registry.names():
            registry.register(cls)
    run = fc.run(
        AskSizes(),
        fc.InProcess(federation),
        fc.UserGaussian(1.0, 1e-5),
        participation=fc.Poisson(0.25),
        randomness=fc.Simulated(4),
    )
    total, clients = run.artifact
    assert clients == 500  # a quarter of 2000, whoever came
    noise = accounting.multiplier_for(1.0, 1e-5, 1, 0.25)
    assert abs(total - 500) < 6 * sqrt(500 * 0.75 + noise**2)
    assert "readers of the result" in run.privacy.statement and "does not hold against" in run.privacy.statement
    assert run.privacy.adjacency == "replace by an empty client" and run.privacy.unit == "client"


def test_a_cohort_that_is_too_small_is_not_read():
    federation = scored(5, 50, 2)
    with pytest.raises(TooFewClients):
        fc.run(fc.FedBin(clip=1.0), fc.InProcess(federation), fc.UserGaussian(1.0, 1e-5))


def test_a_question_without_a_clip_is_refused_and_told_what_to_pass():
    with pytest.raises(RefusedError, match=r"UserGaussian needs a clip for the block '1'.*clip=10"):
        served(fc.UserGaussian(1.0, 1e-5), LabelHistogram(2, 4))


def test_clips_by_name_win_over_the_query_and_a_number_means_records():
    query = Join((LabelHistogram(2, 4, clip=3.0), Losses(6.0)))
    assert dict(served(fc.UserGaussian(1.0, 1e-5, {"1.losses": 7.0}), query).clips) == {"0.1": 3.0, "1.losses": 7.0}
    assert dict(served(fc.UserGaussian(1.0, 1e-5, 5.0), query).clips) == {"0.1": 5.0, "1.losses": 10.0}
    assert dict(served(fc.UserGaussian(1.0, 1e-5), Sizes()).clips) == {"size": 1.0}
    with pytest.raises(InputError, match="found one for 'wrong'"):
        served(fc.UserGaussian(1.0, 1e-5, {"wrong": 1.0}), query)


@pytest.mark.parametrize(
    "wrong", [{"epsilon": 0.0}, {"delta": 0.0}, {"delta": 1.0}, {"clip": 0.0}, {"clip": {"a": -1}}]
)
def test_options_are_checked(wrong):
    with pytest.raises(InputError):
        fc.UserGaussian(**{"epsilon": 1.0, "delta": 1e-5, **wrong})


@pytest.mark.parametrize("clients", [1, 2])
def test_a_term_that_is_not_a_number_counts_as_nothing(clients):
    """A refusal would tell that somebody holds such a record."""
    query = Values(clip=1.0)
    mechanism = served(fc.UserGaussian(1.0, 1e-5), query)
    held = [with_values([0.1, value], clients) for value in (np.nan, 0.0)]
    broken, clean = (mechanism.exact(query, federation, fc.Simulated(0)) for federation in held)
    assert broken.tolist() == clean.tolist()


def test_a_client_whose_vector_is_no_number_sends_nothing():
    terms = ClientTerms(2, np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([np.nan, 3.0, -np.inf]))
    query = Values(2)
    assert norms(query, terms).tolist() == [[3.0], [0.0]]
    assert clipped(query, terms, {"values": 1.5}).tolist() == [0.0, 1.5, 0.0]
