"""`fedcalib train`: train a network across clients, perhaps repair its head, and leave scores to calibrate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from typer import Argument, Option

from fedcalib.cli import options
from fedcalib.cli.options import panel, participation, privacy_model, session
from fedcalib.cli.voice import Voice
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.methods.fed_avg import FedAvg
from fedcalib.training import SGD, LocalTraining
from fedcalib.workflows import documents
from fedcalib.workflows.session import Data
from fedcalib.workflows.training import Training, dataset, dealt, network

NAMES: Final = ("model.json", "head.json", "scored.parquet")
_training = panel("Training")


def train(
    source: Annotated[Path, Argument(help="An npz file with inputs, labels and perhaps site; or a set's directory.")],
    *,
    data: Annotated[str | None, Option(help="mnist, fashion-mnist or cifar10, if SOURCE is its directory.")] = None,
    out: Annotated[Path, Option(help="Directory of the results.")] = Path("fedcalib-model"),
    classes: Annotated[
        int | None, _training(help="Number of classes of an npz file, which is public. Needed with --epsilon.", min=2)
    ] = None,
    network_: Annotated[str, _training("--network", help="softmax, conv, lenet5 or resnet18.")] = "softmax",
    rounds: Annotated[int, _training(help="Rounds of training.")] = 10,
    epochs: Annotated[int, _training(help="Epochs of a client in a round.")] = 1,
    rate: Annotated[float, _training(help="The clients' learning rate.")] = 0.05,
    proximal: Annotated[float, _training(help="Pull of the head toward the shared one.")] = 0.0,
    update_clip: Annotated[float, _training(help="The most that a client may move the weights.")] = 10,
    repair: Annotated[bool, _training("--repair", help="Repair the head with CCVR.")] = False,
    clients: Annotated[int | None, _training(help="Simulate so many clients, instead of sites.")] = None,
    beta: Annotated[
        float | None, _training(help="Label skew of simulated clients: small means few classes each.")
    ] = None,
    holdout: Annotated[float, _training(help="Share of records to score instead of training.")] = 0.2,
    privacy: options.Model = "secagg",
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    clip: options.Clip = None,
    colluding: options.Colluding = None,
    participation_: options.ParticipationWord = "everyone",
    simulate: options.SimulateSeed = None,
    split_seed: options.SplitSeed = None,
    seed: options.OldSeed = None,
    ledger: options.LedgerFile = None,
    account: options.Account = "default",
    state_: options.State = None,
    format_: options.Shape = options.Format.TEXT,
    config: options.Config = None,
    debug: options.Debug = False,
) -> None:
    """Train a network across clients; `calibrate` and `evaluate` go on with the records that it scores."""
    voice = Voice(format_ is options.Format.JSON)
    documents.check_folder(out, NAMES)
    if epsilon is not None and data is None and classes is None:
        raise InputError(
            "Expected --classes with --epsilon, found none: which classes occur in a file is a fact about its records."
        )
    local = LocalTraining(epochs, 64, SGD(rate), proximal=proximal)
    told = [str(source.resolve()), data, network_, rounds, epochs, rate, proximal, update_clip, repair, clients, beta]
    told.append(classes)
    loaded = dataset(source, data, classes)
    done = Training(
        deal=lambda chance: dealt(loaded, clients, beta, chance),
        method=lambda records: FedAvg(network(network_, records), rounds, local, clip=update_clip),
        privacy=privacy_model(privacy, epsilon, delta, clip, colluding),
        participation=participation(participation_, rounds),
        repair=repair,
        holdout=holdout,
        session=session(state_, ledger, account, voice, simulate=simulate, split_seed=split_seed),
        settings={"told": [*told, holdout, privacy, epsilon, delta, clip, participation_, colluding]},
        data=(Data(Federation.of([loaded.records()])),),  # what was read, whichever files it was in
    ).run()
    written = done.save(out)
    document = {**done.to_json(), "files": written}
    for warning in done.warnings:
        voice.warn(warning)
    voice.note(f"Scores of held-out records stay with their sites. Next: fedcalib evaluate {written['scored']}")
    columns = ("round", "update", "held-out log loss", "held-out accuracy")
    rows = [["-" if value is None else f"{value:.4g}" for value in one.values()] for one in document["rounds"]]
    shown = documents.TextTable("Training", columns, tuple(map(tuple, rows)))
    spent = documents.facts_table("Privacy", document["privacy"])
    voice.result(document, [shown, spent, *documents.files_table(document)])
