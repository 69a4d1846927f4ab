"""What the tests in a browser need, which `make browser` installs."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

CHROMIUM = shutil.which("chromium")
AXE = Path(
    os.environ.get("FEDCALIB_AXE", Path(sys.prefix) / "node" / "node_modules" / "axe-core" / "axe.min.js")
)  # where make browser puts it


def missing() -> str:
    """A sentence on what is not installed; empty where all of it is."""
    found = {"Playwright": find_spec("playwright") is not None, "Chromium": bool(CHROMIUM), "axe-core": AXE.is_file()}
    absent = [name for name, there in found.items() if not there]
    return f"{', '.join(absent)} not installed: run `make browser` once, which installs them" if absent else ""
