"""What a site writes down about every request, answer and refusal: lines that each hold the hash of the one before.

One run as a site remembers it: what was agreed, what was answered, and the masks.

What a site keeps between messages: its runs, its budget and its log, on its own disk.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, final

from fedcalib import files, wire
from fedcalib.accounting.ledger import Ledger
from fedcalib.accounting.spending import RunCost, Spending
from fedcalib.errors import BudgetError, LedgerError, WireError
from fedcalib.loop import Outline
from fedcalib.query import Query
from fedcalib.remote.protocol import Begin as _Begin
from fedcalib.remote.protocol import Refusal, read, write

START: Final = "0" * 64


@final
@dataclass(frozen=True)
class AuditLog:
    """A file of JSON lines, private to the site. An edited, removed or inserted line breaks the chain."""

    path: Path

    def note(self, entry: Mapping[str, Any]) -> None:
        """Add a line, durably, before the answer that it speaks of leaves."""
        lines = _whole(self.path)
        before = wire.parse(lines[-1])["hash"] if lines else START
        line = {"line": len(lines) + 1, "time": datetime.now(UTC).isoformat(timespec="seconds"), **entry}
        text = json.dumps({**line, "hash": _link(before, line)}, sort_keys=True) + "\n"
        files.append(self.path, text, private=True)

    def lines(self) -> list[dict[str, Any]]:
        """Read every line, oldest first, without checking them."""
        return [_parsed(text, number, self.path) for number, text in enumerate(_whole(self.path), 1)]

    def verify(self, head: str | None = None) -> str:
        """Check the chain and give the hash of its last line; `head` is such a hash noted earlier, and still there."""
        before, seen = START, {START}
        for number, line in enumerate(self.lines(), 1):
            said = line.pop("hash", None)
            if line.get("line") != number or said != _link(before, line):
                raise LedgerError(
                    f"Expected line {number} of {self.path} as it was written, found it changed, moved or new."
                )
            before = said
            seen.add(before)
        if head is not None and head not in seen:
            raise LedgerError(
                f"Expected {self.path} to go on from where {head[:12]} was noted, found it rewritten or cut short."
            )
        return before


def _link(before: str, line: Mapping[str, Any]) -> str:
    return sha256(f"{before}\n{json.dumps(line, sort_keys=True)}".encode()).hexdigest()


def _whole(path: Path) -> list[str]:
    """Read the whole lines; a torn last one is what a crash leaves, and is cut off."""
    if not path.exists():
        return []
    raw = path.read_bytes()
    kept = raw[: raw.rfind(b"\n") + 1]
    if len(kept) != len(raw):
        with path.open("r+b") as file:
            file.truncate(len(kept))
    return kept.decode("utf-8", errors="replace").split("\n")[:-1]


def _parsed(text: str, number: int, path: Path) -> dict[str, Any]:
    try:
        line = wire.parse(text)
    except WireError as error:
        raise LedgerError(f"Expected JSON in line {number} of {path}, found it damaged.") from error
    if not isinstance(line, dict):
        raise LedgerError(f"Expected an entry in line {number} of {path}, found something else.")
    return line


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

    def cost(self, spending: Spending) -> RunCost:
        """Say what asking again costs."""
        cohort = replace(self.outline.cohort, rate=1.0)
        pairs = zip(self.outline.mechanisms, self.outline.queries, strict=True)
        return RunCost(spending, tuple(mechanism.event(query, cohort) for mechanism, query in pairs), self._once)

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
            return cls(read(data["begin"], _Begin, None).outline, answered, data["masks"])
        except (KeyError, TypeError, ValueError) as error:
            raise WireError("Expected a saved run, found it damaged; the site has to be asked in a new run.") from error


class Notebook(ABC):
    """Where a site writes before it answers."""

    @abstractmethod
    def alone(self) -> AbstractContextManager[None]:
        """Keep other processes of the same site out."""

    @abstractmethod
    def recall(self, run: str) -> str | None:
        """Read what was saved of a run."""

    @abstractmethod
    def save(self, run: str, text: str) -> None:
        """Save a run, durably."""

    @abstractmethod
    def debit(self, run: str, spending: Spending, attempt: int, most: float) -> None:
        """Set a run's spending aside, once an attempt, or refuse past the most of a year."""

    @abstractmethod
    def note(self, entry: Mapping[str, Any]) -> None:
        """Log a request and what became of it."""


@final
@dataclass(frozen=True)
class OnDisk(Notebook):
    """A private folder: `runs/`, `ledger.db` and `log.jsonl`. One site, one folder, many short-lived processes."""

    folder: Path

    def alone(self) -> AbstractContextManager[None]:
        """Lock the folder."""
        return files.locked(self.folder / "lock")

    def recall(self, run: str) -> str | None:
        """Read the run's file."""
        path = self._run(run)
        return path.read_text(encoding="utf-8") if path.exists() else None

    def save(self, run: str, text: str) -> None:
        """Write beside and rename, so that a crash leaves the old text or the new one."""
        files.write(self._run(run), text.encode(), private=True)

    def debit(self, run: str, spending: Spending, attempt: int, most: float) -> None:
        """Debit this year's account, one for each unit and adjacency."""
        account = f"{datetime.now(UTC).year} {spending.unit} {spending.adjacency}"
        try:
            self._limit(account, most)
            self.ledger.debit(run, account, spending, attempt=attempt)
        except BudgetError as error:
            raise Refusal("budget", str(error)) from error

    def _limit(self, account: str, most: float) -> None:
        """Let the ledger hold what the policy says today."""
        known = Path(self.ledger.path).exists()
        limit = self.ledger.account(account).epsilon_limit if known else None
        if limit is None or float(limit) != most:
            self.ledger.limit(account, most, 1)

    def note(self, entry: Mapping[str, Any]) -> None:
        """Add a line to the log."""
        self.log.note(entry)

    @property
    def ledger(self) -> Ledger:
        """The site's own budget."""
        return Ledger(self.folder / "ledger.db")

    @property
    def log(self) -> AuditLog:
        """The site's own log."""
        return AuditLog(self.folder / "log.jsonl")

    def _run(self, run: str) -> Path:
        # the name comes from the server, so it is hashed before it becomes part of a path
        return self.folder / "runs" / f"{sha256(run.encode()).hexdigest()[:32]}.json"
