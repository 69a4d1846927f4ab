"""Train: deal records out, train a network across clients, repair its head, and score the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar, Unpack, final

import numpy as np

from fedcalib import datasets, wire
from fedcalib.accounting.spending import Spending
from fedcalib.artifacts.networks import Head, Representation, Trained
from fedcalib.cohort import Everyone, Participation
from fedcalib.data import partition
from fedcalib.errors import BudgetError, InputError, TranscriptError
from fedcalib.federation import Federation
from fedcalib.loop import Result
from fedcalib.method import Method
from fedcalib.methods.ccvr import CCVR
from fedcalib.methods.fed_avg import FedAvg, TrainingRound, divergence, rounds_of
from fedcalib.privacy import Privacy
from fedcalib.privacy.secagg import SecAgg
from fedcalib.query import Answer, Query
from fedcalib.randomness import Secure, Simulated
from fedcalib.records import Records
from fedcalib.runtimes import InProcess
from fedcalib.training import ConvNet, LeNet5, Network, ResNet18, SoftmaxRegression
from fedcalib.types import Array, Ints
from fedcalib.workflows import documents
from fedcalib.workflows.budget import scaled
from fedcalib.workflows.session import Conductor, Data, Options, Phase, WorkflowSession, opening

T = TypeVar("T")

DATA: Final[Mapping[str, Callable[[Path], datasets.Dataset]]] = {
    "mnist": datasets.mnist,
    "fashion-mnist": datasets.fashion_mnist,
    "cifar10": datasets.cifar10,
}
_REPAIR: Final = 0.2  # share of the budget for the repair, where there is one


@final
@dataclass(frozen=True, eq=False)
class TrainingResult:
    """A network, perhaps a new head for it, and the held-out records that both have scored."""

    trained: Trained
    head: Head | None
    scored: Federation
    privacy: Spending
    rounds: tuple[TrainingRound, ...] = ()
    remarks: tuple[str, ...] = ()  # what is said about a repair that was not made

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is said about the training and the repair."""
        return (*divergence(self.rounds), *self.remarks, *(() if self.head is None else self.head.warnings))

    def to_json(self) -> dict[str, Any]:
        """The result as plain data, as `fedcalib train --format json` prints it."""
        return {
            "weights": len(self.trained.weights),
            "repaired": self.head is not None,
            "rounds": [asdict(one) for one in self.rounds],
            "privacy": asdict(self.privacy),
            "warnings": list(self.warnings),
        }

    def save(self, folder: documents.Folder) -> dict[str, str]:
        """Write the network, its new head and the scores into a folder; say where each file is."""
        artifacts = {"model.json": self.trained} | ({} if self.head is None else {"head.json": self.head})
        contents = {name: artifact.dumps(self.privacy).encode() for name, artifact in artifacts.items()}
        return documents.write_all(folder, {**contents, "scored.parquet": _table(self.scored)})


