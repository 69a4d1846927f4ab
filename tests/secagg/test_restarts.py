"""A client and a server that restart go on where they were, as themselves."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from tests.secagg.conversation import Conversation, random_vectors

from fedcalib.errors import InputError
from fedcalib.secagg import Client, Directory, MinimumTerms, ProtocolError, Server, SigningIdentity, WireError


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


def test_a_client_goes_on_only_as_itself():
    run = Conversation.of(3)
    run.setup()
    other = run.sites["site-001"]
    with pytest.raises(WireError, match="Expected the state of site 'site-001', found that of 'site-000'"):
        Client.from_json(run.sites["site-000"].saved, other.identity, other.directory, MinimumTerms())
    with pytest.raises(InputError, match="Expected the directory to hold the identity key"):
        Client(SigningIdentity("stranger"), run.directory)
    with pytest.raises(InputError, match="Expected the directory to hold the identity key"):
        Client(SigningIdentity("site-000"), run.directory)


def test_a_client_serves_one_run_and_later_setups_of_it():
    run = Conversation.of(3)
    site = run.sites["site-000"]
    first = site.answer("keys", run.plan)
    assert site.answer("keys", run.plan) == first
    for plan in (replace(run.plan, run="other", setup=9), replace(run.plan, floor=4)):
        with pytest.raises(ProtocolError, match="Expected a later setup of run 'run'"):
            site.answer("keys", plan)
    later = site.answer("keys", replace(run.plan, setup=1))
    assert later.encryption != first.encryption
    assert later.pledges[0].key != first.pledges[0].key


def test_secrets_leave_the_state_once_they_are_used():
    run = Conversation.of(4, steps=2)
    site = run.sites["site-000"]
    site.answer("keys", run.plan)
    before = json.loads(site.saved)["session"]
    assert before["encryption"] is not None
    assert all(before["secrets"])
    run.setup()
    run.sum(random_vectors(run.sites))
    after = json.loads(site.saved)["session"]
    assert after["encryption"] is None
    assert after["secrets"][0] is None
    assert after["secrets"][1] is not None
    assert after["progress"][0]["held"] == []
    assert after["progress"][0]["masked"] is None


def test_a_server_that_is_restored_is_the_same_at_every_stage(masked):
    run, replies = masked
    texts = [run.server.to_json()]
    for reply in replies.values():
        run.server.round(0).accept_masked(reply)
        texts.append(run.server.to_json())
    requests = run.confirm(run.server.round(0).close_masked())
    texts.append(run.server.to_json())
    run.unmask(requests)
    texts.append(run.server.to_json())
    for text in texts:
        assert Server.from_json(text, run.directory).to_json() == text


def test_a_damaged_server_state_is_refused(masked):
    run, _ = masked
    data = json.loads(run.server.to_json())
    for path, value in ((("slot",), 7), (("total",), "AAAA"), (("members",), "AAAA"), (("masked",), 3)):
        broken = json.loads(json.dumps(data))
        broken["rounds"][0][path[0]] = value
        with pytest.raises(WireError):
            Server.from_json(json.dumps(broken), run.directory)
    with pytest.raises(ProtocolError, match="stage of keys"):
        Server.from_json(json.dumps(data | {"enrolled": False}), run.directory)
    for adverts in ([], data["adverts"][:1], [*data["adverts"], data["adverts"][0]]):
        with pytest.raises(WireError, match="different sites"):
            Server.from_json(json.dumps(data | {"adverts": adverts}), run.directory)


def test_policies_and_directories_are_checked_when_made():
    with pytest.raises(InputError, match="floor of at least 2"):
        MinimumTerms(floor=1)
    with pytest.raises(InputError, match="quorum from 1/2"):
        MinimumTerms(quorum=Fraction(1, 3))
    with pytest.raises(InputError, match="printable"):
        Directory({"": bytes(32)})
