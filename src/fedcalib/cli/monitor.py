"""`fedcalib monitor`: a classifier over time, with alarms, and recalibration that acts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from fedcalib.cli import options
from fedcalib.cli.request import privacy_model, session
from fedcalib.cli.voice import Voice
from fedcalib.data import Columns
from fedcalib.errors import InputError
from fedcalib.workflows import documents
from fedcalib.workflows import windows as timelines
from fedcalib.workflows.session import Data
from fedcalib.workflows.windows import Every, Watched, Watching

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
    watching = Watching(
        by=by,
        method=method,
        recalibrate=recalibrate,
        false_alarms=false_alarms,
        privacy=privacy_model(privacy, epsilon, delta, clip),
        data=Data.of(files, columns),
        session=session(seed, state_, ledger, account, voice),
    )
    watch(voice, watching, out, "timeline.png", dry_run=dry_run)


def watch(voice: Voice, watching: Watching, out: Path | None, chart: str, *, dry_run: bool) -> None:
    """Ask window after window, and tell what came of it; the first chart is a file of that name."""
    if dry_run:
        voice.dry_run(watching.dry_run(), "Nothing was asked. All windows would cost:")
        return
    if out is not None:
        documents.check_folder(out, ("calibrator.json", "result.json", "report.html", chart))
    watched = watching.run()
    document = _document(watching, watched)
    if out is not None:
        document["files"] = _write(out, watching, watched, document, chart)
    found = watched.timeline
    facts = {"alarms": ", ".join(found.alarms) or "none", "false alarms a window": f"{watching.false_alarms:g}"}
    tables = [timelines.table(found), documents.facts_table("", facts)]
    for sentence in timelines.summary(found, watching.false_alarms):
        voice.note(sentence)
    tables.append(documents.facts_table("Privacy", document["privacy"]))
    voice.result(document, tables)


def _document(watching: Watching, watched: Watched) -> dict[str, Any]:
    found, slices = watched.timeline, watched.slices
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


def _write(out: Path, watching: Watching, watched: Watched, document: dict[str, Any], chart: str) -> dict[str, str]:
    from fedcalib import __version__

    found = watched.timeline
    facts = {name: str(value) for name, value in vars(watching).items() if name not in ("data", "session") and value}
    provenance = {"fedcalib": __version__, **facts, "files": ", ".join(path.name for path in watching.data.files)}
    private = watching.privacy.private
    contents = {
        "result.json": documents.text(document).encode(),
        "report.html": timelines.page(found, private, document["warnings"], provenance, watching.false_alarms),
        chart: timelines.charts(found)[0].png,
    }
    if watching.recalibrate:
        contents["calibrator.json"] = found.next.dumps(found.spending).encode()
    return documents.write_all(out, contents)
