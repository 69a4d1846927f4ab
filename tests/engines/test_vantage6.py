"""vantage6: its mock network with every method; node containers were not run."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedcalib.deploy.job import Job
from fedcalib.remote.sites import Transport
from tests.engines.federation import CLASSES, NAMES, check_work, work, write_sites

REASON = "needs the extra vantage6, in an environment of its own: make vantage6"
mock = pytest.importorskip("vantage6.algorithm.tools.mock_client", reason=REASON)

NUMBERS = {name: 10 + place for place, name in enumerate(NAMES)}


def transport(client: object) -> Transport:
    from fedcalib.deploy.vantage6 import VantageTransport

    return VantageTransport(client, NUMBERS)


def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, classes: int) -> object:
    sites = write_sites(tmp_path, classes)
    for name, number in NUMBERS.items():
        (sites / name).rename(sites / str(number))  # sites are known by the numbers of their organizations
    monkeypatch.setenv("FEDCALIB_SITES", str(sites))
    datasets: list[list[object]] = [[] for _ in NAMES]
    return mock.MockAlgorithmClient(datasets, "fedcalib.deploy.vantage6", organization_ids=[*NUMBERS.values()])


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    return network(tmp_path, monkeypatch, 2)


@pytest.mark.parametrize("classes", CLASSES)
def test_every_method_has_the_same_answer_as_in_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, classes: int
) -> None:
    """To the last bit under SecAgg; noise under DistributedDP has the same law; policies refuse what they should."""
    work(transport(network(tmp_path, monkeypatch, classes)), tmp_path, classes)
    check_work(tmp_path, classes)


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
