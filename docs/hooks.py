"""What the site does with the pages: it lists all decisions, and drops links to files that are no pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

EVIDENCE = "Evidence"  # the part of the navigation that holds the decisions
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """The navigation with every decision, by its title."""
    pages = sorted((Path(config["docs_dir"]) / "decisions").glob("*.md"))
    titles = [page.read_text(encoding="utf-8").split("\n", 1)[0].removeprefix("# ").replace("`", "") for page in pages]
    listed = [{title: f"decisions/{page.name}"} for title, page in zip(titles, pages, strict=True)]
    part = next(part for part in config["nav"] if EVIDENCE in part)
    part[EVIDENCE].append({"Decisions": listed})
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The page without links that lead out of the folder of pages, such as to benchmarks and source files."""
    root, here = Path(config["docs_dir"]).resolve(), Path(page.file.abs_src_path).parent

    def kept(link: re.Match[str]) -> str:
        target = link[3]
        if target.startswith(("http", "mailto")) or (here / target).resolve().is_relative_to(root):
            return link[0]
        return link[2]

    return LINK.sub(kept, markdown)
