"""`fedcalib plan`: how many records, how much privacy and how fine a table a study needs, before anybody is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from fedcalib.cli import options
from fedcalib.cli.voice import Voice
from fedcalib.metrics.table import shown_in
from fedcalib.planning.simulation import ScoreModel
from fedcalib.workflows import documents
from fedcalib.workflows.planning import NAMES
from fedcalib.workflows.planning import plan as planned


def plan(
    *,
    metric: Annotated[str, Option(help=f"One of {', '.join(metric.name for metric in shown_in('planning'))}.")],
    target_error: Annotated[float | None, Option(help="Root mean square error to reach, such as 0.01.")] = None,
    records: Annotated[int | None, Option(help="How many records the sites have together.")] = None,
    epsilon: Annotated[float | None, Option(help="Total budget.")] = None,
    privacy: Annotated[str, Option(help="secagg, distributed or local.")] = "distributed",
    positive_rate: Annotated[float, Option(help="Share of positives that you expect.")] = 0.3,
    auc: Annotated[float, Option(help="AUC that you expect of the model.")] = 0.75,
    confidence: Annotated[float, Option(help="How many times too large the log-odds are; 1 if calibrated.")] = 1.5,
    plot: Annotated[
        Path | None, Option(help="Write the error curve here: .svg for a picture, .html for a page.")
    ] = None,
    out: Annotated[Path | None, Option(help="Directory for the plan and the error curve.")] = None,
    bundle: options.Bundle = None,
    format_: options.Shape = options.Format.TEXT,
    config: options.Config = None,
    debug: options.Debug = False,
) -> None:
    """Solve for whichever of records, epsilon and error is left out, by simulating the study."""
    if out is not None:
        documents.check_folder(out, NAMES)
    if bundle is not None:
        documents.check_folder(bundle.parent, [bundle.name], "--bundle")
    found = planned(
        metric,
        target_error=target_error,
        records=records,
        epsilon=epsilon,
        privacy=privacy,
        scores=ScoreModel(positive_rate, auc, confidence),
    )
    drawn = {} if plot is None else {"plot": str(found.plot(plot))}
    written: dict[str, Any] = {} if out is None else {"files": found.save(out)}
    written |= {} if bundle is None else {"bundle": str(found.bundle(bundle))}
    tables = [*found.tables(), *documents.files_table(written)]
    Voice(format_ is options.Format.JSON).result({**found.to_json(), **drawn, **written}, tables)
