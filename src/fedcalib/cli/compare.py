"""`fedcalib compare`: every applicable method on your own records, side by side."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

from typer import Option

from fedcalib import registry
from fedcalib.cli import options
from fedcalib.cli.evidence import bundled
from fedcalib.cli.options import Shared, panel, participation, privacy_model, shared
from fedcalib.display import meant
from fedcalib.errors import InputError
from fedcalib.workflows import documents
from fedcalib.workflows.comparison import ByClient, ByRecord, Holdout, MethodComparison, offered
from fedcalib.workflows.comparison_result import NAMES

_comparison = panel("Comparison")


class By(StrEnum):
    """What is held out."""

    RECORD = "record"
    CLIENT = "client"


_HOLDOUTS: Final[dict[By, type[Holdout]]] = {By.RECORD: ByRecord, By.CLIENT: ByClient}


@shared
def compare(
    files: options.Files,
    *,
    methods: Annotated[
        str | None, _comparison(help="Names with commas in between; all that apply if left out.")
    ] = None,
    privacy: options.Model = None,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    clip: options.Clip = None,
    colluding: options.Colluding = None,
    rounds: options.Rounds = None,
    participation_: options.ParticipationWord = "everyone",
    repeats: Annotated[int, _comparison(help="How many splits to average over.")] = 3,
    split: Annotated[By, _comparison(help="Hold records of every client out, or whole clients.")] = By.RECORD,
    holdout: Annotated[float, _comparison(help="Share of them to measure on.")] = 0.3,
    simulate: Annotated[
        int | None, _comparison("--simulate-seed", help="Seed of the simulation; 0 if left out.")
    ] = None,
    spend: Annotated[
        bool,
        _comparison(
            "--spend", help="Not a simulation: split the budget over the methods and their measurements, and spend it."
        ),
    ] = False,
    records_about: options.RecordsAbout = None,
    out: Annotated[Path | None, Option(help="Directory for the table, the picture and the report.")] = None,
    flags: Shared,
) -> None:
    """Run every applicable method on your own records, and show what each gives and takes."""
    if flags.ledger is not None and not spend:
        raise InputError("Expected --spend with --ledger, found none; a simulation spends nothing.")
    voice = flags.voice
    flags.check_places(out, NAMES)
    privacy = options.usual_privacy(privacy, epsilon)
    to_model = registry.takes(privacy, "clip")
    made, refused = offered({"rounds": rounds, "clip": None if to_model else clip}, _entries(methods))
    comparison = MethodComparison(
        data=flags.data(files),
        methods=made,
        privacy=privacy_model(privacy, epsilon, delta, clip if to_model else None, colluding),
        participation=participation(participation_, rounds),
        holdout=_HOLDOUTS[split](holdout),
        session=flags.session(simulate),
        refused=refused,
        records=records_about,
    )
    done = comparison.spend() if spend else comparison.simulate(repeats)
    written = {} if out is None else {"files": done.save(out, flags.about)}
    written |= bundled(done, flags)
    voice.result({**done.to_json(), **written}, [*done.tables(), *documents.files_table(written)], done.warnings)


def _entries(words: str | None) -> tuple[registry.Registered, ...]:
    known = {entry.word: entry for entry in registry.choices("method")}
    if words is None:
        return tuple(known.values())
    wanted = [word.strip() for word in words.split(",") if word.strip()]
    if wrong := [word for word in wanted if word not in known]:
        hint = meant(wrong[0], known)
        raise InputError(f"Expected --methods with some of {', '.join(known)}, found '{wrong[0]}'.{hint}")
    if not wanted:
        raise InputError("Expected --methods with at least one method, found none.")
    return tuple(known[word] for word in dict.fromkeys(wanted))
