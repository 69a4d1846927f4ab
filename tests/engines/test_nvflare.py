"""NVIDIA FLARE: its simulator with every method, and its POC mode with real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedcalib.deploy.job import Job
from tests.engines.federation import CLASSES, NAMES, check_work, write_sites

pytest.importorskip("nvflare", reason="needs the extra nvflare, in an environment of its own: make nvflare")

ROOT = Path(__file__).resolve().parents[2]


def flare_job(folder: Path, controller: dict[str, object]) -> Path:
    from fedcalib.deploy.nvflare import write_flare_job

    return write_flare_job(folder, controller)


def allow(local: Path) -> None:
    """What an operator does: FLARE loads no class of a job that the site's own list does not have."""
    local.mkdir(parents=True, exist_ok=True)
    allowed = ["nvflare.", "fedcalib.deploy.nvflare.", "tests.engines.flare."]
    (local / "resources.json").write_text(json.dumps({"format_version": 2, "class_allow_list": allowed}))


def simulate(folder: Path, job: Path) -> str:
    """Run a job on the simulator; one process per client."""
    allow(folder / "workspace" / "local")
    words = [sys.executable, "-m", "nvflare.cli", "simulator", str(job), "-w", str(folder / "workspace")]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "FEDCALIB_SITES": str(folder / "sites")}
    clients = ["-c", ",".join(NAMES), "-t", str(len(NAMES))]
    done = subprocess.run([*words, *clients], env=environment, capture_output=True, text=True, check=False, timeout=900)
    return done.stdout + done.stderr


@pytest.mark.e2e
@pytest.mark.parametrize("classes", CLASSES)
def test_every_method_has_the_same_answer_as_in_process(tmp_path: Path, classes: int) -> None:
    """To the last bit under SecAgg; noise under DistributedDP has the same law; policies refuse what they should."""
    write_sites(tmp_path, classes)
    args = {"folder": str(tmp_path), "classes": classes}
    log = simulate(tmp_path, flare_job(tmp_path / "job", {"path": "tests.engines.flare.Everything", "args": args}))
    assert (tmp_path / "found.json").exists(), log[-3000:]
    check_work(tmp_path, classes)


@pytest.mark.e2e
def test_a_job_is_run_and_its_result_written(tmp_path: Path) -> None:
    write_sites(tmp_path)
    job = Job("fed-bbq", "distributed", len(NAMES), epsilon=0.5, timeout=60)
    args = {
        "job": job.pack(),
        "directory": str(tmp_path / "keys" / "directory.json"),
        "state": str(tmp_path / "server"),
    }
    log = simulate(
        tmp_path, flare_job(tmp_path / "job", {"path": "fedcalib.deploy.nvflare.JobController", "args": args})
    )
    results = list((tmp_path / "server").rglob("result.json"))
    assert results, log[-3000:]
    assert "error" not in json.loads(results[0].read_text())
    assert (results[0].parent / "artifact.json").exists()
