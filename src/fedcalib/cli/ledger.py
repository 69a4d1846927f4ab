"""`fedcalib ledger`: what was spent, whether the record is intact, and how much may be spent."""

from __future__ import annotations

from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from fedcalib.accounting.ledger import Account, Ledger
from fedcalib.accounting.ledger_file import LedgerEntry
from fedcalib.cli import options
from fedcalib.cli.voice import Voice
from fedcalib.workflows.documents import TextTable

File = Annotated[Path, Argument(help="The ledger's file.", show_default=False)]

_UNITS = {"epsilon_micro": Decimal("1e-6"), "delta_femto": Decimal("1e-15")}


def group() -> typer.Typer:
    """Put the ledger's commands together."""
    app = typer.Typer(help="Look after a privacy budget: show, verify, limit.", no_args_is_help=True)
    for command in (show, verify, limit):
        app.command()(command)
    return app


def show(
    file: File,
    *,
    account: Annotated[str | None, Option(help="Only this account.")] = None,
    entries: Annotated[bool, Option("--entries", help="Every line too, oldest first.")] = False,
    format_: options.Shape = options.Format.TEXT,
    debug: options.Debug = False,
) -> None:
    """Show what every account has spent, and what is left."""
    ledger = Ledger(file)
    accounts = [one for one in ledger.accounts() if account in (None, one.name)]
    lines = [line for line in ledger.entries() if entries and account in (None, line.account)]
    document = {"accounts": [_account(one) for one in accounts], "entries": [asdict(line) for line in lines]}
    tables = [*map(_table, accounts), *([_lines(lines)] if entries else [])]
    Voice(format_ is options.Format.JSON).result(document, tables)


def verify(
    file: File,
    *,
    head: Annotated[
        str | None, Option(help="A hash that an earlier verify gave: the ledger must still go on from there.")
    ] = None,
    format_: options.Shape = options.Format.TEXT,
    debug: options.Debug = False,
) -> None:
    """Check that no line was changed, added out of turn or removed, and give the hash of the last."""
    ledger = Ledger(file)
    last, lines = ledger.verify(head), len(ledger.entries())
    document = {"intact": True, "entries": lines, "head": last}
    rows = (("lines", str(lines)), ("head", last))
    Voice(format_ is options.Format.JSON).result(document, [TextTable("The ledger is intact", ("", ""), rows)])


def limit(
    file: File,
    account: Annotated[str, Argument(help="The account's name.", show_default=False)],
    *,
    epsilon: Annotated[str, Option(help="The most epsilon that the account may spend.", show_default=False)],
    delta: Annotated[str, Option(help="The most delta.")] = "0",
    format_: options.Shape = options.Format.TEXT,
    debug: options.Debug = False,
) -> None:
    """Set the most that an account may spend; the limit before it stays on record."""
    state = Ledger(file).limit(account, epsilon, delta)
    Voice(format_ is options.Format.JSON).result({"account": _account(state)}, [_table(state)])


def _account(account: Account) -> dict[str, Any]:
    """Write amounts as decimal strings, which no reader can round."""
    left = {"epsilon_left": account.epsilon_left, "delta_left": account.delta_left}
    facts = {**asdict(account), **left}
    return {name: str(value) if isinstance(value, Decimal) else value for name, value in facts.items()}


def _table(account: Account) -> TextTable:
    unit = f" on the unit {account.unit} ({account.adjacency})" if account.debits else ""
    rows = (
        ("epsilon", *map(_said, (account.epsilon, account.epsilon_limit, account.epsilon_left))),
        ("delta", *map(_said, (account.delta, account.delta_limit, account.delta_left))),
    )
    title = f"{account.name}: {account.debits} debit{'s' * (account.debits != 1)}{unit}"
    return TextTable(title, ("", "spent", "limit", "left"), rows)


def _lines(lines: list[LedgerEntry]) -> TextTable:
    columns = ("", "when", "what", "account", "phase", "step", "epsilon", "delta")
    rows = tuple(
        (
            *(str(line.number), line.at.removesuffix("+00:00"), line.kind, line.account, line.phase),
            "" if line.step is None else str(line.step),
            *(f"{(getattr(line, name) * unit).normalize():f}" for name, unit in _UNITS.items()),
        )
        for line in lines
    )
    return TextTable("Lines, oldest first", columns, rows)


def _said(amount: Decimal | None) -> str:
    return "none" if amount is None else str(amount)


app = group()
