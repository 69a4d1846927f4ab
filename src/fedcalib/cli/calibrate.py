"""`fedcalib calibrate`: fit a calibrator across sites, and show what it changes."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

from typer import Option

from fedcalib import registry
from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.cli import options
from fedcalib.cli.request import DataRequest, PrivacyRequest, participation, settings
from fedcalib.cli.voice import SCHEMA_VERSION, Voice, check_folder, places, write_all
from fedcalib.data import Columns, expand
from fedcalib.errors import InputError
from fedcalib.workflows import documents
from fedcalib.workflows import session as state
from fedcalib.workflows.budget import as_simulation
from fedcalib.workflows.calibrate import Calibration, Records, Told
from fedcalib.workflows.session import Purse

NAMES: Final = ("calibrator.json", "result.json", "report.html", "reliability.png")
_FIT = "Method"


def calibrate(
    files: options.Files,
    *,
    method: Annotated[str | None, Option(help="See `fedcalib methods`.", rich_help_panel=_FIT)] = None,
    privacy: options.Model = None,
    out: Annotated[Path | None, Option(help="Directory of the results.")] = None,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    clip: options.Clip = None,
    rounds: options.Rounds = None,
    participation_: options.Participation = "everyone",
    seed: options.Seed = None,
    holdout: Annotated[
        float, Option(help="Share of records to measure on instead of fitting; 0 for none.", rich_help_panel=_FIT)
    ] = 0.3,
    test: Annotated[
        list[str] | None,
        Option(
            help="Files to measure on, instead of holding records out; repeat it, or give a pattern.",
            rich_help_panel=_FIT,
        ),
    ] = None,
    set_: Annotated[
        list[str] | None, Option("--set", help="Another option of the method, as NAME=VALUE.", rich_help_panel=_FIT)
    ] = None,
    label: options.Label = "label",
    site: options.Site = None,
    score: options.Score = None,
    logits: options.Logits = None,
    probs: options.Probs = None,
    unit: options.Unit = None,
    ledger: options.LedgerFile = None,
    account: options.Account = "default",
    state_: options.State = None,
    dry_run: options.DryRun = False,
    format_: options.Shape = options.Format.TEXT,
    config: options.Config = None,
    debug: options.Debug = False,
) -> None:
    """Fit a calibrator across sites without pooling their records, and measure what it changes."""
    voice = Voice(format_ is options.Format.JSON)
    columns = Columns(score=score, logits=logits, probs=probs, label=label, site=site, unit=unit)
    to_model = registry.takes(privacy, "clip")
    told = settings(
        method=method, privacy=privacy, epsilon=epsilon, delta=delta, clip=clip, rounds=rounds, seed=seed,
        participation=participation_, holdout=None if test else holdout, set=set_, columns=columns,
    )  # fmt: skip
    calibration = Calibration(
        word=method or "",
        method=registry.method(method, {"clip": None if to_model else clip, "rounds": rounds}, set_ or ()),
        privacy=PrivacyRequest(privacy, epsilon, delta, clip if to_model else None),
        participation=participation(participation_, rounds),
        data=DataRequest(columns, voice),
        files=expand(files),
        test=expand(test) if test else (),
        holdout=holdout,
        seed=seed,
        purse=Purse(ledger, account),
        voice=voice,
    )
    calibration.privacy.model()  # a wrong budget is told before anything is read
    if dry_run:
        _rehearse(calibration)
    else:
        _calibrate(calibration, _folder(out), state_, told)


def _folder(out: Path | None) -> Path:
    if out is None:
        raise InputError("Expected --out DIR for the results, found none; name a directory, or add --dry-run.")
    check_folder(out, NAMES)
    return out


def _rehearse(calibration: Calibration) -> None:
    """Say what would be asked and what it would cost, and ask nothing."""
    records = calibration.records(state.forgotten(calibration.seed))
    phases = calibration.plan(records.fitted.schema, None if records.held is None else records.held.schema)
    document: dict[str, Any] = {
        "dry_run": True,
        "method": calibration.word,
        **documents.counts(records.all, calibration.privacy.model()),
        "privacy": documents.spending(phases.total if calibration.seed is None else as_simulation(phases.total)),
        "phases": [rehearsal.to_json() for rehearsal in phases.rehearsed],
        "warnings": [*records.warnings, *phases.warnings],
    }
    facts = documents.facts_table("Nothing was asked. It would cost:", document["privacy"])
    calibration.voice.result(document, [*documents.rehearsal_tables(phases.rehearsed), facts])


def _calibrate(calibration: Calibration, out: Path, root: Path | None, told: dict[str, Any]) -> None:
    with state.kept(root, calibration.key(told), calibration.seed) as kept:
        records = calibration.records(kept)
        phases = calibration.plan(records.fitted.schema, None if records.held is None else records.held.schema)
        outcome = calibration.run(records, phases, kept)
    telling = calibration.tell(records, phases, outcome, _provenance(calibration, told))
    written = _write(out, telling, outcome.fitted.artifact)
    _show(calibration, {**telling.document, "files": written}, records)


def _write(out: Path, telling: Told, artifact: Calibrator) -> dict[str, str]:
    names = [name for name in NAMES if name in telling.files or name in ("calibrator.json", "result.json")]
    document = {"schema_version": SCHEMA_VERSION, **telling.document, "files": places(out, names)}
    result = json.dumps(document, indent=1, allow_nan=False) + "\n"
    with TemporaryDirectory() as folder:
        calibrator = artifact.save(Path(folder) / "calibrator.json", telling.spent).read_bytes()
    return write_all(out, {"calibrator.json": calibrator, "result.json": result.encode(), **telling.files})


def _show(calibration: Calibration, document: dict[str, Any], records: Records) -> None:
    voice = calibration.voice
    for warning in document["warnings"]:
        if warning not in records.warnings:  # those were told while reading
            voice.warn(warning)
    tables = [documents.facts_table("Privacy", document["privacy"])]
    if document["before"] is not None:
        columns = {"before": document["before"], "after": document["after"]}
        tables.insert(0, documents.metrics_table("Measured on records that were not fitted", columns))
    voice.result(document, [*tables, documents.facts_table("Files", document["files"])])


def _provenance(calibration: Calibration, told: dict[str, Any]) -> dict[str, object]:
    from fedcalib import __version__

    flags = {name: value for name, value in told.items() if value is not None and name != "columns"}
    files = ", ".join(path.name for path in (*calibration.files, *calibration.test))
    return {"fedcalib": __version__, **flags, "files": files}
