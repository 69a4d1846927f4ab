"""What a run costs, question by question, so that a question asked twice is paid twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

from fedcalib.accounting import epsilon
from fedcalib.accounting.events import Composed, Event, Parallel, Repeated
from fedcalib.cohort import Cohort
from fedcalib.privacy import Mechanism, Spending
from fedcalib.query import Query


@final
@dataclass(frozen=True)
class Bill:
    """The declared spending of a run, and the questions that it covers when each is asked once.

    `once` says that a unit meets one question only, as with disjoint cohorts; then it pays for the dearest alone.
    """

    declared: Spending
    questions: tuple[tuple[Mechanism, Query], ...]
    cohort: Cohort
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
        events = [mechanism.event(query, self.cohort) for mechanism, query in self.questions]
        times = [Repeated(event, max(n, 1)) for event, n in zip(events, asked, strict=True) if event is not None]
        return Parallel(tuple(times)) if self.once else Composed(tuple(times))


def _repeats(asked: Sequence[int]) -> int:
    return sum(max(times - 1, 0) for times in asked)
