"""The wheel as a new user installs it: into an empty environment, with whatever versions pip chooses by itself.

`make wheel-test` does it for every Python that the package claims; otherwise it is the one that runs the tests. With
`-s`, the size of the installation and the seconds that the README takes are printed.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
ROOT = Path(__file__).parents[1]
PYTHONS = os.environ.get("FEDCALIB_WHEEL_PYTHONS", sys.executable).split()
MOST_PACKAGES, MOST_MEGABYTES = 20, 680  # of the core, without pip, setuptools and the package itself
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```", re.M | re.S)


@dataclass(frozen=True)
class Place:
    """A folder with an environment, out of reach of this checkout and of its constraints."""

    folder: Path

    def call(self, *words: object) -> subprocess.CompletedProcess[str]:
        hidden = {"PYTHONPATH", "PYTHONHOME", "PIP_CONSTRAINT", "PIP_REQUIREMENT"}
        environment = {name: value for name, value in os.environ.items() if name not in hidden}
        environment |= {"FEDCALIB_STATE": str(self.folder / "state"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        program, *rest = (str(word) for word in words)
        command = [str(self.folder / "venv" / "bin" / program), *rest]
        return subprocess.run(command, capture_output=True, text=True, cwd=self.folder, env=environment, check=False)

    def ran(self, *words: object, code: int = 0) -> str:
        done = self.call(*words)
        assert done.returncode == code, done.stderr[-3000:]
        assert "Traceback" not in done.stderr
        return done.stdout if code == 0 else done.stderr

    def pip(self, *words: object) -> str:
        return self.ran("python", "-m", "pip", *words)


def interpreter(name: str) -> str:
    """A Python of that name that starts, on the path or among those of pyenv."""
    version = name.rpartition("python")[2]
    known = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python")) if version else []
    for found in (name, *map(str, known)):
        if shutil.which(found) and not subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode:
            return found
    pytest.skip(f"there is no {name} on this machine")


@pytest.fixture(params=PYTHONS, ids=lambda name: Path(name).name)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """An empty environment, removed at once: pytest would keep 700 MB of it for three sessions."""
    subprocess.run([interpreter(request.param), "-m", "venv", tmp_path / "venv"], check=True)
    found = Place(tmp_path)
    probe = ("--retries", "0", "--timeout", "15", "--dest", tmp_path / "probe", "hatchling>=1.24")
    if found.call("python", "-m", "pip", "download", "--no-deps", *probe).returncode:
        pytest.skip("pip cannot reach its package index: the wheel was not built and installed")
    yield found
    shutil.rmtree(tmp_path / "venv")


def test_the_wheel_works_after_a_plain_install(place: Place) -> None:
    folder = place.folder
    place.pip("wheel", "--no-deps", "--wheel-dir", folder / "dist", ROOT)
    place.pip("install", "--no-compile", *(folder / "dist").glob("*.whl"))
    place.pip("check")
    _is_small(place)

    assert "calibrate" in place.ran("fedcalib", "--help")
    assert "No such option" in place.ran("fedcalib", "calibrate", "--no-such-flag", code=2)
    assert "Did you mean 'calibrate'?" in place.ran("fedcalib", "calibrat", code=2)
    place.ran("fedcalib", "demo")
    hearts = ("fedcalib-demo/heart_disease.csv", "--site", "hospital", "--label", "disease", "--score", "risk")
    place.ran("fedcalib", "calibrate", *hearts, "--epsilon", 3, "--out", "out")
    place.ran("fedcalib", "evaluate", *hearts, "--calibrator", "out/calibrator.json", "--out", "measured")
    for file in ("fedcalib-demo/report.html", "out/calibrator.json", "out/result.json", "measured/report.html"):
        assert (folder / file).exists()
    flights = place.ran("fedcalib", "demo", "flights", code=2)  # it is there, and asks for its data
    assert "pip install 'fedcalib[demo]'" in flights
    _first_minute(place)


def _is_small(place: Place) -> None:
    listed = {line.split("==")[0].lower() for line in place.pip("list", "--format", "freeze").splitlines()}
    others = listed - {"pip", "setuptools", "fedcalib"}
    site = next((place.folder / "venv" / "lib").glob("python*/site-packages"))
    parts = [part for part in site.iterdir() if not part.name.startswith(("pip", "setuptools", "pkg_resources"))]
    files = (file for part in parts for file in (part.rglob("*") if part.is_dir() else [part]))
    size = round(sum(file.stat().st_size for file in files if file.is_file()) / 1e6)
    version = place.ran("python", "--version").strip()
    print(f"\n{version}: the core has {len(others)} packages besides itself and takes {size} MB")
    assert len(others) <= MOST_PACKAGES
    assert size <= MOST_MEGABYTES


def _first_minute(place: Place) -> None:
    """The README as printed, in an empty directory: every command and every block of Python."""
    empty = Place(place.folder / "empty")
    empty.folder.mkdir()
    (empty.folder / "venv").symlink_to(place.folder / "venv")
    start = time.monotonic()
    python = ""
    for kind, code in BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8")):
        if kind == "python":
            python += code
            continue
        for line in code.strip().splitlines():
            empty.ran(*shlex.split(line, comments=True))
    (empty.folder / "readme.py").write_text(python, encoding="utf-8")
    empty.ran("python", "readme.py")
    print(f"the README took {time.monotonic() - start:.1f} s")
