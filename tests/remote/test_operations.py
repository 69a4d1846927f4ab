"""A consortium's year: sites come and go, certificates are renewed, and everything can be watched."""

from __future__ import annotations

import json
import logging
import ssl
import stat
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

import fedcalib as fc
from fedcalib.cli import app
from fedcalib.deploy import certificates
from fedcalib.deploy.checks import check_site, node_facts
from fedcalib.deploy.commands import Link
from fedcalib.deploy.monitor import JsonLines, NodeVitals, ServerVitals, node_metrics, served
from fedcalib.deploy.node import WatchedSite
from fedcalib.errors import InputError
from fedcalib.remote.site import read_directory
from tests.remote.test_node import ALLOW, NAMES, places, runtime, write_records


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    certificates.make(tmp_path / "keys", NAMES, ["fed.example.org", "127.0.0.1"])
    return tmp_path / "keys"


def sites(folder: Path, *names: str) -> dict[str, WatchedSite]:
    for seed, name in enumerate(names):
        write_records(folder / f"{name}.csv", seed)
        (folder / f"{name}.toml").write_text(ALLOW)
    return {name: WatchedSite(places(folder, name)) for name in names}


def test_a_site_that_joins_takes_part(tmp_path: Path, keys: Path) -> None:
    running = sites(tmp_path, *NAMES)
    assert fc.run(fc.FedBin(), runtime(tmp_path, running), fc.DistributedDP(epsilon=0.1)).cohort.expected == 3
    certificates.add(keys, "east")
    assert {len(read_directory(keys / name / "directory.json").keys) for name in (*NAMES, "east")} == {4}
    running |= sites(tmp_path, "east")  # the others notice the new list by themselves
    result = fc.run(fc.FedBin(bins=7), runtime(tmp_path, running), fc.DistributedDP(epsilon=0.1))
    assert result.cohort.expected == 4
    with pytest.raises(InputError, match="Expected the name of a new site"):
        certificates.add(keys, "east")


def test_rotated_keys_replace_the_old_ones(tmp_path: Path, keys: Path) -> None:
    before = {name: (keys / "north" / name).read_bytes() for name in ("identity.json", "node", "node.pub")}
    running = sites(tmp_path, *NAMES)
    certificates.rotate(keys, "north")
    assert all((keys / "north" / name).read_bytes() != old for name, old in before.items())
    assert stat.S_IMODE((keys / "north" / "node").stat().st_mode) == 0o600
    assert fc.run(fc.FedBin(), runtime(tmp_path, running), fc.DistributedDP(epsilon=0.1)).cohort.expected == 3
    (keys / "north" / "identity.json").write_bytes(before["identity.json"])  # a thief
    with pytest.raises(fc.errors.FedcalibError):
        fc.run(fc.FedBin(bins=7), runtime(tmp_path, running), fc.DistributedDP(epsilon=0.1))
    with pytest.raises(InputError, match="there are north, south, west"):
        certificates.rotate(keys, "nowhere")


def test_a_site_that_left_is_in_no_list(keys: Path) -> None:
    assert certificates.remove(keys, "west") is True
    assert set(read_directory(keys / "north" / "directory.json").keys) == {"north", "south"}
    assert certificates.remove(keys, "west") is False


def test_renewed_certificates_are_accepted_with_the_old_authority(keys: Path) -> None:
    old = certificates.read_certificate(keys / "ca.crt")
    server_before = (keys / "server.pem").read_bytes()
    certificates.renew(keys, [])
    server, new = (certificates.read_certificate(keys / name) for name in ("server.pem", "ca.crt"))
    assert (keys / "server.pem").read_bytes() != server_before
    for authority in (old, new):
        server.verify_directly_issued_by(authority)
    assert certificates._hosts(server) == ["fed.example.org", "127.0.0.1"]
    assert (keys / "north" / "ca.crt").read_bytes() == (keys / "ca.crt").read_bytes()
    (keys / "ca.key").unlink()
    with pytest.raises(InputError, match="Expected the authority's key"):
        certificates.renew(keys, [])


@pytest.mark.parametrize(("days", "fine"), [(300, True), (336, False), (400, False)])
def test_an_end_is_told_thirty_days_ahead(keys: Path, days: int, fine: bool) -> None:
    found = certificates.check(keys, datetime.now(UTC) + timedelta(days=days))
    ends = {one.file.name: one for one in found if one.file.name in ("ca.crt", "server.pem")}
    assert {one.fine for one in ends.values()} == {fine}
    assert ("certs renew" in ends["ca.crt"].what) is not fine
    assert all(one.fine for one in found if one.file.name not in ends)


def test_the_check_finds_open_keys_and_foreign_lists(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["certs", "check", str(keys)]) == 0
    assert app.run(["certs", "check", str(keys / "north")]) == 0
    (keys / "north" / "node").chmod(0o644)
    assert app.run(["certs", "check", str(keys / "north"), "--format", "json"]) == 4
    document = json.loads(capsys.readouterr().out.rpartition("\n{")[2].join(["{", ""]))
    assert [Path(one["file"]).name for one in document["keys"] if not one["fine"]] == ["node"]
    certificates.rotate(keys, "north")
    (keys / "north" / "directory.json").write_text((keys / "directory.json").read_text().replace("north", "nord"))
    assert [one.file.name for one in certificates.check(keys / "north") if not one.fine] == ["identity.json"]


