"""The flags, each written once and shared by the commands that take it.

The functions below turn the words of a command into the package's own objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, TypeAlias, final, get_type_hints

from typer import Argument, Option

from fedcalib import registry
from fedcalib.cli.voice import Voice
from fedcalib.cohort import Disjoint, Everyone, Participation, Poisson
from fedcalib.data import Columns
from fedcalib.errors import InputError
from fedcalib.privacy import Privacy
from fedcalib.registry import ROWS
from fedcalib.workflows.session import Data, WorkflowSession

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
ParticipationWord: TypeAlias = Annotated[
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


_STATE = Path("~/.local/state/fedcalib")


@final
@dataclass(frozen=True)
class Shared:
    """The flags that every command on scored records takes."""

    label: Label = "label"
    site: Site = None
    score: Score = None
    logits: Logits = None
    probs: Probs = None
    unit: Unit = None
    ledger: LedgerFile = None
    account: Account = "default"
    state_: State = None
    format_: Shape = Format.TEXT
    config: Config = None
    debug: Debug = False

    @property
    def voice(self) -> Voice:
        """What prints results and notices."""
        return Voice(self.format_ is Format.JSON)

    def data(self, files: Sequence[str], time: str | None = None) -> Data:
        """The records in these files."""
        columns = {name: getattr(self, name) for name in ("score", "logits", "probs", "label", "site", "unit")}
        return Data.of(list(files), Columns(**columns, time=time))

    def session(self, seed: int | None) -> WorkflowSession:
        """How the command runs."""
        return session(seed, self.state_, self.ledger, self.account, self.voice)


def shared(command: Callable[..., None]) -> Callable[..., None]:
    """Add the flags of `Shared` to a command, which receives them as its argument `flags`."""
    hints = get_type_hints(Shared, include_extras=True)
    common = [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name])
        for field in fields(Shared)
    ]
    own = [one for one in signature(command, eval_str=True).parameters.values() if one.name != "flags"]

    @wraps(command)
    def called(**told: Any) -> None:
        command(flags=Shared(**{one.name: told.pop(one.name) for one in common}), **told)

    called.__signature__ = Signature([*own, *common])  # type: ignore[attr-defined]
    return called


def privacy_model(word: str | None, epsilon: float | None, delta: float | None, clip: float | None = None) -> Privacy:
    """Make the privacy model that was asked for, with the whole budget of a command."""
    made: Privacy = registry.privacy(word, {"epsilon": epsilon, "delta": delta, "clip": clip})
    return made


def session(seed: int | None, state: Path | None, ledger: Path | None, account: str, voice: Voice) -> WorkflowSession:
    """Put together how a command runs; without --state, its state goes where the user's states are."""
    return WorkflowSession(seed, state or _STATE, ledger, account, voice)


def participation(word: str, rounds: int | None) -> Participation:
    """Read who takes part: 'everyone', 'disjoint' or a chance."""
    if word == "everyone":
        return Everyone()
    if word == "disjoint":
        return Disjoint(rounds or 1)
    try:
        return Poisson(float(word))
    except ValueError as error:
        raise InputError(f"Expected --participation everyone, disjoint or a chance, found '{word}'.") from error
