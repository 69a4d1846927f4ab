"""Real processes on loopback, with TLS and node authentication: a server and three sites run whole jobs.

With FEDCALIB_E2E=full (that is `make e2e`) a node and the server are killed as well, and with FEDCALIB_E2E=all (that is
`make e2e-all`) the same is done on Flower's own SuperNode.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import fedcalib as fc
from fedcalib import wire
from fedcalib.artifacts.saving import load
from fedcalib.deploy.job import Job
from tests.e2e.fleet import Fleet, every, full, wait

pytest.importorskip("flwr")
pytestmark = [pytest.mark.e2e, pytest.mark.slow]
HOSTILE = """
from pathlib import Path
from fedcalib.deploy.flower import client_app
Path(MARKER).write_text("the server's code ran at a site")
client = client_app()
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(tmp_path_factory.mktemp("fleet"), 3) as fleet:
        fleet.start_server()
        for name in fleet.names:
            fleet.admit(name)
            fleet.start_site(name)
        yield fleet


def test_a_node_that_nobody_admitted_is_refused(fleet: Fleet) -> None:
    fleet.start_site("stranger")  # it has keys of the same kind as all others
    wait("the stranger to be told", lambda: "fedcalib server admit" in fleet.log("stranger"))
    wait("the others", lambda: all(fleet.connected(name) for name in fleet.names))
    assert not fleet.connected("stranger")
    assert fleet.actions("stranger") == ["open"]  # it never heard a question
    fleet.kill("stranger")


def test_a_node_stops_when_told_and_comes_back_at_once_after_a_crash(fleet: Fleet) -> None:
    name = fleet.names[0]
    fleet.running[name].send_signal(signal.SIGTERM)
    assert fleet.running.pop(name).wait(60) == 0
    assert fleet.log(name).rstrip().endswith("Stopped.")
    for _ in range(2):
        fleet.restart_site(name)
        wait("the node", lambda: fleet.connected(name))
        fleet.kill(name)  # the server goes on counting it as connected for a while
    fleet.restart_site(name)
    wait("the node", lambda: fleet.connected(name))
    assert "does not let this node in" not in fleet.log(name)


def hostile_app(folder: Path, marker: Path) -> Path:
    """Our app, but for the part that runs at a site: it leaves a mark where it runs."""
    app = folder / "app"
    shutil.copytree(Path(__file__).parents[2] / "flower-app", app)
    text = (app / "pyproject.toml").read_text().replace('"fedcalib_app:client"', '"hostile:client"')
    (app / "pyproject.toml").write_text(text)
    (app / "hostile.py").write_text(HOSTILE.replace("MARKER", repr(str(marker))))
    return app


def test_an_app_that_the_server_ships_is_not_run(fleet: Fleet, tmp_path: Path) -> None:
    marker = tmp_path / "mark"
    job = Job("fed-bin", "secagg", 3, timeout=240, name="hostile")
    fleet.result(fleet.submit(job, hostile_app(tmp_path, marker)))
    assert not marker.exists()


@every
def test_flowers_own_node_runs_it(tmp_path: Path) -> None:
    """The mark of the test above appears where a SuperNode runs what it is sent: the test can fail."""
    with Fleet(tmp_path, 3) as fleet:
        fleet.start_server()
        for name in fleet.names:
            fleet.admit(name)
            fleet.start_supernode(name)
        marker = tmp_path / "mark"
        fleet.result(fleet.submit(Job("fed-bin", "secagg", 3, timeout=240), hostile_app(tmp_path, marker)))
        assert marker.exists()


