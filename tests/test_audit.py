"""Audits: bounds that hold, that come close to the claim, and that notice when it is wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcalib as fc
from fedcalib.accounting import analytic_gaussian_multiplier, multiplier_for
from fedcalib.audit import worst_cases
from fedcalib.audit.evidence import Gaussian, SampledShift, Threshold, at_least, at_most, lower_epsilon
from fedcalib.audit.mechanisms import Copies, _distinct
from fedcalib.cohort import Cohort, Participation
from fedcalib.errors import InputError
from fedcalib.privacy.local import Coder, RandomisedReports
from fedcalib.privacy.local_reports import Cell, Encoder, RandomSymbol, Unary
from fedcalib.queries.class_tables import LabelHistogram
from fedcalib.queries.reliability import TopLabelTable
from fedcalib.queries.temperature import TemperatureCurve
from tests.examples import examples

PURE = [fc.DistributedDP(1.0), fc.SourceLaplace(1.0), fc.LocalDP(1.0)]
COUNT_AND_REAL = [case for case in worst_cases() if case.name != "histogram"]
GAUSSIAN = [fc.DistributedDP(1.0, 1e-5), fc.UserGaussian(1.0, 1e-5)]


def named(model: object) -> str:
    return type(model).__name__ + ("-gaussian" if getattr(model, "delta", 0) else "")


# evidence


@given(st.integers(0, 1000), st.floats(1e-6, 0.4))
def test_binomial_bounds_are_those_of_clopper_and_pearson(hits: int, error: float) -> None:
    from scipy.stats import binomtest

    interval = binomtest(hits, 1000).proportion_ci(1 - 2 * error, method="exact")
    assert float(at_least(np.array(hits), 1000, error)) == pytest.approx(interval.low, abs=1e-9)
    assert float(at_most(np.array(hits), 1000, error)) == pytest.approx(interval.high, abs=1e-9)


@given(st.floats(0.05, 8), st.floats(1e-9, 1e-2))
def test_a_gaussian_shift_becomes_the_epsilon_that_it_was_made_for(epsilon: float, delta: float) -> None:
    mu = 1 / analytic_gaussian_multiplier(epsilon, delta)
    assert Gaussian(delta).epsilon(mu) == pytest.approx(epsilon, rel=1e-5)


def test_bounds_hold_as_often_as_they_say() -> None:
    """Randomised response of a known epsilon, audited a thousand times: at most a tenth of the bounds may be wrong."""
    rng, epsilon = np.random.default_rng(0), 1.0
    kept = np.exp(epsilon) / (1 + np.exp(epsilon))
    present, absent = rng.random((1000, 400)) < kept, rng.random((1000, 400)) > kept
    bounds = [
        lower_epsilon(one.astype(float), other.astype(float), Threshold(), 0.9)
        for one, other in zip(present, absent, strict=True)
    ]
    assert np.mean(np.array(bounds) > epsilon) <= 0.1
    assert np.median(bounds) > 0.5


def test_a_bound_is_the_same_whichever_side_is_called_present() -> None:
    rng = np.random.default_rng(1)
    one, other = rng.laplace(0, 1, 20_000), rng.laplace(1, 1, 20_000)
    forward, backward = (lower_epsilon(*pair, Threshold(), 0.99) for pair in ((one, other), (other, one)))
    assert 0.8 < forward < 1
    assert forward == pytest.approx(backward, abs=0.02)


def test_scores_that_do_not_differ_show_nothing() -> None:
    scores = np.random.default_rng(2).normal(size=(2, 10_000))
    assert lower_epsilon(*scores, Gaussian(1e-5), 0.999) == 0
    assert lower_epsilon(np.zeros(100), np.zeros(100), Threshold(), 0.999) == 0


def test_a_delta_allows_for_rare_giveaways() -> None:
    """A release that shouts out the unit once in a hundred times has no epsilon at delta 0, and one at delta 0.02."""
    rng = np.random.default_rng(3)
    shouted = np.where(rng.random(100_000) < 0.01, 1000.0, rng.normal(size=100_000))
    calm = rng.normal(size=100_000)
    assert lower_epsilon(shouted, calm, Threshold(), 0.999) > 3
    assert lower_epsilon(shouted, calm, Threshold(0.02), 0.999) < 0.1


def test_a_threshold_known_in_advance_leaves_all_scores_to_the_bound() -> None:
    rng, mu = np.random.default_rng(4), 0.5
    one, other = rng.normal(mu / 2, 1, 20_000), rng.normal(-mu / 2, 1, 20_000)
    known, searched = (lower_epsilon(one, other, Gaussian(1e-5), 0.999, at) for at in (0.0, None))
    assert searched < known < Gaussian(1e-5).epsilon(mu)


def sampled_scores(unit: bool, multiplier: float, rate: float, steps: int, seed: int) -> np.ndarray:
    """The likelihood ratio of releases to secret samples, drawn as they are defined."""
    rng = np.random.default_rng(seed)
    drawn = unit * (rng.random((20_000, steps)) < rate)
    moved = rng.normal(size=(20_000, steps)) * multiplier + drawn
    return np.log1p(rate * np.expm1((moved - 0.5) / multiplier**2)).sum(axis=1)


@pytest.mark.parametrize(("rate", "steps"), [(0.1, 12), (0.5, 4)])
def test_a_sampled_shift_is_below_what_its_noise_costs_and_above_any_single_event(rate: float, steps: int) -> None:
    multiplier, evidence = multiplier_for(1.0, 1e-5, steps, rate), SampledShift(1e-5, rate, steps)
    piles = [sampled_scores(unit, multiplier, rate, steps, seed) for seed, unit in enumerate((True, False))]
    bound = lower_epsilon(piles[0], piles[1], evidence, 0.999, 0.0)
    assert lower_epsilon(piles[0], piles[1], Threshold(1e-5), 0.999) < bound < evidence.epsilon(1 / multiplier) < 1
    assert bound > 0.4


def test_a_sampled_shift_of_nothing_shows_nothing() -> None:
    scores = np.random.default_rng(5).normal(size=(2, 10_000))
    assert lower_epsilon(*scores, SampledShift(1e-5, 0.1, 12), 0.999) == 0


@pytest.mark.parametrize(("draws", "confidence"), [(2, 0.9), (100, 1.0), (100, 0.0)])
def test_too_little_to_go_on_is_refused(draws: int, confidence: float) -> None:
    with pytest.raises(InputError):
        lower_epsilon(np.zeros(draws), np.zeros(draws), Threshold(), confidence)
    with pytest.raises(InputError, match="delta"):
        Gaussian(0.0)


# copies


@settings(max_examples=examples(20))
@given(st.integers(1, 5), st.sampled_from([LabelHistogram(3, 4), TopLabelTable(5), TemperatureCurve((1.0, 2.0), 3.0)]))
def test_copies_say_the_same_again_and_again(copies: int, query: fc.query.RecordQuery) -> None:
    rng = np.random.default_rng(copies)
    federation = fc.Federation.iid(fc.Records.of_logits(rng.normal(size=(9, 3)), rng.integers(3, size=9)), 3, 0)
    many, source = Copies(query, copies), fc.Simulated(0)
    expected = np.tile(query.total(federation, source), (copies, 1))
    assert np.allclose(many.by_copy(many.total(federation, source)), expected)
    assert np.allclose(many.by_copy(many.rows(federation.records).dense(many.size).sum(axis=0)), expected)
    scale = many.spread(dict.fromkeys(query.blocks, 8.0))
    whole = np.tile(query.total(federation, source, scale[: query.size]), (copies, 1))
    assert np.array_equal(many.by_copy(many.total(federation, source, scale)), whole)
    summed = np.zeros(many.size)
    for terms in many.by_client(federation, source):
        np.add.at(summed, terms.cell, terms.value)
    assert np.allclose(many.by_copy(summed), expected)


@settings(max_examples=examples(20))
@given(st.integers(0, 99), st.integers(1, 90))
def test_reports_that_look_alike_are_found(seed: int, width: int) -> None:
    rows = np.random.default_rng(seed).integers(0, 3, (50, width))
    rows = rows[np.random.default_rng(seed).integers(0, 50, 200)]
    distinct, which = _distinct(rows)
    assert np.array_equal(distinct[which], rows)
    assert len(distinct) == len(np.unique(rows, axis=0))


@pytest.mark.parametrize("encoder", [Unary(1.0), RandomSymbol(1.0)], ids=named)
def test_single_reports_add_up_to_what_a_client_sends(encoder: Encoder) -> None:
    mechanism = RandomisedReports({"1": Coder(Cell(6), encoder)})
    rng = np.random.default_rng(0)
    records = fc.Records.of_scores(rng.random(50), rng.integers(2, size=50))
    query, source = LabelHistogram(2, 3), fc.Simulated(1)
    reports = mechanism.reports(query, records, source)
    assert np.array_equal(reports.sum(axis=0), mechanism.encode(query, records, source))


# mechanisms


@pytest.mark.parametrize("model", [*PURE, *GAUSSIAN], ids=named)
def test_the_claim_stands_and_the_audit_comes_close(model: fc.privacy.Privacy) -> None:
    for audit in fc.audit.audit_model(model, draws=100_000, randomness=fc.Simulated(4)):
        assert audit.passes, audit
        assert audit.power > (0.8 if audit.delta == 0 else 0.6), audit


@pytest.mark.parametrize("model", [*PURE, *GAUSSIAN], ids=named)
def test_half_the_noise_is_noticed(model: fc.privacy.Privacy) -> None:
    for audit in fc.audit.audit_model(model, draws=20_000, randomness=fc.Simulated(5), twin=True):
        assert not audit.passes, audit


@pytest.mark.parametrize("twin", [False, True])
@pytest.mark.parametrize("model", [*PURE, *GAUSSIAN], ids=named)
def test_real_noise_is_audited_too(model: fc.privacy.Privacy, twin: bool) -> None:
    model = replace(model, epsilon=3.0)  # type: ignore[type-var]
    for audit in fc.audit.audit_model(model, cases=COUNT_AND_REAL, draws=4000, randomness=fc.Secure(), twin=twin):
        assert audit.passes is not twin, audit
        assert audit.power > 0.3


@pytest.mark.parametrize("model", [fc.DistributedDP(3.0), fc.DistributedDP(3.0, 1e-5)], ids=named)
def test_shares_drawn_client_by_client_hide_as_much(model: fc.privacy.Privacy) -> None:
    (honest,) = fc.audit.audit_model(model, cases=COUNT_AND_REAL[:1], draws=4000, faithful=True)
    assert honest.passes
    assert honest.power > 0.3
    (broken,) = fc.audit.audit_model(model, cases=COUNT_AND_REAL[:1], draws=4000, faithful=True, twin=True)
    assert not broken.passes


def test_more_noise_shares_than_needed_hide_more() -> None:
    """Drop-outs are paid for in advance: sized for two of four, shares of all four make the claim easy to keep."""
    usual, careful = (
        fc.audit.audit_model(
            fc.DistributedDP(1.0), draws=50_000, clients=4, participation=who, randomness=fc.Simulated(6)
        )[0]
        for who in (fc.Everyone(), fc.Everyone(dropout=0.5))
    )
    assert careful.lower_epsilon < 0.8 * usual.lower_epsilon


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_unary_reports_hide_what_they_claim(epsilon: float) -> None:
    """By events in which two bits move together; a single bit would show only half of it."""
    query = LabelHistogram(2, 2)
    mechanism = RandomisedReports({"1": Coder(Cell(4), Unary(epsilon))})
    sides = [fc.Federation.of([fc.Records.of_scores([score], [1])]) for score in (0.1, 0.9)]
    audit = fc.audit.audit_mechanism(mechanism, query, *sides, draws=100_000, randomness=fc.Simulated(7))
    assert audit.passes
    assert audit.power > 0.8
    doubled = RandomisedReports({"1": Coder(Cell(4), Unary(2 * epsilon))})
    noticed = fc.audit.audit_mechanism(
        doubled, query, *sides, draws=20_000, claimed=epsilon, randomness=fc.Simulated(8)
    )
    assert not noticed.passes


def test_a_client_that_does_not_cut_its_sum_is_noticed() -> None:
    """Noise for a norm of 1 and clients cut to a norm of 3: what a forgotten clip would look like."""
    plan, who = fc.method.Plan((LabelHistogram(2, 1, clip=1.0),)), fc.Everyone()
    query = plan.queries[0]
    honest = fc.UserGaussian(1.0, 1e-5).mechanism(query, plan, who.cohort(3), who)
    careless = replace(honest, clips={"1": 3.0})  # type: ignore[type-var]
    many, none = fc.Records.of_logits(np.tile([0.0, 2.0], (9, 1)), np.ones(9, int)), fc.Records.empty(2)
    present, absent = fc.Federation.of([many, none, none]), fc.Federation.of([none] * 3)
    for mechanism, stands in ((honest, True), (careless, False)):
        audit = fc.audit.audit_mechanism(
            mechanism, query, present, absent, claimed=1.0, delta=1e-5, draws=50_000, randomness=fc.Simulated(9)
        )
        assert audit.passes is stands


def test_a_secret_sample_hides_from_readers_and_not_from_whoever_drew_it() -> None:
    """The audit draws the sample too, so what sampling is claimed to add is checked, not assumed."""
    model, who = fc.UserGaussian(4.0, 1e-5), fc.Poisson(0.2)
    (readers,) = fc.audit.audit_model(
        model, cases=COUNT_AND_REAL[:1], draws=100_000, participation=who, clients=30, randomness=fc.Simulated(10)
    )
    assert 0.5 < readers.lower_epsilon <= readers.claimed
    assert readers.evidence == "threshold event"
    query = COUNT_AND_REAL[0].query
    mechanism = model.mechanism(query, fc.method.Plan((query,)), who.cohort(30), who)
    present, absent = (fc.Federation.of([unit]) for unit in (COUNT_AND_REAL[0].unit, fc.Records.empty(2)))
    server = fc.audit.audit_mechanism(
        mechanism, query, present, absent, claimed=4.0, delta=1e-5, randomness=fc.Simulated(10)
    )
    assert not server.passes


@pytest.mark.parametrize("model", [fc.Open(), fc.SecAgg()], ids=named)
def test_models_that_claim_nothing_cannot_be_audited(model: fc.privacy.Privacy) -> None:
    with pytest.raises(InputError, match="claim"):
        fc.audit.audit_model(model)


# whole runs


def crowd(unit: fc.Records) -> fc.Federation:
    """A few clients that do not matter, and one that does."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(40, 2))
    others = fc.Federation.iid(fc.Records.of_logits(logits, rng.integers(2, size=40)), 4, seed=0)
    return fc.Federation.of([*others.clients(), unit])


