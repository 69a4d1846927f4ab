"""Faults of a deployed federation, with real processes: who is told what, that nothing is spent twice, that it heals.

`make e2e` has one of each kind; `make e2e-all` kills a site at every stage.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fedcalib.cli import voice as exits
from fedcalib.deploy import certificates
from fedcalib.deploy import commands as deployment
from fedcalib.deploy.job import Job
from fedcalib.deploy.runs import all_runs
from fedcalib.remote.protocol import PROTOCOL
from fedcalib.remote.site import write_identity
from fedcalib.secagg import SigningIdentity
from tests.e2e.fleet import POLICY, Fleet, Submitted, descendants, every, fedcalib, full, wait, write_records

pytest.importorskip("flwr")
pytestmark = [pytest.mark.e2e, pytest.mark.slow, full]
TIMEOUT = 20
STAGES = ("hello", "shares", "ask", "confirm", "unmask")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(tmp_path_factory.mktemp("faults"), 3) as fleet:
        fleet.start_server()
        for name in fleet.names:
            fleet.admit(name)
            fleet.start_site(name)
        wait("the sites", lambda: all(fleet.connected(name) for name in fleet.names))
        yield fleet


def job(name: str, **changes: object) -> Job:
    return Job("fed-bin", "distributed", 3, epsilon=0.1, timeout=TIMEOUT, name=name, **changes)


def paid(fleet: Fleet) -> list[float]:
    return [fleet.spent(name) for name in fleet.names]


def more(before: list[float], epsilon: float) -> object:
    return pytest.approx([value + epsilon for value in before])


def await_stage(fleet: Fleet, name: str, stage: str, wanted: Job) -> Submitted:
    """Submit a job, and wait until a site has got its next message of a kind."""
    before = fleet.actions(name).count(stage)
    submitted = fleet.hand_in(wanted)
    wait(stage, lambda: fleet.actions(name).count(stage) > before)
    return submitted


def in_time(submitted: Submitted) -> tuple[int, str]:
    """The exit code and what was told, once it is told: after the stated wait and five seconds at most.

    A busy machine is later, so only `make e2e-all`, which has the machine to itself, holds it to that.
    """
    since = time.monotonic()
    code, told = submitted.end()
    seconds = time.monotonic() - since
    print(f"told after {seconds:.1f} s: {told.strip().splitlines()[-1] if told.strip() else code}")
    assert os.environ["FEDCALIB_E2E"] != "all" or code == exits.FINE or seconds <= TIMEOUT + 5, told
    return code, told


def finish(fleet: Fleet, wanted: Job, before: list[float]) -> None:
    """Submit a job again: it ends well, and every site has paid for it once."""
    code, told = fleet.hand_in(wanted).end()
    assert code == exits.FINE, told
    assert paid(fleet) == more(before, 0.1)


def test_the_same_job_twice_at_once_is_one_run(fleet: Fleet) -> None:
    before = paid(fleet)
    first, second = (fleet.hand_in(job("twice"), out) for out in ("first", "second"))
    ends = [first.end(), second.end()]
    assert [code for code, _ in ends] == [exits.FINE] * 2, ends
    assert (fleet.root / "first" / "result.json").read_text() == (fleet.root / "second" / "result.json").read_text()
    assert paid(fleet) == more(before, 0.1)
    assert sum("and is under way" in told for _, told in ends) == 1


@every
def test_two_jobs_at_once_both_finish(fleet: Fleet) -> None:
    before = paid(fleet)
    ends = [one.end() for one in [fleet.hand_in(job("left"), "left"), fleet.hand_in(job("right"), "right")]]
    assert [code for code, _ in ends] == [exits.FINE] * 2, ends
    assert paid(fleet) == more(before, 0.2)


@pytest.mark.parametrize(
    "stage", [pytest.param(stage, marks=() if stage == "ask" else every, id=stage) for stage in STAGES]
)
def test_a_site_is_killed_at_a_stage(fleet: Fleet, stage: str) -> None:
    before, wanted = paid(fleet), job(f"killed at {stage}")
    submitted = await_stage(fleet, "site-1", stage, wanted)
    fleet.kill("site-1")
    code, told = in_time(submitted)
    if code != exits.FINE:  # its reply may have left before it died, and at the last stage that is all it takes
        assert code == exits.REFUSED, told
        assert f"Site 'site-1' did not answer within {TIMEOUT} s" in told
    fleet.restart_site("site-1")
    wait("the node", lambda: fleet.connected("site-1"))
    finish(fleet, wanted, before)


def test_a_site_that_is_down_when_a_job_starts_is_named(fleet: Fleet) -> None:
    before = paid(fleet)
    fleet.running["site-2"].send_signal(signal.SIGTERM)
    assert fleet.running.pop("site-2").wait(60) == 0
    code, told = in_time(fleet.hand_in(job("down")))
    assert code == exits.REFUSED
    assert "Site 'site-2' is not connected" in told
    assert paid(fleet) == before
    fleet.restart_site("site-2")
    wait("the node", lambda: fleet.connected("site-2"))
    finish(fleet, job("down"), before)


def apps(fleet: Fleet) -> list[int]:
    """The processes of the server's app."""
    found = descendants(fleet.running["server"].pid)
    return [pid for pid in found if b"flwr-serverapp" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_the_app_of_the_server_is_killed(fleet: Fleet) -> None:
    before, wanted = paid(fleet), job("app")
    submitted = await_stage(fleet, "site-0", "ask", wanted)
    for pid in apps(fleet):
        os.kill(pid, signal.SIGKILL)
    code, told = in_time(submitted)
    assert code == exits.UNAVAILABLE, told
    assert "Submit the same job again" in told
    finish(fleet, wanted, before)


def test_the_server_is_killed(fleet: Fleet) -> None:
    before, wanted = paid(fleet), job("server")
    submitted = await_stage(fleet, "site-0", "ask", wanted)
    fleet.kill("server")
    code, told = in_time(submitted)
    assert code == exits.UNAVAILABLE, told
    fleet.start_server()
    finish(fleet, wanted, before)  # sites come back by themselves


def test_a_run_is_stopped(fleet: Fleet) -> None:
    before, wanted = paid(fleet), replace(job("to stop"), timeout=120.0)
    fleet.running["site-2"].send_signal(signal.SIGTERM)  # so that the run waits for it
    fleet.running.pop("site-2").wait(60)
    submitted = fleet.hand_in(wanted)
    wait("the run", lambda: any(run.state == "running" for run in all_runs(fleet.root / "server")))
    listed = json.loads(fleet.cli("jobs", "--state", fleet.root / "server", "--format", "json").stdout)["runs"]
    number = next(run["run"] for run in listed if run["job"] == "to stop")
    stopped = fleet.cli("stop", number, "--keys", fleet.keys, "--port", fleet.link.port)
    code, told = in_time(submitted)
    fleet.restart_site("site-2")
    wait("the node", lambda: fleet.connected("site-2"))
    assert stopped.returncode == exits.FINE, stopped.stderr
    assert code == exits.UNAVAILABLE, told
    assert "stopped" in told
    finish(fleet, wanted, before)


def test_a_broken_policy_is_named_before_anybody_pays(fleet: Fleet) -> None:
    before = paid(fleet)
    fleet.policy.write_text("privacy_models = [")
    code, told = in_time(fleet.hand_in(job("policy")))
    fleet.policy.write_text(POLICY)
    assert code == exits.REFUSED
    assert all(f"Site '{name}' cannot read its own policy" in told for name in fleet.names)
    assert paid(fleet) == before
    finish(fleet, job("policy"), before)


def test_a_disk_that_is_full_is_told_and_heals(fleet: Fleet) -> None:
    before, pid = paid(fleet), fleet.running["site-0"].pid
    limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, limits[1]))
    code, told = in_time(fleet.hand_in(job("disk")))
    resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
    assert code == exits.REFUSED
    assert "Site 'site-0' could not write to its disk" in told
    assert paid(fleet) == before
    finish(fleet, job("disk"), before)


