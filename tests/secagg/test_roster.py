"""A server that swaps keys or thins the roster, and a client that cheats, are noticed."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from tests.secagg.conversation import Conversation, random_vectors

from fedcalib.secagg import MinimumTerms, PolicyError, ProtocolError, SigningIdentity
from fedcalib.secagg.crypto import KeyPair
from fedcalib.secagg.roster import Roster

# A server that swaps keys, and a roster of its own making.


@pytest.fixture
def enrolled():
    run = Conversation.of(4)
    for site in run.sites.values():
        run.server.accept_keys(site.answer("keys", run.plan))
    return run, run.server.close_keys()["site-000"]


def _swapped(view, at, **fields):
    entry = view.entries[at]
    entries = list(view.entries)
    entries[at] = replace(entry, advert=replace(entry.advert, **fields))
    return replace(view, entries=tuple(entries))


def test_a_swapped_encryption_key_is_detected(enrolled):
    run, view = enrolled
    with pytest.raises(ProtocolError, match=r"signed by site 'site-001'.*forged or changed"):
        run.sites["site-000"].answer("shares", _swapped(view, 1, encryption=KeyPair().public))


def test_a_swapped_masking_key_is_detected(enrolled):
    run, view = enrolled
    pledge = view.entries[2].advert.pledges[0]
    swapped = _swapped(view, 2, pledges=(replace(pledge, key=KeyPair().public),))
    with pytest.raises(ProtocolError, match="signed by site 'site-002'"):
        run.sites["site-000"].answer("shares", swapped)


def test_keys_signed_by_another_identity_of_the_same_name_are_detected(enrolled):
    run, view = enrolled
    advert = replace(view.entries[1].advert, encryption=KeyPair().public)
    forged = SigningIdentity("site-001").sign(advert.statement)
    swapped = _swapped(view, 1, encryption=advert.encryption, signature=forged)
    with pytest.raises(ProtocolError, match="signed by site 'site-001'"):
        run.sites["site-000"].answer("shares", swapped)


def test_swapped_own_keys_are_detected(enrolled):
    run, view = enrolled
    with pytest.raises(ProtocolError, match="this client's own keys at place 0"):
        run.sites["site-000"].answer("shares", _swapped(view, 0, encryption=KeyPair().public))


def test_sites_that_nobody_knows_are_refused(enrolled):
    run, view = enrolled
    ghost = SigningIdentity("site-001b")
    advert = replace(view.entries[1].advert, name=ghost.name)
    swapped = _swapped(view, 1, name=ghost.name, signature=ghost.sign(advert.statement))
    with pytest.raises(ProtocolError, match="Expected a site of the directory, found 'site-001b'"):
        run.sites["site-000"].answer("shares", swapped)


def test_keys_of_another_setup_are_refused(enrolled):
    run, view = enrolled
    elsewhere = replace(run.plan, setup=3)
    stale = replace(run.sites["site-001"], saved="").answer("keys", elsewhere)
    fields = {name: getattr(stale, name) for name in ("plan", "encryption", "pledges", "signature")}
    with pytest.raises(ProtocolError, match="keys of site 'site-001' for this plan, found keys for another"):
        run.sites["site-000"].answer("shares", _swapped(view, 1, **fields))


def test_keys_of_another_setup_cannot_be_relabelled(enrolled):
    run, view = enrolled
    stale = replace(run.sites["site-001"], saved="").answer("keys", replace(run.plan, setup=3))
    fields = {name: getattr(stale, name) for name in ("encryption", "pledges", "signature")}
    with pytest.raises(ProtocolError, match="signed by site 'site-001'"):
        run.sites["site-000"].answer("shares", _swapped(view, 1, **fields))


def test_a_roster_in_another_order_is_refused(enrolled):
    run, view = enrolled
    first, second = view.entries[:2]
    entries = (replace(first, advert=second.advert), replace(second, advert=first.advert), *view.entries[2:])
    with pytest.raises(ProtocolError, match="sorted by name with each site once"):
        run.sites["site-000"].answer("shares", replace(view, place=1, entries=entries))


def test_one_site_with_another_sites_keys_is_refused(enrolled):
    run, view = enrolled
    identity = run.sites["site-001"].identity
    advert = replace(view.entries[1].advert, encryption=view.entries[2].advert.encryption)
    signature = identity.sign(advert.statement)
    with pytest.raises(ProtocolError, match="found one used twice"):
        run.sites["site-000"].answer("shares", _swapped(view, 1, encryption=advert.encryption, signature=signature))


def test_a_client_shares_its_secrets_under_one_roster_only(enrolled):
    run, view = enrolled
    run.sites["site-000"].answer("shares", view)
    with pytest.raises(ProtocolError, match="Expected the roster that this client already answered for"):
        run.sites["site-000"].answer("shares", _swapped(view, 1, encryption=KeyPair().public))


def test_the_server_cannot_choose_neighbours():
    run = Conversation.of(20, degree=4)
    for site in run.sites.values():
        run.server.accept_keys(site.answer("keys", run.plan))
    views = run.server.close_keys()
    # Whoever is shown another's neighbourhood, or a larger one, notices.
    view, other = views["site-003"], views["site-011"]
    for lie in (replace(other, place=view.place), replace(view, proof=view.proof[:-32] + bytes(32))):
        with pytest.raises(ProtocolError, match="found others chosen by the server"):
            run.sites["site-003"].answer("shares", lie)


def test_a_degenerate_public_key_is_refused(enrolled):
    run, view = enrolled
    identity = run.sites["site-001"].identity
    advert = replace(view.entries[1].advert, encryption=bytes(32))
    with pytest.raises(ProtocolError, match="degenerate"):
        run.sites["site-000"].answer(
            "shares", _swapped(view, 1, encryption=bytes(32), signature=identity.sign(advert.statement))
        )


# Terms that are too weak.


@pytest.mark.parametrize(
    ("terms", "policy", "complaint"),
    [
        ({"floor": 2}, MinimumTerms(), "at least 3 sites, found a plan that allows 2"),
        ({"quorum": Fraction(1, 2)}, MinimumTerms(), "quorum of at least 2/3, found 1/2"),
    ],
)
def test_a_client_declines_weaker_terms_than_its_own(terms, policy, complaint):
    run = Conversation.of(4, policy, **terms)
    with pytest.raises(PolicyError, match=complaint):
        run.setup()


def test_a_client_declines_a_graph_that_is_too_thin():
    run = Conversation.of(12, MinimumTerms(), degree=2)
    with pytest.raises(PolicyError, match="at least 11 neighbours among 12 sites, found 2"):
        run.setup()


def test_a_client_declines_a_roster_that_is_too_small():
    """A server that lowers its own floor after the plan was signed."""
    run = Conversation.of(4, floor=4, policy=MinimumTerms(floor=4))
    advert = {name: site.answer("keys", run.plan) for name, site in run.sites.items()}
    small = Roster(run.plan, list(advert.values())[:3])
    with pytest.raises(PolicyError, match="at least 4 sites in the roster, found 3"):
        run.sites["site-000"].answer("shares", small.view(0))


# A client that cheats.


def test_a_wrong_share_is_noticed_and_nothing_is_read():
    for field in ("seeds", "keys"):
        run = Conversation.of(7)
        run.setup()
        requests = run.confirm(run.mask(random_vectors(run.sites), lost={"site-006"}))
        for name, request in requests.items():
            reply = run.sites[name].answer("unmask", request)
            if name == "site-001":
                text = getattr(reply, field)
                reply = replace(reply, **{field: bytes([text[0] ^ 1]) + text[1:]})
                reply = replace(reply, signature=run.sites[name].identity.sign(reply.statement))
            run.server.round(0).accept_unmasking(reply)
        owner = "site-000" if field == "seeds" else "site-006"
        with pytest.raises(ProtocolError, match=rf"(shares of site '{owner}'.*'site-001'|do not belong together)"):
            run.server.round(0).total()


def test_shares_sealed_wrongly_are_noticed_by_name_before_masking():
    run = Conversation.of(5)
    run.setup()
    request = run.server.begin(0)["site-000"]
    broken = replace(request, boxes=bytes([request.boxes[0] ^ 1]) + request.boxes[1:])
    with pytest.raises(ProtocolError, match="shares that site 'site-001' sealed for this client"):
        run.sites["site-000"].answer("mask", broken, random_vectors(run.sites)["site-000"])
