"""`fedcalib demo`: the whole story on real flights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from fedcalib.cli import options
from fedcalib.cli.voice import Voice


def demo(
    *,
    out: Annotated[Path, Option(help="Directory of the report.")] = Path("fedcalib-demo"),
    epsilon: Annotated[float, Option(help="Budget of the private chapter.")] = 1.0,
    seed: options.Seed = None,
    format_: options.Shape = options.Format.TEXT,
    config: options.Config = None,
    debug: options.Debug = False,
) -> None:
    """Recalibrate flight delays across sixteen airlines, and write a report."""
    from fedcalib.demo.run import main

    voice = Voice(format_ is options.Format.JSON)
    document = main(out, epsilon, seed, voice.note if voice.as_json else print)
    if voice.as_json:
        voice.result({name: value for name, value in document.items() if name != "schema_version"}, [])
