"""Nobody pays before everybody can: the first message finds out which site could not take part, and why."""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import fedcalib as fc
from fedcalib.accounting.spending import Spending
from fedcalib.errors import InputError, TooFewClients
from fedcalib.records import Schema
from fedcalib.remote.journal import DiskJournal
from fedcalib.remote.protocol import PROTOCOL, Begin, Greeting, Introduction, Refused, read, write
from fedcalib.remote.runtime import Remote
from fedcalib.remote.site import Site
from tests.contract.subjects import federation
from tests.remote.places import GENEROUS, Meddler, Places, places, with_site

DATA = federation(2)  # five clients
RULES = replace(GENEROUS, epsilon_a_year=1.0)
PRIVACY = fc.DistributedDP(epsilon=0.4)


@pytest.fixture
def everybody(tmp_path: Path) -> Places:
    return places(DATA, RULES, tmp_path)


def remote(everybody: Places, meddle: Callable[[str, str, str], str | None] | None = None, **options: object) -> Remote:
    meddler = Meddler(everybody.transport(), meddle or (lambda site, action, reply: reply))
    return Remote(meddler, everybody.directory, sites=5, timeout=0.1, expected=Schema(2, 5), **options)


def spent(everybody: Places) -> list[float]:
    journals = [site.journal for site in everybody.sites.values()]
    assert all(isinstance(journal, DiskJournal) for journal in journals)
    return [
        sum(float(one.epsilon) for one in journal.ledger.accounts()) if (journal.folder / "ledger.db").exists() else 0.0
        for journal in journals
    ]


def spend(everybody: Places, site: str, epsilon: float) -> None:
    spending = Spending("DistributedDP", "record", epsilon, 0.0, "add/remove", False, "Spent before.")
    everybody.sites[site].journal.debit("before", spending, 0, 1.0)


def test_a_run_that_everybody_can_take_part_in_takes_five_messages(everybody: Places) -> None:
    runtime = remote(everybody)
    fc.run(fc.FedBin(), runtime, PRIVACY)
    actions = [action for site, action in runtime.transport.received if site == "site-00"]
    assert actions == ["hello", "shares", "ask", "confirm", "unmask"]


def test_a_site_whose_year_is_spent_lets_nobody_pay(everybody: Places) -> None:
    spend(everybody, "site-03", 0.9)
    for _ in range(2):
        runtime = remote(everybody)
        with pytest.raises(
            TooFewClients, match=r"site-03' has too little of its yearly budget left.*Nothing was spent"
        ):
            fc.run(fc.FedBin(), runtime, PRIVACY)
        assert {action for _, action in runtime.transport.received} == {"hello"}
    assert spent(everybody) == pytest.approx([0, 0, 0, 0.9, 0])
    fc.run(fc.FedBin(), remote(everybody), fc.DistributedDP(epsilon=0.1))  # which fits
    assert spent(everybody) == pytest.approx([0.1, 0.1, 0.1, 1.0, 0.1])


def full(site: Site, most: int, when: str) -> Callable[[str, str], str]:
    """A site that cannot write files above a size while it answers one kind of message."""

    def handle(action: str, text: str) -> str:
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most if action == when else limits[0], limits[1]))
        try:
            return site.handle(action, text)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, before)

    return handle


@pytest.mark.parametrize(("when", "most"), [("hello", 100_000), ("ask", 8_000)])
def test_a_full_disk_is_told_as_such_and_heals(everybody: Places, when: str, most: int) -> None:
    """At first nobody has paid; where it fills up later, at the site's first debit, its ledger stays usable."""
    site, runtime = everybody.sites["site-02"], remote(everybody)
    handles = {**runtime.transport.inner.sites, "site-02": full(site, most, when)}
    runtime.transport.inner = replace(runtime.transport.inner, sites=handles)
    with pytest.raises(TooFewClients, match="site-02' could not write to its disk"):
        fc.run(fc.FedBin(), runtime, PRIVACY)
    paid = 0.0 if when == "hello" else 0.4
    assert spent(everybody) == pytest.approx([paid, paid, 0, paid, paid])
    assert [path.name for path in site.journal.folder.iterdir() if "probe" in path.name] == []
    fc.run(fc.FedBin(), remote(everybody), PRIVACY)
    assert spent(everybody) == pytest.approx([paid + 0.4] * 2 + [0.4] + [paid + 0.4] * 2)


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\x00"], ids=["empty", "torn"])
def test_a_ledger_that_a_crash_left_empty_or_torn(everybody: Places, content: bytes) -> None:
    """An empty file is a ledger without a line. A torn one is named, costs nobody anything, and heals by a backup."""
    path = everybody.sites["site-01"].journal.folder / "ledger.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    if content:
        with pytest.raises(TooFewClients, match="site-01' cannot read its own"):
            fc.run(fc.FedBin(), remote(everybody), PRIVACY)
        path.unlink()
        assert spent(everybody) == [0.0] * 5
    fc.run(fc.FedBin(), remote(everybody), PRIVACY)
    assert spent(everybody) == pytest.approx([0.4] * 5)


