"""What a site keeps between messages: its runs, its budget and its log, on its own disk.

`Journal` is the whole; a site writes to it before it answers. `RunState` is one run: what was agreed, what was
answered, and the state of secure aggregation. `AuditLog` holds every request, answer and refusal, in lines that each
hold the hash of the line before. Field names of what is saved are a file format.
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
from fedcalib.accounting.spending import EMPTY_CLIENT, RunCost, Spending
from fedcalib.errors import BudgetError, LedgerError, WireError
from fedcalib.loop import Outline
from fedcalib.query import Query
from fedcalib.remote.protocol import Begin as _Begin
from fedcalib.remote.protocol import Refusal, read, write

FIRST_HASH: Final = "0" * 64


@final
@dataclass(frozen=True)
class AuditLog:
    """A file of JSON lines, private to the site. An edited, removed or inserted line breaks the chain."""

    path: Path

    def note(self, entry: Mapping[str, Any]) -> None:
        """Add a line, durably; call it before the answer that the line describes leaves."""
        lines = _complete_lines(self.path)
        before = wire.parse(lines[-1])["hash"] if lines else FIRST_HASH
        line = {"line": len(lines) + 1, "time": datetime.now(UTC).isoformat(timespec="seconds"), **entry}
        text = json.dumps({**line, "hash": _link(before, line)}, sort_keys=True) + "\n"
        files.append(self.path, text, private=True)

    def lines(self) -> list[dict[str, Any]]:
        """Every line, oldest first, without checking the hashes."""
        return [_parsed(text, number, self.path) for number, text in enumerate(_complete_lines(self.path), 1)]

    def verify(self, head: str | None = None) -> str:
        """Check the chain and return the hash of its last line; `head` is an earlier such hash, which must be there."""
        before, seen = FIRST_HASH, {FIRST_HASH}
        for number, line in enumerate(self.lines(), 1):
            found = line.pop("hash", None)
            if line.get("line") != number or found != _link(before, line):
                raise LedgerError(
                    f"Expected line {number} of {self.path} as it was written, found it changed, moved or new."
                )
            before = found
            seen.add(before)
        if head is not None and head not in seen:
            raise LedgerError(
                f"Expected {self.path} to hold the line with the hash {head[:12]}, found it rewritten or cut short."
            )
        return before


def _link(before: str, line: Mapping[str, Any]) -> str:
    return sha256(f"{before}\n{json.dumps(line, sort_keys=True)}".encode()).hexdigest()


def _complete_lines(path: Path) -> list[str]:
    """The complete lines of a file; an incomplete last line, which a crash leaves, is removed."""
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
class StepRecord:
    """A step that was answered: the fingerprint of its query, the attempts, and the reply where it was not masked."""

    step: int
    question: str
    attempts: tuple[int, ...]
    reply: str


@final
@dataclass(frozen=True)
class RunState:
    """A run as a site saves it: its outline, the steps answered so far, and the state of secure aggregation."""

    outline: Outline
    answered: tuple[StepRecord, ...] = ()
    masks: str = ""

    def step(self, step: int) -> StepRecord | None:
        """The record of a step; None if it was not answered yet."""
        return next((one for one in self.answered if one.step == step), None)

    def check(self, step: int, query: Query) -> str:
        """The fingerprint of a query; refuses one that the outline does not cover."""
        if not 0 <= step < len(self.outline.queries):
            raise Refusal("query", f"Expected one of {len(self.outline.queries)} agreed steps, found step {step}.")
        if dict(self.outline.queries[step].blocks) != dict(query.blocks):
            raise Refusal("query", f"Expected step {step} with the blocks that were agreed, found others.")
        fingerprint = wire.fingerprint(query)
        before = self.step(step)
        if before is not None and before.question != fingerprint:
            raise Refusal(
                "protocol", f"Expected step {step} with the query that was answered before, found another query."
            )
        if before is None and self._once and self.answered:
            raise Refusal("protocol", "Expected one step only of a run with disjoint cohorts, found a second.")
        return fingerprint

    def after(self, step: int, attempt: int, question: str, reply: str) -> RunState:
        """The state after an answer."""
        before = self.step(step)
        attempts = (*(before.attempts if before else ()), attempt)
        others = tuple(one for one in self.answered if one.step != step)
        return replace(self, answered=(*others, StepRecord(step, question, attempts, reply)))

    def cost(self, spending: Spending) -> RunCost:
        """The cost of this run, repeated steps included."""
        cohort = replace(self.outline.cohort, rate=1.0)
        pairs = zip(self.outline.mechanisms, self.outline.queries, strict=True)
        return RunCost(spending, tuple(mechanism.event(query, cohort) for mechanism, query in pairs), self._once)

    def attempt_counts(self) -> list[int]:
        """The number of answered attempts at each step."""
        counts = {one.step: len(one.attempts) for one in self.answered}
        return [counts.get(step, 0) for step in range(len(self.outline.queries))]

    @property
    def _once(self) -> bool:
        steps = len(self.outline.queries)
        return steps > 1 and self.outline.participation.appearances(steps) == 1

    def to_json(self) -> str:
        """Write the state as text; it may hold secrets of secure aggregation."""
        answered = [[one.step, one.question, list(one.attempts), one.reply] for one in self.answered]
        return json.dumps({"begin": write(_Begin(self.outline, "")), "answered": answered, "masks": self.masks})

    @classmethod
    def from_json(cls, text: str) -> RunState:
        data: Any = wire.parse(text)
        try:
            answered = tuple(
                StepRecord(step, fingerprint, tuple(tries), reply)
                for step, fingerprint, tries, reply in data["answered"]
            )
            return cls(read(data["begin"], _Begin, None).outline, answered, data["masks"])
        except (KeyError, TypeError, ValueError) as error:
            raise WireError("Expected a saved run, found it damaged; start a new run with this site.") from error


class Journal(ABC):
    """What a site keeps between messages, written before it answers."""

    @abstractmethod
    def locked(self) -> AbstractContextManager[None]:
        """A lock that keeps other processes of the same site out."""

    @abstractmethod
    def recall(self, run: str) -> str | None:
        """What was saved of a run; None if nothing was."""

    @abstractmethod
    def save(self, run: str, text: str) -> None:
        """Save a run, durably."""

    @abstractmethod
    def debit(self, run: str, spending: Spending, attempt: int, most: float) -> None:
        """Debit a run's spending, once per attempt; refuse past `most`, the epsilon of a year."""

    @abstractmethod
    def note(self, entry: Mapping[str, Any]) -> None:
        """Log a request and its outcome."""


