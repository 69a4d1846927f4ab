"""The command line, one file per command.

Exit codes: 0 fine, 1 a bug of ours, 2 wrong usage or bad input, 3 a budget refused, 4 a privacy model, a policy or a
cohort refused, 130 interrupted, 141 nobody reads the output any more.
"""

from __future__ import annotations


def main() -> None:
    """Run the command line and leave with its exit code."""
    import os
    import sys

    for name in ("stdout", "stderr"):  # both are None where the shell has closed them
        setattr(sys, name, getattr(sys, name) or open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
    try:
        from fedcalib.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # while modules are loaded, before `run` can answer
        print("Error: Interrupted.", file=sys.stderr)
        code = 130
    _leave(code)


def _leave(code: int) -> None:
    """End the process at once: what libraries do while Python shuts down must not change the exit code.

    Whatever could not be written is dropped, because Python would complain about it at the end.
    """
    import os
    import sys

    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    os._exit(code)
