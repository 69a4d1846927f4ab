"""`fedcalib evaluate`: accuracy, calibration and ranking across sites."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

from typer import Option

from fedcalib.cli import monitor, options
from fedcalib.cli.request import DataRequest, PrivacyRequest, participation, settings
from fedcalib.cli.voice import Voice, check_folder, write_all
from fedcalib.data import Columns, expand
from fedcalib.errors import InputError
from fedcalib.workflows import documents
from fedcalib.workflows import reports as curves
from fedcalib.workflows import session as state
from fedcalib.workflows.budget import as_simulation
from fedcalib.workflows.evaluate import Evaluation
from fedcalib.workflows.session import Purse
from fedcalib.workflows.windows import Every, Watching

DRIFT: Final = ("result.json", "report.html", "drift.png")
_TIME = "Over time"
_FALSE_ALARMS = 0.01


def evaluate(
    files: options.Files,
    *,
    calibrator: Annotated[Path | None, Option(help="Measure after this calibrator.json.")] = None,
    out: Annotated[
        Path | None,
        Option(
            help="Of a binary classifier: write a report with ROC, precision-recall and reliability curves here; "
            "with --by, of any classifier, a report with a drift chart."
        ),
    ] = None,
    per_client: Annotated[
        bool,
        Option(
            "--per-client",
            help="Measure how badly calibrated the usual client is, too, within the same budget; needs a model that "
            "hides whole clients, or none.",
        ),
    ] = False,
    by: Annotated[
        Every | None,
        Option(
            help="Evaluate window by window of time, for a drift chart; a month has 30 days.", rich_help_panel=_TIME
        ),
    ] = None,
    time: Annotated[
        str, Option(help="With --by: column of dates, or of numbered days.", rich_help_panel=_TIME)
    ] = "day",
    rounds: Annotated[
        int | None, Option(help="With --by: evaluate the latest so many windows only.", rich_help_panel=_TIME)
    ] = None,
    privacy: options.Model = "open",
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    clip: options.Clip = None,
    participation_: options.Participation = "everyone",
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
    """Measure a classifier across sites without pooling their records, perhaps after a calibrator.

    With --by, windows of time are measured one by one within one budget: they hold different records, so where a record
    is the unit each window has the whole of it; where a client is the unit, the windows share it.
    """
    voice = Voice(format_ is options.Format.JSON)
    when = None if by is None else time
    columns = Columns(score=score, logits=logits, probs=probs, label=label, site=site, unit=unit, time=when)
    asked = PrivacyRequest(privacy, epsilon, delta, clip)
    data, purse = DataRequest(columns, voice), Purse(ledger, account)
    told = settings(privacy=privacy, epsilon=epsilon, delta=delta, clip=clip, seed=seed, columns=columns)
    asked.model()  # a wrong budget is told before anything is read
    if by is not None:
        watching = Watching(
            by=by, method=None, recalibrate=False, false_alarms=_FALSE_ALARMS, privacy=asked, data=data,
            files=expand(files), seed=seed, purse=purse, voice=voice, calibrator=calibrator, rounds=rounds,
        )  # fmt: skip
        told |= {"by": str(by), "rounds": rounds}
        if per_client:
            raise InputError("Expected --per-client without --by, found both; measure the windows' files one by one.")
        _over_time(watching, told, who=participation_, out=out, root=state_, dry_run=dry_run)
        return
    if rounds is not None:
        raise InputError("Expected --by with --rounds, found --rounds alone; add --by day, week or month.")
    evaluation = Evaluation(
        privacy=asked,
        participation=participation(participation_, None),
        data=data,
        files=expand(files),
        calibrator=calibrator,
        seed=seed,
        purse=purse,
        voice=voice,
        curves=out is not None,
        per_client=per_client,
    )
    if out is not None:
        check_folder(out, curves.NAMES)
    if dry_run:
        _rehearse(evaluation)
    else:
        told |= {"participation": participation_, "curves": out is not None, "per_client": per_client}
        _evaluate(evaluation, state_, evaluation.key(told), out)


def _over_time(
    watching: Watching, told: dict[str, Any], *, who: str, out: Path | None, root: Path | None, dry_run: bool
) -> None:
    """Evaluate window by window, as watching a model does, and draw how the figures drift."""
    if who != "everyone":
        raise InputError(f"Expected --participation everyone with --by, found '{who}': each window asks everybody.")
    if out is not None:
        check_folder(out, DRIFT)
    if dry_run:
        monitor.rehearse(watching)
    else:
        monitor.watch(watching, out, root, told, "drift.png")


def _rehearse(evaluation: Evaluation) -> None:
    federation, warnings = evaluation.records(state.forgotten(evaluation.seed))
    rehearsal = evaluation.phase.rehearse(federation.schema)
    spent = rehearsal.spending if evaluation.seed is None else as_simulation(rehearsal.spending)
    document: dict[str, Any] = {
        "dry_run": True,
        **documents.counts(federation, evaluation.privacy.model()),
        "privacy": documents.spending(spent),
        "phases": [rehearsal.to_json()],
        "warnings": list(warnings),
    }
    facts = documents.facts_table("Nothing was asked. It would cost:", document["privacy"])
    evaluation.voice.result(document, [*documents.rehearsal_tables([rehearsal]), facts])


def _evaluate(evaluation: Evaluation, root: Path | None, key: str, out: Path | None) -> None:
    with state.kept(root, key, evaluation.seed) as kept:
        federation, warnings = evaluation.records(kept)
        document, found = evaluation.measure(federation, kept)
    for warning in document["warnings"]:
        evaluation.voice.warn(warning)
    document["warnings"] = [*warnings, *document["warnings"]]
    if out is not None and found.curves is not None:
        told = {**document, "curves": curves.document(found.curves)}
        document = {
            **told,
            "files": write_all(out, curves.curve_files(found.report, found.curves, found.spent, document)),
        }
    tables = [
        documents.metrics_table("All sites together", {"value": document["metrics"]}),
        *documents.own_table(document["per_client"]),
        *documents.site_tables(document["per_site"]),
        documents.facts_table("Privacy", document["privacy"]),
    ]
    evaluation.voice.result(document, tables)