def test_answers_equal_the_in_process_ones(fleet: Fleet) -> None:
    methods = {"fed-bbq": fc.FedBBQ(), "score-curves": fc.ScoreCurves()}
    models = {"secagg": {}, "distributed": {"epsilon": 1.0}}
    asked = [(method, model) for method in methods for model in models]
    if os.environ.get("FEDCALIB_E2E") not in ("full", "all"):  # one of each suffices to see what processes add
        asked = [("fed-bbq", "secagg"), ("score-curves", "secagg"), ("fed-bbq", "distributed")]
    jobs = {(method, model): Job(method, model, 3, timeout=240, **models[model]) for method, model in asked}
    outs = {key: fleet.submit(job) for key, job in jobs.items()}
    for (method, model), out in outs.items():
        document = fleet.result(out)
        artifact = load(out / document["artifact"])
        if model == "secagg":
            expected = fc.run(methods[method], fc.InProcess(fleet.pooled()), fc.SecAgg()).artifact
            assert wire.dumps(artifact) == wire.dumps(expected.published())
        else:
            assert document["privacy"]["epsilon"] == 1.0
            assert not document["privacy"]["simulation"]


NOBODY = 65534


def hand_over(folder: Path) -> None:
    """Give a folder to a user without rights, who may read but not write the keys and records in it."""
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, NOBODY, NOBODY)
        if path != folder:
            path.chmod(0o500 if path.is_dir() else 0o400)
    for name in ("server", "sites"):  # where the state is, as an operator makes it
        (folder / name).mkdir(mode=0o700)
        os.chown(folder / name, NOBODY, NOBODY)


def reachable() -> bool:
    """Whether a user without rights can run this Python: it may lie where only root may look."""
    try:
        return subprocess.run([sys.executable, "-c", ""], user=NOBODY, group=NOBODY, check=False).returncode == 0
    except OSError:
        return False


@every
@pytest.mark.skipif(os.geteuid() != 0, reason="is run by an unprivileged user already")
@pytest.mark.skipif(os.geteuid() == 0 and not reachable(), reason="needs a Python that others may run")
def test_nothing_needs_root_or_writes_beside_its_state() -> None:
    """As the units and containers run it: another user, keys and records read-only."""
    # not tmp_path: every session of pytest closes the folder above it to others
    with TemporaryDirectory() as place, Fleet(Path(place), 3, user=NOBODY) as fleet:
        root = fleet.root
        hand_over(root)
        given = {path: path.stat().st_mtime_ns for path in [*root.glob("*.csv"), *(root / "keys").rglob("*")]}
        fleet.start_server()
        for name in fleet.names:
            fleet.admit(name)
            fleet.start_site(name)
        fleet.result(fleet.submit(Job("fed-bin", "distributed", 3, epsilon=0.1, timeout=240)))
        written = [path for folder in ("server", "sites") for path in (root / folder).rglob("*")]
        assert written and {path.stat().st_uid for path in written} == {NOBODY}
        assert {path: path.stat().st_mtime_ns for path in given} == given


@full
def test_the_server_is_killed_and_goes_on(fleet: Fleet) -> None:
    job = Job("fed-bin", "secagg", 3, timeout=240)
    out = fleet.submit(job)
    wait("masked vectors", lambda: any("masked" in stage for stage in fleet.stages(out)))
    fleet.kill("server")
    fleet.start_server()
    out = fleet.submit(job)
    artifact = load(out / fleet.result(out)["artifact"])
    expected = fc.run(fc.FedBin(), fc.InProcess(fleet.pooled()), fc.SecAgg()).artifact
    assert wire.dumps(artifact) == wire.dumps(expected)


@full
def test_a_node_is_killed_and_the_others_finish(tmp_path: Path) -> None:
    with Fleet(tmp_path, 4) as fleet:
        fleet.start_server()
        for name in fleet.names:
            fleet.admit(name)
            fleet.start_site(name)
        out = fleet.submit(Job("fed-bin", "secagg", 4, dropout=0.25, timeout=100))
        wait("shares of keys", lambda: any("shares" in stage for stage in fleet.stages(out)))
        fleet.kill("site-3")
        artifact = load(out / fleet.result(out)["artifact"])
        three = fleet.pooled().subset([0, 1, 2])
        every = [fleet.pooled(), three]  # its vector may have left before it died
        expected = {wire.dumps(fc.run(fc.FedBin(), fc.InProcess(one), fc.SecAgg()).artifact) for one in every}
        assert wire.dumps(artifact) in expected
