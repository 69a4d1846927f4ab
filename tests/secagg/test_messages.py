"""Messages decode strictly, and handlers refuse what is repeated, forged, misplaced or of the wrong size."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from tests.secagg.conversation import Conversation, make_plan, random_vectors

from fedcalib.errors import InputError
from fedcalib.secagg import ProtocolError, SetupPlan, Slot, WireError
from fedcalib.secagg.crypto import KeyPair
from fedcalib.secagg.messages import Survivors, UnmaskRequest

PLAN = make_plan(steps=2)


def changed(message, **fields):
    data = json.loads(message.to_json())
    return json.dumps(data | fields)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"kind": "secagg.advert"}, "of kind 'secagg.plan'"),
        ({"extra": 1}, "exactly the fields"),
        ({"run": 3}, "Expected str in SetupPlan.run, found int"),
        ({"run": ""}, "named run"),
        ({"run": "\ud800"}, "named run"),
        ({"setup": True}, "Expected int in SetupPlan.setup, found bool"),
        ({"setup": 1.0}, "Expected int in SetupPlan.setup, found float"),
        ({"setup": -1}, "count below"),
        ({"setup": 2**53}, "count below"),
        ({"slots": []}, "1 to 4096 slots"),
        ({"slots": {}}, "Expected a list in SetupPlan.slots"),
        ({"slots": [[0, 0, 8]]}, "exactly the fields"),
        ({"slots": [{"step": 0, "attempt": 0, "length": 0}]}, "words, found another length"),
        ({"slots": [{"step": 0, "attempt": 0, "length": 1}] * 2}, "one repeated"),
        ({"quorum": "1/0"}, "a fraction such as 2/3"),
        ({"quorum": "٢/٣"}, "a fraction such as 2/3"),
        ({"quorum": 0.67}, "a fraction such as 2/3"),
        ({"quorum": "1/3"}, "quorum as a Fraction from 1/2"),
        ({"quorum": "1/1"}, "quorum as a Fraction from 1/2"),
        ({"floor": 1}, "at least 2 survivors"),
        ({"degree": 3}, "even degree"),
        ({"degree": "2"}, "Expected int"),
    ],
)
def test_a_plan_that_is_not_right_is_refused(fields, complaint):
    with pytest.raises(WireError, match=complaint):
        SetupPlan.from_json(changed(PLAN, **fields))


@pytest.mark.parametrize(
    "text",
    ["", "nul", "[]", "3", b"\xff\xfe\x00", "[" * 100_000, '{"kind": 1, "kind": 2}', '{"a": NaN}', "1" * 5000, None, 7],
)
def test_what_is_no_json_object_is_refused(text):
    with pytest.raises(WireError):
        SetupPlan.from_json(text)


@pytest.mark.parametrize(
    "text", ["A", "AAA", "A" * 43 + "!", "A" * 44 + "==", "é" * 44, "A" * 42 + "B=", "A" * 40, 5, None]
)
def test_bytes_are_canonical_base64_of_the_right_size(text):
    survivors = Survivors(bytes(32), 0, b"\x07")
    assert Survivors.from_json(changed(survivors, binding="A" * 43 + "=")) == survivors
    with pytest.raises(WireError):
        Survivors.from_json(changed(survivors, binding=text))


def test_a_field_given_twice_is_refused():
    with pytest.raises(WireError, match="each field once, found one repeated"):
        SetupPlan.from_json(PLAN.to_json()[:-1] + ',"setup":0}')


def test_a_quorum_is_exact():
    with pytest.raises(WireError, match="a quorum as a Fraction"):
        make_plan(quorum=0.67)


def test_plans_survive_the_wire():
    plan = SetupPlan("r", (Slot(0, 0, 5), Slot(0, 1, 5)), setup=2, quorum=Fraction(3, 4), floor=7, degree=4)
    assert SetupPlan.from_json(plan.to_json()) == plan
    assert SetupPlan.from_json(plan.to_json().encode()) == plan
    assert len({plan.digest, replace(plan, setup=3).digest, replace(plan, degree=None).digest}) == 3


@pytest.fixture
def masked():
    """A run where every vector has arrived and the survivors are about to be fixed."""
    run = Conversation.of(5, steps=2)
    run.setup()
    vectors = random_vectors(run.sites)
    replies = {}
    for name, request in run.server.begin(0).items():
        replies[name] = run.sites[name].answer("mask", request, vectors[name])
    return run, replies


def test_duplicates_are_refused_at_every_stage():
    run = Conversation.of(4)
    adverts = {name: site.answer("keys", run.plan) for name, site in run.sites.items()}
    for advert in adverts.values():
        run.server.accept_keys(advert)
        with pytest.raises(ProtocolError, match=r"one set of keys.*found a second"):
            run.server.accept_keys(advert)
    for name, view in run.server.close_keys().items():
        sealed = run.sites[name].answer("shares", view)
        run.server.accept_shares(sealed)
        with pytest.raises(ProtocolError, match=r"one set of shares.*found a second"):
            run.server.accept_shares(sealed)
    run.server.close_shares()
    vectors = random_vectors(run.sites)
    asked = run.server.begin(0)
    stages = (
        ("mask", "accept_masked", "close_masked"),
        ("confirm", "accept_confirmation", "close_confirmations"),
        ("unmask", "accept_unmasking", "total"),
    )
    for method, accept, close in stages:
        for name, message in asked.items():
            more = (vectors[name],) if method == "mask" else ()
            reply = run.sites[name].answer(method, message, *more)
            getattr(run.server.round(0), accept)(reply)
            with pytest.raises(ProtocolError, match=r"Expected one reply from site.*found a second"):
                getattr(run.server.round(0), accept)(reply)
        asked = getattr(run.server.round(0), close)()


def test_forged_vectors_are_refused(masked):
    run, replies = masked
    reply = replies["site-000"]
    round_ = run.server.round(0)
    with pytest.raises(ProtocolError, match="signed by site 'site-000'"):
        round_.accept_masked(replace(reply, vector=bytes(8) + reply.vector[8:]))
    with pytest.raises(ProtocolError, match="signed by site 'site-001'"):
        round_.accept_masked(replace(reply, place=1))
    with pytest.raises(ProtocolError, match="found one from place 9"):
        round_.accept_masked(replace(reply, place=9))
    with pytest.raises(ProtocolError, match="Expected 8 words from site 'site-000', found 7"):
        round_.accept_masked(replace(reply, vector=reply.vector[:-8]))
    with pytest.raises(ProtocolError, match="to another"):
        round_.accept_masked(replace(reply, binding=bytes(32)))
    with pytest.raises(WireError, match="whole words"):
        replace(reply, vector=reply.vector[:-1])
    round_.accept_masked(reply)


def test_a_vector_replayed_in_another_step_is_refused(masked):
    run, replies = masked
    run.server.begin(1)
    with pytest.raises(ProtocolError, match="Expected a reply to this step and roster"):
        run.server.round(1).accept_masked(replies["site-000"])


def test_late_vectors_count_as_dropped(masked):
    run, replies = masked
    for name in list(replies)[:4]:
        run.server.round(0).accept_masked(replies[name])
    run.server.round(0).close_masked()
    with pytest.raises(ProtocolError, match="it counts as dropped"):
        run.server.round(0).accept_masked(replies["site-004"])


@pytest.mark.parametrize(
    "words",
    [np.zeros(7, np.uint64), np.zeros(9, np.uint64), np.zeros((8, 1), np.uint64), np.zeros(8, np.int64), np.zeros(8)],
)
def test_vectors_of_the_wrong_shape_or_type_never_leave(words):
    run = Conversation.of(3)
    run.setup()
    with pytest.raises(InputError, match="Expected 8 words of uint64 for step 0"):
        run.sites["site-000"].answer("mask", run.server.begin(0)["site-000"], words)


def test_forged_shares_confirmations_and_unmaskings_are_refused():
    run = Conversation.of(5)
    for site in run.sites.values():
        run.server.accept_keys(site.answer("keys", run.plan))
    views = run.server.close_keys()
    sealed = run.sites["site-000"].answer("shares", views["site-000"])
    for forged, complaint in (
        (replace(sealed, place=1), "signed by site 'site-001'"),
        (replace(sealed, place=77), "a place among 5 sites, found 77"),
        (replace(sealed, roster=bytes(32)), "for the roster that is open"),
        (replace(sealed, boxes=sealed.boxes[::-1]), "signed by site 'site-000'"),
    ):
        with pytest.raises(ProtocolError, match=complaint):
            run.server.accept_shares(forged)
    short = replace(sealed, boxes=sealed.boxes[1:])
    short = replace(short, signature=run.sites["site-000"].identity.sign(short.statement))
    with pytest.raises(ProtocolError, match="found another number or size"):
        run.server.accept_shares(short)
    for name, view in views.items():
        run.server.accept_shares(run.sites[name].answer("shares", view))
    run.server.close_shares()
    survivors = run.mask(random_vectors(run.sites))
    confirmation = run.sites["site-000"].answer("confirm", survivors["site-000"])
    with pytest.raises(ProtocolError, match="signed by site 'site-001'"):
        run.server.round(0).accept_confirmation(replace(confirmation, place=1))
    requests = run.confirm(survivors)
    unmasking = run.sites["site-000"].answer("unmask", requests["site-000"])
    for forged, complaint in (
        (replace(unmasking, place=1), "signed by site 'site-001'"),
        (replace(unmasking, seeds=unmasking.seeds[33:]), "5 seed and 0 key shares"),
        (replace(unmasking, keys=bytes(33)), "5 seed and 0 key shares"),
        (replace(unmasking, seeds=bytes(5 * 33)), "signed by site 'site-000'"),
    ):
        with pytest.raises(ProtocolError, match=complaint):
            run.server.round(0).accept_unmasking(forged)


def test_forged_shares_of_a_lost_sites_key_are_refused():
    run = Conversation.of(5)
    run.setup()
    requests = run.confirm(run.mask(random_vectors(run.sites), lost={"site-004"}))
    unmasking = run.sites["site-000"].answer("unmask", requests["site-000"])
    with pytest.raises(ProtocolError, match="signed by site 'site-000'"):
        run.server.round(0).accept_unmasking(replace(unmasking, keys=bytes(33)))


def test_forged_keys_are_refused_by_the_server():
    run = Conversation.of(3)
    advert = run.sites["site-000"].answer("keys", run.plan)
    with pytest.raises(ProtocolError, match="signed by site 'site-000'"):
        run.server.accept_keys(replace(advert, encryption=KeyPair().public))
    with pytest.raises(ProtocolError, match="for this plan"):
        run.server.accept_keys(replace(advert, pledges=()))


def test_stages_cannot_be_skipped():
    run = Conversation.of(4)
    site = run.sites["site-000"]
    with pytest.raises(ProtocolError, match="Expected the stage of keys to be closed first"):
        run.server.close_shares()
    done = Conversation.of(4)
    done.setup()
    request = done.server.begin(0)["site-000"]
    with pytest.raises(ProtocolError, match="Expected a plan first"):
        site.answer("mask", request, random_vectors(run.sites)["site-000"])
    site.answer("keys", run.plan)
    with pytest.raises(ProtocolError, match="Expected a roster first"):
        site.answer("mask", request, random_vectors(run.sites)["site-000"])
    with pytest.raises(ProtocolError, match="Expected a masked vector to have left first"):
        done.sites["site-000"].answer("confirm", Survivors(bytes(32), 0, b"\x0f"))
    with pytest.raises(ProtocolError, match="one of the plan's 1 slots, found slot 5"):
        done.sites["site-000"].answer("confirm", Survivors(bytes(32), 5, b"\x0f"))
    survivors = done.mask(random_vectors(done.sites))
    with pytest.raises(ProtocolError, match="Expected a confirmed survivor set"):
        done.sites["site-000"].answer("unmask", _early_request(survivors["site-000"]))
    with pytest.raises(ProtocolError, match="found none; begin it first"):
        Conversation.of(3).server.round(0)
    with pytest.raises(InputError, match="plan it first"):
        done.server.begin(9)


def _early_request(survivors):
    return UnmaskRequest(survivors.binding, survivors.slot, ())


def test_the_server_keeps_its_stages_in_order():
    run = Conversation.of(4)
    adverts = {name: site.answer("keys", run.plan) for name, site in run.sites.items()}
    for advert in list(adverts.values())[:3]:
        run.server.accept_keys(advert)
    views = run.server.close_keys()
    with pytest.raises(ProtocolError, match="before the roster was fixed, found those of 'site-003' after"):
        run.server.accept_keys(adverts["site-003"])
    with pytest.raises(ProtocolError, match="stage of shares to be closed before a sum"):
        run.server.begin(0)
    sealed = {name: run.sites[name].answer("shares", view) for name, view in views.items()}
    for reply in sealed.values():
        run.server.accept_shares(reply)
    run.server.close_shares()
    run.server.begin(0)
    with pytest.raises(ProtocolError, match="Expected the survivors to be fixed first"):
        run.server.round(0).close_confirmations()
    with pytest.raises(ProtocolError, match="Expected the survivors to be fixed first"):
        run.server.round(0).total()


def test_a_vector_is_not_sent_again_once_its_survivors_are_confirmed():
    run = Conversation.of(4)
    run.setup()
    vectors = random_vectors(run.sites)
    request = run.server.begin(0)["site-000"]
    run.confirm(run.mask(vectors))
    with pytest.raises(ProtocolError, match="whose survivors are confirmed"):
        run.sites["site-000"].answer("mask", request, vectors["site-000"])
