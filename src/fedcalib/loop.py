"""The one loop: a method asks, a runtime sums, a privacy model decides what may be read."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, final

from fedcalib import wire
from fedcalib.accounting.spending import Bill, Spending
from fedcalib.answer import Answer
from fedcalib.cohort import Cohort, Everyone, Participation
from fedcalib.method import Method, Plan, drive
from fedcalib.privacy import Mechanism, Privacy
from fedcalib.query import Query
from fedcalib.randomness import Randomness, Secure
from fedcalib.records import Schema
from fedcalib.transcript import Transcript
from fedcalib.types import Array

T = TypeVar("T")


@final
@dataclass(frozen=True)
class Step:
    """One question on its way: which run and step it is, and how it is to be served."""

    run: str
    index: int
    attempt: int
    query: Query
    mechanism: Mechanism
    cohort: Cohort
    participation: Participation
    randomness: Randomness


@final
@dataclass(frozen=True, eq=False)
class Total:
    """What a runtime brings back: the sum of the shares, and how many shares it holds."""

    value: Array
    clients: int


@final
@dataclass(frozen=True)
class Outline:
    """Everything that a run will ask, so that clients can agree to the whole of it before they answer any of it."""

    run: str
    queries: tuple[Query, ...]
    mechanisms: tuple[Mechanism, ...]
    cohort: Cohort
    participation: Participation


class Runtime(ABC):
    """Where clients are. It only ever sums."""

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """Say what is public about the clients' data."""

    def prepare(self, outline: Outline) -> None:  # noqa: B027 - a runtime that needs no preparation says nothing
        """Get ready for a run before its first question."""

    @abstractmethod
    def total(self, step: Step) -> Total:
        """Ask all clients of a step's cohort and sum their shares."""


class Debits(Protocol):
    """Whatever keeps a budget: it is debited before anything is released."""

    def debit(self, run: str, account: str, spending: Spending, *, attempt: int = 0) -> None:
        """Set spending aside, once for each run and attempt, or refuse.

        Attempt 0 is the whole run; attempt n pays for the n-th question that had to be asked again.
        """


@final
@dataclass(frozen=True)
class Progress:
    """How far a run has come."""

    step: int
    steps: int
    recalled: bool


@final
@dataclass(frozen=True, eq=False)
class Result(Generic[T]):
    """An artifact, what it cost, and how it came about."""

    artifact: T
    privacy: Spending
    plan: Plan
    cohort: Cohort
    transcript: Transcript
    bytes_a_client: int  # what one client sends in answer to all queries, at eight a number


@final
@dataclass(frozen=True, eq=False)
class Agreement(Generic[T]):
    """A method, the clients that it is for, and how it is made private: all that is fixed before anything is asked.

    Agreed once, it can be run many times.
    """

    method: Method[T]
    privacy: Privacy
    participation: Participation
    schema: Schema
    cohort: Cohort
    plan: Plan
    mechanisms: tuple[Mechanism, ...]
    spending: Spending

    @classmethod
    def of(cls, method: Method[T], privacy: Privacy, participation: Participation, schema: Schema) -> Agreement[T]:
        """Plan every question, and say how each is served and what all of them spend."""
        cohort, method = participation.cohort(schema.clients), privacy.tell(method)
        plan = Plan.of(method, schema)
        mechanisms = tuple(privacy.mechanism(query, plan, cohort, participation) for query in plan.queries)
        spending = privacy.spending(plan, cohort, participation)
        return cls(method, privacy, participation, schema, cohort, plan, mechanisms, spending)


def run(
    method: Method[T],
    runtime: Runtime,
    privacy: Privacy,
    *,
    participation: Participation | None = None,
    randomness: Randomness | None = None,
    transcript: Path | str | None = None,
    ledger: Debits | None = None,
    account: str = "default",
    watch: Callable[[Progress], None] | None = None,
) -> Result[T]:
    """Hold a method's conversation with the clients of a runtime under a privacy model.

    With a transcript file, a run that was cut short goes on where it stopped: answered queries are recalled from the
    file and nobody is asked twice. The file is locked until the run ends: another run on it is refused.
    """
    agreed = Agreement.of(method, privacy, participation or Everyone(), runtime.schema)
    return conduct(
        agreed, runtime, randomness=randomness, transcript=transcript, ledger=ledger, account=account, watch=watch
    )


