"""What a command was told, put into the package's own objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, final, get_type_hints

from fedcalib import registry
from fedcalib.cli import options
from fedcalib.cli.voice import Voice
from fedcalib.cohort import Disjoint, Everyone, Participation, Poisson
from fedcalib.data import Columns
from fedcalib.errors import InputError
from fedcalib.privacy import Privacy
from fedcalib.workflows.session import Data, WorkflowSession

_STATE = Path("~/.local/state/fedcalib")


@final
@dataclass(frozen=True)
class Shared:
    """The flags that every command on scored records takes."""

    label: options.Label = "label"
    site: options.Site = None
    score: options.Score = None
    logits: options.Logits = None
    probs: options.Probs = None
    unit: options.Unit = None
    ledger: options.LedgerFile = None
    account: options.Account = "default"
    state_: options.State = None
    format_: options.Shape = options.Format.TEXT
    config: options.Config = None
    debug: options.Debug = False

    @property
    def voice(self) -> Voice:
        """What prints results and notices."""
        return Voice(self.format_ is options.Format.JSON)

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
