"""The one loop: a method sends queries, a runtime sums, a privacy model decides what may be read.

`Agreement.of` plans a run: its queries, the mechanism of each, and what all of them spend. `conduct` carries it out,
with every query and answer written to a transcript.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, final

from fedcalib import wire
from fedcalib.accounting.spending import Debits, Payments, RunCost, Spending
from fedcalib.cohort import SECRET_BYTES, Cohort, Participation
from fedcalib.display import check_made
from fedcalib.errors import BudgetError, InputError
from fedcalib.method import Method, Plan, drive
from fedcalib.privacy import Mechanism, Privacy
from fedcalib.query import Answer, Block, Query
from fedcalib.randomness import Randomness, Secure
from fedcalib.records import Schema
from fedcalib.transcript import Transcript
from fedcalib.types import Array, Bools

T = TypeVar("T")
_LONGEST_SHOWN: Final = 120  # characters of an artifact


@final
@dataclass(frozen=True)
class Step:
    """One query on its way: which run and step it belongs to, and how it is to be served.

    `members` is a mask of the clients that were sampled for it; None where all take part.
    """

    run: str
    index: int
    attempt: int
    query: Query
    mechanism: Mechanism
    cohort: Cohort
    participation: Participation
    randomness: Randomness
    members: Bools | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.participation.sampled and self.members is None:
            raise InputError("Expected the sampled clients of a step, found none; draw them from the run's secret.")


@final
@dataclass(frozen=True, eq=False)
class Total:
    """What a runtime returns: the sum of the clients' encoded terms, and the number of clients in it."""

    value: Array
    clients: int


@final
@dataclass(frozen=True)
class Outline:
    """Everything that a run will send, so that clients can agree to the whole of it before they answer any of it.

    Mechanisms are not part of it: server and sites derive them from the privacy model by the same code, so that no
    server can choose a site's noise.
    """

    run: str
    queries: tuple[Query, ...]
    privacy: Privacy
    cohort: Cohort
    participation: Participation

    @cached_property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """The mechanism of each query."""
        return mechanisms_of(self.privacy, Plan(self.queries), self.cohort, self.participation)


def mechanisms_of(privacy: Privacy, plan: Plan, cohort: Cohort, participation: Participation) -> tuple[Mechanism, ...]:
    """The mechanism that serves each query of a plan, at the server and at every site."""
    return tuple(privacy.mechanism(query, plan, cohort, participation) for query in plan.queries)


class Runtime(ABC):
    """Where the clients are. It only ever sums.

    Examples
    --------
    >>> import fedcalib as fc
    >>> fc.InProcess(fc.Federation.simulated(classes=3, clients=10)).schema
    Schema(classes=3, clients=10)
    """

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """What is public about the clients' data."""

    def prepare(self, outline: Outline) -> None:  # noqa: B027 - a runtime that needs no preparation says nothing
        """Get ready for a run, before its first query."""

    @abstractmethod
    def total(self, step: Step) -> Total:
        """The sum of the encoded terms of all clients in a step's cohort."""


@final
@dataclass(frozen=True)
class Progress:
    """How far a run has come; `recalled` where the answer was read from the transcript."""

    step: int
    steps: int
    recalled: bool


@final
@dataclass(frozen=True, eq=False)
class Result(Generic[T]):
    """The artifact of a run, what it spent, and how it came about.

    Parameters
    ----------
    artifact
        What the method returned.
    privacy
        What the run spent, on whom, and who has to be trusted for it.
    plan
        The queries that were sent.
    cohort
        How many clients a step expected.
    transcript
        Every query and answer.
    bytes_per_client
        Bytes that one client sends in answer to all queries, eight per number.

    Examples
    --------
    >>> import fedcalib as fc
    >>> result = fc.run(fc.FedBin(), fc.InProcess(fc.Federation.simulated(classes=3)), fc.DistributedDP(epsilon=1.0))
    >>> type(result.artifact).__name__, result.privacy.epsilon, result.bytes_per_client
    ('Steps', 1.0, 720)
    """

    artifact: T
    privacy: Spending
    plan: Plan
    cohort: Cohort
    transcript: Transcript
    bytes_per_client: int

    def __repr__(self) -> str:
        """The artifact, what was spent, and what one client sent."""
        spent, shown = self.privacy, repr(self.artifact)
        cost = "exact" if spent.epsilon is None else f"epsilon={spent.epsilon:g} per {spent.unit}"
        known = shown if len(shown) <= _LONGEST_SHOWN else f"{type(self.artifact).__name__}(...)"
        return f"Result({known}, {cost}, {len(self.plan.queries)} queries, {self.bytes_per_client:,} bytes per client)"


