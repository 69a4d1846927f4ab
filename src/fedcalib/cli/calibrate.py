"""`fedcalib calibrate`: fit a calibrator across sites, and show what it changes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from fedcalib import registry
from fedcalib.cli import options
from fedcalib.cli.evidence import bundled
from fedcalib.cli.options import Shared, panel, participation, privacy_model, shared
from fedcalib.cli.voice import Voice
from fedcalib.errors import InputError
from fedcalib.workflows import documents
from fedcalib.workflows.calibration import NAMES, Calibration, CalibrationResult

_method = panel("Method")


@shared
def calibrate(
    files: options.Files,
    *,
    method: Annotated[
        str, _method(help="How to calibrate; `fedcalib methods` explains each.", autocompletion=options.complete_method)
    ] = "auto",
    privacy: options.Model = None,
    out: Annotated[Path | None, Option(help="Directory of the results. Required, unless --dry-run is given.")] = None,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    clip: options.Clip = None,
    colluding: options.Colluding = None,
    rounds: options.Rounds = None,
    participation_: options.ParticipationWord = "everyone",
    simulate: options.SimulateSeed = None,
    holdout: Annotated[float, _method(help="Share of records to measure on instead of fitting; 0 for none.")] = 0.3,
    test: Annotated[
        list[str] | None,
        _method(help="Files to measure on, instead of holding records out; repeat it, or give a pattern."),
    ] = None,
    records_about: options.RecordsAbout = None,
    set_: Annotated[list[str] | None, _method("--set", help="Another option of the method, as NAME=VALUE.")] = None,
    dry_run: options.DryRun = False,
    flags: Shared,
) -> None:
    """Fit a calibrator across sites without pooling their records, and measure what it changes."""
    voice = flags.voice
    privacy = options.usual_privacy(privacy, epsilon)
    to_model = registry.takes(privacy, "clip")
    calibration = Calibration(
        method=registry.method(method, {"clip": None if to_model else clip, "rounds": rounds}, set_ or ()),
        privacy=privacy_model(privacy, epsilon, delta, clip if to_model else None, colluding),
        participation=participation(participation_, rounds),
        data=flags.data(files),
        test=flags.data(test) if test else None,
        holdout=holdout,
        session=flags.session(simulate),
        records=records_about,
    )
    if dry_run:
        voice.dry_run(calibration.dry_run())
        return
    if out is None:
        raise InputError("Expected --out DIR for the results, found none; name a directory, or add --dry-run.")
    flags.check_places(out, NAMES)
    done = calibration.run()
    _show(voice, done, done.save(out, flags.about), bundled(done, flags))


def _show(voice: Voice, done: CalibrationResult, written: dict[str, str], more: dict[str, Any]) -> None:
    places = {"files": written, **more}
    voice.result({**done.to_json(), **places}, [*done.tables(), *documents.files_table(places)], done.remarks)
