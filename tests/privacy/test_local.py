from __future__ import annotations

from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from math import exp, log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tests.privacy.small_queries import Nothing, Sizes, Values, answered, one_by_one, scored, served, with_values

import fedcalib as fc
from fedcalib.errors import InputError, RefusedError
from fedcalib.privacy.local import Coder, RandomisedReports
from fedcalib.privacy.local_reports import Cell, Coordinate, FlippedSign, RandomSymbol, SignedCell, Unary
from fedcalib.queries.class_tables import LabelCounts, LabelHistogram
from fedcalib.queries.reliability import ClasswiseResiduals, Losses, TopLabelTable
from fedcalib.queries.scores import ScoreTree
from fedcalib.queries.temperature import TemperatureCurve
from fedcalib.query import Join


def same_law(one, other):
    """Whether two samples may come from one distribution; they do not once in a billion times."""
    return stats.ks_2samp(one, other, method="asymp").pvalue > 1e-9


EPSILONS = st.floats(1e-3, 20.0)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.1, 1.0, 3.0, 8.0, 15.0, 22.0, 30.0, 50.0])
def test_p11_no_report_is_likelier_than_epsilon_allows(epsilon):
    """Finding p11: ratios of probabilities as exact fractions, against e^epsilon to sixty digits."""
    flips = [Unary(epsilon).rate.value, FlippedSign(epsilon).rate.value]
    ratios = [(1 - q) / q for q in flips]
    for symbols in (1, 2, 5, 100, 10**6):
        replaced = RandomSymbol(epsilon).rate(symbols).value
        ratios.append((1 - replaced) * (symbols + 1) / replaced + 1)
    with localcontext(prec=60):
        most = Decimal(epsilon).exp()
        assert all(Decimal(ratio.numerator) / Decimal(ratio.denominator) <= most for ratio in ratios)


@given(EPSILONS)
def test_a_unary_report_is_epsilon_private_also_against_null(epsilon):
    q = Unary(epsilon).rate.value
    half = Fraction(1, 2)
    own_against_other = [half / q * (1 - q) / half, (1 - half) / (1 - q) * q / half]
    own_against_null = [half / q, (1 - half) / (1 - q)]
    for ratio in [*own_against_other, *own_against_null]:
        assert abs(log(ratio)) <= epsilon + 1e-15


@given(EPSILONS, st.integers(1, 5000))
def test_a_random_symbol_is_epsilon_private(epsilon, symbols):
    rate = RandomSymbol(epsilon).rate(symbols)

    def ratio(replaced):
        return (1 - replaced) * (symbols + 1) / replaced + 1

    assert log(ratio(rate.value)) <= epsilon + 1e-15
    if rate.numerator > 2:
        assert log(ratio(rate.value - Fraction(2, 1 << 32))) > epsilon - 1e-11  # and no rarer than it has to be


@given(EPSILONS)
def test_a_flipped_sign_is_epsilon_private(epsilon):
    q = FlippedSign(epsilon).rate.value
    assert log((1 - q) / q) <= epsilon + 1e-15


@pytest.mark.parametrize("randomness", [fc.Simulated(1), fc.Secure()], ids=["simulated", "secure"])
@pytest.mark.parametrize("encoder", [Unary(1.0), RandomSymbol(1.0), FlippedSign(1.0)], ids=lambda e: type(e).__name__)
def test_the_law_of_the_sum_is_that_of_single_reports(encoder, randomness):
    counts = np.array([20, 3, 0, 9, 0 if isinstance(encoder, FlippedSign) else 8])
    chosen = np.repeat([0, 1, 2, 3, -1], counts)
    draws = 1500
    law = np.array([encoder.total(counts, randomness.derive("law", i)) for i in range(draws)])
    single = np.array([encoder.encoded(chosen, 4, randomness.derive("single", i)) for i in range(draws)])
    for symbol in range(4):
        assert same_law(law[:, symbol], single[:, symbol])
    joint = [np.cov(sample[:, :3].T) for sample in (law, single)]
    assert np.abs(joint[0] - joint[1]).max() < 7 * joint[0].max() * sqrt(4 / draws)
    own, other = encoder.probabilities(4)
    expected = counts[:-1] * own + (counts.sum() - counts[:-1]) * other
    if isinstance(encoder, FlippedSign):
        expected = counts[:-1] * own + counts[[1, 0, 3, 2]] * other
    for sample in (law, single):
        assert np.abs(sample.mean(axis=0) - expected).max() < 7 * sample.std() / sqrt(draws)