def test_a_policy_that_refuses_is_found_before_anybody_pays(everybody: Places) -> None:
    strict = with_site(everybody, "site-04", policy=replace(RULES, epsilon_a_run=0.1, epsilon_a_query=0.1))
    with pytest.raises(TooFewClients, match="site-04' allows a smaller epsilon only"):
        fc.run(fc.FedBin(), remote(strict), PRIVACY)
    assert spent(strict) == [0.0] * 5


def introduced(**changes: object) -> Callable[[str, str, str], str]:
    def meddle(site: str, action: str, reply: str) -> str:
        if (site, action) != ("site-01", "hello"):
            return reply
        return write(replace(read(reply, Introduction), **changes))

    return meddle


def test_other_versions_of_the_protocol_are_refused_with_both(everybody: Places) -> None:
    meddle = introduced(protocol=PROTOCOL + 1, version="9.9")
    with pytest.raises(
        TooFewClients, match=rf"site-01' speaks version {PROTOCOL + 1} .*fedcalib 9\.9.* this server version {PROTOCOL}"
    ):
        fc.run(fc.FedBin(), remote(everybody, meddle), PRIVACY)
    old = '{"type": "Introduction", "fields": {"site": "site-01", "clients": 1, "classes": 2, "version": "0.1.0"}}'
    with pytest.raises(TooFewClients, match=r"site-01' speaks version 1 of the protocol \(fedcalib 0\.1\.0\)"):
        fc.run(fc.FedBin(), remote(everybody, lambda site, _, reply: old if site == "site-01" else reply), PRIVACY)


def test_another_version_of_fedcalib_is_told(everybody: Places) -> None:
    told: list[str] = []
    meddle = introduced(version="0.0.9")
    fc.run(fc.FedBin(), remote(everybody, meddle, watch=lambda notice: told.append(notice.stage)), PRIVACY)
    assert "site 'site-01' runs fedcalib 0.0.9" in told[0]


@pytest.mark.parametrize(("seconds", "way"), [(7200, "ahead"), (-7200, "behind")])
def test_a_wrong_clock_is_named(everybody: Places, seconds: int, way: str) -> None:
    clock = read(everybody.sites["site-01"].handle("hello", ""), Introduction).clock
    with pytest.raises(TooFewClients, match=rf"site-01' has a clock that is 7\d\d\d s {way}"):
        fc.run(fc.FedBin(), remote(everybody, introduced(clock=clock + seconds)), PRIVACY)


def test_other_classes_or_more_sites_than_the_job_says_are_refused(everybody: Places) -> None:
    runtime = Remote(everybody.transport(), everybody.directory, sites=4, timeout=0.1, expected=Schema(2, 4))
    with pytest.raises(InputError, match="Expected 4 sites and 2 classes as the job says, found 5 and 2"):
        fc.run(fc.FedBin(), runtime, PRIVACY)
    runtime = Remote(everybody.transport(), everybody.directory, sites=5, timeout=0.1, expected=Schema(3, 5))
    with pytest.raises(InputError, match="set sites and classes in the job"):
        fc.run(fc.FedBin(), runtime, PRIVACY)
    assert spent(everybody) == [0.0] * 5


def test_a_greeting_that_holds_something_else_is_malformed(everybody: Places) -> None:
    site = everybody.sites["site-00"]
    texts = [
        "no json",
        write(Refused("x")),
        '{"type": "Greeting", "fields": {"protocol": 2, "version": "", "begin": 3}}',
    ]
    for text in texts:
        assert read(site.handle("hello", text), Refused).reason == "malformed"
    other = write(Greeting(PROTOCOL + 1, "9.9", 2, None))
    assert isinstance(read(site.handle("hello", other), Introduction), Introduction)  # so that the server can tell both
    assert site.journal.log.lines()[-1]["server"] == f"protocol {PROTOCOL + 1}, fedcalib 9.9"


def test_asking_whether_a_site_can_take_part_leaves_nothing_behind(everybody: Places) -> None:
    outline = fc.loop.Agreement.of(fc.FedBin(), PRIVACY, fc.Everyone(), Schema(2, 5))
    begin = Begin(
        fc.loop.Outline("run", outline.plan.queries, outline.privacy, outline.cohort, outline.participation), ""
    )
    site = everybody.sites["site-00"]
    reply = read(site.handle("hello", write(Greeting(PROTOCOL, "x", 2, begin))), Introduction)
    assert reply.site == "site-00"
    assert site.journal.recall("run") is None