@final
@dataclass(frozen=True, eq=False)
class Training:
    """Everything that a training is told."""

    deal: Callable[[int], Federation]  # gives clients their records, by a seed where that is simulated
    method: Callable[[Records], FedAvg]  # for records of this shape
    privacy: Privacy = field(default_factory=SecAgg)
    participation: Participation = field(default_factory=Everyone)
    repair: bool = False  # of the head, with CCVR
    holdout: float = 0.2  # share of records to score instead of training
    session: WorkflowSession = field(default_factory=WorkflowSession)
    settings: Mapping[str, Any] = field(default_factory=dict)  # name the training, with its data, for resuming
    data: tuple[Data, ...] = ()

    def run(self) -> TrainingResult:
        """Train, repair, and score the records that were held out."""
        with self.session.opened("train", self.settings, *self.data) as conductor:
            dealt = self.deal(int.from_bytes(conductor.state.derived("deal")[:4]))
            fitted, held = dealt.split(self.holdout, conductor.state.derived("holdout"))
            if self.holdout > 0 and not len(held.records):
                raise InputError(
                    f"Expected held-out records to score, found none: {len(dealt)} clients share {len(dealt.records)} "
                    "records. Use fewer clients or a larger holdout."
                )
            return self._trained(fitted, held, conductor)

    def _trained(self, fitted: Federation, held: Federation, conductor: Conductor) -> TrainingResult:
        method = self.method(fitted.records)
        train = self._phase("train", method, fitted, 1 - _REPAIR if self.repair else 1.0)
        repair = self._phase("repair", self._repair(method.network), fitted, _REPAIR) if self.repair else None
        total = self._whole(train.spending)
        conductor.pay(total, (train, fitted))
        result = self._run(train, fitted, conductor)
        trained = result.artifact
        head, missed = self._repaired(repair, trained, fitted, conductor)
        conductor.tell()
        scored = trained.across(held) if head is None else head.across(trained.across(held))
        rounds = rounds_of(method, fitted.schema, _recorded(result), None if self.privacy.private else held.records)
        return TrainingResult(trained, head, scored, conductor.stated(total), rounds, missed)

    def _repaired(
        self, repair: Phase[Head] | None, trained: Trained, fitted: Federation, conductor: Conductor
    ) -> tuple[Head | None, tuple[str, ...]]:
        """Repair the head as planned; a repair that cannot be paid again leaves the trained one."""
        if repair is None:
            return None, ()
        features = trained.across(fitted)
        if not self.privacy.private:
            repair = self._phase("repair", self._repair(trained.network, trained.head), features, _REPAIR)
        try:
            return self._run(repair, features, conductor).artifact, ()
        except BudgetError as error:
            return None, (f"The head was not repaired: {error}",)

    def _repair(self, network: Network, start: Head | None = None) -> CCVR:
        """Repair the trained head; under noise, which grows with the features' length, make one for unit features."""
        matrix, _ = network.head
        width = (matrix.stop - matrix.start) // network.outputs
        if self.privacy.private:
            return CCVR(width, radius=1.0, representation=Representation(unit=True))
        return CCVR(width, start=start)

    def _phase(self, name: str, method: Method[T], data: Federation, share: float) -> Phase[T]:
        return Phase.of(name, method, scaled(self.privacy, share), self.participation, data.schema)

    def _run(self, phase: Phase[T], data: Federation, conductor: Conductor) -> Result[T]:
        # the phases' methods differ, so their runs have names of their own and one seed serves both
        seed = self.session.simulate
        return conductor.run(phase, InProcess(data), Secure() if seed is None else Simulated(seed))

    def _whole(self, spent: Spending) -> Spending:
        """What training and repair spend together: what the workflow was given."""
        budget = self.privacy.budget
        if budget is None or not self.repair:
            return spent
        together = f"Training and repair share epsilon = {budget.epsilon:g}. Of the training's share: "
        delta = getattr(self.privacy, "delta", spent.delta)
        return replace(spent, epsilon=budget.epsilon, delta=delta, statement=together + spent.statement)


def train(
    federation: Federation,
    method: FedAvg,
    privacy: Privacy | None = None,
    *,
    participation: Participation | None = None,
    repair: bool = False,
    holdout: float = 0.2,
    **options: Unpack[Options],
) -> TrainingResult:
    """Train a network across clients, perhaps repair its head, and score the records that were held out.

    Parameters
    ----------
    federation
        Clients' records, with the inputs of the network among the extra columns.
    method
        How to train, such as `FedAvg(network, rounds=10)`.
    privacy
        The privacy model with the whole budget; `SecAgg()` if left out.
    participation
        Who takes part; everyone if left out.
    repair
        Repair the trained head with CCVR, for a fifth of the budget.
    holdout
        Share of records to score instead of training.
    **options
        Seed, state, ledger and notices: see `fedcalib.workflows.session.Options`.

    Returns
    -------
    TrainingResult
        The network, its new head, the scored records and what was spent.

    Examples
    --------
    >>> import numpy as np
    >>> import fedcalib as fc
    >>> from fedcalib.training import SoftmaxRegression
    >>> from fedcalib.workflows import train
    >>> rng = np.random.default_rng(0)
    >>> inputs, labels = rng.normal(size=(200, 3)), np.arange(200) % 2
    >>> records = fc.Records.of_probs(np.full((200, 2), 0.5), labels, inputs=inputs)
    >>> federation = fc.Federation.grouped(records, np.arange(200) % 4)
    >>> done = train(federation, fc.methods.FedAvg(SoftmaxRegression(3, 2), rounds=2))
    >>> done.scored.schema.clients
    4
    """
    data, session = opening(federation, **options)
    privacy, participation = privacy or SecAgg(), participation or Everyone()
    parts = {"method": method, "privacy": privacy, "participation": participation}
    settings = {**{name: wire.encode(part) for name, part in parts.items()}, "repair": repair, "holdout": holdout}
    training = Training(lambda _: federation, lambda _: method, privacy, participation, repair, holdout, session)
    return replace(training, settings=settings, data=(data,)).run()


