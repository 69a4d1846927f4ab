"""What a command was told, put into the package's own objects."""

from __future__ import annotations

from pathlib import Path

from fedcalib import registry
from fedcalib.cli.voice import Voice
from fedcalib.cohort import Disjoint, Everyone, Participation, Poisson
from fedcalib.errors import InputError
from fedcalib.privacy import Privacy
from fedcalib.workflows.session import Session

_STATE = Path("~/.local/state/fedcalib")


def privacy_model(word: str | None, epsilon: float | None, delta: float | None, clip: float | None = None) -> Privacy:
    """Make the privacy model that was asked for, with the whole budget of a command."""
    made: Privacy = registry.privacy(word, {"epsilon": epsilon, "delta": delta, "clip": clip})
    return made


def session(seed: int | None, state: Path | None, ledger: Path | None, account: str, voice: Voice) -> Session:
    """Put together how a command runs; without --state, its state goes where the user's states are."""
    return Session(seed, state or _STATE, ledger, account, voice)


def participation(word: str, rounds: int | None) -> Participation:
    """Read who takes part: 'everyone', 'disjoint' or a chance."""
    if word == "everyone":
        return Everyone()
    if word == "disjoint":
        return Disjoint(rounds or 1)
    try:
        return Poisson(float(word))
    except ValueError as error:
        raise InputError(f"Expected --participation everyone, disjoint or a chance, found '{word}'.") from error
