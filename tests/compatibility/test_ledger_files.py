"""A ledger that the first version wrote: it is read as it is, and goes on in the same chain."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

import fedcalib as fc
from fedcalib.accounting.spending import Spending
from fedcalib.errors import BudgetError

STORED = Path(__file__).with_name("ledger_version_1.db")
HEAD = "0918a7b4b0bd802883de213e8bca04e549093635aabe206e7a52babc3775c1fc"
HALF = Spending("DistributedDP", "record", 0.5, 1e-6, "add/remove", False, "For a test.")


@pytest.fixture
def ledger(tmp_path: Path) -> fc.Ledger:
    return fc.Ledger(shutil.copy(STORED, tmp_path / "ledger.db"))


def version(ledger: fc.Ledger) -> int:
    with closing(sqlite3.connect(ledger.path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def test_a_stored_ledger_is_read_without_changing_it(ledger: fc.Ledger) -> None:
    assert ledger.verify() == HEAD
    patients, flights = ledger.accounts()
    assert (patients.name, patients.debits, patients.epsilon) == ("patients", 2, Decimal("0.75"))
    assert (patients.epsilon_limit, patients.delta_left) == (2, Decimal("0.000009"))
    assert (flights.unit, flights.epsilon_limit) == ("client", None)
    assert [line.attempt for line in ledger.entries()] == [0, 0, 1, 0]
    assert {line.step for line in ledger.entries()} == {None}
    assert Path(ledger.path).read_bytes() == STORED.read_bytes()


def test_a_stored_ledger_goes_on(ledger: fc.Ledger) -> None:
    before = ledger.entries()
    ledger.debit("run", "patients", HALF)
    ledger.claim("run", "patients", replace(HALF, epsilon=0.0, delta=0.0), step=0, attempt=1, known=frozenset())
    assert version(ledger) == 2
    assert ledger.verify(HEAD) != HEAD, "the old lines keep their hashes"
    assert ledger.entries()[: len(before)] == before
    assert ledger.claims("run", "patients") == {(0, 1)}
    assert ledger.account("patients").epsilon == Decimal("0.75"), "the first sending is in the run's debit"
    with pytest.raises(BudgetError, match=r"0\.75, 0\.000001 spent and 1\.5"):
        ledger.debit("another", "patients", replace(HALF, epsilon=1.5))


def test_a_refused_debit_leaves_a_stored_ledger_as_it_was(ledger: fc.Ledger) -> None:
    with pytest.raises(BudgetError):
        ledger.debit("another", "patients", replace(HALF, epsilon=1.5))
    assert version(ledger) == 1
    assert ledger.verify() == HEAD