class Dated(BaseHTTPRequestHandler):
    """A server that says what time it is, with an error."""

    late = 0.0

    def do_GET(self) -> None:
        self.send_response(404)
        self.end_headers()

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string(datetime.now(UTC).timestamp() - self.late)

    def log_message(self, format: str, *args: object) -> None:
        """Be silent."""


@pytest.fixture
def server(keys: Path) -> object:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys / "server.pem", keys / "server.key")
    running = HTTPServer(("127.0.0.1", 0), Dated)
    running.socket = context.wrap_socket(running.socket, server_side=True)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield running.server_address[1]
    running.shutdown()
    running.server_close()


def test_a_site_is_checked_thing_by_thing(
    tmp_path: Path, keys: Path, server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites(tmp_path, "north")
    own, link = places(tmp_path, "north"), Link("127.0.0.1", server, keys / "north" / "ca.crt")

    def wrong() -> dict[str, str]:
        return {one.name: one.what for one in check_site(own, keys / "north", link) if not one.fine}

    assert wrong() == {}
    names = [one.name for one in check_site(own, keys / "north", link)]
    assert names == ["policy", "keys", "records", "state", "budget", "server"]
    monkeypatch.setattr(Dated, "late", 60.0)
    assert "60 s ahead of the server's" in wrong()["server"]
    monkeypatch.setattr(Dated, "late", 0.0)
    (tmp_path / "north.csv").write_text("score,label\n0.5,much\n")
    (tmp_path / "north.toml").write_text("epsilon_a_year = 0.0\n")
    assert wrong().keys() == {"records", "budget"}
    (tmp_path / "north.toml").write_text("epsilon_a_year = [")
    assert wrong().keys() == {"policy", "records", "state", "budget"}
    certificates.make(tmp_path / "others", ["a"], ["127.0.0.1"])
    other = Link("127.0.0.1", server, tmp_path / "others" / "ca.crt")
    found = {one.name: one.what for one in check_site(own, keys / "north", other)}
    assert "cannot be trusted" in found["server"]
    absent = Link("127.0.0.1", 9, keys / "ca.crt")
    assert "Found no server" in {one.name: one.what for one in check_site(own, keys / "north", absent)}["server"]


def test_a_line_of_the_log_is_json_with_time_and_level() -> None:
    record = logging.LogRecord("fedcalib.node", logging.WARNING, "", 0, "Trying again in %d s.", (4,), None)
    line = json.loads(JsonLines().format(record))
    assert (line["level"], line["logger"], line["message"]) == ("WARNING", "fedcalib.node", "Trying again in 4 s.")
    assert datetime.fromisoformat(line["time"]).tzinfo is not None


def test_health_and_metrics_of_a_node(tmp_path: Path, keys: Path) -> None:
    pytest.importorskip("prometheus_client", reason="needs the extra metrics")
    running = sites(tmp_path, *NAMES)
    fc.run(fc.FedBin(), runtime(tmp_path, running), fc.DistributedDP(epsilon=0.25))
    vitals = NodeVitals()
    vitals.answered("ask", False, 0.5)
    vitals.answered("ask", True, 0.25)
    link = Link("127.0.0.1", 9, keys / "north" / "ca.crt")
    facts = node_metrics(vitals, lambda: node_facts(places(tmp_path, "north"), link))
    with served("127.0.0.1:0", vitals, facts) as port:
        with pytest.raises(HTTPError, match="503"):
            urlopen(f"http://127.0.0.1:{port}/health")
        vitals.reached()
        assert json.load(urlopen(f"http://127.0.0.1:{port}/health")) == {"healthy": True}
        text = urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"http://127.0.0.1:{port}/")
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(lines['fedcalib_messages_total{action="ask",outcome="answered"}']) == 1
    assert float(lines['fedcalib_messages_total{action="ask",outcome="refused"}']) == 1
    assert float(lines["fedcalib_message_seconds_total"]) == 0.75
    assert float(lines["fedcalib_epsilon_left"]) == 9.75
    assert 364 < float(lines["fedcalib_authority_days_left"]) < 365
    assert float(lines["fedcalib_node_connected"]) == 1
    assert "60" not in {value for name, value in lines.items() if "fedcalib" in name}  # no number of records


def test_health_and_metrics_of_a_server(tmp_path: Path, keys: Path, server: int) -> None:
    pytest.importorskip("prometheus_client", reason="needs the extra metrics")
    up = ServerVitals(Link("127.0.0.1", server, keys / "ca.crt"), tmp_path / "server", keys)
    down = ServerVitals(Link("127.0.0.1", 9, keys / "ca.crt"), tmp_path / "server", None)
    assert (up.healthy, down.healthy) == (True, False)
    with served("127.0.0.1:0", up, up.collect) as port:
        text = urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
        with pytest.raises(InputError, match="Expected a free address"), served(f"127.0.0.1:{port}", up, up.collect):
            pass
    assert "fedcalib_server_up 1.0" in text
    assert 'fedcalib_certificate_days_left{file="server.pem"} 364.9' in text
    with pytest.raises(InputError, match="Expected an address such as"), served("9100", up, up.collect):
        pass
