"""The wheel as a new user installs it: into an empty environment, with whatever versions pip chooses by itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
ROOT = Path(__file__).parents[1]


def call(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a program of the new environment, out of reach of this checkout and of its constraints."""
    hidden = {"PYTHONPATH", "PYTHONHOME", "PIP_CONSTRAINT", "PIP_REQUIREMENT"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"FEDCALIB_STATE": str(folder / "state"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    program, *rest = (str(word) for word in words)
    command = [str(folder / "venv" / "bin" / program), *rest]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)


def pip(folder: Path, *words: object) -> None:
    done = call(folder, "python", "-m", "pip", *words)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with an empty environment, removed at once: pytest would keep 800 MB of it for three sessions."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    probe = ("--retries", "0", "--timeout", "15", "--dest", tmp_path / "probe", "hatchling>=1.24")
    if call(tmp_path, "python", "-m", "pip", "download", "--no-deps", *probe).returncode:
        pytest.skip("pip cannot reach its package index: the wheel was not built and installed")
    yield tmp_path
    shutil.rmtree(tmp_path / "venv")


def test_the_wheel_works_after_a_plain_install(folder: Path) -> None:
    pip(folder, "wheel", "--no-deps", "--wheel-dir", folder / "dist", ROOT)
    pip(folder, "install", "--no-compile", *(folder / "dist").glob("*.whl"))
    pip(folder, "check")

    shown = call(folder, "fedcalib", "--help")
    assert shown.returncode == 0, shown.stderr
    assert "calibrate" in shown.stdout

    refused = call(folder, "fedcalib", "calibrate", "--no-such-flag")
    assert refused.returncode == 2, refused.stderr
    assert "No such option" in refused.stderr and "Traceback" not in refused.stderr

    rows = "".join(f"{score / 100},{int(score > 50)},{site}\n" for score in range(1, 100) for site in "abc")
    (folder / "scores.csv").write_text(f"score,label,site\n{rows}")
    asked = ("scores.csv", "--site", "site", "--method", "fed-bin", "--privacy", "distributed", "--epsilon", 1)
    done = call(folder, "fedcalib", "calibrate", *asked, "--out", "out")
    assert done.returncode == 0, done.stderr
    assert (folder / "out" / "calibrator.json").exists()

    demo = call(folder, "fedcalib", "demo")
    assert demo.returncode == 0, demo.stderr
    assert (folder / "fedcalib-demo" / "report.html").exists()

    flights = call(folder, "fedcalib", "demo", "flights")  # it is there, and asks for its data
    assert flights.returncode == 2, flights.stderr
    assert "pip install 'fedcalib[demo]'" in flights.stderr
