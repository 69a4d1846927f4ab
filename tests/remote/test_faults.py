"""Whatever a site or the server does wrong, nothing is lost, spent twice or half released, and the site is named."""

from __future__ import annotations

import json
import resource
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedcalib as fc
from fedcalib.errors import TooFewClients
from fedcalib.loop import Step
from fedcalib.remote.protocol import Refused, Relay, Share, read, write
from fedcalib.remote.runtime import Remote
from fedcalib.remote.site import Site
from fedcalib.remote.sites import Transport
from fedcalib.secagg.client_steps import ClientState, SetupState
from fedcalib.secagg.crypto import LagrangeBasis, ProtocolError
from fedcalib.secagg.roster import seed_hash
from tests.contract.subjects import federation
from tests.remote.places import GENEROUS, Meddler, Places, places

DATA = federation(2)  # five clients
STAGES = ["begin", "shares", "ask", "confirm", "unmask"]
ONE_MAY_DROP = fc.Everyone(dropout=0.2)


def value(result: fc.Result) -> list[float]:
    return result.transcript.lines[-1]["value"]["data"]


def expected(members: list[int], privacy: fc.privacy.Privacy | None = None) -> list[float]:
    return value(fc.run(fc.FedBin(), fc.InProcess(DATA.subset(members)), privacy or fc.SecAgg()))


def meddled(all_places: Places, meddle: Callable[[str, str, str], str | None], **options: object) -> Remote:
    return Remote(Meddler(all_places.transport(), meddle), all_places.directory, **options)


def dead_from(stage: str, *sites: str) -> Callable[[str, str, str], str | None]:
    silent: set[str] = set()

    def meddle(site: str, action: str, reply: str) -> str | None:
        if action == stage and site in sites:
            silent.add(site)
        return None if site in silent else reply

    return meddle


@pytest.mark.parametrize("stage", STAGES)
def test_a_site_dies_at_a_stage_and_the_others_finish(stage: str) -> None:
    runtime = meddled(places(DATA), dead_from(stage, "site-01"))
    result = fc.run(fc.FedBin(), runtime, fc.SecAgg(), participation=ONE_MAY_DROP)
    gone = stage in ("begin", "shares", "ask")  # later its vector is in the sum already
    assert value(result) == expected([0, 2, 3, 4] if gone else [0, 1, 2, 3, 4])


@pytest.mark.parametrize("stage", STAGES)
def test_too_many_deaths_abort_without_a_partial_sum(stage: str, tmp_path: Path) -> None:
    runtime = meddled(places(DATA), dead_from(stage, "site-01", "site-03"))
    with pytest.raises(TooFewClients, match=r"site-01.*did not answer within.*site-03") as caught:
        fc.run(fc.FedBin(), runtime, fc.SecAgg(), participation=ONE_MAY_DROP, transcript=tmp_path / "t.jsonl")
    assert "Run this again" in str(caught.value)
    assert '"answered"' not in (tmp_path / "t.jsonl").read_text()


def test_a_late_answer_is_asked_for_again_and_counts_once() -> None:
    seen: set[tuple[str, str]] = set()

    def late(site: str, action: str, reply: str) -> str | None:
        first = (site, action) not in seen
        seen.add((site, action))
        return None if first and site == "site-02" else reply

    assert value(fc.run(fc.FedBin(), meddled(places(DATA), late), fc.SecAgg())) == expected([0, 1, 2, 3, 4])


def test_an_answer_that_comes_too_late_is_left_out() -> None:
    result = fc.run(
        fc.FedBin(),
        meddled(places(DATA), lambda site, action, reply: None if (site, action) == ("site-02", "ask") else reply),
        fc.SecAgg(),
        participation=ONE_MAY_DROP,
    )
    assert value(result) == expected([0, 1, 3, 4])


