"""Methods: short conversations with clients that end in an artifact."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Generic, TypeVar, final

from fedcalib.answer import Answer
from fedcalib.cohort import Participation
from fedcalib.errors import PlanError
from fedcalib.query import Query, Unit
from fedcalib.records import Schema

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Flow = Generator[Query, Answer, T]

_MOST_QUERIES = 10_000


@final
@dataclass(frozen=True)
class Budget:
    """What a run may spend, on hiding whom, and who adds the noise.

    All of it is public, so a method may compose itself by it. `alone` names those that each add noise of their own,
    which adds up; None where one noise covers the sum.
    """

    epsilon: float
    unit: Unit
    alone: Unit | None = None

    def among(self, parts: int) -> Budget:
        """Give one of several equal parts."""
        return replace(self, epsilon=self.epsilon / parts)


class Method(ABC, Generic[T_co]):
    """A frozen dataclass of hyper-parameters whose `protocol` asks queries and returns an artifact.

    Two rules make a fixed budget possible: the number of queries and their blocks depend on the hyper-parameters and
    the schema alone, never on an answer; and the protocol is deterministic given the answers.
    """

    @abstractmethod
    def protocol(self, schema: Schema) -> Flow[T_co]:
        """Hold the conversation: `answer = yield query`, then return the artifact."""

    def within(self, budget: Budget) -> Method[T_co]:
        """Compose itself by what a private run may spend; most methods ask the same whatever it is."""
        return self


@final
@dataclass(frozen=True)
class Plan:
    """Every query that a method will ask, found by a dry run against nobody."""

    queries: tuple[Query, ...]

    @classmethod
    def of(cls, method: Method[T], schema: Schema) -> Plan:
        """Drive the method with the answers of an empty federation."""
        queries: list[Query] = []

        def note(step: int, query: Query) -> Answer:
            queries.append(query)
            return Answer.empty(query)

        drive(method, schema, note)
        return cls(tuple(queries))

    @property
    def unit(self) -> Unit:
        """Say whose contribution the bounds speak of."""
        units = {block.bound.unit for query in self.queries for block in query.blocks.values()}
        if len(units) > 1:
            raise PlanError("Expected all queries of a method to bound the same unit, found records and clients mixed.")
        return next(iter(units), "record")

    @property
    def weight(self) -> float:
        """Add up the weights of all blocks of all queries."""
        return sum(block.weight for query in self.queries for block in query.blocks.values())

    def shares(self, query: Query, participation: Participation) -> dict[str, float]:
        """Say which share of the whole budget each block of a query gets.

        Where a client appears in one step only, steps compose in parallel and each has the whole budget to itself.
        """
        once = participation.appearances(len(self.queries)) == 1
        whole = sum(block.weight for block in query.blocks.values()) if once else self.weight
        return {name: block.weight / whole for name, block in query.blocks.items()}

    def check(self, step: int, query: Query) -> None:
        """Stop a method that asks something else than it planned."""
        if step >= len(self.queries):
            raise PlanError(f"Expected {len(self.queries)} queries as planned, found one more; see Method's two rules.")
        if dict(query.blocks) != dict(self.queries[step].blocks):
            raise PlanError(f"Expected query {step} to have the planned blocks, found others; see Method's two rules.")


def drive(method: Method[T], schema: Schema, ask: Callable[[int, Query], Answer]) -> T:
    """Hold a method's conversation, letting `ask` answer each numbered query."""
    flow = method.protocol(schema)
    try:
        query = next(flow)
        for step in range(_MOST_QUERIES):
            query = flow.send(ask(step, query))
    except StopIteration as end:
        artifact: T = end.value
        return artifact
    raise PlanError(f"Expected at most {_MOST_QUERIES} queries, found more; does the protocol ever return?")
