"""`run`, and the runtimes of one process: clients whose records are all here, and a finished transcript."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, final

from fedcalib.accounting.spending import Debits
from fedcalib.cohort import MIN_CLIENTS, MIN_RECORDS, Everyone, Participation
from fedcalib.display import check_made
from fedcalib.errors import InputError, TooFewClients, TranscriptError
from fedcalib.federation import Federation
from fedcalib.loop import Agreement, Progress, Result, Runtime, Step, Total, conduct
from fedcalib.method import Method
from fedcalib.privacy import Privacy
from fedcalib.randomness import Randomness
from fedcalib.records import Schema
from fedcalib.transcript import Transcript

T = TypeVar("T")

__all__ = ["InProcess", "Replay", "Runtime", "run"]


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


def run(
    method: Method[T],
    runtime: Any,
    privacy: Privacy,
    *,
    participation: Participation | None = None,
    randomness: Randomness | None = None,
    transcript: Path | str | None = None,
    ledger: Debits | None = None,
    account: str = "default",
    watch: Callable[[Progress], None] | None = None,
    **columns: Any,
) -> Result[T]:
    """Run a method on a runtime under a privacy model and return its artifact with what it spent.

    With a transcript file, a run that was cut short continues where it stopped: answered queries are recalled from the
    file and no client answers twice. The file is locked until the run ends; another run on it is refused.

    With a ledger, each query is claimed there before it is sent, so a copy of the transcript, or a backup that is put
    back, has to pay for what it sends again. With a transcript alone, nobody can notice a copy: each copy that is
    resumed releases anew, and the epsilon of the result counts only what its own transcript knows. Use a ledger where
    the files of a run are copied or backed up.

    Parameters
    ----------
    method
        What to compute.
    runtime
        Where the clients are: a `Runtime`, a `Federation`, or a frame or files that `fedcalib.read` turns into one.
    privacy
        How terms leave a client and how totals are read, with the whole budget.
    participation
        Which clients take part in which step; every client in every step by default.
    randomness
        `Secure()` by default; `Simulated(seed)` repeats its noise, and the result is marked as a simulation.
    transcript
        A file to record the run in and to resume it from; None keeps the record in memory.
    ledger
        Where to debit what the run spends, before anything is released.
    account
        The account of the ledger that is debited.
    watch
        Called before each step with the `Progress` so far.
    **columns
        What the columns of a frame or of files mean, as in `fedcalib.read`: `site`, `label`, `score` and so on.

    Returns
    -------
    Result
        The artifact, the privacy record, the plan, the cohort and the transcript.

    Raises
    ------
    InputError
        If a class is passed instead of an instance, or the data cannot be read.
    RefusedError
        If the privacy model cannot serve a query of the method.
    TooFewClients
        If fewer clients or records take part than a sum needs.
    TranscriptError
        If the transcript belongs to another run, is damaged or is in use.
    BudgetError
        If the ledger has too little left.

    Examples
    --------
    >>> import fedcalib as fc
    >>> federation = fc.Federation.simulated(classes=3, clients=10)
    >>> result = fc.run(fc.FedBin(bins=10), fc.InProcess(federation), fc.DistributedDP(epsilon=1.0))
    >>> result.artifact(federation.records.probs).shape
    (2000, 3)
    >>> result.privacy.epsilon, result.privacy.unit
    (1.0, 'record')

    A frame, with the meaning of its columns:

    >>> hearts = fc.datasets.load_heart_disease()
    >>> fc.run(fc.PlattScaling(), hearts, fc.SecAgg(), site="hospital", label="disease", score="risk").artifact
    Platt(slope=..., intercept=..., ...)
    """
    check_made(method, Method, "a method")  # before anything is read
    check_made(privacy, Privacy, "a privacy model")
    clients = _clients(runtime, columns)
    agreed = Agreement.of(method, privacy, participation or Everyone(), clients.schema)
    return conduct(
        agreed, clients, randomness=randomness, transcript=transcript, ledger=ledger, account=account, watch=watch
    )


def _clients(source: Any, columns: Mapping[str, Any]) -> Runtime:
    """The runtime itself, or one of a federation, or of the records that are read from something else."""
    if isinstance(source, Runtime | Federation):
        if columns:
            raise InputError(
                f"Expected {next(iter(columns))} with a frame or files only, found {type(source).__name__}."
            )
        return source if isinstance(source, Runtime) else InProcess(source)
    from fedcalib.data import read

    return InProcess(read(source, **columns))