@every
def test_records_change_in_the_middle_of_a_run(fleet: Fleet) -> None:
    long = Job("platt-scaling", "distributed", 3, epsilon=0.1, timeout=TIMEOUT, measure=True, name="changed")
    submitted = await_stage(fleet, "site-1", "ask", long)
    write_records(fleet.root / "site-1.csv", 77)
    code, told = in_time(submitted)
    write_records(fleet.root / "site-1.csv", 1)
    assert code == exits.REFUSED
    assert "Site 'site-1' changed its records in the middle of the run" in told


@every
def test_a_slow_site_is_told_and_answers_later_at_no_cost(fleet: Fleet) -> None:
    before, wanted = paid(fleet), job("slow")
    submitted = await_stage(fleet, "site-2", "shares", wanted)
    fleet.running["site-2"].send_signal(signal.SIGSTOP)
    code, told = in_time(submitted)
    fleet.running["site-2"].send_signal(signal.SIGCONT)
    assert code == exits.REFUSED
    assert f"Site 'site-2' did not answer within {TIMEOUT} s" in told
    finish(fleet, wanted, before)


def refused_for(fleet: Fleet, wanted: Job, why: str) -> str:
    """A job that is refused before anybody pays; what was told holds the reason."""
    before = paid(fleet)
    code, told = in_time(fleet.hand_in(wanted))
    assert code == exits.REFUSED, told
    assert why in told, told
    assert paid(fleet) == before
    return told


