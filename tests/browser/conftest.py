"""Five reports, made once, and a Chromium to open them in."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docs.gallery import reports

_HOW = "run `make browser` once, which installs Chromium, Playwright and axe-core"
_AXE = Path(sys.prefix) / "node" / "node_modules" / "axe-core" / "axe.min.js"  # where make browser puts it


@pytest.fixture(scope="session")
def axe(chromium: Any) -> str:
    """The source of axe-core, which looks for what keeps people out."""
    place = Path(os.environ.get("FEDCALIB_AXE", _AXE))
    if not place.is_file():
        pytest.skip(f"axe-core is not installed: {_HOW}")
    return place.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A running Chromium, one for all tests."""
    playwright = pytest.importorskip("playwright.sync_api", reason=f"Playwright is not installed: {_HOW}")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip(f"Chromium is not installed: {_HOW}")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def pages(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The reports of the gallery, each in a folder of its own."""
    return reports.write_all(tmp_path_factory.mktemp("gallery"))
