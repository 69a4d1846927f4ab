"""A job with one query takes five exchanges: keys come with the first reply, and that changes nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import fedcalib as fc
from fedcalib import wire
from fedcalib.errors import TooFewClients
from fedcalib.loop import Agreement, Outline
from fedcalib.records import Schema
from fedcalib.remote.protocol import PROTOCOL, Begin, Greeting, Introduction, Refused, Relay, read, read_reply, write
from fedcalib.remote.runtime import Remote
from fedcalib.remote.secure_sum import first_plan
from fedcalib.remote.sites import Transport
from fedcalib.secagg import SetupPlan
from fedcalib.secagg.messages import Advert
from tests.contract.subjects import federation
from tests.remote.places import GENEROUS, Meddler, Places, places
from tests.remote.test_faults import ONE_MAY_DROP, Died, Mortal, dead_from, expected, short_lived, value

DATA = federation(2)  # five clients
SCHEMA = Schema(2, 5)
FIRST = ["hello", "shares"]  # once per run; further steps take the other three
STEP = ["ask", "confirm", "unmask"]


def untouched(site: str, action: str, reply: str) -> str | None:
    return reply


def deployed(
    everybody: Places, meddle: Callable[[str, str, str], str | None] = untouched, state: Path | None = None
) -> Remote:
    """The runtime of a job, which states its sites and classes."""
    return Remote(Meddler(everybody.transport(), meddle), everybody.directory, state, 5, 0.1, expected=SCHEMA)


def exchanges(runtime: Remote, site: str = "site-00") -> list[str]:
    return [action for name, action in runtime.transport.received if name == site]


@pytest.mark.parametrize(
    "privacy", [fc.SecAgg(), fc.DistributedDP(epsilon=1.0), fc.UserGaussian(1.0, 1e-5, clip=1.0)], ids=repr
)
def test_one_query_takes_five_exchanges(privacy: fc.privacy.Privacy) -> None:
    runtime = deployed(places(DATA))
    fc.run(fc.FedBin(), runtime, privacy)
    assert exchanges(runtime) == FIRST + STEP


@pytest.mark.parametrize("privacy", [fc.Open(), fc.LocalDP(epsilon=1.0), fc.SourceLaplace(epsilon=1.0)], ids=repr)
def test_without_masks_it_takes_three(privacy: fc.privacy.Privacy) -> None:
    runtime = deployed(places(DATA))
    fc.run(fc.FedBin(), runtime, privacy)
    assert exchanges(runtime) == ["hello", "begin", "ask"]


def test_further_queries_take_three_each_with_the_same_keys() -> None:
    runtime = deployed(places(DATA))
    result = fc.run(fc.FedBin(rounds=2), runtime, fc.SecAgg())
    steps = sum("answered" in line.get("kind", "") or "value" in line for line in result.transcript.lines)
    assert exchanges(runtime) == FIRST + STEP * steps
    assert steps > 1
    assert value(result) == value(fc.run(fc.FedBin(rounds=2), fc.InProcess(DATA), fc.SecAgg()))


def test_independent_queries_share_a_message() -> None:
    """Four methods of one query each take as many exchanges as one of them, and answer as each would alone."""
    alone = (fc.FedBin(), fc.FedBBQ(), fc.ScoreCurves(), fc.FederatedMetrics())
    runtime = deployed(places(DATA))
    together = fc.run(fc.methods.Together(alone), runtime, fc.SecAgg()).artifact
    assert exchanges(runtime) == FIRST + STEP
    assert [wire.dumps(one) for one in together] == [
        wire.dumps(fc.run(method, fc.InProcess(DATA), fc.SecAgg()).artifact) for method in alone
    ]


@pytest.mark.parametrize("stage", ["shares", "ask", "confirm", "unmask"])
def test_a_site_dies_at_a_stage_and_the_others_finish(stage: str) -> None:
    runtime = deployed(places(DATA), dead_from(stage, "site-01"))
    result = fc.run(fc.FedBin(), runtime, fc.SecAgg(), participation=ONE_MAY_DROP)
    assert value(result) == expected([0, 2, 3, 4] if stage in ("shares", "ask") else [0, 1, 2, 3, 4])


@pytest.mark.parametrize("received", [False, True], ids=["before sending", "after sending"])
@pytest.mark.parametrize("stage", range(5))
def test_a_server_that_dies_goes_on_and_nothing_is_spent_twice(stage: int, received: bool, tmp_path: Path) -> None:
    everybody = places(DATA, replace(GENEROUS, epsilon_a_year=1.5), tmp_path / "sites")

    def attempt(transport: Transport) -> fc.Result:
        runtime = Remote(transport, everybody.directory, tmp_path / "server", 5, 0.1, expected=SCHEMA)
        path = tmp_path / "server" / "t.jsonl"
        return fc.run(fc.FedBin(), runtime, fc.DistributedDP(epsilon=1.0), transcript=path)

    with pytest.raises(Died):
        attempt(Mortal(short_lived(everybody), stage, received))
    result = attempt(short_lived(everybody))
    again = attempt(Mortal(short_lived(everybody), 1, received=False))  # recalled: a hello, and no query
    assert value(again) == value(result)
    for site in everybody.sites.values():
        assert float(site.journal.ledger.accounts()[0].epsilon) == pytest.approx(1.0)


def test_a_greeting_after_a_failed_one_asks_for_fresh_keys(tmp_path: Path) -> None:
    """The number of a setup is spent before it is sent, also where one site kept everybody from going on."""
    everybody = places(DATA, GENEROUS, tmp_path / "sites")
    adverts: list[str] = []

    def attempt(meddle: Callable[[str, str, str], str | None]) -> Remote:
        def watched(site: str, action: str, reply: str) -> str | None:
            if (site, action) == ("site-00", "hello"):
                adverts.append(read(reply, Introduction).keys)
            return meddle(site, action, reply)

        runtime = deployed(everybody, watched, tmp_path / "server")
        fc.run(fc.FedBin(), runtime, fc.SecAgg(), transcript=tmp_path / "t.jsonl")
        return runtime

    with pytest.raises(TooFewClients, match="site-03' did not answer"):
        attempt(dead_from("hello", "site-03"))
    assert exchanges(attempt(untouched)) == FIRST + STEP
    first, last = (Advert.from_json(text) for text in (adverts[0], adverts[-1]))
    assert first.plan != last.plan
    assert {one.key for one in first.pledges}.isdisjoint(one.key for one in last.pledges)


def spoiled(reply: str) -> str:
    """An introduction whose keys are those of somebody who could not sign them."""
    told = read(reply, Introduction)
    advert = Advert.from_json(told.keys)
    return write(replace(told, keys=replace(advert, signature=bytes(64)).to_json()))


@pytest.mark.parametrize("change", [lambda reply: write(replace(read(reply, Introduction), keys="")), spoiled])
def test_a_site_without_usable_keys_is_asked_for_them_again(change: Callable[[str], str]) -> None:
    runtime = deployed(
        places(DATA), lambda site, action, reply: change(reply) if (site, action) == ("site-02", "hello") else reply
    )
    assert value(fc.run(fc.FedBin(), runtime, fc.SecAgg())) == expected([0, 1, 2, 3, 4])
    assert exchanges(runtime) == FIRST + STEP
    assert exchanges(runtime, "site-02") == ["hello", "begin", "shares", *STEP]


def proposed(run: str, privacy: fc.privacy.Privacy) -> tuple[Outline, SetupPlan]:
    agreed = Agreement.of(fc.FedBin(), privacy, fc.Everyone(), SCHEMA)
    outline = Outline(run, agreed.plan.queries, agreed.privacy, agreed.cohort, agreed.participation)
    plan = first_plan(outline, None)
    assert plan is not None
    return outline, plan


def greeted(everybody: Places, outline: Outline, plan: SetupPlan, classes: int = 2) -> Introduction | Refused:
    text = write(Greeting(PROTOCOL, "x", classes, Begin(outline, plan.to_json())))
    return read_reply(everybody.sites["site-00"].handle("hello", text), Introduction)


def test_a_site_checks_a_plan_in_a_greeting_as_it_does_later(tmp_path: Path) -> None:
    everybody = places(DATA, replace(GENEROUS, epsilon_a_run=2.0), tmp_path)
    outline, plan = proposed("run", fc.DistributedDP(epsilon=1.0))
    assert greeted(everybody, outline, replace(plan, floor=2)) == Refused("cohort")
    assert greeted(everybody, outline, replace(plan, run="other")) == Refused("protocol")
    slot = plan.slots[0]
    assert greeted(everybody, outline, replace(plan, slots=(replace(slot, length=1),))) == Refused("protocol")
    dear = proposed("dear", fc.DistributedDP(epsilon=5.0))
    assert greeted(everybody, *dear) == Refused("epsilon")
    assert all(everybody.sites["site-00"].journal.recall(run) is None for run in ("run", "other", "dear"))
    other = greeted(everybody, outline, plan, classes=3)  # the server has to see that classes differ; no keys
    assert isinstance(other, Introduction) and not other.keys


def test_keys_are_drawn_once_per_plan_and_never_for_an_older_one(tmp_path: Path) -> None:
    everybody = places(DATA, GENEROUS, tmp_path)
    outline, plan = proposed("run", fc.SecAgg())
    once, again = (greeted(everybody, outline, plan) for _ in range(2))
    assert isinstance(once, Introduction) and isinstance(again, Introduction)
    assert once.keys and once.keys == again.keys
    later = greeted(everybody, outline, replace(plan, setup=1))
    assert isinstance(later, Introduction) and later.keys not in ("", once.keys)
    for old in (plan, replace(plan, setup=1, floor=6)):
        refused = greeted(everybody, outline, old)
        assert isinstance(refused, Introduction) and not refused.keys
    assert "Expected a later setup" in everybody.sites["site-00"].journal.log.lines()[-1]["reason"]


def test_greeting_a_run_that_has_begun_does_not_open_its_step_again(tmp_path: Path) -> None:
    """A server that greets anew, with fresh keys, gets no second exact sum of a step that was confirmed."""
    everybody = places(DATA, GENEROUS, tmp_path / "sites")
    seen: list[str] = []

    def keep(site: str, action: str, reply: str) -> str | None:
        if action == "unmask":
            seen.append(read(reply, Relay).run)
        return reply

    fc.run(fc.FedBin(), deployed(everybody, keep, tmp_path / "server"), fc.SecAgg(), transcript=tmp_path / "t.jsonl")
    saved = next((tmp_path / "server").glob("sum-*.json"))
    saved.write_text(json.dumps({**json.loads(saved.read_text()), "server": ""}))  # the server lies about its state
    lines = (tmp_path / "t.jsonl").read_text().splitlines()
    (tmp_path / "t.jsonl").write_text("\n".join(lines[:2]) + "\n")
    with pytest.raises(TooFewClients, match="answered this step before"):
        fc.run(
            fc.FedBin(), deployed(everybody, state=tmp_path / "server"), fc.SecAgg(), transcript=tmp_path / "t.jsonl"
        )
    assert len(seen) == 5
