"""The command line, one file per command.

Exit codes: 0 fine, 1 a bug of ours, 2 wrong usage or bad input, 3 a budget refused, 4 a privacy model, a policy or a
cohort refused, 130 interrupted.
"""

from __future__ import annotations


def main() -> None:
    """Run the command line and leave with its exit code."""
    import sys

    from fedcalib.cli.app import run

    raise SystemExit(run(sys.argv[1:]))
