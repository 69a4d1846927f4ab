"""`python -m benchmarks.workflow_audits` is `python -m benchmarks.workflow_audits.run`."""

from __future__ import annotations

from benchmarks.workflow_audits.run import main

if __name__ == "__main__":
    main()
