"""One run as a site remembers it: what was agreed, what was answered, and the masks."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, final

from fedcalib import wire
from fedcalib.bill import Bill
from fedcalib.errors import WireError
from fedcalib.loop import Outline
from fedcalib.privacy.model import Spending
from fedcalib.query import Query
from fedcalib.site.refusal import Refusal
from fedcalib.site.requests import Begin as _Begin
from fedcalib.site.requests import read, write


@final
@dataclass(frozen=True)
class Answered:
    """A step that was answered: its question's fingerprint, in how many attempts, and the plain reply if it was one."""

    step: int
    question: str
    attempts: tuple[int, ...]
    reply: str


@final
@dataclass(frozen=True)
class Visit:
    """A run's outline, the site's steps so far, and the state of its secure aggregation."""

    outline: Outline
    answered: tuple[Answered, ...] = ()
    masks: str = ""

    def step(self, step: int) -> Answered | None:
        """Find a step that was answered."""
        return next((one for one in self.answered if one.step == step), None)

    def check(self, step: int, query: Query) -> str:
        """Refuse a question that the outline does not cover; give its fingerprint."""
        if not 0 <= step < len(self.outline.queries):
            raise Refusal("query", f"Expected one of {len(self.outline.queries)} agreed steps, found step {step}.")
        if dict(self.outline.queries[step].blocks) != dict(query.blocks):
            raise Refusal("query", f"Expected step {step} with the blocks that were agreed, found others.")
        mark = wire.fingerprint(query)
        before = self.step(step)
        if before is not None and before.question != mark:
            raise Refusal("protocol", f"Expected step {step} to ask what it asked before, found another question.")
        if before is None and self._once and self.answered:
            raise Refusal("protocol", "Expected one step only of a run with disjoint cohorts, found a second.")
        return mark

    def after(self, step: int, attempt: int, question: str, reply: str) -> Visit:
        """Note an answer."""
        before = self.step(step)
        attempts = (*(before.attempts if before else ()), attempt)
        others = tuple(one for one in self.answered if one.step != step)
        return replace(self, answered=(*others, Answered(step, question, attempts, reply)))

    def bill(self, spending: Spending) -> Bill:
        """Say what asking again costs."""
        pairs = tuple(zip(self.outline.mechanisms, self.outline.queries, strict=True))
        return Bill(spending, pairs, replace(self.outline.cohort, rate=1.0), self._once)

    def asks(self) -> list[int]:
        """Count the attempts at each step that were answered."""
        counts = {one.step: len(one.attempts) for one in self.answered}
        return [counts.get(step, 0) for step in range(len(self.outline.queries))]

    @property
    def _once(self) -> bool:
        steps = len(self.outline.queries)
        return steps > 1 and self.outline.participation.appearances(steps) == 1

    def to_json(self) -> str:
        """Write the visit as text; it may hold secrets of secure aggregation."""
        answered = [[one.step, one.question, list(one.attempts), one.reply] for one in self.answered]
        return json.dumps({"begin": write(_Begin(self.outline, "")), "answered": answered, "masks": self.masks})

    @classmethod
    def from_json(cls, text: str) -> Visit:
        """Read a visit back."""
        data: Any = wire.parse(text)
        try:
            answered = tuple(Answered(step, mark, tuple(tries), reply) for step, mark, tries, reply in data["answered"])
            return cls(read(data["begin"], _Begin).outline, answered, data["masks"])
        except (KeyError, TypeError, ValueError) as error:
            raise WireError("Expected a saved run, found it damaged; the site has to be asked in a new run.") from error
