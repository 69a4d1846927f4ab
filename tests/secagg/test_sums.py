"""Sums are exact, on complete and sparse graphs, over the whole range, and whoever drops out."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.secagg.conversation import Conversation, make_sites, names_of, plain_sum, random_vectors

from fedcalib.errors import TooFewClients
from fedcalib.secagg import MinimumTerms, SetupPlan, Slot


@pytest.mark.parametrize("count", [3, 4, 7, 20, 50])
def test_complete_graph_sums_exactly(count):
    run = Conversation.of(count, MinimumTerms())
    vectors = random_vectors(run.sites)
    assert run.setup() == tuple(names_of(count))
    total = run.sum(vectors)
    assert total.survivors == tuple(names_of(count))
    np.testing.assert_array_equal(total.words, plain_sum(vectors, vectors))


@pytest.mark.parametrize(("count", "degree"), [(51, None), (60, None), (9, 4), (12, 6), (30, 8)])
def test_sparse_graph_sums_exactly(count, degree):
    run = Conversation.of(count, MinimumTerms(degree=degree), degree=degree)
    vectors = random_vectors(run.sites)
    run.setup()
    assert run.plan.neighbours(count) < count - 1
    np.testing.assert_array_equal(run.sum(vectors).words, plain_sum(vectors, vectors))


def test_several_steps_share_one_setup_and_sites_come_back():
    run = Conversation.of(7, steps=3)
    run.setup()
    for step, lost in enumerate([{"site-002"}, {"site-004"}, set()]):
        vectors = random_vectors(run.sites, seed=step)
        total = run.sum(vectors, step, lost=(lost, (), ()))
        assert set(total.survivors) == set(run.sites) - lost
        np.testing.assert_array_equal(total.words, plain_sum(vectors, set(run.sites) - lost))


def test_steps_may_have_vectors_of_different_lengths():
    sites, directory = make_sites(4)
    run = Conversation(SetupPlan("run", (Slot(0, 0, 3), Slot(1, 0, 20_000))), sites, directory)
    run.setup()
    for step, length in enumerate((3, 20_000)):
        vectors = random_vectors(sites, length, seed=step)
        np.testing.assert_array_equal(run.sum(vectors, step).words, plain_sum(vectors, vectors))


def test_sites_known_to_be_gone_can_be_left_out_from_the_start():
    run = Conversation.of(6)
    run.setup()
    vectors = random_vectors(run.sites)
    requests = run.server.begin(0, absent=["site-001"])
    assert "site-001" not in requests
    for name, request in requests.items():
        run.server.round(0).accept_masked(run.sites[name].answer("mask", request, vectors[name]))
    total = run.unmask(run.confirm(run.server.round(0).close_masked()))
    np.testing.assert_array_equal(total.words, plain_sum(vectors, requests))


SHAPES = st.sampled_from([(7, None, Fraction(1, 2)), (9, None, Fraction(2, 3)), (14, 8, Fraction(1, 2))])


@settings(max_examples=examples(60), deadline=None)
@given(shape=SHAPES, data=st.data())
def test_any_drop_outs_give_the_exact_sum_or_an_abort(shape, data):
    count, degree, quorum = shape
    run = Conversation.of(count, degree=degree, quorum=quorum, floor=2)
    vectors = random_vectors(run.sites)
    left = set(run.sites)
    lost = []
    for _ in range(5):
        lost.append(data.draw(st.sets(st.sampled_from(sorted(left)), max_size=2) if left else st.just(set())))
        left -= lost[-1]
    try:
        run.setup(lost[0], lost[1])
        total = run.sum(vectors, lost=lost[2:])
    except TooFewClients as error:
        _check_abort_was_due(run, error, lost)
    else:
        expected = set(run.sites) - lost[0] - lost[1] - lost[2]
        assert set(total.survivors) == expected
        np.testing.assert_array_equal(total.words, plain_sum(vectors, expected))


def _check_abort_was_due(run, error, lost):
    """On a complete graph the threshold alone decides; on a sparse one some neighbourhood must have lost too many."""
    roster = len(run.sites) - len(lost[0])
    gone = sum(map(len, lost[1:]))
    if run.plan.degree is None:
        assert roster - gone < run.plan.roster_threshold(roster)
    else:
        assert gone > run.plan.neighbours(roster) - run.plan.neighbourhood_threshold(
            roster
        ) or roster - gone < run.plan.roster_threshold(roster)
    assert any(name in str(error) for name in set().union(*lost))


STAGES = ["keys", "shares", "masked vectors", "confirmations", "unmasking"]


@pytest.mark.parametrize("stage", range(1, 5))
@pytest.mark.parametrize("count", [7, 10])
def test_survives_down_to_the_threshold_and_aborts_below(stage, count):
    # 7 sites need 5 and 10 need 7, so two and three may go at one stage.
    spare = count - (2 * count // 3 + 1)
    for gone in (spare, spare + 1):
        run = Conversation.of(count)
        lost = [set() for _ in STAGES]
        lost[stage] = set(names_of(gone))
        vectors = random_vectors(run.sites)
        if gone == spare:
            run.setup(lost[0], lost[1])
            total = run.sum(vectors, lost=lost[2:])
            np.testing.assert_array_equal(total.words, plain_sum(vectors, total.survivors))
        else:
            with pytest.raises(TooFewClients, match=r"site-000.*new attempt") as caught:
                run.setup(lost[0], lost[1])
                run.sum(vectors, lost=lost[2:])
            assert f"the stage of {STAGES[stage]}" in str(caught.value)


def test_too_few_keys_abort_with_the_names_of_the_missing():
    run = Conversation.of(4)
    with pytest.raises(TooFewClients, match="at least 3 sites, found 2; missing: 'site-000', 'site-003'"):
        run.setup(lost_keys={"site-000", "site-003"})


def test_sparse_abort_names_the_site_whose_neighbourhood_is_short():
    run = Conversation.of(20, degree=4)
    vectors = random_vectors(run.sites)
    run.setup()
    view = run.server.close_keys()["site-007"]
    around = {entry.advert.name for entry in view.entries} - {"site-007"}
    with pytest.raises(TooFewClients, match="of the 5 sites around 'site-"):
        run.sum(vectors, lost=((), around, ()))


EXTREMES = [-(2**63), 2**63 - 1, -1, 0, 1, 2**62, -(2**62)]


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.sampled_from(EXTREMES), min_size=1, max_size=6))
def test_sums_are_exact_over_the_whole_int64_range(values):
    run = Conversation.of(3, length=len(values))
    vectors = {name: np.zeros(len(values), np.uint64) for name in run.sites}
    vectors["site-001"] = np.array(values, np.int64).view(np.uint64)
    run.setup()
    assert run.sum(vectors).words.view(np.int64).tolist() == values


def test_negative_and_positive_extremes_cancel_exactly():
    run = Conversation.of(3, length=2)
    terms = [[2**63 - 1, -(2**63)], [-(2**63), 2**63 - 1], [5, -7]]
    vectors = {name: np.array(term, np.int64).view(np.uint64) for name, term in zip(run.sites, terms, strict=True)}
    run.setup()
    assert run.sum(vectors).words.view(np.int64).tolist() == [4, -8]
