"""Methods: generators that send queries, receive answers and return an artifact.

A method is planned by running it against an empty federation (`Plan.of`); `drive` runs it against whoever answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, Self, TypeVar, final

from fedcalib.cohort import Participation
from fedcalib.display import brief, check_options
from fedcalib.errors import PlanError
from fedcalib.query import Answer, Query, Unit
from fedcalib.records import Schema

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Flow = Generator[Query, Answer, T]

_MAX_QUERIES = 10_000


@final
@dataclass(frozen=True)
class Budget:
    """What a private run may spend, on whom, and who adds the noise.

    All of it is public, so a method may choose its queries by it.

    Parameters
    ----------
    epsilon
        The epsilon of the whole run.
    unit
        Whose contribution is hidden: one "record", or one "client" with all its records.
    alone
        Who adds noise of its own, so that noise adds up over them: each "record" or each "client"; None where one noise
        covers the sum.

    Examples
    --------
    >>> import fedcalib as fc
    >>> budget = fc.DistributedDP(epsilon=2.0).budget
    >>> budget.epsilon, budget.unit, budget.split(4).epsilon
    (2.0, 'record', 0.5)
    """

    epsilon: float
    unit: Unit
    alone: Unit | None = None

    def split(self, parts: int) -> Budget:
        """One of `parts` equal parts."""
        return replace(self, epsilon=self.epsilon / parts)


class Method(ABC, Generic[T_co]):
    """A frozen dataclass of hyper-parameters whose `protocol` sends queries and returns an artifact.

    Two rules make a fixed budget possible: the number of queries and their blocks depend on the hyper-parameters and
    the schema alone, never on an answer; and the protocol is deterministic given the answers.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import fedcalib as fc
    >>> from fedcalib.queries.reliability import Hits
    >>> @dataclass(frozen=True)
    ... class Accuracy(fc.Method[float]):
    ...     def protocol(self, schema):
    ...         answer = yield Hits()
    ...         right, wrong = answer["hits"]
    ...         return float(right / max(right + wrong, 1))
    >>> federation = fc.Federation.simulated()
    >>> round(fc.run(Accuracy(), fc.InProcess(federation), fc.SecAgg()).artifact, 2)
    0.74
    """

    def __new__(cls, *values: Any, **options: Any) -> Self:
        check_options(cls, options)
        return super().__new__(cls)

    @abstractmethod
    def protocol(self, schema: Schema) -> Flow[T_co]:
        """The conversation with the clients: `answer = yield query`, as often as needed, then return the artifact."""

    def with_budget(self, budget: Budget) -> Method[T_co]:
        """This method, adapted to what a private run may spend; most methods do not depend on it."""
        return self


@final
@dataclass(frozen=True)
class Plan:
    """Every query that a method will send, found by a dry run against an empty federation.

    Parameters
    ----------
    queries
        The queries, in order.

    Examples
    --------
    >>> import fedcalib as fc
    >>> plan = fc.method.Plan.of(fc.FedBin(bins=15), fc.Schema(classes=3, clients=10))
    >>> len(plan.queries), plan.unit, plan.queries[0].size
    (1, 'record', 90)
    """

    queries: tuple[Query, ...]

    def __repr__(self) -> str:
        return brief(self)

    @classmethod
    def of(cls, method: Method[T], schema: Schema) -> Plan:
        """The plan of a method for clients with this schema."""
        queries: list[Query] = []

        def note(step: int, query: Query) -> Answer:
            queries.append(query)
            return Answer.empty(query)

        drive(method, schema, note)
        return cls(tuple(queries))

    @property
    def unit(self) -> Unit:
        """The privacy unit of all bounds: record or client."""
        units = {block.bound.unit for query in self.queries for block in query.blocks.values()}
        if len(units) > 1:
            raise PlanError("Expected all queries of a method to bound the same unit, found records and clients mixed.")
        return next(iter(units), "record")

    @cached_property
    def weight(self) -> float:
        """The sum of the weights of all blocks of all queries; cached, since every query's share needs it."""
        return sum(block.weight for query in self.queries for block in query.blocks.values())

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of all blocks of all queries."""
        return frozenset(name for query in self.queries for name in query.blocks)

    def shares(self, query: Query, participation: Participation) -> dict[str, float]:
        """The fraction of the whole budget that each block of a query gets.

        Where a client takes part in one step only, steps compose in parallel and each has the whole budget to itself.
        """
        once = participation.appearances(len(self.queries)) == 1
        whole = sum(block.weight for block in query.blocks.values()) if once else self.weight
        return {name: block.weight / whole for name, block in query.blocks.items()}

    def step_shares(self, participation: Participation) -> tuple[tuple[float, int], ...]:
        """The fractions of the whole budget that queries get, each with the number of queries that get it.

        Every mechanism of a run needs them, so they are computed once: a run of n queries takes n steps to plan.
        """
        if participation.appearances(len(self.queries)) == 1:
            return ((1.0, len(self.queries)),)
        return self._step_shares

    @cached_property
    def _step_shares(self) -> tuple[tuple[float, int], ...]:
        weights = Counter(sum(block.weight for block in query.blocks.values()) for query in self.queries)
        return tuple((weight / self.weight, times) for weight, times in weights.items())

    def check(self, step: int, query: Query) -> None:
        """Raise a `PlanError` if a method sends another query than it planned."""
        if step >= len(self.queries):
            raise PlanError(f"Expected {len(self.queries)} queries as planned, found one more; see Method's two rules.")
        if dict(query.blocks) != dict(self.queries[step].blocks):
            raise PlanError(f"Expected query {step} to have the planned blocks, found others; see Method's two rules.")


def drive(method: Method[T], schema: Schema, ask: Callable[[int, Query], Answer]) -> T:
    """Run a method, with `ask(step, query)` answering each query, and return its artifact."""
    flow = method.protocol(schema)
    try:
        query = next(flow)
        for step in range(_MAX_QUERIES):
            query = flow.send(ask(step, query))
    except StopIteration as end:
        artifact: T = end.value
        return artifact
    raise PlanError(f"Expected at most {_MAX_QUERIES} queries, found more; does the protocol ever return?")
