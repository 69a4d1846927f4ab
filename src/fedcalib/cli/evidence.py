"""`fedcalib verify`: check an evidence bundle. Also the flags of reports and bundles, which several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument

from fedcalib.cli import options
from fedcalib.cli.voice import USAGE, Voice
from fedcalib.workflows.documents import TextTable
from fedcalib.workflows.evidence import verify as verified
from fedcalib.workflows.result import WorkflowResult


def bundled(done: WorkflowResult, flags: options.Shared) -> dict[str, Any]:
    """Write the bundle where one was asked for; the result names its place."""
    return {} if flags.bundle is None else {"bundle": str(done.bundle(flags.bundle, flags.about))}


def verify(
    bundle: Annotated[Path, Argument(help="A zip file from --bundle.")],
    format_: options.Shape = options.Format.TEXT,
    config: options.Config = None,
    debug: options.Debug = False,
) -> None:
    """Check an evidence bundle: every file of its manifest is there and unchanged, and nothing else is."""
    found = verified(bundle)
    rows = tuple((name, digest) for name, digest in found.files.items())
    state = "whole" if not found.faults else "damaged"
    facts = (("bundle", state), ("date", found.date), ("SHA-256 of the manifest", found.digest))
    tables = [TextTable("", ("", ""), facts), TextTable("Files", ("file", "SHA-256"), rows)]
    Voice(format_ is options.Format.JSON).result(found.to_json(), tables, found.faults)
    if found.faults:
        raise typer.Exit(USAGE)
