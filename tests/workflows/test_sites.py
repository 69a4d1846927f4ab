"""Workflows over sites at a distance: the same results as a deployed job writes, and as records at hand give."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fedcalib as fc
from fedcalib.deploy.flower import serve
from fedcalib.deploy.job import Job
from fedcalib.errors import InputError
from fedcalib.workflows import calibrate, evaluate
from fedcalib.workflows.calibration import Calibration
from fedcalib.workflows.evaluation import Evaluation
from fedcalib.workflows.session import Data
from tests.contract.subjects import federation
from tests.remote.places import places

DATA = federation(2, records=3000)


def test_a_job_and_a_workflow_tell_the_same_before_and_after(tmp_path: Path) -> None:
    job = Job("platt-scaling", "secagg", sites=5, measure=True)
    served = serve(job, places(DATA).runtime(state=tmp_path / "job"), tmp_path / "job", tmp_path / "out").artifact
    done = calibrate(places(DATA).runtime(state=tmp_path / "mine"), fc.PlattScaling(), fc.SecAgg())
    assert done.before is not None
    assert done.after is not None
    assert (done.before.ece, done.after.ece) == (served.before.ece, served.after.ece)
    assert done.counts == {"sites": 5, "records": None}
    done.save(tmp_path / "saved")
    artifacts = [json.loads((tmp_path / name).read_text()) for name in ("out/artifact.json", "saved/calibrator.json")]
    assert artifacts[0] == artifacts[1]
    pages = [(tmp_path / name / "report.html").read_text() for name in ("out", "saved")]
    for page in pages:
        assert "Both were measured on the records that were fitted" in page


def test_sites_measure_what_records_at_hand_give(tmp_path: Path) -> None:
    remote = evaluate(places(DATA).runtime(state=tmp_path), fc.SecAgg())
    assert remote.to_json()["metrics"] == evaluate(DATA, fc.SecAgg()).to_json()["metrics"]


def test_a_dry_run_over_sites_asks_nobody(tmp_path: Path) -> None:
    runtime = fc.InProcess(DATA)
    planned = Calibration(Data.of(runtime), fc.FedBin(), fc.DistributedDP(1.0)).dry_run()
    done = calibrate(runtime, fc.FedBin(), fc.DistributedDP(1.0))
    assert [phase.cost() for phase in planned.phases] == [phase.cost() for phase in done.phases]
    assert planned.privacy.epsilon == done.privacy.epsilon == 1.0
    measured = Evaluation(Data.of(runtime), fc.DistributedDP(1.0)).dry_run()
    assert measured.to_json()["sites"] is None


def test_a_calibrator_cannot_be_applied_where_records_stay(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a runtime of sites"):
        evaluate(fc.InProcess(DATA), calibrator=fc.artifacts.Identity())
