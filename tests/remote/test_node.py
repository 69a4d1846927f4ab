"""A site's own node without its connection: what stays loaded, what it notices, what it says about the server."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedcalib as fc
from fedcalib.deploy import certificates
from fedcalib.deploy.commands import Link
from fedcalib.deploy.node import WatchedSite
from fedcalib.errors import TooFewClients
from fedcalib.remote.journal import DiskJournal
from fedcalib.remote.protocol import Introduction, Refused, read, read_reply
from fedcalib.remote.runtime import Remote
from fedcalib.remote.site import read_directory
from tests.remote.places import LocalTransport

NAMES = ("north", "south", "west")
ALLOW = 'privacy_models = ["DistributedDP", "SourceLaplace", "SecAgg"]\n'


def write_records(path: Path, seed: int, records: int = 60) -> None:
    rng = np.random.default_rng(seed)
    rows = [
        f"{score:.4f},{label}" for score, label in zip(rng.random(records), rng.integers(0, 2, records), strict=True)
    ]
    path.write_text("score,label\n" + "\n".join(rows) + "\n")


@pytest.fixture
def sites(tmp_path: Path) -> dict[str, WatchedSite]:
    certificates.make(tmp_path / "keys", NAMES, ["localhost"])
    for seed, name in enumerate(NAMES):
        write_records(tmp_path / f"{name}.csv", seed)
        (tmp_path / f"{name}.toml").write_text(ALLOW)
    return {name: WatchedSite(places(tmp_path, name)) for name in NAMES}


def places(folder: Path, name: str) -> dict[str, str]:
    own = {
        "identity": f"keys/{name}/identity.json",
        "directory": f"keys/{name}/directory.json",
        "policy": f"{name}.toml",
    }
    own |= {"data-path": f"{name}.csv", "state": f"state/{name}"}
    return {key: str(folder / path) for key, path in own.items()}


def runtime(folder: Path, sites: dict[str, WatchedSite]) -> Remote:
    transport = LocalTransport({name: site.handle for name, site in sites.items()})
    return Remote(transport, read_directory(folder / "keys" / "directory.json"), folder / "server")


def log(folder: Path, name: str) -> list[dict[str, object]]:
    return DiskJournal(folder / "state" / name).log.lines()


def test_records_stay_loaded_until_their_file_changes(tmp_path: Path, sites: dict[str, WatchedSite]) -> None:
    first = sites["north"].open()
    assert sites["north"].open() is first
    (tmp_path / "north.toml").write_text(ALLOW + "epsilon_a_run = 0.5\n")
    second = sites["north"].open()
    assert second.policy.epsilon_a_run == 0.5
    assert second.federation is first.federation
    write_records(tmp_path / "north.csv", 7, records=40)
    assert len(sites["north"].open().federation.records) == 40
    assert [line["records"] for line in log(tmp_path, "north") if line["action"] == "open"] == [60, 40]


def spoil(path: Path, rows: int) -> None:
    """Scores that are missing in the first rows of a file."""
    head, *lines = path.read_text().splitlines()
    path.write_text("\n".join([head, *(f",{line.split(',')[1]}" for line in lines[:rows]), *lines[rows:]]) + "\n")


def test_a_site_with_too_many_missing_rows_answers_nothing(tmp_path: Path, sites: dict[str, WatchedSite]) -> None:
    spoil(tmp_path / "north.csv", 57)
    assert len(sites["north"].open().federation.records) == 3
    assert log(tmp_path, "north")[-1]["left_out"] == 57
    (tmp_path / "north.toml").write_text(f"{ALLOW}max_missing = 0.5\n")
    assert read(sites["north"].handle("hello", ""), Refused).reason == "setup"
    assert "at most 50% of the rows, found that 57 of 60" in str(log(tmp_path, "north")[-1]["reason"])
    write_records(tmp_path / "north.csv", 0)
    assert isinstance(read(sites["north"].handle("hello", ""), Introduction), Introduction)
    spoil(tmp_path / "north.csv", 31)
    assert read(sites["north"].handle("hello", ""), Refused).reason == "setup"


@pytest.mark.parametrize(
    ("privacy", "told"),
    [(fc.SecAgg(), ["site 'north' left out 26% of its rows"]), (fc.DistributedDP(0.5), [])],
    ids=repr,
)
def test_left_out_rows_are_told_before_exact_sums_where_the_site_allows_it(
    tmp_path: Path, sites: dict[str, WatchedSite], privacy: fc.privacy.Privacy, told: list[str]
) -> None:
    for name in ("north", "south"):
        spoil(tmp_path / f"{name}.csv", 16)
    (tmp_path / "north.toml").write_text(f"{ALLOW}tell_left_out = true\n")
    seen: list[str] = []
    remote = runtime(tmp_path, sites)
    remote.sites, remote.expected = 3, fc.Schema(2, 3)
    remote.watch = lambda notice: seen.append(notice.stage)
    fc.run(fc.FedBin(), remote, privacy)
    assert [stage for stage in seen if "left out" in stage] == told


@pytest.mark.parametrize("privacy", [fc.SecAgg(), fc.SourceLaplace(epsilon=1.0)], ids=["masked", "plain"])
def test_records_that_change_in_the_middle_of_a_run_end_it(
    tmp_path: Path, sites: dict[str, WatchedSite], privacy: fc.privacy.Privacy
) -> None:
    changed = []

    def handle(action: str, text: str) -> str:
        if action == "ask" and not changed:
            changed.append(write_records(tmp_path / "west.csv", 9))
        return sites["west"].handle(action, text)

    transport = LocalTransport({**{name: site.handle for name, site in sites.items()}, "west": handle})
    remote = Remote(transport, read_directory(tmp_path / "keys" / "directory.json"))
    with pytest.raises(TooFewClients, match="'west' changed its records in the middle of the run"):
        fc.run(fc.FedBin(), remote, privacy)
    assert "the file was changed in the middle of the run" in str(log(tmp_path, "west")[-1]["reason"])
    assert not (tmp_path / "state" / "west" / "ledger.db").exists()  # it answered nothing, and paid nothing
    fc.run(fc.FedBin(bins=7), runtime(tmp_path, sites), privacy)  # another run begins with the records as they are


@pytest.mark.parametrize(
    ("file", "content", "why"),
    [
        ("north.toml", "privacy_models = [", "Expected TOML"),
        ("keys/north/identity.json", "{}", "Expected a site's identity"),
        ("north.csv", "score,label\n0.5,much\n", "much"),
    ],
    ids=["policy", "identity", "records"],
)
def test_a_broken_file_is_logged_and_the_site_is_named(
    tmp_path: Path, sites: dict[str, WatchedSite], file: str, content: str, why: str
) -> None:
    remote = runtime(tmp_path, sites)
    assert remote.schema.clients == 3
    before = (tmp_path / file).read_bytes()
    (tmp_path / file).write_text(content)
    assert read(sites["north"].handle("hello", ""), Refused).reason == "setup"
    assert why in str(log(tmp_path, "north")[-1]["reason"])
    with pytest.raises(TooFewClients, match="'north' cannot read its own policy, keys or records"):
        fc.run(fc.FedBin(), remote, fc.DistributedDP(epsilon=0.5))
    assert not list((tmp_path / "state").glob("*/ledger.db"))
    (tmp_path / file).write_bytes(before)
    fc.run(fc.FedBin(), runtime(tmp_path, sites), fc.DistributedDP(epsilon=0.5))


def test_a_site_with_one_class_or_no_record_takes_part(tmp_path: Path, sites: dict[str, WatchedSite]) -> None:
    (tmp_path / "north.csv").write_text("score,label\n0.5,0\n0.1,0\n")
    (tmp_path / "south.csv").write_text("score,label\n")
    for name in ("north", "south"):
        assert isinstance(read_reply(sites[name].handle("hello", ""), Introduction), Introduction)
    fc.run(fc.FedBin(), runtime(tmp_path, sites), fc.DistributedDP(epsilon=0.5))


def test_rows_that_are_left_out_are_counted_in_the_log(tmp_path: Path, sites: dict[str, WatchedSite]) -> None:
    (tmp_path / "north.csv").write_text("score,label\n0.5,0\nnan,1\n0.7,1\n,0\n")
    sites["north"].open()
    line = log(tmp_path, "north")[-1]
    assert (line["records"], line["left_out"]) == (2, 2)


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("certificate verify failed: certificate has expired (_ssl.c:1006)", "ask the server's operator to renew it"),
        ("unable to get local issuer certificate", "not signed by the authority in ca.crt"),
        ("certificate is not yet valid", "check the clock of this machine"),
        ("Hostname mismatch, certificate is not valid for 'fed'", "another host name"),
        ("[Errno 111] Connection refused", "check the address, and that it runs"),
    ],
)
def test_a_server_that_cannot_be_reached_is_explained(said: str, advice: str) -> None:
    pytest.importorskip("flwr")
    from fedcalib.deploy.fleet import unreachable

    told = unreachable(Link("fed", 8000, Path("ca.crt")), OSError(said))
    assert advice in told
    assert "fed:8000" in told


@pytest.mark.parametrize(("ahead", "words"), [(7200, "7200 s ahead of"), (10, "10 s ahead of"), (-400, "400 s behind")])
def test_a_wrong_clock_is_named(ahead: float, words: str) -> None:
    from fedcalib.deploy.fleet import ServerClock

    assert words in str(ServerClock(ahead).problem)
    assert ServerClock(2.0).problem is None
    assert ServerClock(-200.0).problem is None
