"""The ledger of a command: its total is debited once, before anything is asked."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import final

from fedcalib.cli.state import State
from fedcalib.privacy.model import Spending


@final
@dataclass(frozen=True)
class Purse:
    """A ledger's account, if one was named."""

    path: Path | None
    account: str

    def pay(self, state: State, total: Spending) -> None:
        """Debit what all phases spend together; a run that is resumed or replayed has paid already."""
        if self.path is None or total.epsilon is None:
            return
        from fedcalib.ledger import Ledger

        # the secret makes the name: a command whose state was lost asks anew, so it has to pay anew
        name = sha256(f"{state.name}/{state.secret}".encode()).hexdigest()[:32]
        Ledger(self.path, "command").debit(name, self.account, total)

    def debit(self, run: str, account: str, spending: Spending, *, attempt: int = 0) -> None:
        """Pay for questions that are asked again; their first asking is in the command's total."""
        if self.path is None or attempt == 0:
            return
        from fedcalib.ledger import Ledger

        Ledger(self.path, "asked again").debit(run, self.account, spending, attempt=attempt)
