"""What a naive version of the protocol gives away, and ours does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2
from tests.secagg.attacker import VICTIM, VICTIM_NAME, masked_by, peeled, rebuilt, spy
from tests.secagg.conversation import LENIENT, Conversation, make_sites, names_of, plain_sum, random_vectors

from fedcalib.secagg import PolicyError, ProtocolError, SetupPlan, Slot, TooFewClients
from fedcalib.secagg.crypto import KeyPair, MaskedSum, keystream, pair_key, seed_key
from fedcalib.secagg.messages import Survivors
from fedcalib.secagg.roster import binding_of, pack, seed_hash

# (a) One masking key for two steps.


def test_a_naive_masking_key_for_the_whole_run_gives_a_client_away():
    """A client that survives step 0 and drops out of step 1 has its seed and its key rebuilt by the rules."""
    pairs = {place: KeyPair() for place in range(4)}
    seeds = [np.random.default_rng(step).bytes(32) for step in range(2)]
    publics = {place: pair.public for place, pair in pairs.items() if place != VICTIM}
    vector = np.arange(8, dtype=np.uint64)
    # Even with a fresh seed and a fresh derivation for each step.
    bindings = [bytes([step]) * 32 for step in range(2)]
    sent = masked_by(VICTIM, vector, pairs[VICTIM].private, seeds[0], publics, binding=bindings[0])
    seed_of_step_0, key_of_step_1 = seeds[0], pairs[VICTIM].private
    np.testing.assert_array_equal(
        peeled(VICTIM, sent, key_of_step_1, seed_of_step_0, publics, binding=bindings[0]), vector
    )


def test_each_step_has_its_own_masking_key_so_dropping_later_gives_nothing_away():
    run = Conversation.of(5, steps=2)
    run.setup()
    vectors = random_vectors(run.sites)
    captured = {}
    spy(run, captured)
    first = run.sum(vectors, step=0)
    second = run.sum(vectors, step=1, lost=({VICTIM_NAME}, (), ()))
    assert VICTIM_NAME in first.survivors
    assert VICTIM_NAME not in second.survivors

    threshold = run.plan.neighbourhood_threshold(5)
    seed = rebuilt(captured["unmask"][:5], VICTIM, {"size": 5, "alive": set(range(5))}, threshold)
    key = rebuilt(captured["unmask"][5:], VICTIM, {"size": 5, "alive": set(range(5)) - {VICTIM}}, threshold)
    adverts = dict(enumerate(captured["keys"]))
    # The server did get both secrets by the rules, each of another step.
    assert seed_hash(seed) == adverts[VICTIM].pledges[0].seed
    assert KeyPair(key).public == adverts[VICTIM].pledges[1].key
    sent = next(m for m in captured["mask"] if m.place == VICTIM and m.slot == 0)
    for slot in (0, 1):
        publics = {place: advert.pledges[slot].key for place, advert in adverts.items() if place != VICTIM}
        guess = peeled(VICTIM, sent.words, key, seed, publics, binding=sent.binding)
        assert not (guess == vectors[VICTIM_NAME]).any()


# (b) The same vector under two rosters.


def test_a_naive_client_that_answers_twice_lets_the_server_subtract():
    vectors = {place: np.full(4, 10 + place, np.uint64) for place in range(4)}

    def naive_sum(roster, binding):
        pairs = {place: KeyPair() for place in roster}
        publics = {place: pair.public for place, pair in pairs.items()}
        total = MaskedSum(np.zeros(4, np.uint64))
        for place in roster:
            others = {other: public for other, public in publics.items() if other != place}
            seed = bytes([place]) * 32
            total.words += masked_by(place, vectors[place], pairs[place].private, seed, others, binding=binding)
            total.subtract(seed_key(seed, binding, place))
        return total.words

    # Fresh masks do not help: it is the same vector (or the same noise) in both sums.
    difference = naive_sum([0, 1, 2, 3], b"a" * 32) - naive_sum([0, 1, 3], b"b" * 32)
    np.testing.assert_array_equal(difference, vectors[VICTIM])


def test_a_slot_is_masked_for_one_roster_only():
    run = Conversation.of(5)
    run.setup()
    vectors = random_vectors(run.sites)
    run.sum(vectors)
    for name, request in run.server.begin(0).items():
        fewer = replace(request, members=pack({0, 1, 3, 4}, 5))
        with pytest.raises(ProtocolError, match=r"Expected the roster that this client already answered for"):
            run.sites[name].answer("mask", fewer, vectors[name])


def test_asking_a_confirmed_step_again_is_refused_without_fresh_noise():
    run = _retry_run(LENIENT)
    vectors = random_vectors(run.sites)
    run.sum(vectors)
    for name, request in run.server.begin(0, 1).items():
        with pytest.raises(PolicyError, match="Two sums over different survivors can be subtracted"):
            run.sites[name].answer("mask", request, vectors[name])


def test_asking_a_confirmed_step_again_is_refused_after_a_new_setup_too():
    run = _retry_run(LENIENT)
    vectors = random_vectors(run.sites)
    run.sum(vectors)
    again = Conversation(replace(run.plan, setup=1), run.sites, run.directory)
    again.setup()
    with pytest.raises(ProtocolError, match="Expected attempt 1 or later at step 0, found attempt 0"):
        again.sum(vectors, 0, 0)
    with pytest.raises(PolicyError, match="subtracted"):
        again.sum(vectors, 0, 1)


def test_an_aborted_step_is_asked_again_with_fresh_masks_and_the_old_attempt_stays_dead():
    run = _retry_run(LENIENT)
    vectors = random_vectors(run.sites)
    captured = {}
    spy(run, captured)
    with pytest.raises(TooFewClients):
        run.mask(vectors, lost=set(names_of(4)))
    total = run.sum(vectors, attempt=1)
    np.testing.assert_array_equal(total.words, plain_sum(vectors, vectors))
    first = {m.place: m.vector for m in captured["mask"] if m.slot == 0}
    second = {m.place: m.vector for m in captured["mask"] if m.slot == 1}
    assert all(first[place] != second[place] for place in first)
    aborted = run.server.round(0, 0)
    with pytest.raises(ProtocolError, match="an aborted attempt stays aborted"):
        run.sites["site-004"].answer("confirm", Survivors(aborted.binding, 0, pack(range(5), 5)))


def test_a_model_that_renews_its_noise_may_ask_a_confirmed_step_again():
    run = _retry_run(replace(LENIENT, renewed=True))
    run.sum(random_vectors(run.sites, seed=0))
    fresh = random_vectors(run.sites, seed=1)
    np.testing.assert_array_equal(run.sum(fresh, attempt=1).words, plain_sum(fresh, fresh))


def test_that_a_step_was_confirmed_is_not_forgotten_by_a_later_attempt():
    """Fresh noise was promised for attempt 1; the site has since withdrawn the promise."""
    sites, directory = make_sites(5, replace(LENIENT, renewed=True))
    run = Conversation(SetupPlan("run", tuple(Slot(0, attempt, 8) for attempt in range(3))), sites, directory)
    run.setup()
    vectors = random_vectors(sites)
    run.sum(vectors)
    run.mask(vectors, attempt=1)
    for site in sites.values():
        site.policy = LENIENT
    with pytest.raises(PolicyError, match="subtracted"):
        run.mask(vectors, attempt=2)


def _retry_run(policy):
    sites, directory = make_sites(5, policy)
    run = Conversation(SetupPlan("run", (Slot(0, 0, 8), Slot(0, 1, 8))), sites, directory)
    run.setup()
    return run


def test_a_repeated_request_gets_the_same_bytes_even_for_another_vector():
    run = Conversation.of(4)
    run.setup()
    vectors = random_vectors(run.sites)
    request = run.server.begin(0)["site-001"]
    site = run.sites["site-001"]
    assert site.client().recall(request) is None
    first = site.answer("mask", request, vectors["site-001"])
    assert site.answer("mask", request, vectors["site-002"]) == first
    assert site.client().recall(request) == first


# What masked vectors look like.


@pytest.mark.parametrize("value", [0, 1, 2**64 - 1])
def test_masked_vectors_look_uniform(value):
    length = 1 << 14
    run = Conversation.of(3, length=length)
    run.setup()
    request = run.server.begin(0)["site-000"]
    reply = run.sites["site-000"].answer("mask", request, np.full(length, value, np.uint64))
    counts = np.bincount(np.frombuffer(reply.vector, np.uint8), minlength=256)
    expected = len(reply.vector) / 256
    statistic = float(((counts - expected) ** 2 / expected).sum())
    # Masks come from the operating system's entropy, so both tails are set at one in a billion.
    assert chi2.ppf(1e-9, 255) < statistic < chi2.isf(1e-9, 255)
    assert len(set(reply.words.tolist())) == length


def test_the_same_chi_square_catches_a_vector_without_its_own_mask():
    counts = np.bincount(np.frombuffer(np.arange(1 << 14, dtype="<u8").tobytes(), np.uint8), minlength=256)
    expected = counts.sum() / 256
    assert ((counts - expected) ** 2 / expected).sum() > chi2.isf(1e-9, 255)


def test_masks_differ_by_slot_place_and_roster():
    secret = b"s" * 32
    plan = SetupPlan("run", (Slot(0, 0, 8), Slot(0, 1, 8), Slot(1, 0, 8)))
    bindings = [binding_of(plan, roster, slot, b"\x07") for roster in (b"r" * 32, b"q" * 32) for slot in range(3)]
    bindings.append(binding_of(plan, b"r" * 32, 0, b"\x03"))
    bindings.append(binding_of(replace(plan, run="other"), b"r" * 32, 0, b"\x07"))
    bindings.append(binding_of(replace(plan, slots=(Slot(7, 0, 8),)), b"r" * 32, 0, b"\x07"))
    bindings.append(binding_of(replace(plan, slots=(Slot(0, 7, 8),)), b"r" * 32, 0, b"\x07"))
    keys = {pair_key(secret, binding, one, 2) for binding in bindings for one in (0, 1)}
    keys |= {seed_key(secret, binding, place) for binding in bindings for place in (0, 1)}
    assert len(keys) == 4 * len(bindings)
    assert pair_key(secret, bindings[0], 5, 3) == pair_key(secret, bindings[0], 3, 5)
    assert not np.array_equal(keystream(b"k" * 32, 9), keystream(b"l" * 32, 9))
