"""vantage6: its mock network with every method; node containers were not run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedcalib.deploy.job import Job
from fedcalib.remote.journal import DiskJournal
from fedcalib.remote.sites import Transport
from tests.engines.federation import NAMES, check_answers, work, write_sites

REASON = "needs the extra vantage6, in an environment of its own: make vantage6"
mock = pytest.importorskip("vantage6.algorithm.tools.mock_client", reason=REASON)

NUMBERS = {name: 10 + place for place, name in enumerate(NAMES)}


def transport(client: object) -> Transport:
    from fedcalib.deploy.vantage6 import VantageTransport

    return VantageTransport(client, NUMBERS)


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    sites = write_sites(tmp_path)
    for name, number in NUMBERS.items():
        (sites / name).rename(sites / str(number))  # sites are known by the numbers of their organizations
    monkeypatch.setenv("FEDCALIB_SITES", str(sites))
    datasets: list[list[object]] = [[] for _ in NAMES]
    return mock.MockAlgorithmClient(datasets, "fedcalib.deploy.vantage6", organization_ids=[*NUMBERS.values()])


def test_every_method_has_the_same_answer_as_in_process(tmp_path: Path, client: object) -> None:
    work(transport(client), tmp_path)
    found = json.loads((tmp_path / "found.json").read_text())
    check_answers(found["answers"], tmp_path)
    assert found["epsilon"] == pytest.approx(0.5)
    assert "allows a smaller epsilon only" in found["refused"]
    for name in NAMES:
        journal = DiskJournal(tmp_path / "state" / name)
        assert float(journal.spent_in_a_year()) == 0.5
        journal.log.verify()


def test_a_task_holds_one_site_s_text_alone(tmp_path: Path, client: object) -> None:
    work_sites = transport(client)
    work_sites.exchange("hello", dict.fromkeys(NAMES, ""), 10)
    runs = client.runs  # type: ignore[attr-defined]
    assert sorted(run["organization"]["id"] for run in runs) == sorted(NUMBERS.values())


def test_a_job_returns_its_artifact(tmp_path: Path, client: object) -> None:
    job = Job("fed-bbq", "distributed", len(NAMES), epsilon=0.5, timeout=60)
    told = {"job": job.pack(), "directory": str(tmp_path / "keys" / "directory.json"), "organizations": NUMBERS}
    made = client.task.create(  # type: ignore[attr-defined]
        input_={"method": "run_job", "kwargs": told}, organizations=[10]
    )
    result = client.result.from_task(made["id"])[0]  # type: ignore[attr-defined]
    assert result["privacy"]["epsilon"] == pytest.approx(0.5)
    assert result["artifact"]
