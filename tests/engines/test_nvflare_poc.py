"""NVIDIA FLARE in POC mode: a server and three clients as real processes, with FLARE's own TLS and list of classes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import fedcalib as fc
from fedcalib import registry, wire
from fedcalib.deploy.job import Job
from fedcalib.remote.journal import DiskJournal
from fedcalib.types import Floats
from tests.engines.federation import EPSILON, LAW, NAMES, POLICY, check_law, in_process, write_sites

pytest.importorskip("nvflare", reason="needs the extra nvflare, in an environment of its own: make nvflare")

ROOT = Path(__file__).resolve().parents[2]
CLASSES = {"server": "JobController", **dict.fromkeys(NAMES, "SiteExecutor")}


def nvflare(folder: Path, *words: str) -> str:
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {"PYTHONPATH": path, "PATH": places, "HOME": str(folder), "NVFLARE_POC_WORKSPACE": str(folder / "poc")}
    with (folder / "poc.log").open("a") as log:  # not a pipe: what it starts would keep it open
        command = [sys.executable, "-m", "nvflare.cli", *words]
        subprocess.run(
            command,
            env={**os.environ, **own},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            check=False,
            timeout=120,
        )
    return (folder / "poc.log").read_text()


def set_up(folder: Path) -> Path:
    """What operators do: each allows our class by name, and each site has its own settings beside FLARE's."""
    sites = write_sites(folder)
    log = nvflare(folder, "poc", "prepare", "-c", *NAMES)
    kits = folder / "poc" / "example_project" / "prod_00"
    assert kits.is_dir(), log
    for name, kind in CLASSES.items():
        local = kits / name / "local"
        found = next(local / one for one in ("resources.json", "resources.json.default") if (local / one).exists())
        settings = json.loads(found.read_text())
        settings["class_allow_list"].append(f"fedcalib.deploy.nvflare.{kind}")
        (local / "resources.json").write_text(json.dumps(settings))
        if name in NAMES:
            shutil.copy(sites / name / "fedcalib.json", local / "fedcalib.json")
    return kits


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Callable[[Job], Path]]]:
    """A running federation, and a function that runs a job and returns the folder of its result."""
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    from fedcalib.deploy.nvflare import write_flare_job

    folder = tmp_path_factory.mktemp("poc")
    kits = set_up(folder)
    nvflare(folder, "poc", "start")
    session = None
    try:
        for _ in range(30):
            try:
                session = new_secure_session("admin@nvidia.com", str(kits / "admin@nvidia.com"), timeout=10)
                if len(session.get_system_info().client_info) == len(NAMES):
                    break
            except Exception as error:
                last = error
            time.sleep(2)
        assert session is not None, f"{last}\n{(folder / 'poc.log').read_text()[-2000:]}"

        def run(job: Job) -> Path:
            state = folder / "server"
            args = {"job": job.pack(), "directory": str(folder / "keys" / "directory.json"), "state": str(state)}
            controller = {"path": "fedcalib.deploy.nvflare.JobController", "args": args}
            number = session.submit_job(str(write_flare_job(folder / "jobs" / job.key, controller)))
            session.monitor_job(number, timeout=240, poll_interval=1.0)
            return state / "jobs" / job.key / "flare"

        yield folder, run
    finally:
        if session is not None:
            session.close()
        nvflare(folder, "poc", "stop")


def answered(result: Path) -> Floats:
    """The last answer that the server read, from the transcript of a job."""
    line = json.loads((result.parent / "transcript.jsonl").read_text().splitlines()[-1])
    return np.asarray(wire.decode(line["value"], registry.lookup))


@pytest.mark.e2e
def test_real_processes_have_the_answers_and_the_noise_of_in_process(
    federation: tuple[Path, Callable[[Job], Path]],
) -> None:
    folder, run = federation
    settings = {"bins": LAW.bins}
    exact = run(Job("fed-bin", "secagg", len(NAMES), timeout=60, settings=settings))
    assert "error" not in json.loads((exact / "result.json").read_text())
    expected = fc.run(LAW, in_process(folder), fc.SecAgg()).artifact
    assert fc.load(exact / "artifact.json") == expected
    private = run(Job("fed-bin", "distributed", len(NAMES), epsilon=EPSILON, timeout=60, settings=settings))
    assert json.loads((private / "result.json").read_text())["privacy"]["epsilon"] == pytest.approx(EPSILON)
    check_law((answered(private) - answered(exact)).tolist(), folder)
    for name in NAMES:
        journal = DiskJournal(folder / "state" / name)
        assert float(journal.spent_in_a_year()) == EPSILON
        journal.log.verify()


@pytest.mark.e2e
def test_a_site_s_own_policy_refuses_by_name(federation: tuple[Path, Callable[[Job], Path]]) -> None:
    folder, run = federation
    before = [DiskJournal(folder / "state" / name).spent_in_a_year() for name in NAMES]

    def refused(job: Job) -> str:
        return str(json.loads((run(job) / "result.json").read_text())["error"])

    dear = refused(Job("fed-bbq", "distributed", len(NAMES), epsilon=5.0, timeout=60))
    assert all(f"Site '{name}' allows a smaller epsilon only" in dear for name in NAMES)
    shown = refused(Job("fed-bbq", "open", len(NAMES), timeout=60))
    assert all(f"Site '{name}' does not allow this privacy model" in shown for name in NAMES), shown
    (folder / "south.toml").write_text(f"{POLICY}queries = ['LabelHistogram']\n")
    named = refused(Job("score-curves", "distributed", len(NAMES), epsilon=0.5, timeout=60))
    (folder / "south.toml").write_text(POLICY)
    assert "Site 'south' does not allow such a query" in named
    assert not any(f"Site '{name}'" in named for name in ("north", "west"))
    assert [DiskJournal(folder / "state" / name).spent_in_a_year() for name in NAMES] == before
