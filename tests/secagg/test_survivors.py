"""A server that lies about who dropped out learns nothing about anyone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.secagg.attacker import VICTIM, VICTIM_NAME, peeled, rebuilt, spy
from tests.secagg.conversation import Conversation, names_of, random_vectors

from fedcalib.secagg import ProtocolError, SigningIdentity, TooFewClients
from fedcalib.secagg.crypto import SHARE_SIZE, KeyPair
from fedcalib.secagg.messages import NeighbourConfirmation, Survivors, UnmaskRequest, survivors_statement
from fedcalib.secagg.roster import pack, unpack


def test_dropping_a_client_on_purpose_leaves_its_own_mask_on():
    run = Conversation.of(7)
    run.setup()
    vectors = random_vectors(run.sites)
    captured = {}
    spy(run, captured)
    run.mask(vectors)
    honest = run.server.round(0)
    lie = Survivors(honest.binding, 0, pack(set(range(7)) - {VICTIM}, 7))
    with pytest.raises(ProtocolError, match="found it left out"):
        run.sites[VICTIM_NAME].answer("confirm", lie)
    unmaskings = _unmask_under(run, {name: lie for name in run.sites if name != VICTIM_NAME})
    assert len(unmaskings) == 6
    alive = {"size": 7, "alive": set(range(7)) - {VICTIM}}
    key = rebuilt(unmaskings.values(), VICTIM, alive, run.plan.neighbourhood_threshold(7))
    adverts = dict(enumerate(captured["keys"]))
    assert KeyPair(key).public == adverts[VICTIM].pledges[0].key
    # All that is left on the vector is the client's own mask, of which no share has left anyone.
    sent = next(m for m in captured["mask"] if m.place == VICTIM)
    assert all(len(m.seeds) == 6 * SHARE_SIZE and len(m.keys) == SHARE_SIZE for m in unmaskings.values())
    publics = {place: advert.pledges[0].key for place, advert in adverts.items() if place != VICTIM}
    guess = peeled(VICTIM, sent.words, key, bytes(32), publics, binding=sent.binding)
    assert not (guess == vectors[VICTIM_NAME]).any()


def _unmask_under(run, shown):
    """Show each client its survivors, pass on every matching confirmation, and collect what is revealed."""
    votes = {}
    for name, message in shown.items():
        try:
            reply = run.sites[name].answer("confirm", message)
        except (ProtocolError, TooFewClients):
            continue
        votes.setdefault(message.survivors, {})[reply.place] = reply.signature
    revealed = {}
    for name, message in shown.items():
        place = names_of(len(run.sites)).index(name)
        others = sorted((p, s) for p, s in votes.get(message.survivors, {}).items() if p != place)
        request = UnmaskRequest(message.binding, message.slot, tuple(NeighbourConfirmation(p, s) for p, s in others))
        try:
            revealed[name] = run.sites[name].answer("unmask", request)
        except ProtocolError:
            continue
    return revealed


def test_showing_two_survivor_sets_unmasks_nobody():
    """The server tells one half that the victim is alive and the other half that it dropped out."""
    for shown_alive in range(1, 8):
        run = Conversation.of(7)
        run.setup()
        run.mask(random_vectors(run.sites))
        binding = run.server.round(0).binding
        sets = [pack(range(7), 7), pack(set(range(7)) - {VICTIM}, 7)]
        order = [VICTIM_NAME, *(name for name in run.sites if name != VICTIM_NAME)]
        shown = {name: Survivors(binding, 0, sets[at >= shown_alive]) for at, name in enumerate(order)}
        revealed = _unmask_under(run, shown)
        agreed = {shown[name].survivors for name in revealed}
        assert len(agreed) <= 1
        if max(shown_alive, 7 - shown_alive) < run.plan.neighbourhood_threshold(7):
            assert not revealed


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data(), shape=st.sampled_from([(6, None), (12, 6)]))
def test_no_lies_about_survivors_reveal_both_secrets_or_a_second_sum(data, shape):
    """Every client is shown a set of its own, at best one that others are shown too."""
    count, degree = shape
    run = Conversation.of(count, degree=degree)
    run.setup()
    run.mask(random_vectors(run.sites))
    binding = run.server.round(0).binding
    worlds = [frozenset(range(count)) - frozenset(gone) for gone in _gone(data, count)]
    shown = {name: Survivors(binding, 0, pack(data.draw(st.sampled_from(worlds)), count)) for name in run.sites}
    revealed = _unmask_under(run, shown)
    around = {n: {e.place for e in view.entries} for n, view in run.server.close_keys().items()}
    seeds, keys = np.zeros(count, int), np.zeros(count, int)
    for name, message in revealed.items():
        alive = unpack(shown[name].survivors, count)
        assert len(message.seeds) == SHARE_SIZE * len(around[name] & alive)
        assert len(message.keys) == SHARE_SIZE * len(around[name] - alive)
        seeds[list(around[name] & alive)] += 1
        keys[list(around[name] - alive)] += 1
    needed = run.plan.neighbourhood_threshold(count)
    assert not ((seeds >= needed) & (keys >= needed)).any()
    opened = _opened(set(np.flatnonzero(seeds >= needed)), set(np.flatnonzero(keys >= needed)), list(around.values()))
    assert len(opened) <= 1
    size = len(around["site-000"])
    assert all(len(part) >= count * (1 - (size - needed) / needed) for part in opened)


def _opened(bare, lost, around):
    """List the groups of clients whose sum can be read: no mask is left between them and anyone else."""
    groups, left = [], set(bare)
    while left:
        group = frontier = {left.pop()}
        while frontier:
            frontier = set().union(*(around[place] & bare for place in frontier)) - group
            group = group | frontier
        left -= group
        if set().union(*(around[place] for place in group)) <= group | lost:
            groups.append(group)
    return groups


def test_the_reading_of_sums_above_finds_an_honest_one():
    ring = [{(place + step) % 12 for step in range(-3, 4)} for place in range(12)]
    assert _opened(set(range(12)), set(), ring) == [set(range(12))]
    assert _opened(set(range(12)) - {3}, {3}, ring) == [set(range(12)) - {3}]
    assert _opened(set(range(12)) - {3}, set(), ring) == []
    assert len(_opened({0, 6}, set(range(12)) - {0, 6}, ring)) == 2


def _gone(data, count):
    return data.draw(st.lists(st.sets(st.integers(0, count - 1), max_size=2), min_size=1, max_size=3))


def test_a_client_confirms_and_unmasks_one_survivor_set_only():
    run = Conversation.of(7)
    run.setup()
    survivors = run.mask(random_vectors(run.sites))
    requests = run.confirm(survivors)
    other = replace(survivors["site-000"], survivors=pack(range(6), 7))
    with pytest.raises(ProtocolError, match="Expected the survivor set that this client already answered for"):
        run.sites["site-000"].answer("confirm", other)
    first = run.sites["site-000"].answer("unmask", requests["site-000"])
    with pytest.raises(ProtocolError, match="already answered for"):
        run.sites["site-000"].answer("confirm", other)
    assert run.sites["site-000"].answer("unmask", requests["site-000"]) == first


def test_unmasking_needs_a_threshold_of_true_votes():
    run = Conversation.of(7)
    run.setup()
    requests = run.confirm(run.mask(random_vectors(run.sites)))
    request = requests["site-000"]
    site = run.sites["site-000"]
    with pytest.raises(ProtocolError, match="Expected 4 neighbours to confirm the same survivors, found 3"):
        site.answer("unmask", replace(request, votes=request.votes[:-1]))
    forged = SigningIdentity("site-001").sign(survivors_statement(request.binding, pack(range(7), 7)))
    votes = (NeighbourConfirmation(request.votes[0].place, forged), *request.votes[1:])
    with pytest.raises(ProtocolError, match="Expected a message signed by site 'site-001'"):
        site.answer("unmask", replace(request, votes=votes))
    with pytest.raises(ProtocolError, match="found place 0"):
        site.answer("unmask", replace(request, votes=(NeighbourConfirmation(0, forged), *request.votes[1:])))


def test_survivors_below_the_threshold_are_refused_by_the_clients_themselves():
    run = Conversation.of(7)
    run.setup()
    run.mask(random_vectors(run.sites))
    few = Survivors(run.server.round(0).binding, 0, pack({0, 1, 2, 3}, 7))
    with pytest.raises(TooFewClients, match="at least 5 of the 7 sites around 'site-000'"):
        run.sites["site-000"].answer("confirm", few)


def test_survivors_that_are_enough_around_a_client_may_be_too_few_in_all():
    run = Conversation.of(20, degree=4)
    run.setup()
    run.mask(random_vectors(run.sites))
    around = {entry.place for entry in run.server.close_keys()["site-007"].entries}
    few = Survivors(run.server.round(0).binding, 0, pack(around, 20))
    with pytest.raises(TooFewClients, match="at least 14 of 20 sites at the stage of unmasking, found 5"):
        run.sites["site-007"].answer("confirm", few)


def test_members_below_the_threshold_are_refused_before_anything_is_masked():
    run = Conversation.of(7)
    run.setup()
    request = replace(run.server.begin(0)["site-000"], members=pack({0, 1}, 7))
    with pytest.raises(TooFewClients, match="at the stage of masked vectors"):
        run.sites["site-000"].answer("mask", request, random_vectors(run.sites)["site-000"])


def test_survivors_that_were_no_members_are_refused():
    run = Conversation.of(7)
    run.setup(lost_shares={"site-006"})
    survivors = run.mask(random_vectors(run.sites))
    more = replace(survivors["site-000"], survivors=pack(range(7), 7))
    with pytest.raises(ProtocolError, match="Expected survivors among the members"):
        run.sites["site-000"].answer("confirm", more)