@final
@dataclass(frozen=True)
class DiskJournal(Journal):
    """A private folder with `runs/`, `ledger.db` and `log.jsonl`: one folder per site, for many short processes."""

    folder: Path

    def locked(self) -> AbstractContextManager[None]:
        return files.locked(self.folder / "lock")

    def recall(self, run: str) -> str | None:
        path = self._run(run)
        return path.read_text(encoding="utf-8") if path.exists() else None

    def save(self, run: str, text: str) -> None:
        files.write(self._run(run), text.encode(), private=True)

    def debit(self, run: str, spending: Spending, attempt: int, most: float) -> None:
        """Debit this year's account, one for each unit and adjacency."""
        # the name that earlier versions gave it, so that what they spent still counts
        kind = "add/remove" if spending.adjacency == EMPTY_CLIENT else spending.adjacency
        account = f"{datetime.now(UTC).year} {spending.unit} {kind}"
        try:
            self._limit(account, most)
            self.ledger.debit(run, account, spending, attempt=attempt)
        except BudgetError as error:
            raise Refusal("budget", str(error)) from error

    def _limit(self, account: str, most: float) -> None:
        """Set the ledger's limit to the policy's, which may have changed."""
        known = Path(self.ledger.path).exists()
        limit = self.ledger.account(account).epsilon_limit if known else None
        if limit is None or float(limit) != most:
            self.ledger.limit(account, most, 1)

    def note(self, entry: Mapping[str, Any]) -> None:
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
