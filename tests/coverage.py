"""The line coverage that a run of the tests reached, against the least that is accepted.

`make test` measures with SlipCover, which stops looking at a line once it was reached, so that all tests can be
followed at almost no cost. Processes that tests start are not followed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def covered(path: Path) -> float:
    """The share of lines that were reached, in percent."""
    return float(json.loads(path.read_text(encoding="utf-8"))["summary"]["percent_covered"])


def main() -> int:
    """Print the figure; 1 if it is too low."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path, help="what SlipCover wrote as JSON")
    parser.add_argument("--at-least", type=float, required=True, help="percent of lines")
    given = parser.parse_args()
    reached = covered(given.path)
    print(f"coverage: {reached:.2f}% of lines, at least {given.at_least:g}% expected")
    return int(reached < given.at_least)


if __name__ == "__main__":
    raise SystemExit(main())