def conduct(
    agreed: Agreement[T],
    runtime: Runtime,
    *,
    randomness: Randomness | None = None,
    transcript: Path | str | None = None,
    ledger: Debits | None = None,
    account: str = "default",
    watch: Callable[[Progress], None] | None = None,
) -> Result[T]:
    """Run what was agreed."""
    with Transcript.open(transcript) as log:
        source = randomness or Secure()
        return _conduct(agreed, runtime, log, source, ledger=ledger, account=account, watch=watch)


def _conduct(
    agreed: Agreement[T],
    runtime: Runtime,
    log: Transcript,
    source: Randomness,
    *,
    ledger: Debits | None,
    account: str,
    watch: Callable[[Progress], None] | None,
) -> Result[T]:
    plan, cohort, drawn, mechanisms = agreed.plan, agreed.cohort, agreed.participation, agreed.mechanisms
    spending = replace(agreed.spending, simulation=source.simulated)
    if source.simulated:
        spending = replace(spending, statement=f"Simulation: not private. It would be: {spending.statement}")
    header = log.begin(_header(agreed, source))
    name = str(header["run"])
    once = drawn.appearances(len(plan.queries)) == 1
    events = tuple(one.event(query, cohort) for one, query in zip(mechanisms, plan.queries, strict=True))
    bill = Bill(spending, events, once)
    if ledger is not None and spending.epsilon is not None:
        ledger.debit(name, account, spending)
    runtime.prepare(Outline(name, plan.queries, mechanisms, cohort, drawn))

    def ask(index: int, query: Query) -> Answer:
        plan.check(index, query)
        answer = log.recall(index, query)
        if watch is not None:
            watch(Progress(index, len(plan.queries), answer is not None))
        if answer is not None:
            return answer
        attempt = log.attempts(index)
        if attempt and ledger is not None and spending.epsilon is not None:
            repeat, more = bill.again(log.asks(len(plan.queries)), index)
            ledger.debit(name, account, more, attempt=repeat)
        log.asked(index, query, {"mechanism": wire.encode(mechanisms[index]), "attempt": attempt})
        step = Step(name, index, attempt, query, mechanisms[index], cohort, drawn, source.derive(name, index, attempt))
        total = runtime.total(step)
        value, variance = step.mechanism.decode(query, total.value, total.clients, step.randomness.derive("server"))
        clients = round(cohort.expected) if agreed.privacy.private else total.clients
        return log.answered(index, query, value, variance, clients)

    artifact = drive(agreed.method, agreed.schema, ask)
    sent = 8 * sum(mechanism.width(query) for mechanism, query in zip(mechanisms, plan.queries, strict=True))
    return Result(artifact, bill.after(log.asks(len(plan.queries))), plan, cohort, log, sent)


def _header(agreed: Agreement[Any], source: Randomness) -> dict[str, Any]:
    """Say what a run is, in a form that a later one can be compared with."""
    header = {
        "schema_version": 1,
        "method": wire.encode(agreed.method),
        "privacy": wire.encode(agreed.privacy),
        "participation": wire.encode(agreed.participation),
        "clients": agreed.schema.clients,
        "classes": agreed.schema.classes,
        "simulation": source.simulated,
    }
    return {**header, "run": _name(header, agreed.participation, source)}


def _name(header: dict[str, Any], drawn: Participation, source: Randomness) -> str:
    """Name a run: secretly for a release, by its settings for a simulation, so that a command repeats its numbers."""
    if not source.simulated:
        return secrets.token_hex(16)
    if drawn.members(1, 0, "") is None:
        return wire.fingerprint(header)[:32]
    # clients are drawn by the run's name: without the seed in it, every simulation would draw the same ones
    return wire.fingerprint({**header, "seed": source.derive("name").words(2).tolist()})[:32]
