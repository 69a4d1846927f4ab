"""`fedcalib demo`: the whole story on real patients, or on real flights."""

from __future__ import annotations

import json
import shlex
import sys
from contextlib import redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from fedcalib import files
from fedcalib.cli import options
from fedcalib.cli.app import run
from fedcalib.cli.voice import FINE, Voice
from fedcalib.workflows import documents

_HEARTS = (
    "Four hospitals, 920 patients, and a model of heart disease that was trained in Cleveland. They recalibrate it "
    "together, and nobody sees the records or sums of a single hospital:"
)


class Story(StrEnum):
    """What a demonstration is about."""

    HEARTS = "hearts"
    FLIGHTS = "flights"


def demo(
    story: Annotated[
        Story,
        Argument(help="hearts: four hospitals, in the core install. flights: sixteen airlines; needs the extra demo."),
    ] = Story.HEARTS,
    *,
    out: Annotated[Path, Option(help="Directory of the report.")] = Path("fedcalib-demo"),
    epsilon: Annotated[
        float | None,
        Option(
            help="Epsilon of differential privacy; hearts has none without it, and flights takes 1.", show_default=False
        ),
    ] = None,
    simulate: options.SimulateSeed = None,
    seed: options.OldSeed = None,
    format_: options.Shape = options.Format.TEXT,
    config: options.Config = None,
    debug: options.Debug = False,
) -> None:
    """Recalibrate a classifier across four hospitals or sixteen airlines, and write a report."""
    seeded = [] if simulate is None else ["--simulate-seed", str(simulate)]
    voice = Voice(format_ is options.Format.JSON)
    if story is Story.FLIGHTS:
        _flights(voice, out, ["--out", str(out), "--epsilon", str(epsilon or 1.0), *seeded])
    else:
        private = ["secagg"] if epsilon is None else ["distributed", "--epsilon", str(epsilon)]
        _hearts(voice, out, ["--privacy", *private, "--out", str(out), *seeded])


def _hearts(voice: Voice, out: Path, words: list[str]) -> None:
    """Run the command that a user would type, and show it."""
    from fedcalib.datasets import HEART_DISEASE

    file = out / HEART_DISEASE.name
    documents.check_folder(out, (file.name,))
    files.write(file, HEART_DISEASE.read_bytes())
    columns = ["--site", "hospital", "--label", "disease", "--score", "risk"]
    command = ["calibrate", str(file), *columns, "--method", "platt-scaling", *words, "--split-seed", "0"]
    voice.note(f"{_HEARTS}\n\n  fedcalib {shlex.join(command)}\n")
    code = run([*command, "--format", "json" if voice.as_json else "text"])
    if code != FINE:
        raise typer.Exit(code)
    voice.note(f"The report is in {out / 'report.html'}; open it in a browser.")


def _flights(voice: Voice, out: Path, words: list[str]) -> None:
    from runpy import run_path

    from fedcalib.deploy.commands import bundled

    with redirect_stdout(sys.stderr if voice.as_json else sys.stdout):
        run_path(str(bundled("examples/flights_demo")), run_name="flights_demo")["main"](words)
    if voice.as_json:
        document = json.loads((out / "result.json").read_text(encoding="utf-8"))
        voice.result({name: value for name, value in document.items() if name != "schema_version"}, [])
