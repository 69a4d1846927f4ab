"""The flags, each written once and shared by the commands that take it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

from typer import Argument, Option

from fedcalib.registry import ROWS

_DATA = "What the files hold"
_PRIVACY = "Privacy"
_GENERAL = "General"


def _list(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}"


class Format(StrEnum):
    """How a result is given."""

    TEXT = "text"
    JSON = "json"


Files: TypeAlias = Annotated[
    list[str], Argument(help="CSV, Parquet or NPZ files: one with a site column, or one per site.", show_default=False)
]
Label: TypeAlias = Annotated[str, Option(help="Column of the true classes, numbered from 0.", rich_help_panel=_DATA)]
Site: TypeAlias = Annotated[
    str | None,
    Option(
        help="Column of the sites. Without it: the column 'site', or else each file is a site.", rich_help_panel=_DATA
    ),
]
Score: TypeAlias = Annotated[
    str | None, Option(help="Column of a binary classifier's probability of class 1.", rich_help_panel=_DATA)
]
Logits: TypeAlias = Annotated[str | None, Option(help="Columns of logits, such as 'logit_*'.", rich_help_panel=_DATA)]
Probs: TypeAlias = Annotated[str | None, Option(help="Columns of probabilities, such as 'p_*'.", rich_help_panel=_DATA)]
Unit: TypeAlias = Annotated[
    str | None,
    Option(help="Column of patients or users: one record of each at each site is kept.", rich_help_panel=_DATA),
]

Model: TypeAlias = Annotated[
    str | None,
    Option("--privacy", help=f"{_list(row.word for row in ROWS if row.kind == 'privacy')}.", rich_help_panel=_PRIVACY),
]
Epsilon: TypeAlias = Annotated[
    float | None,
    Option(
        help="Total budget of everything that this command releases, measurements included.", rich_help_panel=_PRIVACY
    ),
]
Delta: TypeAlias = Annotated[
    float | None, Option(help="Delta of the total budget, for models that take one.", rich_help_panel=_PRIVACY)
]
Clip: TypeAlias = Annotated[
    float | None,
    Option(help="How many records' worth a client may add, when it is the unit.", rich_help_panel=_PRIVACY),
]
Rounds: TypeAlias = Annotated[int | None, Option(help="How many rounds the method asks.", rich_help_panel=_PRIVACY)]
Participation: TypeAlias = Annotated[
    str,
    Option(
        "--participation",
        help="Who takes part: 'everyone', 'disjoint' (each client in one round), or each client's chance a round, "
        "such as 0.1.",
        rich_help_panel=_PRIVACY,
    ),
]
Seed: TypeAlias = Annotated[
    int | None, Option(help="Simulate with this seed: repeatable, and not private.", rich_help_panel=_PRIVACY)
]

LedgerFile: TypeAlias = Annotated[
    Path | None,
    Option("--ledger", help="Ledger that the total is debited to before anything is asked.", rich_help_panel=_PRIVACY),
]
Account: TypeAlias = Annotated[str, Option(help="Account of the ledger.", rich_help_panel=_PRIVACY)]

DryRun: TypeAlias = Annotated[
    bool,
    Option("--dry-run", help="Say what would be asked and what it would cost; ask nothing.", rich_help_panel=_GENERAL),
]
State: TypeAlias = Annotated[
    Path | None,
    Option(
        "--state",
        help="Private directory of transcripts, for resuming.",
        envvar="FEDCALIB_STATE",
        rich_help_panel=_GENERAL,
        show_default="~/.local/state/fedcalib",
    ),
]
Shape: TypeAlias = Annotated[
    Format, Option("--format", help="text, or one JSON document on stdout.", rich_help_panel=_GENERAL)
]
Config: TypeAlias = Annotated[
    Path | None, Option(help="TOML file of flags; the command line wins.", rich_help_panel=_GENERAL)
]
Debug: TypeAlias = Annotated[bool, Option("--debug", help="Show the traceback of an error.", rich_help_panel=_GENERAL)]
