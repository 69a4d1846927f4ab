"""Five reports, made once, and a Chromium to open them in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docs.gallery import reports

from tests.browser.needs import AXE, CHROMIUM


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, which looks for what keeps people out."""
    return AXE.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A running Chromium, one for all tests."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The reports of the gallery, each in a folder of its own."""
    return reports.write_all(tmp_path_factory.mktemp("gallery"))
