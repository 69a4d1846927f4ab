"""What a run costs, question by question, so that a question asked twice is paid twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, final

from fedcalib.accounting import epsilon
from fedcalib.accounting.events import Composed, Event, Parallel, Repeated

Adjacency = Literal["add/remove", "replace-one", "none"]


@final
@dataclass(frozen=True)
class Spending:
    """What a run spends, on whom, and who has to be trusted for it."""

    model: str
    unit: str
    epsilon: float | None
    delta: float | None
    adjacency: Adjacency
    simulation: bool
    statement: str


@final
@dataclass(frozen=True)
class Bill:
    """The declared spending of a run, and the event of each query that it covers when each is sent once.

    An event is None where the mechanism claims no privacy. `once` means that a unit takes part in one query only, as
    with disjoint cohorts; then it pays for the most expensive query alone.
    """

    declared: Spending
    events: tuple[Event | None, ...]
    once: bool

    def after(self, asked: Sequence[int]) -> Spending:
        """Say what is spent when each question was asked so many times; never less than declared."""
        repeats = _repeats(asked)
        if self.declared.epsilon is None or not repeats:
            return self.declared
        total = max(self.declared.epsilon, epsilon([self._event(asked)], self.declared.delta or 0.0))
        often = "One question was" if repeats == 1 else f"Questions were {repeats} times"
        note = f"{often} asked again after no answer had arrived; what was asked counts as spent, so the total is "
        return replace(
            self.declared, epsilon=total, statement=f"{self.declared.statement} {note}epsilon = {total:.6g}."
        )

    def again(self, asked: Sequence[int], step: int) -> tuple[int, Spending]:
        """Number the next repetition of this run, and say what asking a step once more adds to the bill."""
        more = [times + (index == step) for index, times in enumerate(asked)]
        after = self.after(more)
        if after.epsilon is None:
            return _repeats(more), after
        # the whole run, repeats and all, is one release at the declared delta, which is paid already
        before = self.after(asked).epsilon or 0.0
        return _repeats(more), replace(after, epsilon=max(after.epsilon - before, 0.0), delta=0.0)

    def _event(self, asked: Sequence[int]) -> Event:
        times = [Repeated(event, max(n, 1)) for event, n in zip(self.events, asked, strict=True) if event is not None]
        return Parallel(tuple(times)) if self.once else Composed(tuple(times))


def _repeats(asked: Sequence[int]) -> int:
    return sum(max(times - 1, 0) for times in asked)
