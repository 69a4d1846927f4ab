"""What a run spends, query by query, so that a query that is sent twice is paid twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, final

from fedcalib.accounting import epsilon
from fedcalib.accounting.events import Composed, Event, Parallel, Repeated

Adjacency = Literal["add/remove", "replace by an empty client", "replace-one", "none"]
EMPTY_CLIENT: Final = "replace by an empty client"


def adjacency_of(unit: str, adjacency: str) -> str:
    """The right name of an adjacency for a unit.

    The number of clients is public, so a client is never removed: its records are, and an empty client stays. Earlier
    versions wrote "add/remove" for that, and their files mean the same.
    """
    return EMPTY_CLIENT if unit == "client" and adjacency == "add/remove" else adjacency


@final
@dataclass(frozen=True)
class Spending:
    """What a run spends, on which unit, and who has to be trusted for it.

    Parameters
    ----------
    model
        The name of the privacy model.
    unit
        The privacy unit that the budget protects: record or client.
    epsilon, delta
        The privacy loss; None where the model claims no differential privacy.
    adjacency
        How two neighbouring data sets differ. For the unit client, "add/remove" becomes "replace by an empty client".
    simulation
        Whether the noise came from a seed, so that nothing is private.
    statement
        The guarantee in words, with its assumptions.
    """

    model: str
    unit: str
    epsilon: float | None
    delta: float | None
    adjacency: Adjacency
    simulation: bool
    statement: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "adjacency", adjacency_of(self.unit, self.adjacency))


@final
@dataclass(frozen=True)
class RunCost:
    """The declared spending of a run, and the event of each query that it covers when each is sent once.

    An event is None where the mechanism claims no privacy. `once` means that a unit takes part in one query only, as
    with disjoint cohorts; then the most expensive query alone counts.
    """

    declared: Spending
    events: tuple[Event | None, ...]
    once: bool

    def after(self, sent: Sequence[int]) -> Spending:
        """The spending when query i was sent `sent[i]` times; never less than declared."""
        repeats = _repeats(sent)
        if self.declared.epsilon is None or not repeats:
            return self.declared
        total = max(self.declared.epsilon, epsilon([self._event(sent)], self.declared.delta or 0.0))
        often = "One query was sent again" if repeats == 1 else f"Queries were sent again {repeats} times"
        note = f"{often} because no answer had arrived; every query that is sent counts as spent, so the total is "
        return replace(
            self.declared, epsilon=total, statement=f"{self.declared.statement} {note}epsilon = {total:.6g}."
        )

    def repeat(self, sent: Sequence[int], step: int) -> tuple[int, Spending]:
        """The number of repeats of this run after one more of a step, and what that repeat adds to the spending."""
        more = [times + (index == step) for index, times in enumerate(sent)]
        after = self.after(more)
        if after.epsilon is None:
            return _repeats(more), after
        # the whole run with its repeats is one release at the declared delta, which is paid already
        before = self.after(sent).epsilon or 0.0
        return _repeats(more), replace(after, epsilon=max(after.epsilon - before, 0.0), delta=0.0)

    def _event(self, sent: Sequence[int]) -> Event:
        events = [Repeated(event, max(n, 1)) for event, n in zip(self.events, sent, strict=True) if event is not None]
        return Parallel(tuple(events)) if self.once else Composed(tuple(events))


def _repeats(sent: Sequence[int]) -> int:
    return sum(max(times - 1, 0) for times in sent)
