"""What a command was told about data and privacy, checked and put into the package's own words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar, final

import numpy as np

from fedcalib import registry
from fedcalib.cli.voice import Voice
from fedcalib.cohort import Disjoint, Everyone, Participation, Poisson
from fedcalib.data import Columns, read_checked
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.privacy import Privacy
from fedcalib.workflows.session import State

T = TypeVar("T")


@final
@dataclass(frozen=True)
class PrivacyRequest:
    """The privacy model that was asked for, with the whole budget of a command."""

    word: str | None
    epsilon: float | None
    delta: float | None
    clip: float | None = None

    def model(self, share: float = 1.0) -> Privacy:
        """Make the model with a share of the budget."""
        epsilon = None if self.epsilon is None else self.epsilon * share
        delta = None if self.delta is None else self.delta * share
        made: Privacy = registry.privacy(self.word, {"epsilon": epsilon, "delta": delta, "clip": self.clip})
        return made


@final
@dataclass(frozen=True)
class DataRequest:
    """What the columns of the files mean, and who is to hear about trouble with them."""

    columns: Columns
    voice: Voice

    def read(self, files: Sequence[Path], state: State, private: bool) -> tuple[Federation, tuple[str, ...]]:
        """Read files; what was left out is counted on the screen, and in the result where counts may be told."""
        with self.voice.meter("reading rows") as meter:
            reading = read_checked(files, self.columns, seed=derived(state, "unit"), watch=meter.at)
        told = tuple(str(rejected) for rejected in reading.rejected)
        for text in told:
            self.voice.warn(text)
        return reading.federation, () if private else told


def split(federation: Federation, share: float, state: State) -> tuple[Federation, Federation]:
    """Hold records out by a coin each, so that removing one record moves no other to the other side."""
    if not 0 < share < 1:
        raise InputError(f"Expected a share between 0 and 1 with --holdout (0 for no measurement), found {share}.")
    held = np.random.default_rng(derived(state, "holdout")).random(len(federation.records)) < share
    return federation.where(~held), federation.where(held)


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


def settings(**told: Any) -> dict[str, Any]:
    """Put what decides a run's answers into plain data."""
    return {name: asdict(value) if isinstance(value, Columns) else value for name, value in told.items()}


def derived(state: State, purpose: str) -> int:
    """Draw different chance for different purposes from one secret."""
    words = [state.secret % (1 << 128), *purpose.encode()]
    return int(np.random.SeedSequence(words).generate_state(2, np.uint64)[0])