@pytest.mark.parametrize("action", STAGES)
def test_an_answer_that_comes_twice_counts_once(action: str) -> None:
    kept: dict[str, str] = {}

    def echo(site: str, now: str, reply: str) -> str | None:
        if now == action and site == "site-00":
            kept["reply"] = reply
        return kept["reply"] if now == action and site == "site-01" else reply

    result = fc.run(fc.FedBin(), meddled(places(DATA), echo), fc.SecAgg(), participation=ONE_MAY_DROP)
    gone = action in ("begin", "shares", "ask")
    assert value(result) == expected([0, 2, 3, 4] if gone else [0, 1, 2, 3, 4])


BAD_SHARES: Mapping[str, Callable[[Share], Share]] = {
    "too long": lambda share: replace(share, value=np.append(share.value, 0.0)),
    "too short": lambda share: replace(share, value=share.value[:-1]),
    "another kind": lambda share: replace(share, value=share.value.astype(np.float32)),
    "bytes": lambda share: replace(share, value=np.zeros(len(share.value), np.uint8)),
    "not a number": lambda share: replace(share, value=np.full(len(share.value), np.nan)),
    "infinite": lambda share: replace(share, value=np.full(len(share.value), np.inf)),
    "beyond its bound": lambda share: replace(share, value=np.full(len(share.value), 1e300)),
    "of another run": lambda share: replace(share, run="forged"),
    "of another step": lambda share: replace(share, step=7),
}


@pytest.mark.parametrize("name", BAD_SHARES)
def test_a_bad_share_names_its_site_and_is_not_added(name: str) -> None:
    def spoil(site: str, action: str, reply: str) -> str | None:
        if (site, action) != ("site-03", "ask"):
            return reply
        return write(BAD_SHARES[name](read(reply, Share)))

    with pytest.raises(TooFewClients, match="site-03' sent a reply that cannot be used: Expected"):
        fc.run(fc.FedBin(), meddled(places(DATA), spoil), fc.Open())
    result = fc.run(fc.FedBin(), meddled(places(DATA), spoil), fc.Open(), participation=ONE_MAY_DROP)
    assert value(result) == expected([0, 1, 2, 4], fc.Open())


@pytest.mark.parametrize(
    "spoil",
    [
        lambda reply: "not json at all",
        lambda reply: write(Refused("a word that nobody knows")),
        lambda reply: write(Relay("forged", read(reply, Relay).text[:-20])),
        lambda reply: write(replace(read(reply, Relay), text=read(reply, Relay).text.replace("A", "B"))),
        lambda reply: write(Share("x", 0, np.zeros(3))),
    ],
    ids=["no json", "odd word", "torn", "changed", "plain"],
)
def test_a_bad_masked_vector_counts_as_none(spoil: Callable[[str], str]) -> None:
    def meddle(site: str, action: str, reply: str) -> str | None:
        return spoil(reply) if (site, action) == ("site-03", "ask") else reply

    result = fc.run(fc.FedBin(), meddled(places(DATA), meddle), fc.SecAgg(), participation=ONE_MAY_DROP)
    assert value(result) == expected([0, 1, 2, 4])


class Died(BaseException):
    """The server's process is gone."""


class Mortal(Transport):
    """A transport whose server dies before, or right after, its n-th exchange."""

    def __init__(self, inner: Transport, lives: int, received: bool) -> None:
        self.inner, self.lives, self.received = inner, lives, received

    def addresses(self) -> tuple[str, ...]:
        return self.inner.addresses()

    def exchange(self, action: str, texts: Mapping[str, str], timeout: float) -> dict[str, str]:
        self.lives -= 1
        if self.lives < 0 and self.received:
            self.inner.exchange(action, texts, timeout)
        if self.lives < 0:
            raise Died
        return self.inner.exchange(action, texts, timeout)


