"""`fedcalib monitor`: a classifier over time, with alarms, and recalibration that acts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from fedcalib import registry
from fedcalib.cli import options
from fedcalib.cli.evidence import bundled
from fedcalib.cli.options import Shared, panel, privacy_model, shared
from fedcalib.errors import InputError
from fedcalib.workflows import documents
from fedcalib.workflows.drift import MIN_EFFECT, Every, as_day
from fedcalib.workflows.monitoring import NAMES, Monitoring

_watching = panel("Watching")


@shared
def monitor(
    files: options.Files,
    *,
    time: Annotated[str, _watching(help="Column of dates, or of numbered days.")] = "day",
    by: Annotated[
        Every,
        _watching(help="How long a window is: days, ISO weeks or calendar months; of numbered days, 1, 7 or 30."),
    ] = Every.WEEK,
    start: Annotated[
        str | None,
        _watching("--from", help="The first day that counts: a date, or a day's number. Needed with --epsilon."),
    ] = None,
    until: Annotated[
        str | None,
        _watching("--until", help="The last day that counts: a date, or a day's number. Needed with --epsilon."),
    ] = None,
    recalibrate: Annotated[
        bool, _watching("--recalibrate", help="Serve each window by what earlier ones taught.")
    ] = False,
    method: Annotated[
        str | None,
        _watching(
            help="How to recalibrate; by default platt-scaling for two classes, else acc-t.",
            autocompletion=options.complete_method,
        ),
    ] = None,
    false_alarms: Annotated[float, _watching(help="Chance of an alarm in a window without any shift.")] = 0.01,
    min_effect: Annotated[
        float,
        _watching(
            help="Least change of AUC, mean score or mean gap that raises an alarm; less for mean scores below 0.25."
        ),
    ] = MIN_EFFECT,
    records_about: options.RecordsAbout = None,
    out: Annotated[Path | None, Option(help="Directory of the results; without it, nothing is written.")] = None,
    privacy: options.Model = None,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    clip: options.Clip = None,
    colluding: options.Colluding = None,
    simulate: options.SimulateSeed = None,
    dry_run: options.DryRun = False,
    flags: Shared,
) -> None:
    """Watch a classifier across sites over time: calibration, ranking and mean prediction by window, with alarms.

    Windows hold different records, so where a record is the unit each window has the whole budget to itself; where a
    client is the unit, the windows share it.
    """
    if method is not None and not recalibrate:
        raise InputError("Expected --recalibrate with --method, found --method alone; add --recalibrate.")
    monitoring = Monitoring(
        data=flags.data(files, time),
        privacy=privacy_model(privacy, epsilon, delta, clip, colluding),
        by=by,
        start=None if start is None else as_day(start, "--from"),
        until=None if until is None else as_day(until, "--until"),
        recalibrate=recalibrate,
        method=None if method is None else registry.method(method, {}),
        false_alarms=false_alarms,
        min_effect=min_effect,
        session=flags.session(simulate),
        records=records_about,
    )
    watch(flags, monitoring, out, "timeline.svg", dry_run=dry_run)


def watch(flags: Shared, monitoring: Monitoring, out: Path | None, chart: str, *, dry_run: bool) -> None:
    """Measure window after window and show the result; the first chart becomes a file of that name."""
    voice = flags.voice
    if dry_run:
        voice.dry_run(monitoring.dry_run(), "Nothing was asked. All windows would cost:")
        return
    flags.check_places(out, (*NAMES, chart))
    done = monitoring.run()
    written = {} if out is None else {"files": done.save(out, flags.about, chart)}
    written |= bundled(done, flags)
    for sentence in done.findings:
        voice.note(sentence)
    voice.result({**done.to_json(), **written}, [*done.tables(), *documents.files_table(written)])