def dataset(source: Path, name: str | None, classes: int | None = None) -> datasets.Dataset:
    """Read a data set by name from a directory, or an npz file with the arrays inputs, labels and perhaps site.

    A file's number of classes is public where it is stated; otherwise it is that of the labels.
    """
    if name is not None:
        if name not in DATA:
            raise InputError(f"Expected --data {', '.join(DATA)}, found '{name}'.")
        return DATA[name](source)
    try:
        with np.load(source, allow_pickle=False) as file:
            found: dict[str, Array] = {key: file[key] for key in file.files}
    except (OSError, ValueError) as error:
        raise InputError(
            f"Expected an npz file in {source}, found something else; or name a set with --data."
        ) from error
    if not {"inputs", "labels"} <= set(found):
        raise InputError(f"Expected the arrays inputs and labels in {source}, found {', '.join(found) or 'none'}.")
    labels = _class_numbers(found["labels"], source)
    test = np.zeros(len(labels), dtype=bool)
    highest = int(labels.max(initial=0))
    if classes is not None and highest >= classes:
        raise InputError(f"Expected labels from 0 to {classes - 1} in {source}, found {highest}; change --classes.")
    return datasets.Dataset(source.stem, found["inputs"], labels, classes or highest + 1, test, found.get("site"))


def _class_numbers(labels: Array, source: Path) -> Ints:
    """Labels as class numbers, or an error that names the first that is none."""
    kind = labels.dtype.kind
    if labels.ndim != 1 or kind not in "iufb":
        first = f"words such as {str(labels.reshape(-1)[:1].tolist())[1:-1]:.40}" if kind in "US" else "something else"
        raise InputError(
            f"Expected class numbers 0, 1, ... in the array labels of {source}, found {first}; number the classes, for "
            "instance with numpy.unique(labels, return_inverse=True)."
        )
    with np.errstate(invalid="ignore"):
        wrong = ~((labels >= 0) & (labels == np.trunc(labels)) & (labels < 1 << 20))
    if wrong.any():
        row = int(wrong.argmax())
        raise InputError(f"Expected class numbers 0, 1, ... as labels in {source}, found {labels[row]} in row {row}.")
    return labels.astype(np.int64)


def _recorded(result: Result[Any]) -> Callable[[int, Query], Answer]:
    """The answers of a run that has ended, from its transcript."""

    def answer(step: int, query: Query) -> Answer:
        found = result.transcript.recall(step, query)
        if found is None:
            raise TranscriptError(f"Expected the answer to step {step} in the transcript, found none.")
        return found

    return answer


def dealt(data: datasets.Dataset, clients: int | None, beta: float | None, seed: int) -> Federation:
    """Each site with its records; or deal them to simulated clients, evenly or with skewed labels."""
    if clients is None and beta is not None:
        raise InputError("Expected --clients with --beta, found none: sites of a file keep the labels that they have.")
    if clients is not None and clients > len(data):
        raise InputError(f"Expected at most as many clients as records, {len(data)}, found --clients {clients}.")
    if clients is None:
        if data.group is None:
            raise InputError(f"Expected an array of sites in {data.name}, found none; simulate some with --clients.")
        return data.natural(fewest=1)
    if beta is None:
        return partition.iid(data.records(), clients, seed)
    return partition.dirichlet(data.records(), clients, beta, seed)


def network(word: str, records: Records) -> Network:
    """Make the network that a word names, for the shape of the records' inputs."""
    shape, classes = records.extra["inputs"].shape[1:], records.classes
    if word == "softmax":
        return SoftmaxRegression(int(np.prod(shape)), classes)
    side, channels = int(shape[0]) if shape else 0, int(shape[2]) if len(shape) == 3 else 1
    made: dict[str, Callable[[], Network]] = {
        "conv": lambda: ConvNet(side, channels, classes),
        "lenet5": lambda: LeNet5(side, channels, classes),
        "resnet18": lambda: ResNet18(channels, classes),
    }
    if word not in made:
        raise InputError(f"Expected --network softmax, {', '.join(made)}, found '{word}'.")
    if len(shape) < 2:
        raise InputError(f"Expected pictures for {word}, found inputs of shape {shape}; use --network softmax.")
    return made[word]()


def _table(federation: Federation) -> bytes:
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