WORST = fc.Records.of_logits([[0.0, 50.0]], [0])  # sure and wrong
NOBODY = fc.Records.empty(2)


@pytest.mark.parametrize("method", [fc.FedBin(bins=5), fc.OneShotTemperature(points=4)], ids=named)
@pytest.mark.parametrize(
    "model", [fc.DistributedDP(2.0), fc.DistributedDP(2.0, 1e-5), fc.UserGaussian(2.0, 1e-5, clip=1.0)], ids=named
)
def test_whole_runs_keep_their_claim(method: fc.Method[object], model: fc.privacy.Privacy) -> None:
    audit = fc.audit.audit_run(method, crowd(WORST), crowd(NOBODY), model, runs=300, randomness=fc.Simulated(11))
    assert audit.passes, audit
    assert audit.claimed == 2.0


@dataclass(frozen=True)
class Boastful(fc.privacy.Privacy):
    """Claims far less than it spends."""

    inner: fc.DistributedDP

    @property
    def budget(self) -> fc.method.Budget:
        return fc.method.Budget(0.2, "record")

    @property
    def private(self) -> bool:
        return True

    def mechanism(
        self, query: fc.query.Query, plan: fc.method.Plan, cohort: Cohort, participation: Participation
    ) -> fc.privacy.Mechanism:
        return self.inner.mechanism(query, plan, cohort, participation)

    def spending(self, plan: fc.method.Plan, cohort: Cohort, participation: Participation) -> object:  # type: ignore[override]
        return replace(self.inner.spending(plan, cohort, participation), epsilon=0.2)


