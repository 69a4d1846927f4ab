"""A consortium's year with real processes: a site is checked, watched, shut out, given new keys and let in again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen

import pytest

from fedcalib.cli import voice as exits
from fedcalib.deploy.job import Job
from tests.e2e.fleet import POLICY, Fleet, fedcalib, free_port, full, wait

pytest.importorskip("flwr")
pytestmark = [pytest.mark.e2e, pytest.mark.slow]
WATCHED = find_spec("prometheus_client") is not None


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(tmp_path_factory.mktemp("year"), 3) as fleet:
        fleet.start_server()
        for name in fleet.names:
            fleet.admit(name)
            fleet.start_site(name)
        wait("the sites", lambda: all(fleet.connected(name) for name in fleet.names))
        yield fleet


def words(fleet: Fleet, name: str) -> list[object]:
    keys: list[object] = ["--data", fleet.root / f"{name}.csv", "--keys", fleet.keys / name, "--policy", fleet.policy]
    return [*keys, "--state", fleet.root / "sites" / name, "--server", fleet.link.address]


def test_a_site_is_checked_while_it_runs(fleet: Fleet) -> None:
    done = fleet.cli("site", "check", *words(fleet, fleet.names[0]), "--format", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [one["fine"] for one in json.loads(done.stdout)["checks"]] == [True] * 6


@full
def test_budgets_of_all_sites_are_told_as_each_allows(fleet: Fleet, tmp_path: Path) -> None:
    """With real processes; the policy is read again before each run."""
    job = tmp_path / "job.toml"
    asked = ["--keys", fleet.keys, "--port", fleet.link.port, "--state", fleet.root / "server", "--format", "json"]
    job.write_text('method = "fed-bin"\nprivacy = "distributed"\nsites = 3\nepsilon = 0.25\ntimeout = 60\n')
    fleet.policy.write_text(f'{POLICY}tell_budget = "exact"\nepsilon_a_year = 4\n')
    exact = fleet.cli("budget", job, *asked)
    assert exact.returncode == 0, exact.stderr
    assert json.loads(exact.stdout)["sites"] == {
        name: {"could": True, "why": "", "epsilon_left": 4.0} for name in fleet.names
    }
    fleet.policy.write_text(f"{POLICY}epsilon_a_year = 0.1\n")
    less = fleet.cli("budget", job, *asked)
    assert less.returncode == exits.REFUSED, less.stderr
    for one in json.loads(less.stdout)["sites"].values():
        assert "too little of its yearly budget left" in one["why"] and one["epsilon_left"] is None
    fleet.policy.write_text(POLICY)
    assert [fleet.spent(name) for name in fleet.names] == [0.0] * 3
    assert json.loads(fleet.cli("jobs", "--state", fleet.root / "server", "--format", "json").stdout)["runs"] == []


def test_keys_are_replaced_and_the_site_takes_part_again(fleet: Fleet, tmp_path: Path) -> None:
    name = fleet.names[0]
    stolen = (fleet.keys / name / "node").read_bytes()
    fleet.kill(name)
    assert fleet.cli("certs", "rotate", fleet.keys, name).returncode == 0
    admitted = fleet.cli("server", "admit", name, "--keys", fleet.keys, "--port", fleet.link.port)
    assert "Admitted" in admitted.stderr, admitted.stderr
    assert list(fleet.control.names().values()).count(name) == 1  # the old key is not known any more
    (fleet.root / f"{name}.log").unlink()
    (fleet.root / "sites" / name / "node-id").unlink()
    monitor = f"127.0.0.1:{free_port()}"
    more = ["--json-logs", *(["--monitor", monitor] if WATCHED else [])]
    fleet.start(name, fedcalib("site", "start", *words(fleet, name), *more))
    wait("the site with new keys", lambda: fleet.connected(name))
    assert all(json.loads(line)["level"] for line in fleet.log(name).splitlines() if line.startswith("{"))
    if WATCHED:
        assert urlopen(f"http://{monitor}/health").status == 200
    fleet.result(fleet.submit(Job("fed-bbq", "distributed", 3, epsilon=0.1, timeout=120)))
    if WATCHED:
        text = urlopen(f"http://{monitor}/metrics").read().decode()
        assert 'fedcalib_messages_total{action="unmask",outcome="answered"} 1.0' in text
        assert "fedcalib_epsilon_left 9.9" in text
    thief = tmp_path / "node"
    thief.write_bytes(stolen)
    thief.chmod(0o600)
    for file in ("identity.json", "directory.json", "ca.crt"):
        (tmp_path / file).write_bytes((fleet.keys / name / file).read_bytes())
    own = ["--data", fleet.root / f"{name}.csv", "--keys", tmp_path, "--state", tmp_path / "state"]
    fleet.start("thief", fedcalib("site", "start", *own, "--server", fleet.link.address))
    wait("the thief to be refused", lambda: "fedcalib server admit" in fleet.log("thief"))
    assert not fleet.connected("thief")


def test_a_site_that_is_shut_out_is_told(fleet: Fleet) -> None:
    name = fleet.names[2]
    done = fleet.cli("server", "revoke", name, "--keys", fleet.keys, "--port", fleet.link.port)
    assert done.returncode == 0, done.stderr
    assert f"shut out {name}" in done.stderr and "Send the new" in done.stderr
    assert name not in fleet.control.names().values()
    assert name not in json.loads((fleet.keys / "directory.json").read_text())
    wait("the site to be told", lambda: "fedcalib server admit" in fleet.log(name))
    again = fleet.cli("server", "revoke", name, "--keys", fleet.keys, "--port", fleet.link.port)
    assert "knew no node" in again.stderr
