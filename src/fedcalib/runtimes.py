"""All clients in this process: for simulation, for tests, and for sites whose data already sits on one machine.

A runtime without clients: what a finished transcript holds is all there is.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

from fedcalib.cohort import FEWEST_CLIENTS, FEWEST_RECORDS
from fedcalib.errors import TooFewClients, TranscriptError
from fedcalib.federation import Federation
from fedcalib.loop import Runtime, Step, Total
from fedcalib.records import Schema
from fedcalib.transcript import Transcript


@final
@dataclass(frozen=True, eq=False)
class InProcess(Runtime):
    """Clients whose records lie side by side in this process.

    A sum that hides single clients is refused below `fewest_clients`; an exact one also below `fewest_records`.
    """

    federation: Federation
    fewest_clients: int = FEWEST_CLIENTS
    fewest_records: int = FEWEST_RECORDS

    @property
    def schema(self) -> Schema:
        """Say how many classes and clients there are."""
        return self.federation.schema

    def total(self, step: Step) -> Total:
        """Sum the shares of the clients that take part."""
        members = step.participation.members(len(self.federation), step.index, step.run)
        present = self.federation if members is None else self.federation.subset(members)
        if step.mechanism.modulus is not None:
            self._guard(step, present)
        return Total(step.mechanism.gather(step.query, present, step.randomness), len(present))

    def _guard(self, step: Step, present: Federation) -> None:
        step.cohort.require(len(present))
        if len(present) < self.fewest_clients:
            raise TooFewClients(
                f"Expected at least {self.fewest_clients} clients in a sum that hides them, found {len(present)}; "
                "nothing was read. Add clients, or choose a model in which each client protects itself."
            )
        exact = step.mechanism.event(step.query, step.cohort) is None
        if exact and len(present.records) < self.fewest_records:
            raise TooFewClients(
                f"Expected at least {self.fewest_records} records in an exact sum, found {len(present.records)}; "
                "nothing was read. Add records, or add noise with a differentially private model."
            )


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
