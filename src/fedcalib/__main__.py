"""`python -m fedcalib` is the command line."""

from __future__ import annotations

from fedcalib.cli import main

main()
