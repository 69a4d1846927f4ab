"""`fedcalib ledger`, and the budget that commands spend from it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.cli.conftest import Shell

PAID = ("--privacy", "distributed", "--ledger", "budget.db", "--account", "patients")


def test_a_budget_is_set_spent_shown_and_refused(shell: Shell, scores: Path) -> None:
    assert shell("ledger", "limit", "budget.db", "patients", "--epsilon", "1").code == 0
    assert shell("evaluate", scores, *PAID, "--epsilon", "0.7").code == 0
    refused = shell("evaluate", scores, *PAID, "--epsilon", "0.4", "--format", "json")
    assert refused.code == 3
    assert refused.json["exit_code"] == 3
    assert "0.7" in refused.err and "0.4" in refused.err and "0.3" in refused.err
    (account,) = shell("ledger", "show", "budget.db", "--format", "json").json["accounts"]
    assert account["epsilon"] == "0.7"
    assert account["epsilon_left"] == "0.3"
    assert (account["unit"], account["adjacency"], account["debits"]) == ("record", "add/remove", 1)


def test_the_same_command_pays_once(shell: Shell, scores: Path) -> None:
    for _ in range(2):
        assert shell("evaluate", scores, *PAID, "--epsilon", "0.7").code == 0
    (account,) = shell("ledger", "show", "budget.db", "--format", "json").json["accounts"]
    assert account["epsilon"] == "0.7"


def test_lines_and_tables_are_shown(shell: Shell) -> None:
    shell("ledger", "limit", "budget.db", "patients", "--epsilon", "1", "--delta", "1e-5")
    shell("ledger", "limit", "budget.db", "flights", "--epsilon", "2")
    said = shell("ledger", "show", "budget.db", "--entries", "--account", "patients")
    assert "patients" in said.out and "flights" not in said.out and "0.00001" in said.out
    document = shell("ledger", "show", "budget.db", "--entries", "--format", "json").json
    assert [line["epsilon_micro"] for line in document["entries"]] == [1_000_000, 2_000_000]


def test_verify_gives_a_hash_and_finds_an_edit(shell: Shell) -> None:
    shell("ledger", "limit", "budget.db", "patients", "--epsilon", "1")
    head = shell("ledger", "verify", "budget.db", "--format", "json").json["head"]
    assert head in shell("ledger", "verify", "budget.db", "--head", head).out
    connection = sqlite3.connect("budget.db")
    connection.execute("DROP TRIGGER no_update")
    connection.execute("UPDATE entries SET epsilon_micro = '9000000'")
    connection.commit()
    connection.close()
    said = shell("ledger", "verify", "budget.db")
    assert said.code == 2
    assert "edited" in said.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("show", "absent.db"), "no such file"),
        (("limit", "budget.db", "patients"), "epsilon"),
        (("limit", "budget.db", "patients", "--epsilon", "much"), "much"),
        (("limit", "budget.db", "", "--epsilon", "1"), "account name"),
    ],
)
def test_mistakes_are_explained(shell: Shell, words: tuple[str, ...], told: str) -> None:
    said = shell("ledger", *words)
    assert said.code == 2
    assert told in said.err
