"""Runs of jobs at a server: who is told what about their end, and how soon."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from fedcalib.cli import app
from fedcalib.cli import voice as exits
from fedcalib.deploy.commands import Link
from fedcalib.deploy.control import Control
from fedcalib.deploy.flower import progress_log
from fedcalib.deploy.job import Job
from fedcalib.deploy.runs import Follower, JobFolder, Run, error_of, find_run, reported
from fedcalib.errors import FedcalibError, InputError, TooFewClients, UnavailableError
from fedcalib.remote.sites import Notice

JOB = Job("fed-bin", "distributed", 3, epsilon=1.0, name="winter")
NOBODY = Control(Link("127.0.0.1", 9, None))  # the port of 'discard', where nobody listens


@pytest.fixture
def run(tmp_path: Path) -> Run:
    folder = JobFolder.of(tmp_path, JOB)
    line = {"number": 7, "by": "anna", "at": "2026-01-01T00:00:00+00:00", "job": json.dumps(asdict(JOB))}
    folder.path.mkdir(parents=True)
    (folder.path / "runs.jsonl").write_text(json.dumps(line) + "\n")
    return find_run(tmp_path, 7)


def begin(run: Run) -> None:
    progress_log(run.folder / "progress.jsonl")(Notice("begun", 0, 0, {}))


@pytest.mark.parametrize(
    ("cause", "ended", "code"),
    [
        (TooFewClients("Expected 3 sites, found 2."), "failed", exits.REFUSED),
        (InputError("Expected a directory."), "failed", exits.USAGE),
        (ZeroDivisionError("a bug"), "failed", exits.BUG),
        (KeyboardInterrupt(), "stopped", exits.UNAVAILABLE),
        (SystemExit(1), "stopped", exits.UNAVAILABLE),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_whatever_ends_a_run_is_written_down(run: Run, cause: BaseException, ended: str, code: int) -> None:
    assert run.state == "waiting"
    try:
        with reported(run.folder):
            begin(run)
            assert run.state == "running"
            raise cause
    except BaseException as error:
        assert error is cause
        assert not isinstance(error, FedcalibError)
    assert run.state == ended
    document = Follower(run, NOBODY, lambda line: None).wait(10)
    error = error_of(document)
    assert error is not None
    assert exits.exit_code(error) == code
    assert str(cause) in str(error) or ended == "stopped"


def test_an_app_that_was_killed_is_told_at_once(run: Run) -> None:
    with pytest.raises(SystemError), reported(run.folder):
        begin(run)
        raise SystemError
    (run.folder / "result.json").unlink()  # as it is after a kill: begun, nobody holds the lock, nothing is written
    assert run.state == "died"
    with pytest.raises(UnavailableError, match=r"app died in run 7\. Submit the same job again"):
        Follower(run, NOBODY, lambda line: None).wait(3600)


def test_a_server_that_is_gone_is_told_before_the_wait_is_over(run: Run) -> None:
    with pytest.raises(UnavailableError, match=r"Found no server at 127\.0\.0\.1:9 .* Run 7 ended with it"):
        Follower(run, NOBODY, lambda line: None).wait(3600)


def test_runs_are_listed_with_their_owner(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begin(run)
    assert app.run(["jobs", "--state", str(tmp_path), "--format", "json"]) == exits.FINE
    (listed,) = json.loads(capsys.readouterr().out)["runs"]
    assert (listed["run"], listed["job"], listed["by"], listed["state"]) == (7, "winter", "anna", "died")
    assert app.run(["status", "7", "--state", str(tmp_path), "--format", "json"]) == exits.FINE
    told = json.loads(capsys.readouterr().out)
    assert [line["stage"] for line in told["progress"]] == ["begun"]
    assert app.run(["status", "8", "--state", str(tmp_path)]) == exits.USAGE
    assert "see `fedcalib jobs`" in capsys.readouterr().err


def test_a_server_that_is_not_there_has_an_exit_code_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("flwr")
    assert app.run(["stop", "7", "--insecure", "--port", "9"]) == exits.UNAVAILABLE
    assert "check the address, and that it runs" in capsys.readouterr().err
