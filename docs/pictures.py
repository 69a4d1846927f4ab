"""The screenshots of the gallery: `python docs/pictures.py`, with Chromium installed.

Each command runs on the data that ships with the package, and its report is photographed without a network.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import fedcalib as fc
from fedcalib.cli.app import run

IMAGES = Path(__file__).parent / "images"
COLUMNS = ["--site", "hospital", "--label", "disease", "--score", "risk"]
COMMANDS = {
    "calibrate": ["--split-seed", "0"],
    "evaluate": [],
    "compare": ["--methods", "auto,platt-scaling,beta-scaling,isotonic-buckets,fed-bin", "--repeats", "5"],
}
SIZE = "1000,1400"


def photograph(page: Path, picture: Path) -> None:
    """Write what a browser shows of the top of a page."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        sys.exit("Expected Chromium to take pictures, found none; install it.")
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={SIZE}"]
    subprocess.run([browser, *words, f"--screenshot={picture}", page.as_uri()], check=True, capture_output=True)


def main() -> None:
    """Take every picture again."""
    data = Path(fc.datasets.__file__).parent / "data" / "heart_disease.csv"
    with TemporaryDirectory() as folder:
        for command, flags in COMMANDS.items():
            out = Path(folder) / command
            words = [command, str(data), *COLUMNS, *flags, "--out", str(out), "--state", str(Path(folder) / "state")]
            if run(words) != 0:
                sys.exit(f"Expected fedcalib {command} to run, found that it did not.")
            photograph(out / "report.html", IMAGES / f"report-{command}.png")


if __name__ == "__main__":
    main()
