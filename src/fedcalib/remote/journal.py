"""What a site keeps between messages: its runs, its budget and its log, on its own disk.

`Journal` is the whole; a site writes to it before it answers. `RunState` is one run: what was agreed, what was
answered, and the state of secure aggregation. `AuditLog` holds every request, answer and refusal, in lines that each
hold the hash of the line before. Field names of what is saved are a file format.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, Decimal
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

FIRST_HASH: Final = "0" * 64
_SECRET_BYTES: Final = 32
_PROBE_BYTES: Final = 1 << 17  # more than what a small run writes

_TAIL: Final = 1 << 16  # bytes at the end of a log that are looked at first

# All debits of a site go to one account, because all of them concern the same people. The epsilon of a record (added or
# removed), of a record's content and of a client with all its records each bound what a release tells about a person's
# record against a record that adds nothing. So their sum bounds all releases together. That is plain composition, never
# less than what was spent, and more than a common Renyi curve would give for several Gaussian runs.
ACCOUNT: Final = "records of this site"
MIN_DEBIT: Final = 0.001  # epsilon: so that a server cannot fill the ledger with runs that cost almost nothing


@final
@dataclass(frozen=True)
class AuditLog:
    """A file of JSON lines, private to the site. An edited, removed or inserted line breaks the chain."""

    path: Path

    def note(self, entry: Mapping[str, Any]) -> None:
        """Add a line, durably; call it before the answer that the line describes leaves."""
        last = _last_line(self.path)
        before, number = (last["hash"], last["line"]) if last else (FIRST_HASH, 0)
        line = {"line": number + 1, "time": datetime.now(UTC).isoformat(timespec="seconds"), **entry}
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


def _last_line(path: Path) -> dict[str, Any] | None:
    """The last complete line, from the end of the file alone: a log grows with every request."""
    if not path.exists():
        return None
    size, reach = path.stat().st_size, _TAIL
    while True:
        with path.open("rb") as file:
            file.seek(max(size - reach, 0))
            tail = file.read()
        end = tail.rfind(b"\n")
        start = tail.rfind(b"\n", 0, max(end, 0))
        if start >= 0 or reach >= size:
            break
        reach *= 16
    if end + 1 != len(tail):
        _complete_lines(path)  # a crash left an incomplete line
    return _parsed(tail[start + 1 : end].decode("utf-8", errors="replace"), 0, path) if end >= 0 else None


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
    """A run as a site saves it: its outline, the steps answered, the state of its masks, and a hash of the records."""

    outline: Outline
    answered: tuple[StepRecord, ...] = ()
    masks: str = ""
    data: str = ""

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
        begin = write(_Begin(self.outline, ""))
        return json.dumps({"begin": begin, "answered": answered, "masks": self.masks, "data": self.data})

    @classmethod
    def from_json(cls, text: str) -> RunState:
        data: Any = wire.parse(text)
        try:
            answered = tuple(
                StepRecord(step, fingerprint, tuple(tries), reply)
                for step, fingerprint, tries, reply in data["answered"]
            )
            outline = read(data["begin"], _Begin, None).outline
            return cls(outline, answered, data["masks"], str(data.get("data", "")))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise WireError("Expected a saved run, found it damaged; start a new run with this site.") from error


@final
@dataclass(frozen=True)
class PinnedSites:
    """The sites in a sum: their names, and their number. Beyond 50 sites a site knows the names of some only."""

    names: tuple[str, ...]
    size: int

    def distance(self, other: PinnedSites) -> int:
        """The fewest sites by which two rosters differ, as far as this site can know."""
        if len(self.names) == self.size and len(other.names) == other.size:
            return len(set(self.names) ^ set(other.names))
        return abs(self.size - other.size)

    def __str__(self) -> str:
        whole = len(self.names) == self.size
        return ", ".join(self.names) if whole else f"{self.size} sites"


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
    def check_ready(self, run: str, spending: Spending | None, most: float, most_exact: int) -> None:
        """Refuse a run that could not be paid for, or while nothing can be written; nothing is spent.

        The limits are those of `debit` and `count_exact`.
        """

    @abstractmethod
    def spent_in_a_year(self) -> Decimal:
        """The epsilon of all runs of the last 365 days."""

    @abstractmethod
    def debit(self, run: str, spending: Spending, attempt: int, most: float) -> None:
        """Debit a run's spending, once per attempt; refuse past `most`, the epsilon of a rolling year."""

    @abstractmethod
    def count_exact(self, run: str, most: int) -> None:
        """Count a run without an epsilon, once; refuse past `most`, the runs of a rolling year."""

    @abstractmethod
    def pin_roster(self, data: str, roster: PinnedSites, fewest: int) -> None:
        """Note over which sites an exact sum of these data goes; refuse one that is nearly the same as another."""

    @abstractmethod
    def note(self, entry: Mapping[str, Any]) -> None:
        """Log a request and its outcome."""


