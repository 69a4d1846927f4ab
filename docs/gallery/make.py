"""Make the reports of the gallery and photograph them: `make gallery`."""

from __future__ import annotations

import shutil
from pathlib import Path

from docs.gallery.reports import write_all
from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
TOPS = {
    "evaluation": "Decisions and ranking",
    "classes": "By class",
    "monitoring": "Over time",
}  # what is shown of it


def main() -> None:
    """Write the pages into `out`, and a picture of the top of each beside this file."""
    pages = write_all(HERE / "out")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, path in pages.items():
            _photograph(browser, name, path, width=1280, height=1500, scheme="light")
        _photograph(browser, "calibration", pages["calibration"], width=360, height=1500, scheme="dark")
        browser.close()


def _photograph(browser: object, name: str, path: Path, *, width: int, height: int, scheme: str) -> None:
    context = browser.new_context(  # type: ignore[attr-defined]
        viewport={"width": width, "height": height}, color_scheme=scheme, device_scale_factor=0.6 if width > 400 else 1
    )
    page = context.new_page()
    page.goto(path.resolve().as_uri())
    if name in TOPS and width > 400:
        page.locator("h2", has_text=TOPS[name]).first.evaluate("(one) => one.parentElement.scrollIntoView()")
    suffix = "" if scheme == "light" else "-dark-360"
    page.screenshot(path=HERE / f"{name}{suffix}.png")
    context.close()


if __name__ == "__main__":
    main()
