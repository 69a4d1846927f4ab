"""`fedcalib evaluate`: accuracy, calibration and ranking across sites."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from fedcalib.cli import monitor, options
from fedcalib.cli.evidence import bundled
from fedcalib.cli.options import Shared, panel, participation, privacy_model, shared
from fedcalib.cli.voice import Voice
from fedcalib.errors import InputError
from fedcalib.workflows import documents
from fedcalib.workflows.drift import Every, as_day
from fedcalib.workflows.evaluation import Decision, Evaluation, load_calibrator
from fedcalib.workflows.evaluation_result import NAMES, EvaluationResult
from fedcalib.workflows.groups import Groupings
from fedcalib.workflows.monitoring import Monitoring

_metrics = panel("Metrics")
_over_time = panel("Over time")


@shared
def evaluate(
    files: options.Files,
    *,
    calibrator: Annotated[Path | None, Option(help="Measure after this calibrator.json.")] = None,
    out: Annotated[
        Path | None,
        Option(
            help="Write a report here: every metric, reliability and, of a binary classifier, ROC, precision-recall "
            "and decision curves; with --by, a drift chart."
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        _metrics(help="Decisions are measured for records that score at least that; 0.5 if left out."),
    ] = None,
    threshold_for: Annotated[
        str | None,
        _metrics(
            help="Choose the threshold from the released table: sensitivity=0.9 (the highest that reaches it) or "
            "net-benefit (the lowest with more than treating all or none)."
        ),
    ] = None,
    scores_are: Annotated[
        str | None,
        _metrics(
            help="All scores that the classifier gives, if they are few and public, such as 0.1,0.2,0.3; any other "
            "counts as the nearest of them."
        ),
    ] = None,
    records_about: options.RecordsAbout = None,
    rival: Annotated[
        str | None,
        _metrics(help="Column of another model's scores: compare both on the same records, with paired intervals."),
    ] = None,
    class_auc: Annotated[
        bool | None,
        _metrics(
            "--class-auc/--no-class-auc",
            help="Of several classes: the AUC of each class; if left out, where sums are exact. Under noise it "
            "takes half of the budget.",
        ),
    ] = None,
    confusion: Annotated[
        bool | None,
        _metrics(
            "--confusion/--no-confusion",
            help="Of several classes: records by actual and predicted class; if left out, where sums are exact up to "
            "64 classes, under noise up to five.",
        ),
    ] = None,
    group: Annotated[
        list[str] | None,
        _metrics(help="Measure the groups of this column too; name its groups with --groups. Can be repeated."),
    ] = None,
    groups: Annotated[
        list[str] | None, _metrics(help="The groups of a --group, a public list such as F,M; once for each --group.")
    ] = None,
    per_client: Annotated[
        bool,
        Option(
            "--per-client",
            help="Also measure the mean calibration error of single clients, within the same budget. Needs a privacy "
            "model that protects whole clients, or one without an epsilon.",
        ),
    ] = False,
    by: Annotated[
        Every | None,
        _over_time(
            help="Evaluate window by window of time, for a drift chart: days, ISO weeks or calendar months; of "
            "numbered days, 1, 7 or 30. With --group, each group in each window."
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
    rounds: Annotated[int | None, _over_time(help="With --by: only the latest windows, this many of them.")] = None,
    privacy: options.Model = None,
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
    listed = _listed(group or [], groups or [])
    if by is not None and not listed:
        _check_windows(rival, participation_, per_client=per_client)
        monitoring = Monitoring(
            data,
            model,
            by,
            calibrator=map_,
            rounds=rounds,
            session=run,
            start=None if start is None else as_day(start, "--from"),
            until=None if until is None else as_day(until, "--until"),
            records=records_about,
        )
        monitor.watch(flags, monitoring, out, "drift.svg", dry_run=dry_run)
        return
    _check_time(by, rounds, start, until)
    wanted = Groupings.of(listed, by, start, until)
    evaluation = Evaluation(
        data=replace(data, columns=replace(data.columns, groups=wanted.names, rival=rival)),
        groups=wanted,
        rival=rival or "",
        privacy=model,
        participation=participation(participation_, None),
        calibrator=map_,
        per_client=per_client,
        session=run,
        decision=Decision.of(threshold_for, threshold),
        scores=options.numbers(scores_are, "--scores-are"),
        records=records_about,
        class_auc=class_auc,
        confusion=confusion,
    )
    flags.check_places(out, NAMES)
    if dry_run:
        voice.dry_run(evaluation.dry_run())
    else:
        done = evaluation.run()
        written = {} if out is None else {"files": done.save(out, flags.about)}
        _show(voice, done, {**written, **bundled(done, flags)})


def _check_windows(rival: str | None, who: str, *, per_client: bool) -> None:
    """Refuse what windows of time do not have."""
    if rival is not None:
        raise InputError("Expected --rival without --by, found both; compare the models on the windows' files.")
    if per_client:
        raise InputError("Expected --per-client without --by, found both; measure the windows' files one by one.")
    if who != "everyone":
        raise InputError(f"Expected --participation everyone with --by, found '{who}': each window asks everybody.")


def _check_time(by: Every | None, rounds: int | None, start: str | None, until: str | None) -> None:
    """Refuse flags of windows where there are none."""
    for flag, told in (("--rounds", rounds), ("--from", start), ("--until", until)):
        if told is not None and (by is None or flag == "--rounds"):
            raise InputError(f"Expected --by with {flag}, found {flag} alone; add --by day, week or month.")


def _listed(columns: list[str], groups: list[str]) -> dict[str, list[str]]:
    """Each grouping column with its groups."""
    if len(columns) != len(groups) or len(set(columns)) != len(columns):
        raise InputError(
            f"Expected one --groups for each --group, found {len(groups)} for {len(columns)}; such as --group sex "
            "--groups F,M."
        )
    return {name: [word.strip() for word in words.split(",")] for name, words in zip(columns, groups, strict=True)}


def _show(voice: Voice, done: EvaluationResult, written: dict[str, Any]) -> None:
    voice.result({**done.to_json(), **written}, [*done.tables(), *documents.files_table(written)], done.remarks)
