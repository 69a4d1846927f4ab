"""`fedcalib monitor`: a classifier over time, with alarms, and recalibration that acts."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

from typer import Option

from fedcalib.cli import options
from fedcalib.cli.request import DataRequest, PrivacyRequest, settings
from fedcalib.cli.voice import SCHEMA_VERSION, Voice, check_folder, write_all
from fedcalib.data import Columns, expand
from fedcalib.errors import InputError
from fedcalib.workflows import documents
from fedcalib.workflows import session as state
from fedcalib.workflows import windows as timelines
from fedcalib.workflows.budget import as_simulation
from fedcalib.workflows.session import Purse
from fedcalib.workflows.windows import Every, Slices, Watched, Watching

NAMES: Final = ("calibrator.json", "result.json", "report.html", "timeline.png")
_WATCH = "Watching"


def monitor(
    files: options.Files,
    *,
    time: Annotated[str, Option(help="Column of dates, or of numbered days.", rich_help_panel=_WATCH)] = "day",
    by: Annotated[
        Every, Option(help="How long a window is; a month has 30 days.", rich_help_panel=_WATCH)
    ] = Every.WEEK,
    recalibrate: Annotated[
        bool,
        Option("--recalibrate", help="Serve each window by what earlier ones taught.", rich_help_panel=_WATCH),
    ] = False,
    method: Annotated[
        str | None,
        Option(help="How to recalibrate: platt-scaling for two classes, else acc-t.", rich_help_panel=_WATCH),
    ] = None,
    false_alarms: Annotated[
        float, Option(help="Chance of an alarm in a window without any shift.", rich_help_panel=_WATCH)
    ] = 0.01,
    out: Annotated[Path | None, Option(help="Directory of the results; without it, nothing is written.")] = None,
    privacy: options.Model = "open",
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    clip: options.Clip = None,
    seed: options.Seed = None,
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
    """Watch a classifier across sites over time: calibration, ranking and confidence by window, with alarms.

    Windows hold different records, so where a record is the unit each window has the whole budget to itself; where a
    client is the unit, the windows share it.
    """
    voice = Voice(format_ is options.Format.JSON)
    columns = Columns(score=score, logits=logits, probs=probs, label=label, site=site, unit=unit, time=time)
    if method is not None and not recalibrate:
        raise InputError("Expected --recalibrate with --method, found --method alone; add --recalibrate.")
    told = settings(
        by=str(by), recalibrate=recalibrate, method=method, false_alarms=false_alarms, privacy=privacy,
        epsilon=epsilon, delta=delta, clip=clip, seed=seed, columns=columns,
    )  # fmt: skip
    watching = Watching(
        by=by,
        method=method,
        recalibrate=recalibrate,
        false_alarms=false_alarms,
        privacy=PrivacyRequest(privacy, epsilon, delta, clip),
        data=DataRequest(columns, voice),
        files=expand(files),
        seed=seed,
        purse=Purse(ledger, account),
        voice=voice,
    )
    watching.privacy.model()  # a wrong budget is told before anything is read
    if dry_run:
        rehearse(watching)
    else:
        if out is not None:
            check_folder(out, NAMES)
        watch(watching, out, state_, told, "timeline.png")


def rehearse(watching: Watching) -> None:
    """Say what all windows would cost."""
    slices = watching.slices(state.forgotten(watching.seed))
    rehearsal = watching.rehearse(slices)
    spent = rehearsal.spending if watching.seed is None else as_simulation(rehearsal.spending)
    document: dict[str, Any] = {
        "dry_run": True,
        "windows": list(slices.windows),
        "privacy": documents.spending(spent),
        "phases": [rehearsal.to_json()],
        "warnings": list(slices.warnings),
    }
    facts = documents.facts_table("Nothing was asked. All windows would cost:", document["privacy"])
    watching.voice.result(document, [*documents.rehearsal_tables([rehearsal]), facts])


def watch(watching: Watching, out: Path | None, root: Path | None, told: dict[str, Any], chart: str) -> None:
    """Ask window after window, and tell what came of it; the first chart is a file of that name."""
    with state.kept(root, watching.key(told), watching.seed) as kept:
        slices = watching.slices(kept)
        watched = watching.run(slices, kept)
    document = _document(watching, slices, watched)
    if out is not None:
        document["files"] = _write(out, watching, watched, document, told, chart=chart)
    found = watched.timeline
    facts = {"alarms": ", ".join(found.alarms) or "none", "false alarms a window": f"{watching.false_alarms:g}"}
    tables = [timelines.table(found), documents.facts_table("", facts)]
    for sentence in timelines.summary(found, watching.false_alarms):
        watching.voice.note(sentence)
    tables.append(documents.facts_table("Privacy", document["privacy"]))
    watching.voice.result(document, tables)


def _document(watching: Watching, slices: Slices, watched: Watched) -> dict[str, Any]:
    found = watched.timeline
    return {
        "by": str(watching.by),
        "false_alarms": watching.false_alarms,
        "windows": timelines.windows(found, slices.first_days),
        "alarms": list(found.alarms),
        "recalibration": timelines.effect(found),
        "privacy": documents.spending(found.spending),
        "warnings": list(slices.warnings),
        "replayed": watched.replayed,
    }


def _write(
    out: Path, watching: Watching, watched: Watched, document: dict[str, Any], told: dict[str, Any], *, chart: str
) -> dict[str, str]:
    from fedcalib import __version__

    found = watched.timeline
    flags = {name: value for name, value in told.items() if value is not None and name != "columns"}
    provenance = {"fedcalib": __version__, **flags, "files": ", ".join(path.name for path in watching.files)}
    private = watching.privacy.model().private
    contents = {
        "result.json": (json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=1) + "\n").encode(),
        "report.html": timelines.page(found, private, document["warnings"], provenance, watching.false_alarms),
        chart: timelines.charts(found)[0].png,
    }
    if watching.recalibrate:
        with TemporaryDirectory() as folder:
            path = found.next.save(Path(folder) / "calibrator.json", found.spending)
            contents["calibrator.json"] = path.read_bytes()
    return write_all(out, contents)
