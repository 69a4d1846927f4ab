"""Five reports, made once, and a Chromium to open them in."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docs.gallery import reports


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The reports of the gallery, each in a folder of its own."""
    return reports.write_all(tmp_path_factory.mktemp("gallery"))


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, which looks for what keeps people out."""
    place = Path(os.environ.get("FEDCALIB_AXE", ""))
    if not place.is_file():
        pytest.skip("axe-core is not installed: run make browser")
    return place.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A running Chromium."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: run make browser")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed: run make browser")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()
