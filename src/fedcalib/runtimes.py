"""Runtimes of one process: clients whose records are all here, and a finished transcript without clients."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

from fedcalib.cohort import MIN_CLIENTS, MIN_RECORDS
from fedcalib.errors import TooFewClients, TranscriptError
from fedcalib.federation import Federation
from fedcalib.loop import Runtime, Step, Total
from fedcalib.records import Schema
from fedcalib.transcript import Transcript

__all__ = ["InProcess", "Replay", "Runtime"]


@final
@dataclass(frozen=True, eq=False)
class InProcess(Runtime):
    """Clients whose records are all in this process: for simulation, for tests, and for sites on one machine.

    Parameters
    ----------
    federation
        The clients and their records.
    fewest_clients
        A sum that hides single clients is refused below this number of clients.
    fewest_records
        An exact sum is refused below this number of records.

    Examples
    --------
    >>> import fedcalib as fc
    >>> runtime = fc.InProcess(fc.Federation.simulated(clients=2))
    >>> fc.run(fc.FedBin(), runtime, fc.SecAgg())
    Traceback (most recent call last):
        ...
    fedcalib.errors.TooFewClients: Expected at least 3 clients in a sum that hides them, found 2; nothing was read. ...
    """

    federation: Federation
    fewest_clients: int = MIN_CLIENTS
    fewest_records: int = MIN_RECORDS

    @property
    def schema(self) -> Schema:
        return self.federation.schema

    def total(self, step: Step) -> Total:
        present = self.federation if step.members is None else self.federation.subset(step.members)
        if step.mechanism.modulus is not None:
            self._guard(step, present)
        return Total(step.mechanism.gather(step.query, present, step.randomness), len(present))

    def _guard(self, step: Step, present: Federation) -> None:
        step.cohort.require(len(present))
        if len(present) < self.fewest_clients:
            raise TooFewClients(
                f"Expected at least {self.fewest_clients} clients in a sum that hides them, found {len(present)}; "
                "nothing was read. Add clients, or choose a privacy model in which each client protects itself."
            )
        exact = step.mechanism.event(step.query, step.cohort) is None
        if exact and len(present.records) < self.fewest_records:
            raise TooFewClients(
                f"Expected at least {self.fewest_records} records in an exact sum, found {len(present.records)}; "
                "nothing was read. Add records, or add noise with a differentially private privacy model."
            )


@final
@dataclass(frozen=True)
class Replay(Runtime):
    """Rebuild an artifact from a transcript: run the same method and privacy model on it, without any data.

    Parameters
    ----------
    path
        The transcript of a finished run.

    Examples
    --------
    >>> import fedcalib as fc
    >>> first = fc.run(fc.FedBin(), fc.InProcess(fc.Federation.simulated()), fc.SecAgg(), transcript="run.jsonl")
    >>> again = fc.run(fc.FedBin(), fc.Replay("run.jsonl"), fc.SecAgg(), transcript="run.jsonl")
    >>> again.artifact == first.artifact
    True
    """

    path: Path | str

    @property
    def schema(self) -> Schema:
        """Read from the transcript's header."""
        lines = Transcript.read(self.path).lines
        if not lines:
            raise TranscriptError(f"Expected the transcript of a run in {self.path}, found none.")
        return Schema(int(lines[0]["classes"]), int(lines[0]["clients"]))

    def total(self, step: Step) -> Total:
        """Refused: there are no clients."""
        raise TranscriptError(
            f"Expected the answer to query {step.index} in {self.path}, found none; the run was not finished. "
            "Finish it where the clients are."
        )
