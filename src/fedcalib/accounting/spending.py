"""What a run spends, query by query, so that a query that is sent twice is paid twice.

A run pays in two stages. `Payments.begin` debits the whole run once. `Payments.claim` then puts a line into the ledger
for each query before it is sent: a (step, attempt) pair of a run can be claimed once, by one process.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol, final

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


class Debits(Protocol):
    """Whatever keeps a budget; it is debited before anything is released, and told of each query before it is sent."""

    def debit(self, run: str, account: str, spending: Spending, *, attempt: int = 0) -> None:
        """Set aside what a whole run spends, once for each run, or refuse."""

    def claims(self, run: str, account: str) -> Set[tuple[int, int]]:
        """The (step, attempt) pairs of a run that may have been sent, by this process or another."""

    def claim(
        self, run: str, account: str, spending: Spending, *, step: int, attempt: int, known: Set[tuple[int, int]]
    ) -> None:
        """Record one attempt at one step before it is sent, with what it adds; refuse where others sent meanwhile."""


@final
@dataclass(frozen=True)
class Asked:
    """What a transcript knows of a step: how often it was asked, and whether the last time may wait for a claim."""

    attempts: int = 0
    waits: bool = False


@final
@dataclass
class Payments:
    """Pays for one run; without a ledger it only counts.

    The number of an attempt is the larger of what the transcript and the ledger know: a copy or a backup of a
    transcript knows less than the ledger, and a transcript that began without a ledger knows more.
    """

    cost: RunCost
    ledger: Debits | None
    run: str
    account: str
    _known: frozenset[tuple[int, int]] = frozenset()

    @classmethod
    def begin(cls, cost: RunCost, ledger: Debits | None, run: str, account: str) -> Payments:
        """Debit the whole run, which changes nothing where it was debited before, and read what it has claimed."""
        if ledger is None or cost.declared.epsilon is None:
            return cls(cost, None, run, account)
        ledger.debit(run, account, cost.declared)
        if cost.declared.simulation:  # a ledger refuses it; whatever else was given needs no claims
            return cls(cost, None, run, account)
        return cls(cost, ledger, run, account, frozenset(ledger.claims(run, account)))

    @property
    def claiming(self) -> bool:
        """Whether each query has to be claimed before it is sent."""
        return self.ledger is not None

    def sent(self, asked: Sequence[Asked]) -> list[int]:
        """How often each step may have been sent, which is also the number of its next attempt."""
        return [max(self._claimed(step), self._asked(step, one)) for step, one in enumerate(asked)]

    def _claimed(self, step: int) -> int:
        return max((attempt + 1 for one, attempt in self._known if one == step), default=0)

    def _asked(self, step: int, asked: Asked) -> int:
        last = asked.attempts - 1
        unsent = self.claiming and asked.waits and (step, last) not in self._known
        return last if unsent else asked.attempts

    def claim(self, step: int, sent: Sequence[int]) -> None:
        """Put the next attempt at a step into the ledger, durably, or refuse; all steps were sent so many times."""
        if self.ledger is None:
            return
        _, more = self.cost.repeat(sent, step)
        self.ledger.claim(self.run, self.account, more, step=step, attempt=sent[step], known=self._known)
        self._known |= {(step, sent[step])}
