"""The documentation site builds strictly, without a network: every link, anchor and reference leads somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("mkdocs") is None or find_spec("mkdocstrings") is None:
        pytest.skip("the packages of the documentation site are not installed: pip install 'fedcalib[docs]'")
    folder = tmp_path_factory.mktemp("site")
    offline = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "NO_MKDOCS_2_WARNING": "1"}
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, **offline})
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_is_whole(site: Path) -> None:
    for page in ("index", "installation", "faq", "gallery/index", "how-to/use-r", "reference/vocabulary"):
        assert (site / f"{page}.html").stat().st_size > 5000
    assert 'id="fedcalib.workflows.calibration.calibrate"' in (site / "reference/api/workflows.html").read_text("utf-8")
    assert "images/demo-reliability.png" in (site / "index.html").read_text("utf-8")


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r'<(?:script|link|img)[^>]*(?:src|href)="(https?:[^"]+)"')
    for page in site.rglob("*.html"):
        outside = [target for target in loaded.findall(page.read_text("utf-8")) if "canonical" not in target]
        assert not outside, page.name


@pytest.mark.parametrize("broken", ["[lost](nowhere.md)", "[lost](faq.md#nowhere)", "[lost][fedcalib.nowhere]"])
def test_a_broken_link_or_reference_is_found(site: Path, tmp_path: Path, broken: str) -> None:
    """A small site with the same settings: the check can fail."""
    settings = (ROOT / "mkdocs.yml").read_text("utf-8").split("\nnav:")[0].replace("hooks: [docs/hooks.py]\n", "")
    (tmp_path / "mkdocs.yml").write_text(settings, "utf-8")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "faq.md").write_text("# Questions\n", "utf-8")
    (tmp_path / "docs" / "index.md").write_text(f"# Start\n\n{broken}\n", "utf-8")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "out")]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "nowhere" in done.stderr
