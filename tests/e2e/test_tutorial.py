"""The tutorial of three sites, typed in as a new user would: every block of the page, in the order of the page."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.fleet import full

pytest.importorskip("flwr")
pytestmark = [pytest.mark.e2e, pytest.mark.slow]
PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "three-sites.md"
BLOCK = re.compile(r"^ *```(\w+)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
PATIENCE = 600


def blocks(kind: str) -> list[str]:
    return [text for name, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")) if name == kind]


def commands() -> list[str]:
    lines = [line.strip() for text in blocks("console") for line in text.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def test_it_takes_ten_commands_and_one_to_use_the_result() -> None:
    assert len(commands()) == 11
    assert all(command.startswith("fedcalib ") for command in commands())


@full
def test_the_page_works_as_printed(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", blocks("python")[0]], cwd=tmp_path, check=True)
    (tmp_path / "job.toml").write_text(blocks("toml")[0], encoding="utf-8")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with (tmp_path / "said.txt").open("wb") as said:
        shell = subprocess.Popen(
            ["bash", "-e", "-c", "\n".join(commands())],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            code = shell.wait(PATIENCE)
        finally:
            os.killpg(shell.pid, signal.SIGTERM)
    told = (tmp_path / "said.txt").read_text(encoding="utf-8", errors="replace")
    assert code == 0, told[-3000:]
    report = (tmp_path / "results" / "report.html").read_text(encoding="utf-8")
    assert "ECE" in report and "Simulation" not in report
    assert json.loads((tmp_path / "results" / "artifact.json").read_text(encoding="utf-8"))
    assert len((tmp_path / "calibrated.csv").read_text(encoding="utf-8").splitlines()) == 2001
