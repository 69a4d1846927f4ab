"""`fedcalib apply`: calibrated probabilities beside the columns of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fedcalib.cli import options
from fedcalib.cli.voice import Voice
from fedcalib.workflows import documents
from fedcalib.workflows.application import apply as calibrated
from fedcalib.workflows.evaluation import load_calibrator


def apply(
    calibrator: Annotated[Path, Argument(help="A calibrator.json.", show_default=False)],
    file: Annotated[Path, Argument(help="A CSV, Parquet or NPZ file of scores.", show_default=False)],
    *,
    out: Annotated[Path, Option("-o", "--out", help="A CSV or Parquet file to write.", show_default=False)],
    score: options.Score = None,
    logits: options.Logits = None,
    probs: options.Probs = None,
    percent: options.Percent = False,
    format_: options.Shape = options.Format.TEXT,
    config: options.Config = None,
    debug: options.Debug = False,
) -> None:
    """Calibrate the scores of a file; its columns are kept and the calibrated probabilities added."""
    voice = Voice(format_ is options.Format.JSON)
    told = {"score": score, "logits": logits, "probs": probs}
    done = calibrated(load_calibrator(calibrator), file, out, **told, percent=percent, notices=voice)
    document = {"records": done.records, "classes": done.classes, "file": str(out), "warnings": list(done.warnings)}
    facts = {name: document[name] for name in ("records", "file")}
    voice.result(document, [documents.facts_table("", facts)], done.warnings)