@final
@dataclass(frozen=True, eq=False)
class Agreement(Generic[T]):
    """A method, its clients and its privacy: all that is fixed before anything is sent.

    It is made once and can be run many times; a dry run only makes it.

    Examples
    --------
    >>> import fedcalib as fc
    >>> schema = fc.Schema(classes=3, clients=10)
    >>> agreed = fc.loop.Agreement.of(fc.FedBin(), fc.DistributedDP(epsilon=1.0), fc.Everyone(), schema)
    >>> agreed.cost()
    {'bytes_per_client': 720, 'epsilon': 1.0, 'delta': 0.0, 'unit': 'record'}
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
        """Plan every query, how each is served, and what all of them spend."""
        check_made(method, Method, "a method")
        check_made(privacy, Privacy, "a privacy model")
        check_made(participation, Participation, "a participation")
        cohort, method = participation.cohort(schema.clients), privacy.adapt(method)
        plan = Plan.of(method, schema)
        mechanisms = mechanisms_of(privacy, plan, cohort, participation)
        spending = privacy.spending(plan, cohort, participation)
        return cls(method, privacy, participation, schema, cohort, plan, mechanisms, spending)

    @property
    def bytes_per_client(self) -> int:
        """Bytes that one client sends in answer to all queries, eight per number."""
        return 8 * self.numbers

    @property
    def numbers(self) -> int:
        """Numbers that one client sends in answer to all queries."""
        return sum(self._widths)

    @property
    def _widths(self) -> tuple[int, ...]:
        return tuple(one.width(query) for one, query in zip(self.mechanisms, self.plan.queries, strict=True))

    def cost(self) -> dict[str, Any]:
        """What a client sends and what the run spends, as plain data."""
        spent = self.spending
        return {
            "bytes_per_client": self.bytes_per_client,
            "epsilon": spent.epsilon,
            "delta": spent.delta,
            "unit": spent.unit,
        }

    def to_json(self) -> dict[str, Any]:
        """The cost, and every query with its blocks and their bounds, as plain data."""
        queries = [
            {
                "query": type(query).__name__,
                "numbers": width,
                "blocks": [_block(name, block) for name, block in query.blocks.items()],
            }
            for query, width in zip(self.plan.queries, self._widths, strict=True)
        ]
        return {**self.cost(), "queries": queries}


def _block(name: str, block: Block) -> dict[str, Any]:
    bound = block.bound
    return {
        "name": name,
        "shape": list(block.shape),
        "l1": bound.l1,
        "l2": bound.l2,
        "linf": bound.linf,
        "unit": bound.unit,
        "weight": block.weight,
    }


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
    """Carry out an agreement; see `fedcalib.run` for the arguments."""
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
    plan, cohort, participation, mechanisms = agreed.plan, agreed.cohort, agreed.participation, agreed.mechanisms
    spending = replace(agreed.spending, simulation=source.simulated)
    if source.simulated:
        spending = replace(spending, statement=f"Simulation: not private. It would be: {spending.statement}")
    header = log.begin(_header(agreed, source))
    name = str(header["run"])
    once = participation.appearances(len(plan.queries)) == 1
    events = tuple(one.event(query, cohort) for one, query in zip(mechanisms, plan.queries, strict=True))
    with _recallable(log, len(plan.queries)):
        payments = Payments.begin(RunCost(spending, events, once), ledger, name, account)
    runtime.prepare(Outline(name, plan.queries, agreed.privacy, cohort, participation))

    def ask(index: int, query: Query) -> Answer:
        plan.check(index, query)
        answer = log.recall(index, query)
        if watch is not None:
            watch(Progress(index, len(plan.queries), answer is not None))
        if answer is not None:
            return answer
        # before the query is noted as sent: a run that sent something needs the secret that it began with
        secret = log.secret(lambda: _secret(source, name)) if participation.sampled else b""
        members = participation.members(agreed.schema.clients, index, secret)
        sent = payments.sent(log.asked(len(plan.queries)))
        attempt = sent[index]
        log.note_sent(index, query, wire.encode(mechanisms[index]), attempt, claim=payments.claiming)
        with _recallable(log, len(plan.queries)):
            payments.claim(index, sent)
        noise = source.derive(name, index, attempt)
        step = Step(name, index, attempt, query, mechanisms[index], cohort, participation, noise, members)
        total = runtime.total(step)
        value, variance = step.mechanism.decode(query, total.value, total.clients, step.randomness.derive("server"))
        clients = round(cohort.expected) if agreed.privacy.private else total.clients
        return log.note_answer(index, query, value, variance, clients)

    artifact = drive(agreed.method, agreed.schema, ask)
    spent = payments.cost.after(payments.sent(log.asked(len(plan.queries))))
    return Result(artifact, spent, plan, cohort, log, agreed.bytes_per_client)


@contextmanager
def _recallable(log: Transcript, steps: int) -> Iterator[None]:
    """Add to a refusal for lack of budget what was released before, and where it is."""
    try:
        yield
    except BudgetError as error:
        if not log.answered:
            raise
        done = ", ".join(map(str, log.answered))
        raise BudgetError(
            f"{error} Of the {steps} steps of this run, these were answered before, counted from 0: {done}. They stay "
            f"spent, and their answers can be recalled from {log.path or 'the transcript'} at no cost."
        ) from error


def _header(agreed: Agreement[Any], source: Randomness) -> dict[str, Any]:
    """What identifies a run, in a form that a later one can be compared with."""
    header = {
        "schema_version": 1,
        "method": wire.encode(agreed.method),
        "privacy": wire.encode(agreed.privacy),
        "participation": wire.encode(agreed.participation),
        "clients": agreed.schema.clients,
        "classes": agreed.schema.classes,
        "simulation": source.simulated,
    }
    # secret for a release; a hash of the settings for a simulation, which can then be repeated
    return {**header, "run": wire.fingerprint(header)[:32] if source.simulated else secrets.token_hex(16)}


def _secret(source: Randomness, name: str) -> bytes:
    """A new secret to sample clients from; that of a simulation follows from its seed."""
    return source.derive(name, "participation").words(SECRET_BYTES // 8).tobytes()
