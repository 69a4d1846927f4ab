"""A job from its file to its results, and a second run that sends nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fedcalib as fc
from fedcalib.accounting.ledger import Ledger
from fedcalib.deploy.flower import progress_log, serve
from fedcalib.deploy.job import Job
from fedcalib.errors import TranscriptError
from fedcalib.remote.runtime import Remote
from tests.contract.subjects import federation
from tests.remote.places import Meddler, places

DATA = federation(2, records=3000)


@pytest.mark.parametrize("model", [{"privacy": "secagg"}, {"privacy": "distributed", "epsilon": 1.0}], ids=str)
def test_a_job_ends_with_a_calibrator_and_a_report_and_asks_once(model: dict[str, object], tmp_path: Path) -> None:
    job = Job("platt-scaling", sites=5, measure=True, **model)
    everybody = places(DATA, folder=tmp_path / "sites")
    meddler = Meddler(everybody.transport(), lambda site, action, reply: reply)
    out, folder = tmp_path / "out", tmp_path / "server" / job.key
    runtime = Remote(meddler, everybody.directory, folder, 5, watch=progress_log(out / "progress.jsonl"))
    first = serve(job, runtime, folder, out)
    document = json.loads((out / "result.json").read_text())
    assert isinstance(fc.load(out / document["artifact"]), fc.Calibrator)
    assert "<html" in (out / document["report"]).read_text()
    assert document["privacy"]["epsilon"] == model.get("epsilon")
    stages = [json.loads(line)["stage"] for line in (out / "progress.jsonl").read_text().splitlines()]
    assert stages[:3] == ["step 1 of 2 sent", "keys", "shares of keys"]
    asked = len(meddler.received)
    again = serve(job, Remote(meddler, everybody.directory, folder, 5), folder, out)
    assert [action for _, action in meddler.received[asked:]] == ["hello"] * 5
    assert again.artifact.after.ece == first.artifact.after.ece


def test_a_job_tells_auto_its_budget() -> None:
    for_clients = Job("auto", "user", 300, classes=4, epsilon=2.0, delta=1e-5).build_method()
    assert for_clients == fc.Auto(epsilon=2.0, unit="client")
    assert Job("auto", "distributed", 300, classes=4, epsilon=2.0).build_method() == fc.Auto(epsilon=2.0, unit="record")
    assert Job("auto", "secagg", 300, classes=4).build_method() == fc.Auto()
    told = Job("auto", "user", 300, classes=4, epsilon=2.0, delta=1e-5, settings={"epsilon": 0.5})
    assert told.build_method() == fc.Auto(epsilon=0.5, unit="client")
    measured = Job("auto", "local", 300, classes=4, epsilon=2.0, measure=True)
    half = {"epsilon": 1.0, "unit": "record", "alone": "record"}
    assert measured.build_method() == fc.methods.FitAndMeasure(fc.Auto(**half), fc.FederatedMetrics(**half))


def test_progress_tells_what_is_left_of_the_budget(tmp_path: Path) -> None:
    job = Job("fed-bin", "distributed", 5, epsilon=1.0)
    folder = tmp_path / "server" / job.key
    Ledger(tmp_path / "server" / "ledger.db").limit("default", 3)
    serve(job, places(DATA).runtime(state=folder), folder, tmp_path / "out")
    lines = [json.loads(line) for line in (tmp_path / "out" / "progress.jsonl").read_text().splitlines()]
    assert lines[0]["epsilon_left"] == 2.0


def test_the_same_job_twice_at_once_is_one_run(tmp_path: Path) -> None:
    job = Job("fed-bin", "distributed", 5, epsilon=1.0)
    everybody = places(DATA, folder=tmp_path / "sites")
    meddler = Meddler(everybody.transport(), lambda site, action, reply: reply)
    out, folder = tmp_path / "out", tmp_path / "server" / job.key
    with (
        fc.Transcript.open(folder / "transcript.jsonl"),
        pytest.raises(TranscriptError, match="in use by another run"),
    ):
        serve(job, Remote(meddler, everybody.directory, folder, 5), folder, out)
    assert {action for _, action in meddler.received} == {"hello"}
    assert not (tmp_path / "server" / "ledger.db").exists()
    serve(job, Remote(meddler, everybody.directory, folder, 5), folder, out)
    assert (out / "result.json").exists()
