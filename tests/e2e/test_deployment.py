"""Real processes on loopback, with TLS and node authentication: a SuperLink and three SuperNodes run whole jobs.

With FEDCALIB_E2E=full (that is `make e2e`) a node and the server are killed on the real engine as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedcalib as fc
from fedcalib import wire
from fedcalib.artifacts.saving import load
from fedcalib.deploy.job import Job
from tests.e2e.fleet import Fleet, wait

pytest.importorskip("flwr")
pytestmark = [pytest.mark.e2e, pytest.mark.slow]
full = pytest.mark.skipif(os.environ.get("FEDCALIB_E2E") != "full", reason="slow: killed processes; run `make e2e`")


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
    told = fleet.root / "stranger.log"
    wait("the stranger to give up", lambda: "Failed to activate SuperNode" in told.read_text())
    wait("the others", lambda: all("SuperNode ID" in (fleet.root / f"{name}.log").read_text() for name in fleet.names))
    assert "SuperNode ID" not in told.read_text()
    assert not (fleet.root / "sites" / "stranger").exists()  # it never heard a question
    fleet.kill("stranger")


def test_answers_equal_the_in_process_ones(fleet: Fleet) -> None:
    methods = {"fed-bbq": fc.FedBBQ(), "score-curves": fc.ScoreCurves()}
    models = {"secagg": {}, "distributed": {"epsilon": 1.0}}
    jobs = {
        (method, model): Job(method, model, 3, timeout=240, **models[model]) for method in methods for model in models
    }
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


@full
def test_the_server_is_killed_and_goes_on(fleet: Fleet) -> None:
    job = Job("fed-bin", "secagg", 3, timeout=240)
    out = fleet.submit(job)
    wait("masked vectors", lambda: any("masked" in stage for stage in fleet.stages(out)))
    fleet.kill("server")
    fleet.start_server()
    fleet.submit(job)
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