@pytest.mark.parametrize("method", [fc.FedBin(bins=5), fc.OneShotTemperature(points=4, refinements=1)], ids=named)
def test_runs_that_boast_are_noticed(method: fc.Method[object]) -> None:
    model = Boastful(fc.DistributedDP(8.0))
    audit = fc.audit.audit_run(method, crowd(WORST), crowd(NOBODY), model, runs=300, randomness=fc.Simulated(12))
    assert not audit.passes


def test_an_artifact_tells_no_more_than_the_answers() -> None:
    sides = crowd(WORST), crowd(NOBODY)
    options = {"runs": 400, "randomness": fc.Simulated(13)}
    method, model = fc.FedBin(bins=2, smoothing=0.0), fc.DistributedDP(8.0)
    answers = fc.audit.audit_run(method, *sides, model, **options)  # type: ignore[arg-type]
    artifact = fc.audit.audit_run(
        method,
        *sides,
        model,
        statistic=lambda result: float(result.artifact([0.99])[0]),
        **options,  # type: ignore[arg-type]
    )
    assert 0 < artifact.lower_epsilon <= answers.lower_epsilon < 8


def test_runs_that_draw_clients_need_as_many_on_both_sides() -> None:
    others = list(crowd(NOBODY).clients())
    fewer = fc.Federation.of(others[:-1])
    with pytest.raises(InputError, match="as many clients"):
        fc.audit.audit_run(
            fc.FedBin(),
            crowd(WORST),
            fewer,
            fc.UserGaussian(1.0, 1e-5, clip=1.0),
            participation=fc.Poisson(0.9),
            runs=4,
            randomness=fc.Simulated(0),
        )