UNUSABLE = {
    "corrupt": ("score,label\n0.5,much\n", "Site 'site-1' cannot read its own policy, keys or records"),
    "gone": (None, "Site 'site-1' cannot read its own policy, keys or records"),
    "three classes": (
        "prob_0,prob_1,prob_2,label\n" + "0.2,0.3,0.5,2\n" * 40,
        "Expected the same classes at every site, found site-0: 2, site-1: 3, site-2: 2",
    ),
}


@every
@pytest.mark.parametrize("kind", UNUSABLE)
def test_records_that_cannot_be_used_are_told_and_cost_nothing(fleet: Fleet, kind: str) -> None:
    path, before, wanted = fleet.root / "site-1.csv", paid(fleet), job(kind)
    content, why = UNUSABLE[kind]
    usual = path.read_text()
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    refused_for(fleet, wanted, why)
    path.write_text(usual)
    finish(fleet, wanted, before)


@every
def test_rows_that_are_left_out_are_counted_and_limited(fleet: Fleet) -> None:
    path, before = fleet.root / "site-1.csv", paid(fleet)
    usual = path.read_text()
    head, *lines = usual.splitlines()
    path.write_text("\n".join([head, *(f",{line[-1]}" for line in lines[:190]), *lines[190:]]) + "\n")
    finish(fleet, job("left out"), before)  # without a limit the site takes part with what is left
    opened = [line for line in fleet.log_lines("site-1") if line["action"] == "open"]
    assert (opened[-1]["records"], opened[-1]["left_out"]) == (10, 190)
    fleet.policy.write_text(f"{POLICY}max_missing = 0.5\n")
    refused_for(fleet, job("limited"), "Site 'site-1' cannot read its own policy, keys or records")
    assert "at most 50% of the rows, found that 190 of 200" in fleet.log_lines("site-1")[-1]["reason"]
    fleet.policy.write_text(POLICY)
    path.write_text(usual)
    finish(fleet, job("limited"), [value + 0.1 for value in before])


@every
def test_a_policy_is_tightened_in_the_middle_of_a_run(fleet: Fleet) -> None:
    before, wanted = paid(fleet), job("tightened")
    submitted = await_stage(fleet, "site-0", "hello", wanted)
    fleet.policy.write_text(f"{POLICY}epsilon_a_run = 0.05\n")
    code, told = in_time(submitted)
    fleet.policy.write_text(POLICY)
    assert code == exits.REFUSED, told
    assert "allows a smaller epsilon only" in told
    assert paid(fleet) == before  # no site was asked before all of them had read it
    finish(fleet, wanted, before)


@every
def test_a_year_that_is_spent_lets_nobody_pay(fleet: Fleet) -> None:
    before = paid(fleet)
    fleet.policy.write_text(f"{POLICY}epsilon_a_year = {max(before) + 0.05}\n")
    refused_for(fleet, job("spent"), "has too little of its yearly budget left")
    fleet.policy.write_text(POLICY)
    finish(fleet, job("spent"), before)


@every
def test_a_finished_job_is_recalled_and_paid_once(fleet: Fleet) -> None:
    before = paid(fleet)
    finish(fleet, job("finished"), before)
    finish(fleet, job("finished"), before)


OTHER_PROTOCOL = """
import fedcalib.remote.protocol as protocol
protocol.PROTOCOL = 99
from fedcalib.cli import main
main()
"""


def replaced(fleet: Fleet, keys: Path, *words: str) -> None:
    """Start site-1 anew in another way."""
    fleet.kill("site-1")
    (fleet.root / "site-1.log").unlink()
    own = ["--data", fleet.root / "site-1.csv", "--keys", keys, "--policy", fleet.policy]
    own += ["--state", fleet.root / "sites" / "site-1", "--server", fleet.link.address]
    start = words or ("-m", "fedcalib")
    fleet.start("site-1", deployment.Command((sys.executable, *start, "site", "start", *map(str, own)), {}))
    wait("the node", lambda: fleet.connected("site-1"))


