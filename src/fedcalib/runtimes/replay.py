"""A runtime without clients: what a finished transcript holds is all there is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

from fedcalib.errors import TranscriptError
from fedcalib.loop import Runtime, Step, Total
from fedcalib.records import Schema
from fedcalib.transcript import Transcript


@final
@dataclass(frozen=True)
class Replay(Runtime):
    """Rebuild an artifact from its transcript: give `run` the same method, model and transcript, and no data at all."""

    path: Path

    @property
    def schema(self) -> Schema:
        """Read from the header how many classes and clients there were."""
        lines = Transcript.read(self.path).lines
        if not lines:
            raise TranscriptError(f"Expected the transcript of a run in {self.path}, found none.")
        return Schema(int(lines[0]["classes"]), int(lines[0]["clients"]))

    def total(self, step: Step) -> Total:
        """Refuse: there is nobody to ask."""
        raise TranscriptError(
            f"Expected the answer to query {step.index} in {self.path}, found none; the run was not finished. "
            "Finish it where the clients are."
        )