def test_runs_that_claim_nothing_or_are_too_few_are_refused() -> None:
    with pytest.raises(InputError, match="claim"):
        fc.audit.audit_run(fc.FedBin(), crowd(WORST), crowd(NOBODY), fc.SecAgg(), runs=4)
    with pytest.raises(InputError, match="4 runs"):
        fc.audit.audit_run(fc.FedBin(), crowd(WORST), crowd(NOBODY), fc.DistributedDP(1.0), runs=3)


# outputs


def noisy(count: int, seed: int, scale: float = 1.0) -> list[dict[str, object]]:
    """Documents of a noisy count, with words and missing numbers that follow from it."""
    values = np.random.default_rng(seed).laplace(count, scale, 20_000)
    return [
        {"count": value, "told": f"about {value:.1f} records", "half": None if value < 0 else [value / 2], "runs": 3}
        for value in values.tolist()
    ]


def test_outputs_keep_a_claim_that_is_right_and_the_bound_comes_close() -> None:
    audit = fc.audit.audit_outputs(noisy(1, 0), noisy(0, 1), 1.0)
    assert audit.passes
    assert audit.power > 0.8
    assert fc.audit.audit_outputs(noisy(0, 2)[:1000], noisy(0, 3)[:1000], 1.0).lower_epsilon < 0.05