@final
@dataclass(frozen=True)
class DiskJournal(Journal):
    """A private folder: one per site, for many short processes.

    It holds `runs/`, `ledger.db`, `exact.json` (runs and rosters of exact sums), `log.jsonl` and `secret`.
    """

    folder: Path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder, which nobody but its owner may enter."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if stat.S_IMODE(self.folder.stat().st_mode) != 0o700:
            self.folder.chmod(0o700)  # it was made by somebody else, with other rights
        with files.locked(self.folder / "lock"):
            yield

    def recall(self, run: str) -> str | None:
        path = self._run(run)
        return path.read_text(encoding="utf-8") if path.exists() else None

    def save(self, run: str, text: str) -> None:
        files.write(self._run(run), text.encode(), private=True)

    def check_ready(self, run: str, spending: Spending | None, most: float, most_exact: int) -> None:
        """Look at the budget, and write and remove as much as a run may need."""
        probe, ledger = self.folder / "probe", Path(self.ledger.path)
        try:
            probe.write_bytes(bytes(_PROBE_BYTES))
        finally:
            probe.unlink(missing_ok=True)
        if ledger.exists() and not os.access(ledger, os.W_OK):
            raise PermissionError(f"Expected to write {ledger}, found that this user may not.")
        if spending is None:
            self._check_exact(run, most_exact)
        else:
            self._check_budget(run, 0, max(spending.epsilon or 0.0, MIN_DEBIT), most)

    def _check_budget(self, run: str, attempt: int, wanted: float, most: float) -> None:
        known = self.ledger.entries() if Path(self.ledger.path).exists() else ()
        debits = [entry for entry in known if entry.kind == "debit"]
        if not any((entry.run, entry.attempt) == (run, attempt) for entry in debits):
            spent = sum(entry.epsilon_micro for entry in debits if entry.at >= _a_year_ago())
            _check_left(spent, wanted, most)

    def spent_in_a_year(self) -> Decimal:
        known = self.ledger.entries() if Path(self.ledger.path).exists() else ()
        recent = (entry for entry in known if entry.kind == "debit" and entry.at >= _a_year_ago())
        return Decimal(sum(entry.epsilon_micro for entry in recent)).scaleb(-6)

    def debit(self, run: str, spending: Spending, attempt: int, most: float) -> None:
        """Debit the one account of this site's records; see `ACCOUNT`."""
        spending = replace(spending, epsilon=max(spending.epsilon or 0.0, MIN_DEBIT))
        self._check_budget(run, attempt, spending.epsilon or MIN_DEBIT, most)
        one = replace(spending, unit="record", adjacency="add/remove", statement=_stated(spending))
        try:
            self.ledger.debit(run, ACCOUNT, one, attempt=attempt)
        except BudgetError as error:
            raise Refusal("budget", str(error)) from error

    def count_exact(self, run: str, most: int) -> None:
        recent = self._check_exact(run, most)
        if run not in recent:
            self._save_exact({**self._exact(), "runs": {**recent, run: _now()}})

    def _check_exact(self, run: str, most: int) -> dict[str, str]:
        """The runs of the last year; refuses one more than `most`."""
        since = _a_year_ago()
        recent = {name: at for name, at in self._exact()["runs"].items() if at >= since}
        if run not in recent and len(recent) >= most:
            raise Refusal("budget", f"Expected at most {most} runs of exact sums in 365 days, found {len(recent)}.")
        return recent

    def pin_roster(self, data: str, roster: PinnedSites, fewest: int) -> None:
        exact = self._exact()
        pinned = [PinnedSites(tuple(names), size) for names, size in exact["rosters"].get(data, [])]
        if roster in pinned:
            return
        if near := next((old for old in pinned if old.distance(roster) < fewest), None):
            raise Refusal(
                "roster",
                f"Expected the same sites as in an exact sum before ({near}), or at least {fewest} others, found "
                f"{roster}: the difference of both sums would tell what {near.distance(roster)} sites hold.",
            )
        saved = [[list(one.names), one.size] for one in (*pinned, roster)]
        self._save_exact({**exact, "rosters": {**exact["rosters"], data: saved}})

    def _exact(self) -> dict[str, Any]:
        path = self.folder / "exact.json"
        data = wire.parse(path.read_text(encoding="utf-8")) if path.exists() else {"runs": {}, "rosters": {}}
        if not isinstance(data, dict) or data.keys() != {"runs", "rosters"}:
            raise LedgerError(f"Expected runs and rosters in {path}, found it damaged.")
        return data

    def _save_exact(self, data: Mapping[str, Any]) -> None:
        files.write(self.folder / "exact.json", json.dumps(data).encode(), private=True)

    def secret(self) -> bytes:
        """The secret by which one record per unit is chosen; it is drawn once and kept."""
        with self.locked():
            path = self.folder / "secret"
            if not path.exists():
                files.write(path, secrets.token_bytes(_SECRET_BYTES), private=True)
            found = path.read_bytes()
        if len(found) != _SECRET_BYTES:
            raise LedgerError(f"Expected a secret of {_SECRET_BYTES} bytes in {path}, found {len(found)}.")
        return found

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


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _a_year_ago() -> str:
    """The start of the rolling year, in the form of the ledger's times, which sort as they follow each other."""
    return (datetime.now(UTC) - timedelta(days=365)).isoformat(timespec="seconds")


def _check_left(spent_micro: int, wanted: float, most: float) -> None:
    """Refuse what does not fit into the rest of a rolling year; amounts are rounded as the ledger rounds them."""
    spent, left = Decimal(spent_micro).scaleb(-6), Decimal(repr(most)) - Decimal(spent_micro).scaleb(-6)
    if Decimal(repr(wanted)).quantize(Decimal("1e-6"), ROUND_CEILING) > left:
        raise Refusal(
            "budget",
            f"Expected epsilon up to {most:g} in 365 days, over all runs, found {spent.normalize():f} spent and "
            f"{wanted:g} requested. Left: {max(left, Decimal(0)).normalize():f}. Nothing was released.",
        )


def _stated(spending: Spending) -> str:
    return f"{spending.statement} Unit: {spending.unit} ({spending.adjacency})."