QUERIES = {
    "histogram": LabelHistogram(2, 4),
    "wide histogram": LabelHistogram(2, 60),
    "tree": ScoreTree(4, 3),
    "classes": LabelHistogram(3, 4),
    "gaps": TopLabelTable(4),
    "residuals": ClasswiseResiduals(3, 5),
    "curve": TemperatureCurve((0.5, 1.0, 2.0), 10.0),
    "joined": Join((TopLabelTable(3), Losses(6.0))),
}


THREE = {"classes", "residuals"}


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("epsilon", [0.7, 4.0])
def test_estimates_are_unbiased_and_as_wide_as_reported(name, epsilon):
    query = QUERIES[name]
    federation = scored(7, 600, 600, classes=3 if name in THREE else 2)
    mechanism = served(fc.LocalDP(epsilon), query)
    exact = query.total(federation, fc.Simulated(0)).astype(float)
    runs = 400
    pairs = [answered(mechanism, query, federation, fc.Simulated(seed)) for seed in range(runs)]
    values, variances = np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs])
    spread = values.std(axis=0)
    assert np.abs((values.mean(axis=0) - exact) / spread).max() < 6 / sqrt(runs)
    ratio = query.split(values.var(axis=0) / variances.mean(axis=0))
    for block, part in ratio.items():
        counted = isinstance(mechanism.coders[block].symbols, Cell)
        assert part.max() < 1 + 7 * sqrt(2 / runs), block
        assert part.min() > (1 - 6 * sqrt(2 / runs) if counted else 0.5), block


@pytest.mark.parametrize("name", QUERIES)
def test_the_sum_of_records_has_the_distribution_of_single_records(name):
    query = QUERIES[name]
    federation = scored(3, 60, 60, classes=3 if name in THREE else 2)
    mechanism = served(fc.LocalDP(2.0), query)
    law = [mechanism.gather(query, federation, fc.Simulated(seed)) for seed in range(300)]
    single = [mechanism.encode(query, federation.records, fc.Simulated(-seed - 1)) for seed in range(300)]
    for cell in range(mechanism.width(query)):
        assert same_law(np.array(law)[:, cell], np.array(single)[:, cell])


@pytest.mark.parametrize("name", ["histogram", "tree"])
def test_the_sum_of_clients_has_the_distribution_of_single_clients(name):
    query, federation = QUERIES[name], scored(3, 20, 20)
    mechanism = served(fc.LocalDP(2.0), query)
    law = [mechanism.gather(query, federation, fc.Simulated(seed)) for seed in range(150)]
    single = [one_by_one(mechanism, query, federation, fc.Simulated(-seed - 1)) for seed in range(150)]
    for cell in range(mechanism.width(query)):
        assert same_law(np.array(law)[:, cell], np.array(single)[:, cell])


def test_the_encoding_with_less_variance_is_chosen():
    def encoder(bins, epsilon):
        return type(served(fc.LocalDP(epsilon), LabelHistogram(2, bins)).coders["1"].encoder)

    assert encoder(2, 1.0) is RandomSymbol
    assert encoder(200, 1.0) is Unary
    assert encoder(150, 5.0) is RandomSymbol
    assert encoder(250, 5.0) is Unary


def test_a_report_at_epsilon_one_has_the_published_variance():
    own, other = Unary(1.0).probabilities(10)
    assert other * (1 - other) / (own - other) ** 2 == pytest.approx(3.682, abs=1e-3)


def test_variance_has_the_term_that_grows_with_the_count():
    unary = RandomisedReports({"labels": Coder(Cell(10), Unary(5.0))})
    own, other = unary.coders["labels"].encoder.probabilities(10)
    counts = np.array([2_000, *[0] * 9])
    reported = np.append(counts * own + (20_000 - counts) * other, 20_000)  # what is expected of so many records
    _, variance = unary.decode(LabelCounts(10), reported, 1, fc.Simulated(0))
    base = 20_000 * 4 * exp(5) / (exp(5) - 1) ** 2
    assert variance[1] == pytest.approx(base, rel=2e-3)
    assert variance[0] == pytest.approx(base + 2_000, rel=2e-3)
    assert sqrt(variance[0]) == pytest.approx(50.5, abs=0.2)


def test_real_values_go_by_the_mechanism_that_errs_less():
    def symbols(query, block):
        return type(served(fc.LocalDP(1.0), query).coders[block].symbols)

    assert symbols(ClasswiseResiduals(10, 15), "residual") is SignedCell  # 150 cells, but never more than 2 in all
    assert symbols(TemperatureCurve((0.5, 1.0, 2.0, 4.0), 10.0), "slope") is Coordinate  # every cell may be full
    assert symbols(Values(), "values") is Coordinate