def test_outputs_with_too_little_noise_are_noticed() -> None:
    audit = fc.audit.audit_outputs(noisy(1, 0, 0.5), noisy(0, 1, 0.5), 1.0, subject="a count")
    assert not audit.passes
    assert audit.subject == "a count"


@pytest.mark.parametrize(
    ("leak", "told"),
    [
        (lambda seen: {"exact": 11 - seen}, "/exact="),
        (lambda seen: {"windows": ["week"] * (2 + seen)}, "/windows#="),
        (lambda seen: {"first": "2024-01-01"} if seen else {}, "first"),
        (lambda seen: {"note": f"{3 + seen} of 12.5 records"}, "/note="),
        (lambda seen: {"missing": float("nan") if seen else 0.5}, "/missing="),
    ],
)
def test_one_exact_fact_is_noticed(leak, told: str) -> None:
    sides = [[{**one, **leak(seen)} for one in noisy(0, seed)[:200]] for seed, seen in enumerate((True, False))]
    audit = fc.audit.audit_outputs(*sides, 1.0, confidence=1 - 1e-9)
    assert not audit.passes
    assert told in audit.evidence


def test_a_fact_that_is_rare_on_one_side_is_worth_its_ratio() -> None:
    rng = np.random.default_rng(0)
    sides = [[{"alarm": bool(hit)} for hit in rng.random(10_000) < rate] for rate in (0.3, 0.3 * np.exp(-1.5))]
    assert 1.2 < fc.audit.audit_outputs(*sides, 1.0).lower_epsilon < 1.5
    assert fc.audit.audit_outputs(*sides, 1.0, delta=0.3).passes


def test_bounds_of_outputs_hold_as_often_as_they_say() -> None:
    """At a confidence of 0.8, at most a fifth of the bounds may be above the truth."""
    bounds = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        sides = [[{"x": value, "y": rng.normal()} for value in rng.laplace(at, 1, 200).tolist()] for at in (0, 1)]
        bounds.append(fc.audit.audit_outputs(*sides, 1.0, confidence=0.8).lower_epsilon)
    assert np.mean(np.array(bounds) > 1) <= 0.2
    assert np.median(bounds) > 0.2


def test_numbers_that_are_huge_or_missing_at_first_are_no_trouble() -> None:
    sides = [
        [{"huge": sign * 1.7e308, **({} if run < 50 else {"late": 0.5 * sign})} for run in range(100)]
        for sign in (1.0, -1.0)
    ]
    assert not fc.audit.audit_outputs(*sides, 1.0).passes
    assert fc.audit.audit_outputs(sides[0], sides[0], 1.0).lower_epsilon == 0
    assert fc.audit.audit_outputs([[]] * 20, [[]] * 20, 1.0).passes


@pytest.mark.parametrize(("one", "other"), [(19, 19), (30, 31)])
def test_too_few_documents_are_refused(one: int, other: int) -> None:
    with pytest.raises(InputError, match="as many documents on both sides, at least 20"):
        fc.audit.audit_outputs([{}] * one, [{}] * other, 1.0)
