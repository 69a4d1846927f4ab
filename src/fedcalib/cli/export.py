"""`fedcalib export`: a calibrator for serving systems."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

from typer import Argument, Option

from fedcalib.cli import options
from fedcalib.cli.voice import Voice
from fedcalib.export import Input, Logits, Probabilities, Score, to_mlflow, to_onnx
from fedcalib.export.served import Fed
from fedcalib.workflows import documents
from fedcalib.workflows.evaluation import load_calibrator


class Target(StrEnum):
    """What a calibrator can be exported to."""

    ONNX = "onnx"
    MLFLOW = "mlflow"


class Takes(StrEnum):
    """What an exported model is fed."""

    PROBS = "probs"
    LOGITS = "logits"
    SCORE = "score"


_INPUTS: Final[dict[Takes, type[Input]]] = {Takes.PROBS: Probabilities, Takes.LOGITS: Logits, Takes.SCORE: Score}

_FED: Final[dict[Takes, Fed]] = {Takes.PROBS: "probs", Takes.LOGITS: "logits", Takes.SCORE: "probs"}


def export(
    calibrator: Annotated[Path, Argument(help="A calibrator.json.", show_default=False)],
    *,
    to: Annotated[Target, Option(help="The format to write.", show_default=False)],
    takes: Annotated[
        Takes, Option(help="What the model will be fed: probs or logits of all classes, or the score of class 1.")
    ] = Takes.PROBS,
    out: Annotated[
        Path | None,
        Option("-o", "--out", help="The file to write; with mlflow, a folder.", show_default="beside the calibrator"),
    ] = None,
    single: Annotated[bool, Option("--single", help="Declare inputs and outputs in single precision.")] = False,
    format_: options.Shape = options.Format.TEXT,
    config: options.Config = None,
    debug: options.Debug = False,
) -> None:
    """Write a calibrator as an ONNX model, tried against the calibrator before anything is written, or for MLflow."""
    voice = Voice(format_ is options.Format.JSON)
    artifact = load_calibrator(calibrator)
    if to is Target.MLFLOW:
        folder = to_mlflow(artifact, out or calibrator.with_suffix(".mlflow"), _FED[takes])
        served = {"file": str(folder), "artifact": type(artifact).__name__, "input": str(takes)}
        voice.result(served, [documents.facts_table("", served)])
        return
    file = out or calibrator.with_suffix(".onnx")
    documents.check_folder(file.parent, [file.name])
    exported = to_onnx(artifact, _INPUTS[takes](single))
    documents.write_all(file.parent, {file.name: exported.model})
    document: dict[str, Any] = {
        "file": str(file),
        "artifact": type(artifact).__name__,
        "input": exported.takes,
        "classes": exported.classes,
        "opset": exported.opset,
        "bytes": len(exported.model),
        "records_tried": exported.parity.records,
        "largest_difference": exported.parity.ordinary,
        "largest_difference_extreme": exported.parity.extreme,
    }
    voice.result(document, [documents.facts_table("", document)])
