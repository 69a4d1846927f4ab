"""`fedcalib compare`: every applicable method on your own records, side by side."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

from typer import Option

from fedcalib import registry
from fedcalib.cli import options
from fedcalib.cli.request import participation, privacy_model, session
from fedcalib.cli.voice import Voice
from fedcalib.data import Columns
from fedcalib.errors import InputError
from fedcalib.workflows import documents
from fedcalib.workflows.compare import ByClient, ByRecord, Split
from fedcalib.workflows.comparison import Side, entries
from fedcalib.workflows.comparison_runs import Comparison
from fedcalib.workflows.session import Data

NAMES: Final = ("comparison.json", "comparison.html", "comparison.png")
_FIT = "Comparison"


class By(StrEnum):
    """What is held out."""

    RECORD = "record"
    CLIENT = "client"


_SPLITS: Final[dict[By, type[Split]]] = {By.RECORD: ByRecord, By.CLIENT: ByClient}


def compare(
    files: options.Files,
    *,
    methods: Annotated[
        str | None, Option(help="Names with commas in between; all that apply if left out.", rich_help_panel=_FIT)
    ] = None,
    privacy: options.Model = "open",
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    clip: options.Clip = None,
    rounds: options.Rounds = None,
    participation_: options.Participation = "everyone",
    repeats: Annotated[int, Option(help="How many splits to average over.", rich_help_panel=_FIT)] = 3,
    split: Annotated[By, Option(help="Hold records of every client out, or whole clients.", rich_help_panel=_FIT)] = (
        By.RECORD
    ),
    holdout: Annotated[float, Option(help="Share of them to measure on.", rich_help_panel=_FIT)] = 0.3,
    seed: Annotated[int, Option(help="Seed of the simulation.", rich_help_panel=_FIT)] = 0,
    spend: Annotated[
        bool,
        Option(
            "--spend",
            help="Not a simulation: split the budget over the methods and their measurements, and spend it.",
            rich_help_panel=_FIT,
        ),
    ] = False,
    out: Annotated[Path | None, Option(help="Directory for the table, the picture and the report.")] = None,
    label: options.Label = "label",
    site: options.Site = None,
    score: options.Score = None,
    logits: options.Logits = None,
    probs: options.Probs = None,
    unit: options.Unit = None,
    ledger: options.LedgerFile = None,
    account: options.Account = "default",
    state_: options.State = None,
    format_: options.Shape = options.Format.TEXT,
    config: options.Config = None,
    debug: options.Debug = False,
) -> None:
    """Run every applicable method on your own records, and show what each gives and takes."""
    if ledger is not None and not spend:
        raise InputError("Expected --spend with --ledger, found none; a simulation spends nothing.")
    voice = Voice(format_ is options.Format.JSON)
    if out is not None:
        documents.check_folder(out, NAMES)
    columns = Columns(score=score, logits=logits, probs=probs, label=label, site=site, unit=unit)
    to_model = registry.takes(privacy, "clip")
    comparison = Comparison(
        chosen=entries(methods),
        privacy=privacy_model(privacy, epsilon, delta, clip if to_model else None),
        participation=participation(participation_, rounds),
        rounds=rounds,
        clip=None if to_model else clip,
        split=_SPLITS[split](holdout),
        data=Data.of(files, columns),
        session=session(None, state_, ledger, account, voice),
    )
    told = {
        "methods": methods, "privacy": privacy, "epsilon": epsilon, "delta": delta, "clip": clip, "rounds": rounds,
        "split": str(split), "participation": participation_, "holdout": holdout,
    }  # fmt: skip
    side, said = comparison.spend(told) if spend else comparison.simulate(repeats, seed)
    plain = {name: value for name, value in told.items() if value is not None}
    about = {"simulation": not spend, "repeats": 1 if spend else repeats, "seed": None if spend else seed, **plain}
    _tell(voice, side, {**about, "statement": said, "warnings": side.warnings()}, out)


def _tell(voice: Voice, side: Side, about: dict[str, Any], out: Path | None) -> None:
    document = {**about, **side.to_json()}
    for warning in about["warnings"]:
        voice.warn(warning)
    if out is not None:
        document["files"] = _write(out, side, document, about)
    mark = "Simulation" if about["simulation"] else "Measured privately"
    tables = side.tables(f"{mark}, on records that were not fitted (held out by {about['split']})")
    voice.result(document, [*tables, documents.facts_table("", {"privacy": about["statement"]})])


def _write(out: Path, side: Side, document: dict[str, Any], about: dict[str, Any]) -> dict[str, str]:
    shown = {name: value for name, value in about.items() if name not in ("warnings", "statement")}
    page = side.page(about["statement"], about["simulation"], about["warnings"], shown)
    contents = dict(zip(NAMES, (documents.text(document).encode(), page, side.picture().png), strict=True))
    documents.write_all(out, contents)
    return {Path(name).suffix[1:]: str(out / name) for name in contents}
