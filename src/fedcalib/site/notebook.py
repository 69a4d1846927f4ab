"""What a site keeps between messages: its runs, its budget and its log; on its own disk, but in simulations."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, final

from fedcalib.errors import BudgetError
from fedcalib.ledger import Ledger
from fedcalib.privacy.model import Spending
from fedcalib.site.audit import AuditLog
from fedcalib.site.refusal import Refusal


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

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the folder."""
        import fcntl

        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600), "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def recall(self, run: str) -> str | None:
        """Read the run's file."""
        path = self._run(run)
        return path.read_text(encoding="utf-8") if path.exists() else None

    def save(self, run: str, text: str) -> None:
        """Write beside and rename, so that a crash leaves the old text or the new one."""
        path = self._run(run)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside = path.with_suffix(".part")
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)

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


@final
@dataclass(frozen=True)
class InMemory(Notebook):
    """A notebook that is forgotten with its process: for simulations and tests, where there is nobody to protect."""

    runs: dict[str, str] = field(default_factory=dict)

    def alone(self) -> AbstractContextManager[None]:
        """Let everybody in."""
        return nullcontext()

    def recall(self, run: str) -> str | None:
        """Look the run up."""
        return self.runs.get(run)

    def save(self, run: str, text: str) -> None:
        """Keep the text."""
        self.runs[run] = text

    def debit(self, run: str, spending: Spending, attempt: int, most: float) -> None:
        """Keep no budget."""

    def note(self, entry: Mapping[str, Any]) -> None:
        """Keep no log."""
