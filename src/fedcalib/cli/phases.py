"""The phases of a command: rehearsed before anything is asked, then run one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, final

from fedcalib.cli.spending import Purse
from fedcalib.cli.state import State
from fedcalib.cli.voice import Voice
from fedcalib.cohort import Cohort, Participation
from fedcalib.federation import Federation
from fedcalib.loop import Progress, Result, run
from fedcalib.method import Method, Plan
from fedcalib.privacy.model import Privacy, Spending
from fedcalib.query import Query
from fedcalib.randomness import Randomness, Secure, Simulated
from fedcalib.records import Schema
from fedcalib.runtimes.in_process import InProcess

T = TypeVar("T")


@final
@dataclass(frozen=True)
class Phase(Generic[T]):
    """One conversation of a command: what is asked, under which model, by whom."""

    name: str
    method: Method[T]
    privacy: Privacy
    participation: Participation

    def rehearse(self, schema: Schema) -> Rehearsal:
        """Plan every question and find a mechanism for it, or be refused, without asking anybody."""
        plan = Plan.of(self.privacy.tell(self.method), schema)
        cohort = self.participation.cohort(schema.clients)
        for query in plan.queries:
            self.privacy.mechanism(query, plan, cohort, self.participation)
        return Rehearsal(self.name, plan, cohort, self.privacy.spending(plan, cohort, self.participation))


@final
@dataclass(frozen=True)
class Rehearsal:
    """What a phase would ask and cost."""

    name: str
    plan: Plan
    cohort: Cohort
    spending: Spending

    @property
    def bytes_a_client(self) -> int:
        """Count the bytes that one client would send, at eight a number."""
        return 8 * sum(query.size for query in self.plan.queries)

    def cost(self) -> dict[str, Any]:
        """Write out what a client sends and what it costs."""
        return {
            "phase": self.name,
            "bytes_a_client": self.bytes_a_client,
            "epsilon": self.spending.epsilon,
            "delta": self.spending.delta,
            "unit": self.spending.unit,
        }

    def to_json(self) -> dict[str, Any]:
        """Write out the questions with their blocks and bounds, and the cost."""
        return {**self.cost(), "queries": [_query(query) for query in self.plan.queries]}


def _query(query: Query) -> dict[str, Any]:
    blocks = [
        {
            "name": name,
            "shape": list(block.shape),
            "l1": block.bound.l1,
            "l2": block.bound.l2,
            "linf": block.bound.linf,
            "unit": block.bound.unit,
            "weight": block.weight,
        }
        for name, block in query.blocks.items()
    ]
    return {"query": type(query).__name__, "numbers": query.size, "blocks": blocks}


@final
@dataclass
class Conductor:
    """Runs phases with one state and one source of chance, and keeps count of who was asked."""

    state: State
    seed: int | None
    voice: Voice
    purse: Purse
    asked: int = 0
    recalled: int = 0

    def run(self, phase: Phase[T], federation: Federation) -> Result[T]:
        """Hold one phase's conversation, recalling whatever was answered before."""
        with self.voice.meter(phase.name) as meter:
            return run(
                phase.method,
                InProcess(federation),
                phase.privacy,
                participation=phase.participation,
                randomness=self._randomness(phase.name),
                transcript=self.state.transcript(phase.name),
                ledger=self.purse,
                account=self.purse.account,
                watch=self._watch(meter.at),
            )

    def _watch(self, show: Callable[[int, int], None]) -> Callable[[Progress], None]:
        def watch(progress: Progress) -> None:
            self.recalled += progress.recalled
            self.asked += not progress.recalled
            show(progress.step, progress.steps)

        return watch

    def _randomness(self, phase: str) -> Randomness:
        # phases of one kind share a run's name, so each needs noise of its own
        return Secure() if self.seed is None else Simulated(self.seed).derive(phase)

    @property
    def replayed(self) -> bool:
        """Say whether nobody was asked, because an earlier run of the same command had all answers."""
        return self.recalled > 0 and not self.asked

    def tell(self) -> None:
        """Say it when answers came from an earlier run."""
        if self.replayed:
            self.voice.note("This command had already run: its answers were replayed and nobody was asked again.")
        elif self.recalled:
            self.voice.note(f"Resumed: {self.recalled} answers of the earlier run were replayed, {self.asked} asked.")
