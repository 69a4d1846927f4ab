"""Run benchmarks: all that need no further data, or those named.

`python -m benchmarks` runs the quick ones; `python -m benchmarks scale audit` runs two by name; `python -m benchmarks
--list` says what there is. Each writes its results beside itself.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
QUICK = ("scale", "import_time", "models")


def known() -> list[str]:
    """Every folder with something to run."""
    return sorted(path.parent.name for path in HERE.glob("*/run.py"))


def main(names: list[str]) -> int:
    """Run one after the other; the first that fails ends it."""
    if names == ["--list"]:
        print("\n".join(known()))
        return 0
    for name in names or QUICK:
        if name not in known():
            print(f"Expected one of {', '.join(known())}, found {name}.", file=sys.stderr)
            return 2
        print(f"== {name}", flush=True)
        code = subprocess.run([sys.executable, "-m", f"benchmarks.{name}.run"], check=False).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
