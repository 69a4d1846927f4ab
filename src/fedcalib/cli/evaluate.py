"""`fedcalib evaluate`: accuracy, calibration and ranking across sites."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from fedcalib.cli import monitor, options
from fedcalib.cli.options import Shared, panel, participation, privacy_model, shared
from fedcalib.cli.voice import Voice
from fedcalib.errors import InputError
from fedcalib.workflows import documents
from fedcalib.workflows.drift import Every, as_day
from fedcalib.workflows.evaluation import NAMES, Evaluation, EvaluationResult, load_calibrator
from fedcalib.workflows.monitoring import Monitoring

_over_time = panel("Over time")


@shared
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
        _over_time(
            help="Evaluate window by window of time, for a drift chart: days, ISO weeks or calendar months; of "
            "numbered days, 1, 7 or 30."
        ),
    ] = None,
    start: Annotated[
        str | None,
        _over_time("--from", help="With --by: the first day that counts, a date or a number. Needed with --epsilon."),
    ] = None,
    until: Annotated[
        str | None,
        _over_time("--until", help="With --by: the last day that counts, a date or a number. Needed with --epsilon."),
    ] = None,
    time: Annotated[str, _over_time(help="With --by: column of dates, or of numbered days.")] = "day",
    rounds: Annotated[int | None, _over_time(help="With --by: evaluate the latest so many windows only.")] = None,
    privacy: options.Model = "open",
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    clip: options.Clip = None,
    colluding: options.Colluding = None,
    participation_: options.ParticipationWord = "everyone",
    simulate: options.SimulateSeed = None,
    dry_run: options.DryRun = False,
    flags: Shared,
) -> None:
    """Measure a classifier across sites without pooling their records, perhaps after a calibrator.

    With --by, windows of time are measured one by one within one budget: they hold different records, so where a record
    is the unit each window has the whole of it; where a client is the unit, the windows share it.
    """
    voice = flags.voice
    model = privacy_model(privacy, epsilon, delta, clip, colluding)
    data, run = flags.data(files, None if by is None else time), flags.session(simulate)
    map_ = None if calibrator is None else load_calibrator(calibrator)
    if by is not None:
        if per_client:
            raise InputError("Expected --per-client without --by, found both; measure the windows' files one by one.")
        if participation_ != "everyone":
            raise InputError(
                f"Expected --participation everyone with --by, found '{participation_}': each window asks everybody."
            )
        monitoring = Monitoring(
            data,
            model,
            by,
            calibrator=map_,
            rounds=rounds,
            session=run,
            start=None if start is None else as_day(start, "--from"),
            until=None if until is None else as_day(until, "--until"),
        )
        monitor.watch(voice, monitoring, out, "drift.png", dry_run=dry_run)
        return
    for flag, told in (("--rounds", rounds), ("--from", start), ("--until", until)):
        if told is not None:
            raise InputError(f"Expected --by with {flag}, found {flag} alone; add --by day, week or month.")
    evaluation = Evaluation(
        data=data,
        privacy=model,
        participation=participation(participation_, None),
        calibrator=map_,
        curves=out is not None,
        per_client=per_client,
        session=run,
    )
    if out is not None:
        documents.check_folder(out, NAMES)
    if dry_run:
        voice.dry_run(evaluation.dry_run())
    else:
        _show(voice, done := evaluation.run(), None if out is None else done.save(out))


def _show(voice: Voice, done: EvaluationResult, written: dict[str, str] | None) -> None:
    document = {**done.to_json(), **({} if written is None else {"files": written})}
    tables = [
        documents.metrics_table("All sites together", {"value": document["metrics"]}),
        *documents.own_table(document["per_client"]),
        *documents.site_tables(document["per_site"]),
        documents.facts_table("Privacy", document["privacy"]),
    ]
    voice.result(document, tables, done.remarks)