@every
def test_another_version_of_the_protocol_is_refused_with_both(fleet: Fleet) -> None:
    before, wanted = paid(fleet), job("version")
    replaced(fleet, fleet.keys / "site-1", "-c", OTHER_PROTOCOL)
    told = refused_for(fleet, wanted, "Site 'site-1' speaks version 99 of the protocol")
    assert f"this server version {PROTOCOL}" in told
    replaced(fleet, fleet.keys / "site-1")
    finish(fleet, wanted, before)


@every
def test_a_wrong_identity_is_told_and_logged(fleet: Fleet, tmp_path: Path) -> None:
    before, wanted, keys = paid(fleet), job("identity"), tmp_path / "keys"
    shutil.copytree(fleet.keys / "site-1", keys)
    write_identity(keys / "identity.json", SigningIdentity("site-1"))
    replaced(fleet, keys)
    refused_for(fleet, wanted, "Site 'site-1' declined for a reason that is in its own log")
    assert "identity key of site 'site-1'" in fleet.log_lines("site-1")[-1]["reason"]
    replaced(fleet, fleet.keys / "site-1")
    finish(fleet, wanted, before)


SKEWED = """
import sys, time
from datetime import timedelta
import flwr.supernode.node_auth_http_interceptor as signed
now, seconds, clock = signed.now, float(sys.argv.pop(1)), time.time
signed.now = lambda: now() + timedelta(seconds=seconds)
time.time = lambda: clock() + seconds
from fedcalib.cli import main
main()
"""


@pytest.mark.parametrize("seconds", [7200, 10, -400])
def test_a_wrong_clock_is_named(fleet: Fleet, seconds: int) -> None:
    words = fedcalib("site", "start", "--data", fleet.root / "stranger.csv", "--keys", fleet.keys / "stranger").words[
        3:
    ]
    words += ("--state", str(fleet.root / f"clock{seconds}"), "--server", fleet.link.address)
    fleet.start(f"clock{seconds}", deployment.Command((sys.executable, "-c", SKEWED, str(seconds), *words), {}))
    way = "ahead of" if seconds > 0 else "behind"
    wait("the clock to be named", lambda: f"s {way} the server's" in fleet.log(f"clock{seconds}"))
    fleet.kill(f"clock{seconds}")


def test_a_wrong_authority_is_named(fleet: Fleet, tmp_path: Path) -> None:
    certificates.make(tmp_path / "other", ["stranger"], ["127.0.0.1"])
    words = ["site", "start", "--data", fleet.root / "stranger.csv", "--keys", tmp_path / "other" / "stranger"]
    fleet.start("wrong", fedcalib(*words, "--state", tmp_path / "state", "--server", fleet.link.address))
    wait("the authority to be named", lambda: "is not signed by the authority in" in fleet.log("wrong"))
    fleet.kill("wrong")


class LongAgo(datetime):
    """A clock that is two years late, for certificates that expired a year ago."""

    @classmethod
    def now(cls, tz: object = None) -> datetime:
        return datetime.now(UTC) - timedelta(days=730)


class Ahead(datetime):
    """A clock that is two days ahead, for certificates that are not valid yet."""

    @classmethod
    def now(cls, tz: object = None) -> datetime:
        return datetime.now(UTC) + timedelta(days=2)


def test_an_expired_certificate_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "datetime", LongAgo)
    with Fleet(tmp_path, 3) as old:
        old.start_server()
        old.start_site("site-0")
        wait("the site", lambda: "certificate has expired" in old.log("site-0"))
        code, told = in_time(old.hand_in(job("expired")))
        assert code == exits.UNAVAILABLE
        assert "certificate has expired; ask the server's operator to renew it" in told
        admitted = old.cli("server", "admit", "site-0", "--keys", old.keys, "--port", old.link.port)
        assert admitted.returncode == exits.UNAVAILABLE
        assert "certificate has expired" in admitted.stderr


@every
def test_a_clock_before_the_certificates_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "datetime", Ahead)
    with Fleet(tmp_path, 3) as early:
        early.start_server()
        early.start_site("site-0")
        wait("the site", lambda: "is not valid yet; check the clock of this machine" in early.log("site-0"))
        code, told = in_time(early.hand_in(job("early")))
        assert code == exits.UNAVAILABLE
        assert "is not valid yet; check the clock of this machine" in told
