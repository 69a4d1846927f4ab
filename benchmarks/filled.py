"""Put tables into a README between marks, so that it says what the CSV files beside it say and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path


def markdown(header: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """Lay out a table."""
    head = list(header)
    body = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *body])


def fill(page: Path, tables: dict[str, str]) -> None:
    """Replace what stands between `<!-- name -->` and `<!-- end -->`, for every name."""
    text = page.read_text()
    for name, table in tables.items():
        between = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)", re.S)
        if not between.search(text):
            raise ValueError(f"Expected a mark '<!-- {name} -->' in {page}, found none.")
        text = between.sub(lambda found, table=table: f"{found[1]}\n{table}\n\n{found[2]}", text)
    page.write_text(text)
