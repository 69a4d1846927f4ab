"""`fedcalib train`: train a network across clients, perhaps repair its head, and leave scores to calibrate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
from typer import Argument, Option

from fedcalib.cli import options
from fedcalib.cli.request import participation, privacy_model, session
from fedcalib.cli.voice import Voice
from fedcalib.federation import Federation
from fedcalib.methods.fed_avg import FedAvg
from fedcalib.records import Records
from fedcalib.training import SGD, LocalTraining
from fedcalib.workflows import documents
from fedcalib.workflows.session import Data
from fedcalib.workflows.train import Model, Training, dataset, dealt, network

NAMES: Final = ("model.json", "head.json", "scored.parquet")
_FIT = "Training"


def train(
    source: Annotated[Path, Argument(help="An npz file with inputs, labels and perhaps site; or a set's directory.")],
    *,
    data: Annotated[str | None, Option(help="mnist, fashion-mnist or cifar10, if SOURCE is its directory.")] = None,
    out: Annotated[Path, Option(help="Directory of the results.")] = Path("fedcalib-model"),
    network_: Annotated[
        str, Option("--network", help="softmax, conv, lenet5 or resnet18.", rich_help_panel=_FIT)
    ] = "softmax",
    rounds: Annotated[int, Option(help="Rounds of training.", rich_help_panel=_FIT)] = 10,
    epochs: Annotated[int, Option(help="Epochs of a client in a round.", rich_help_panel=_FIT)] = 1,
    rate: Annotated[float, Option(help="The clients' learning rate.", rich_help_panel=_FIT)] = 0.05,
    proximal: Annotated[float, Option(help="Pull of the head toward the shared one.", rich_help_panel=_FIT)] = 0.0,
    update_clip: Annotated[
        float, Option(help="The most that a client may move the weights.", rich_help_panel=_FIT)
    ] = 10,
    repair: Annotated[bool, Option("--repair", help="Repair the head with CCVR.", rich_help_panel=_FIT)] = False,
    clients: Annotated[
        int | None, Option(help="Simulate so many clients, instead of sites.", rich_help_panel=_FIT)
    ] = None,
    beta: Annotated[
        float | None,
        Option(help="Label skew of simulated clients: small means few classes each.", rich_help_panel=_FIT),
    ] = None,
    holdout: Annotated[
        float, Option(help="Share of records to score instead of training.", rich_help_panel=_FIT)
    ] = 0.2,
    privacy: options.Model = "secagg",
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    clip: options.Clip = None,
    participation_: options.Participation = "everyone",
    seed: options.Seed = None,
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
    local = LocalTraining(epochs, 64, SGD(rate), proximal=proximal)

    def method(records: Records) -> FedAvg:
        return FedAvg(network(network_, records), rounds, local, clip=update_clip)

    training = Training(
        method, repair, privacy_model(privacy, epsilon, delta, clip), participation(participation_, rounds),
        session(seed, state_, ledger, account, voice),
    )  # fmt: skip
    told = [str(source.resolve()), data, network_, rounds, epochs, rate, proximal, update_clip, repair, clients, beta]
    told += [holdout, privacy, epsilon, delta, clip, participation_, seed]
    files = [Data((source,))] if source.is_file() else []
    with training.session.opened("train", {"told": told}, *files) as conductor:
        chance = conductor.state.secret % (1 << 32)
        fitted, held = dealt(dataset(source, data), clients, beta, chance).split(holdout, chance)
        model = training.run(fitted, held, conductor)
    _tell(voice, model, documents.write_all(out, _files(model)))


def _files(model: Model) -> dict[str, bytes]:
    found = {"model.json": model.trained.dumps(model.spent).encode()}
    if model.head is not None:
        found["head.json"] = model.head.dumps(model.spent).encode()
    return {**found, "scored.parquet": _scores(model.scored)}


def _scores(federation: Federation) -> bytes:
    """Write scores as the table that the other commands read."""
    from io import BytesIO

    import pyarrow as pa
    import pyarrow.parquet as pq

    site = np.array([federation.name(client) for client in range(len(federation))])[federation.owner]
    logits = np.asarray(federation.records.logits, dtype=np.float64)
    columns = {f"logit_{j}": logits[:, j] for j in range(logits.shape[1])}
    buffer = BytesIO()
    pq.write_table(pa.table({"site": site, "label": federation.records.labels, **columns}), buffer)
    return buffer.getvalue()


def _tell(voice: Voice, model: Model, written: dict[str, str]) -> None:
    document: dict[str, Any] = {
        "weights": len(model.trained.weights),
        "repaired": model.head is not None,
        "privacy": documents.spending(model.spent),
        "warnings": list(model.head.warnings) if model.head is not None else [],
        "files": written,
    }
    for warning in document["warnings"]:
        voice.warn(warning)
    voice.note(f"Scores of held-out records stay with their sites. Next: fedcalib evaluate {written['scored']}")
    voice.result(document, [documents.facts_table("Privacy", document["privacy"])])