def short_lived(all_places: Places) -> Transport:
    """Sites whose process ends after every message: all they know is on their disks."""
    meddler = Meddler(all_places.transport(), lambda site, action, reply: reply)
    fresh = {
        name: lambda action, text, site=site: replace(site).handle(action, text)
        for name, site in all_places.sites.items()
    }
    return replace(meddler, inner=replace(meddler.inner, sites=fresh))


@pytest.mark.parametrize("received", [False, True], ids=["before sending", "after sending"])
@pytest.mark.parametrize("stage", range(1, 6))
def test_a_server_that_dies_goes_on_and_nothing_is_spent_twice(stage: int, received: bool, tmp_path: Path) -> None:
    all_places = places(DATA, replace(GENEROUS, epsilon_a_year=1.5), tmp_path / "sites")
    privacy = fc.DistributedDP(epsilon=1.0)

    def attempt(transport: Transport) -> fc.Result:
        runtime = Remote(transport, all_places.directory, tmp_path / "server")
        return fc.run(fc.FedBin(), runtime, privacy, transcript=tmp_path / "server" / "t.jsonl")

    with pytest.raises(Died):
        attempt(Mortal(short_lived(all_places), stage, received))
    result = attempt(short_lived(all_places))
    assert len(result.transcript.lines) >= 3
    again = attempt(Mortal(short_lived(all_places), 1, False))  # recalled: a hello, and not one question
    assert value(again) == value(result)
    for site in all_places.sites.values():
        spent = site.journal.ledger.accounts()[0]
        assert float(spent.epsilon) <= 1.5
        assert float(spent.epsilon) == pytest.approx(1.0)


def test_an_exact_sum_survives_the_server_at_every_stage(tmp_path: Path) -> None:
    for stage in range(1, 6):
        folder = tmp_path / str(stage)
        all_places = places(DATA, GENEROUS, folder / "sites")

        def attempt(transport: Transport, folder: Path = folder, everybody: Places = all_places) -> fc.Result:
            runtime = Remote(transport, everybody.directory, folder / "server")
            return fc.run(fc.FedBin(rounds=2), runtime, fc.SecAgg(), transcript=folder / "t.jsonl")

        with pytest.raises(Died):
            attempt(Mortal(short_lived(all_places), stage, received=True))
        whole = fc.run(fc.FedBin(rounds=2), fc.InProcess(DATA), fc.SecAgg())
        assert value(attempt(short_lived(all_places))) == value(whole)


def test_a_full_disk_stops_the_answer_and_is_told(tmp_path: Path) -> None:
    all_places = places(DATA, GENEROUS, tmp_path)

    def full(site: Site) -> Callable[[str, str], str]:
        def handle(action: str, text: str) -> str:
            if action != "ask":
                return site.handle(action, text)
            before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            limits = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
            try:
                return site.handle(action, text)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
                signal.signal(signal.SIGXFSZ, before)

        return handle

    transport = all_places.transport()
    broken = replace(transport, sites={**transport.sites, "site-04": full(all_places.sites["site-04"])})
    runtime = Remote(broken, all_places.directory)
    with pytest.raises(TooFewClients, match="site-04' could not write to its disk, so it answered nothing"):
        fc.run(fc.FedBin(), runtime, fc.SecAgg())
    lines = all_places.sites["site-04"].journal.log.lines()
    assert [line["action"] for line in lines if line["outcome"] == "answered"] == ["hello", "begin", "shares"]


def test_a_name_that_is_taken_or_unknown_is_turned_away() -> None:
    all_places = places(DATA)
    transport = all_places.transport()
    twin = replace(transport, sites={**transport.sites, "twin": all_places.sites["site-00"].handle})
    runtime = Remote(twin, all_places.directory, sites=6, timeout=0.1)
    with pytest.raises(TooFewClients, match="introduced itself as 'site-00', which is unknown or taken"):
        _ = runtime.schema


