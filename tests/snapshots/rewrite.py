"""Write all snapshots anew: `python -m tests.snapshots.rewrite`, with `--words` only the words."""

from __future__ import annotations

import sys
import warnings

from tests.snapshots.storing import CASES, MACHINE, STORED, found, store, store_machine, stored


def rewrite(words_only: bool) -> None:
    """Run every case and store what it gave; take files of cases away that are no more."""
    warnings.simplefilter("error")
    for name in CASES:
        now = found(name)
        store(name, {**stored(name), "words": now["words"]} if words_only else now)
    if not words_only:
        store_machine()
    for path in STORED.glob("*.json"):
        if path != MACHINE and path.stem not in CASES:
            path.unlink()


if __name__ == "__main__":
    rewrite("--words" in sys.argv[1:])
