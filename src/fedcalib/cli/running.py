"""How our commands print, run and become those of Flower."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from fedcalib.deployment import Command
from fedcalib.errors import InputError


def stated_keys(keys: Path | None, insecure: bool) -> Path | None:
    """Take keys, or their absence only where it was spelled out."""
    if keys is None and not insecure:
        raise InputError("Expected --keys FOLDER (see `fedcalib certs`), found none; --insecure has to be spelled out.")
    if keys is not None and insecure:
        raise InputError("Expected --keys or --insecure, found both.")
    return keys


def replace_by(command: Command, show: bool) -> None:
    """Print a command and become it, so that signals reach it and nothing stays behind."""
    print(command, file=sys.stdout if show else sys.stderr, flush=True)
    if not show:
        os.execve(command.words[0], command.words, command.whole_environment)  # noqa: S606 - no shell is what we want


def call(command: Command) -> str:
    """Run a command and give what it said; if it fails, so do we."""
    done = subprocess.run(  # noqa: S603 - the words are our own
        command.words, env=command.whole_environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-600:]
        raise InputError(f"Expected Flower to do as asked, found an error: {said or 'none told'}. It ran: {command}")
    return done.stdout
