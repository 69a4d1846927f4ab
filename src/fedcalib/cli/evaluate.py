"""`fedcalib evaluate`: accuracy, calibration and ranking across sites."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from fedcalib.cli import curves, documents, options, state
from fedcalib.cli.budget import as_simulation
from fedcalib.cli.evaluation import Evaluation
from fedcalib.cli.outputs import check_folder, write_all
from fedcalib.cli.request import DataRequest, PrivacyRequest, participation, settings
from fedcalib.cli.spending import Purse
from fedcalib.cli.voice import Voice
from fedcalib.io import Columns, expand


def evaluate(
    files: options.Files,
    *,
    calibrator: Annotated[Path | None, Option(help="Measure after this calibrator.json.")] = None,
    out: Annotated[
        Path | None,
        Option(help="Of a binary classifier: write a report with ROC, precision-recall and reliability curves here."),
    ] = None,
    privacy: options.Model = "open",
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    clip: options.Clip = None,
    participation_: options.Participation = "everyone",
    seed: options.Seed = None,
    label: options.Label = "label",
    site: options.Site = None,
    score: options.Score = None,
    logits: options.Logits = None,
    probs: options.Probs = None,
    unit: options.Unit = None,
    ledger: options.LedgerFile = None,
    account: options.Account = "default",
    state_: options.State = None,
    dry_run: options.DryRun = False,
    format_: options.Shape = options.Format.TEXT,
    config: options.Config = None,
    debug: options.Debug = False,
) -> None:
    """Measure a classifier across sites without pooling their records, perhaps after a calibrator."""
    voice = Voice(format_ is options.Format.JSON)
    columns = Columns(score=score, logits=logits, probs=probs, label=label, site=site, unit=unit)
    told = settings(
        privacy=privacy, epsilon=epsilon, delta=delta, clip=clip, seed=seed, participation=participation_,
        columns=columns, curves=out is not None,
    )  # fmt: skip
    evaluation = Evaluation(
        privacy=PrivacyRequest(privacy, epsilon, delta, clip),
        participation=participation(participation_, None),
        data=DataRequest(columns, voice),
        files=expand(files),
        calibrator=calibrator,
        seed=seed,
        purse=Purse(ledger, account),
        voice=voice,
        curves=out is not None,
    )
    if out is not None:
        check_folder(out, curves.NAMES)
    evaluation.privacy.model()  # a wrong budget is told before anything is read
    if dry_run:
        _rehearse(evaluation)
    else:
        _evaluate(evaluation, state_, evaluation.key(told), out)


def _rehearse(evaluation: Evaluation) -> None:
    federation, warnings = evaluation.records(state.forgotten(evaluation.seed))
    rehearsal = evaluation.phase.rehearse(federation.schema)
    spent = rehearsal.spending if evaluation.seed is None else as_simulation(rehearsal.spending)
    document: dict[str, Any] = {
        "dry_run": True,
        **documents.counts(federation, evaluation.privacy.model()),
        "privacy": documents.spending(spent),
        "phases": [rehearsal.to_json()],
        "warnings": list(warnings),
    }
    facts = documents.facts_table("Nothing was asked. It would cost:", document["privacy"])
    evaluation.voice.result(document, [*documents.rehearsal_tables([rehearsal]), facts])


def _evaluate(evaluation: Evaluation, root: Path | None, key: str, out: Path | None) -> None:
    with state.kept(root, key, evaluation.seed) as kept:
        federation, warnings = evaluation.records(kept)
        document, found = evaluation.measure(federation, kept)
    for warning in document["warnings"]:
        evaluation.voice.warn(warning)
    document["warnings"] = [*warnings, *document["warnings"]]
    if out is not None and found.curves is not None:
        told = {**document, "curves": curves.document(found.curves)}
        document = {**told, "files": write_all(out, curves.files(found.report, found.curves, found.spent, document))}
    tables = [
        documents.metrics_table("All sites together", {"value": document["metrics"]}),
        *documents.site_tables(document["per_site"]),
        documents.facts_table("Privacy", document["privacy"]),
    ]
    evaluation.voice.result(document, tables)