def test_several_blocks_share_the_records_where_epsilon_is_scarce_and_epsilon_where_it_is_not():
    tree, split = served(fc.LocalDP(1.0), ScoreTree(4, 5)), served(fc.LocalDP(60.0), ScoreTree(2, 3))
    assert dict(tree.chances) == {str(level): pytest.approx(0.2) for level in range(1, 6)}
    assert all(coder.encoder.epsilon == pytest.approx(1.0) for coder in tree.coders.values())
    assert split.chances is None
    assert sum(coder.encoder.epsilon for coder in split.coders.values()) == pytest.approx(60.0)
    for mechanism, query, epsilon in [(tree, ScoreTree(4, 5), 1.0), (split, ScoreTree(2, 3), 60.0)]:
        assert mechanism.event(query, fc.cohort.Cohort(1)).pure() == pytest.approx(epsilon)


def test_sampling_levels_beats_splitting_epsilon_on_a_tree():
    query, federation = ScoreTree(2, 6), scored(1, 20_000, 20_000)
    drawn = served(fc.LocalDP(2.0), query)
    split = RandomisedReports(
        {name: Coder(coder.symbols, replace(coder.encoder, epsilon=2.0 / 6)) for name, coder in drawn.coders.items()}
    )
    _, with_drawn = answered(drawn, query, federation, fc.Simulated(0))
    _, with_split = answered(split, query, federation, fc.Simulated(0))
    assert with_drawn.mean() < 0.5 * with_split.mean()


def test_every_record_is_heard_once_where_blocks_are_drawn():
    query, federation = ScoreTree(4, 5), scored(2, 5000, 50)
    mechanism = served(fc.LocalDP(1.0), query)
    total = mechanism.gather(query, federation, fc.Simulated(0))
    ends = np.cumsum([coder.symbols.count + 1 for coder in mechanism.coders.values()]) - 1
    assert total[ends].sum() == 5000
    assert np.abs(total[ends] - 1000).max() < 6 * sqrt(800)


def test_records_that_report_nothing_are_heard_as_null():
    query = Nothing()
    federation = scored(2, 3000, 30)
    for coder in (Coder(Cell(4), Unary(2.0)), Coder(Cell(4), RandomSymbol(2.0))):
        mechanism = RandomisedReports({"cells": coder})
        value, variance = answered(mechanism, query, federation, fc.Simulated(1))
        assert np.abs(value / np.sqrt(variance)).max() < 6


def test_nobody_at_all_gives_zeros():
    query = ScoreTree(4, 3)
    federation = scored(2, 30, 3).where(np.zeros(30, dtype=bool))
    mechanism = served(fc.LocalDP(1.0), query)
    value, variance = answered(mechanism, query, federation, fc.Simulated(0))
    assert not value.any() and not variance.any()


def test_a_block_that_nobody_drew_is_unknown_within_its_bound():
    query, federation = ScoreTree(4, 3), scored(2, 1, 1)
    mechanism = served(fc.LocalDP(1.0), query)
    value, variance = answered(mechanism, query, federation, fc.Simulated(0))
    assert np.isfinite(value).all() and np.isfinite(variance).all()
    assert (variance > 0).all()


def test_questions_about_clients_are_refused():
    for query in (Sizes(), Join((LabelHistogram(2, 3), Sizes()))):
        with pytest.raises(
            RefusedError, match="LocalDP randomises single records, and Sizes is a query on whole clients"
        ):
            served(fc.LocalDP(1.0), query)


def test_too_little_epsilon_is_refused():
    with pytest.raises(RefusedError, match="LocalDP has too little epsilon left for LabelHistogram"):
        served(fc.LocalDP(1e-7), LabelHistogram(2, 3))


@pytest.mark.parametrize("epsilon", [0.0, -1.0, 501.0, float("inf"), float("nan")])
def test_epsilon_is_checked(epsilon):
    with pytest.raises(InputError):
        fc.LocalDP(epsilon)


def test_spending_is_replace_one_of_a_record():
    run = fc.run(fc.FedBin(), fc.InProcess(scored(0, 300, 300)), fc.LocalDP(3.0), randomness=fc.Simulated(0))
    assert (run.privacy.adjacency, run.privacy.unit, run.privacy.delta) == ("replace-one", "record", 0.0)


def test_real_values_beyond_their_bound_are_cut_not_leaked():
    query = Values(cells=3)
    federation = with_values([5.0] * 50, clients=50)  # the query cuts to 1; a report is a sign in any case
    for coder in (Coder(Coordinate(3, 0.1), FlippedSign(1.0)), Coder(SignedCell(3, 0.1), Unary(1.0))):
        mechanism = RandomisedReports({"values": coder})
        share = one_by_one(mechanism, query, federation, fc.Simulated(0))
        assert share.max() <= 50
