"""The flags, each written once and shared by the commands that take it.

The functions below turn the words of a command into the package's own objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, final, get_type_hints

from typer import Argument, Option

from fedcalib import registry
from fedcalib.cli.voice import Voice
from fedcalib.cohort import Disjoint, Everyone, Participation, Poisson
from fedcalib.data import Columns
from fedcalib.errors import InputError
from fedcalib.privacy import Privacy
from fedcalib.registry import ROWS
from fedcalib.workflows import documents
from fedcalib.workflows.facts import About
from fedcalib.workflows.session import SEEDS, Data, WorkflowSession


def _list(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def panel(title: str) -> Callable[..., Any]:
    """Make options that the help of a command lists under this title."""
    return partial(Option, rich_help_panel=title)


_data = panel("What the files hold")
_privacy = panel("Privacy")
_general = panel("General")


class Format(StrEnum):
    """How a result is given."""

    TEXT = "text"
    JSON = "json"


Files = Annotated[
    list[str],
    Argument(help="CSV, Parquet, NPZ or Excel files: one with a site column, or one per site.", show_default=False),
]
Label = Annotated[str, _data(help="Column of the true classes: numbers from 0, or words (--positive, --classes).")]
Site = Annotated[
    str | None, _data(help="Column of the sites. Without it: the column 'site', or else each file is a site.")
]
OneSite = Annotated[bool, _data("--one-site", help="Take a single file without a site column as one site.")]
Positive = Annotated[str | None, _data(help="Label of class 1, such as 'yes', where the column holds one other label.")]
Classes = Annotated[str | None, _data(help="All labels in the order of the classes, with commas in between.")]
Percent = Annotated[bool, _data("--percent", help="Probabilities are percentages from 0 to 100.")]
MaxMissing = Annotated[
    float,
    _data(
        help="Stop if more than this share of a file's records would be left out because a number is missing. "
        "With --epsilon it stops nothing, because the records must not decide whether there is a release."
    ),
]
Sites = Annotated[
    str | None,
    _data(help="All sites that the column may name, with commas in between; they are public, even without records."),
]
Score = Annotated[str | None, _data(help="Column of a binary classifier's probability of class 1.")]
Logits = Annotated[str | None, _data(help="Columns of logits, such as 'logit_*', or one of the log-odds of class 1.")]
Probs = Annotated[str | None, _data(help="Columns of probabilities, such as 'p_*' or, by class name, 'prob_*'.")]
Unit = Annotated[str | None, _data(help="Column of patients or users: one record of each at each site is kept.")]


def _words(kind: registry.Kind) -> Callable[[str], list[str]]:
    """What a shell may complete a word to."""
    return lambda incomplete: [row.word for row in registry.choices(kind) if row.word.startswith(incomplete)]


complete_method = _words("method")
Model = Annotated[
    str | None,
    _privacy(
        "--privacy",
        autocompletion=_words("privacy"),
        help=f"{_list(row.word for row in ROWS if row.kind == 'privacy')}.",
        show_default="secagg; distributed with --epsilon",
    ),
]
Epsilon = Annotated[
    float | None, _privacy(help="Total budget of everything that this command releases, measurements included.")
]
Delta = Annotated[float | None, _privacy(help="Delta of the total budget, for privacy models that take one.")]
Clip = Annotated[float | None, _privacy(help="How many records' worth a client may add, when it is the unit.")]
Colluding = Annotated[
    int | None,
    _privacy(
        help="With distributed: how many clients may tell the server their share of the noise. The others' noise then "
        "suffices.",
        show_default=False,
    ),
]
Rounds = Annotated[int | None, _privacy(help="Number of rounds of the method.")]
ParticipationWord = Annotated[
    str,
    _privacy(
        "--participation",
        help="Who takes part: 'everyone', 'disjoint' (each client in one round), or each client's chance per round, "
        "such as 0.1.",
    ),
]
SimulateSeed = Annotated[
    int | None,
    _privacy("--simulate-seed", help="Simulated noise from this seed, for trials: repeatable, and not private."),
]
RecordsAbout = Annotated[
    int | None,
    _privacy(
        "--records-about",
        help="A public guess of the number of records (of a window), which sets the resolution of figures under noise.",
    ),
]
SplitSeed = Annotated[
    int | None,
    _privacy(
        "--split-seed",
        help="Which records are held out, and which record of a unit is kept; may be public, a release stays private.",
    ),
]


def _refuse_seed(seed: str | None) -> None:
    if seed is not None:
        raise InputError(
            f"Expected {SEEDS.format('--split-seed', '--simulate-seed')}, found --seed; state which you mean."
        )


OldSeed = Annotated[str | None, Option("--seed", hidden=True, callback=_refuse_seed)]

LedgerFile = Annotated[
    Path | None, _privacy("--ledger", help="Ledger that the total is debited to before any query is sent.")
]
Account = Annotated[str, _privacy(help="Account of the ledger.")]

_report = panel("Report")
Classifier = Annotated[str, _report(help="Name and version of the classifier, for the report.")]
Period = Annotated[str, _report(help="The time that the data is of, for the report, such as 'January to June 2024'.")]
Bundle = Annotated[
    Path | None,
    _report(help="Write the report with its evidence into this zip file; `fedcalib verify` checks it."),
]

DryRun = Annotated[
    bool, _general("--dry-run", help="Show which queries would be sent and what they would cost; send none.")
]
State = Annotated[
    Path | None,
    _general(
        "--state",
        help="Private directory of transcripts, for resuming.",
        envvar="FEDCALIB_STATE",
        show_default="~/.local/state/fedcalib",
    ),
]
Shape = Annotated[Format, _general("--format", help="text, or one JSON document on stdout.")]
Config = Annotated[Path | None, _general(help="TOML file of flags; the command line wins.")]
Debug = Annotated[bool, _general("--debug", help="Show the traceback of an error.")]


_STATE = Path("~/.local/state/fedcalib")


_COLUMNS = ("score", "logits", "probs", "label", "site", "unit")
_MEANINGS = ("one_site", "positive", "classes", "percent", "max_missing")


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
    sites: Sites = None
    one_site: OneSite = False
    positive: Positive = None
    classes: Classes = None
    percent: Percent = False
    max_missing: MaxMissing = 0.5
    split_seed: SplitSeed = None
    seed: OldSeed = None
    ledger: LedgerFile = None
    account: Account = "default"
    classifier: Classifier = ""
    period: Period = ""
    bundle: Bundle = None
    state_: State = None
    format_: Shape = Format.TEXT
    config: Config = None
    debug: Debug = False

    @property
    def about(self) -> About:
        """What a report states about the classifier."""
        return About(self.classifier, self.period)

    def check_places(self, out: Path | None, names: Sequence[str]) -> None:
        """Refuse an `--out` or a `--bundle` that cannot be written, before anything is asked and spent."""
        if out is not None:
            documents.check_folder(out, names)
        if self.bundle is not None:
            documents.check_folder(self.bundle.parent, [self.bundle.name], "--bundle")

    @property
    def voice(self) -> Voice:
        """What prints results and notices."""
        return Voice(self.format_ is Format.JSON)

    def data(self, files: Sequence[str], time: str | None = None) -> Data:
        """The records in these files."""
        columns = {name: getattr(self, name) for name in (*_COLUMNS, *_MEANINGS)}
        sites = None if self.sites is None else tuple(name.strip() for name in self.sites.split(","))
        return Data.of(list(files), Columns(**columns, time=time, sites=sites))

    def session(self, simulate: int | None) -> WorkflowSession:
        """How the command runs."""
        seeds = {"simulate": simulate, "split_seed": self.split_seed}
        return session(self.state_, self.ledger, self.account, self.voice, **seeds)


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


def usual_privacy(word: str | None, epsilon: float | None) -> str:
    """The privacy model that was named; without one, that of exact sums, or the one that shares the noise."""
    return word or ("secagg" if epsilon is None else "distributed")


def privacy_model(
    word: str | None,
    epsilon: float | None,
    delta: float | None,
    clip: float | None = None,
    colluding: int | None = None,
) -> Privacy:
    """Make the privacy model that was asked for, with the whole budget of a command."""
    given = {"epsilon": epsilon, "delta": delta, "clip": clip, "colluding": colluding}
    word = usual_privacy(word, epsilon)
    _check_taken(word, [name for name, value in given.items() if value is not None])
    made: Privacy = registry.privacy(word, given)
    return made


def _check_taken(word: str, given: Sequence[str]) -> None:
    """Refuse flags that a privacy model does not take, and name the models that do."""
    models = {row.word: row for row in registry.choices("privacy")}
    if word not in models:
        return
    for name in given:
        if name not in models[word].options:
            others = [other for other, row in models.items() if name in row.options]
            flag = f"--{name.replace('_', '-')}"
            raise InputError(
                f"Expected {flag} with --privacy {_list(others)}, found --privacy {word}, which takes none."
                if others
                else f"Expected no {flag} with --privacy {word}, found one."
            )


def session(
    state: Path | None, ledger: Path | None, account: str, voice: Voice, **seeds: int | None
) -> WorkflowSession:
    """Put together how a command runs; without --state, its state goes where the user's states are."""
    return WorkflowSession(state=state or _STATE, ledger=ledger, account=account, notices=voice, **seeds)


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


def numbers(words: str | None, flag: str) -> tuple[float, ...]:
    """Read numbers with commas in between."""
    try:
        return () if words is None else tuple(float(word) for word in words.split(","))
    except ValueError as error:
        raise InputError(f"Expected numbers with commas in between with {flag}, found '{words}'.") from error