def asked_again(tmp_path: Path, privacy: fc.privacy.Privacy) -> tuple[Places, Callable[[], fc.Result]]:
    """A run whose sites confirmed, whose server then died and lost its half-finished sum."""
    all_places = places(DATA, GENEROUS, tmp_path / "sites")

    def attempt(transport: Transport | None = None) -> fc.Result:
        runtime = Remote(transport or short_lived(all_places), all_places.directory, tmp_path / "server")
        return fc.run(fc.FedBin(), runtime, privacy, transcript=tmp_path / "server" / "t.jsonl")

    with pytest.raises(Died):
        attempt(Mortal(short_lived(all_places), 4, received=True))
    saved = next((tmp_path / "server").glob("sum-*.json"))
    saved.write_text(json.dumps({**json.loads(saved.read_text()), "server": ""}))
    return all_places, attempt


def test_a_step_that_is_asked_again_with_fresh_noise_is_paid_again(tmp_path: Path) -> None:
    all_places, attempt = asked_again(tmp_path, fc.DistributedDP(epsilon=1.0))
    assert attempt().privacy.epsilon == pytest.approx(2.0)
    for site in all_places.sites.values():
        assert float(site.journal.ledger.accounts()[0].epsilon) == pytest.approx(2.0)


def test_an_exact_sum_that_was_confirmed_is_not_given_twice(tmp_path: Path) -> None:
    all_places, attempt = asked_again(tmp_path, fc.SecAgg())
    with pytest.raises(TooFewClients, match="site-00' answered this step before"):
        attempt()
    reason = all_places.sites["site-00"].journal.log.lines()[-1]["reason"]
    assert "Two sums over different survivors can be subtracted" in reason


def test_a_lying_server_gets_no_second_roster(tmp_path: Path) -> None:
    """The same step and attempt under a setup without one site would give that site away; all others refuse."""
    all_places = places(DATA, GENEROUS, tmp_path / "sites")
    runtime = Remote(all_places.transport(), all_places.directory)
    fc.run(fc.FedBin(), runtime, fc.SecAgg(), participation=fc.Everyone(dropout=0.4))
    sums, outline = runtime._sums, runtime._outline
    sums._server = None
    del runtime.connections.sites["site-04"]
    step = Step(
        outline.run, 0, 0, outline.queries[0], outline.mechanisms[0], outline.cohort, fc.Everyone(), fc.Secure()
    )
    with pytest.raises(TooFewClients, match="received a message that the protocol does not allow"):
        runtime.total(step)
    assert "answered under another roster" in all_places.sites["site-00"].journal.log.lines()[-1]["reason"]


@pytest.mark.parametrize("colluders", [2, 3])
def test_colluding_sites_learn_nothing_about_another(colluders: int, tmp_path: Path) -> None:
    """Two or three of five pool their disks with the server after the vectors left; it takes four to unmask."""
    all_places = places(DATA, GENEROUS, tmp_path / "sites")
    runtime = Remote(Mortal(short_lived(all_places), 4, received=False), all_places.directory)
    with pytest.raises(Died):
        fc.run(fc.FedBin(), runtime, fc.SecAgg())
    states = [session(tmp_path / "sites" / f"site-{place:02d}") for place in range(5)]
    pledge = states[4].advert.pledges[0]
    assert seed_hash(rebuilt_seed(states[:4])) == pledge.seed
    with suppress(ProtocolError):  # then it is not even a number of the right size
        assert seed_hash(rebuilt_seed(states[:colluders])) != pledge.seed


def session(folder: Path) -> SetupState:
    text = json.loads(next((folder / "runs").glob("*.json")).read_text())["masks"]
    found = ClientState.from_json(text).session
    assert found is not None
    return found


def rebuilt_seed(states: list[SetupState]) -> bytes:
    """Put together what sites hold of the last one's seed."""
    shares = [next(held.seed for held in state.progress[0].held if held.place == 4) for state in states]
    return LagrangeBasis([place + 1 for place in range(len(states))]).secret(shares)
