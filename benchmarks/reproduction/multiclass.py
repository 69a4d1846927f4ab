"""Source 000, "Private Federated Multiclass Post-hoc Calibration": its tables and figures, one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.reproduction import multiclass_claims as measured
from benchmarks.reproduction import multiclass_clients as clients
from benchmarks.reproduction.findings import Claim, Finding, Item, has, rows_of
from benchmarks.reproduction.multiclass_claims import ALONE, BOTH, FILE, LOGITS, MIXED, TRAINED
from benchmarks.reproduction.multiclass_clients import PICTURES, ROLES

CLIENTS, BASES = "maddock/clients.csv", "base_models/results.csv"
KEPT = "The weights prevent a loss of more than a point of accuracy"


def item(name: str, about: str, figure: str, dataset: str, *claims: Claim) -> Item:
    """A figure that published.csv has, on one data set; on CIFAR-10 also with a CNN that FedAvg trained."""
    trained = dataset == "cifar10" and has(FILE, figure=figure, dataset=TRAINED)
    size = partial(measured.size, figure, dataset=(dataset, TRAINED) if trained else dataset)
    return Item(name, about, BOTH if trained else LOGITS, size, (FILE,), claims=claims)


def twice(figure: str, says: str, found: Callable[..., Finding], *arguments: object) -> Iterator[Claim]:
    """A conclusion on central networks, whose logits others published, and on our federated CNN, both on CIFAR-10."""
    for name, word in (("cifar10", "central networks"), (TRAINED, "federated CNN")):
        if has(FILE, figure=figure, dataset=name):
            yield claim(f"{says}, {word}", found, *arguments, dataset=name)


def by_skew(figure: str, says: str, found: Callable[..., Finding]) -> Iterator[Claim]:
    """A conclusion of the tables on MNIST's networks, each calibrated by clients of the skew that trained it."""
    if has(FILE, figure=figure):
        yield claim(f"{says}, MNIST at every skew", found, figure)


def claim(says: str, found: Callable[..., Finding], *arguments: object, **named: object) -> Claim:
    return Claim(says, partial(found, *arguments, **named))


BINNING = "Binning has the lowest cwECE"
WARM = "FedTemp has the lowest cwECE"
NEAR = "Weighted FedBBQ is no worse than the base model"
OVERTAKES = "Over many rounds FedBBQ overtakes FedTemp, which is better after few"
RESILIENT = "FedTemp is the most resilient to noise"
IMPROVES = "With more rounds weighted FedBBQ improves and comes close to FedTemp, also under noise"
OWN_SKEW = (
    Item(
        "Figure 6c",
        "MNIST, networks of every skew",
        "same, CNNs trained by FedAvg with local Adam",
        partial(measured.size, "6c", dataset="mnist"),
        (FILE,),
        claims=(
            claim("Strong skew leaves a higher cwECE", clients.skew_of_the_network),
            claim("Binning is below FedTemp", clients.binning_wins_at_every_skew),
        ),
    ),
)
OWN_SKEW = OWN_SKEW if has(FILE, figure="6c") else ()
ITEMS = (
    Item("Table 1", "related work", "none", reason="It lists papers; there is nothing to measure.", testable=False),
    Item(
        "Table 2",
        "cwECE without privacy",
        MIXED,
        partial(measured.size, "table 2"),
        (FILE,),
        claims=(
            claim(BINNING, measured.binning_is_best, "table 2"),
            *by_skew("6c", BINNING, measured.binning_is_best),
            claim(KEPT, measured.weights_keep_accuracy, "table 2"),
            claim("FedOPVector and FedCal are worse than FedTemp", measured.scalers_of_many_parameters, "table 2"),
        ),
    ),
    Item(
        "Table 3",
        "cwECE under user-level privacy",
        MIXED,
        partial(measured.size, "table 3"),
        (FILE, ROLES),
        claims=(
            claim(WARM, measured.temperature_is_best_privately, "table 3"),
            *by_skew("6c, epsilon 1", WARM, measured.temperature_is_best_privately),
            claim(f"{WARM}, Shakespeare", clients.roles_under_privacy),
            claim(NEAR, measured.weighted_is_near_base, "table 3"),
            *by_skew("6c, epsilon 1", NEAR, measured.weighted_is_near_base),
            claim(
                "It is on a CNN that is as badly calibrated as the paper's",
                measured.weighted_is_near_base,
                "table 3",
                dataset=TRAINED,
                network="cnn 0.1",
            ),
            *twice("table 3", f"{KEPT}, CIFAR-10", measured.weights_keep_accuracy, "table 3"),
            claim(f"{KEPT}, CIFAR-100", measured.weights_keep_accuracy, "table 3", dataset="cifar100"),
            claim("Unweighted FedBBQ breaks", measured.unweighted_breaks),
            claim("FedOPVector and FedCal are worse than FedTemp", measured.scalers_of_many_parameters, "table 3"),
        ),
    ),
    Item(
        "Table 4", "data sets", "none", reason="It lists data sets; see the list of missing data below.", testable=False
    ),
    Item(
        "Table 5",
        "accuracy of base models",
        "same for MNIST and CIFAR-10; CIFAR-100 pictures are missing",
        partial(rows_of, BASES, "trainings by FedAvg with local Adam and some with local SGD, one seed"),
        (BASES, "base_models/sgd.csv", PICTURES),
        ("base_models/results.png",),
        (
            claim("Skew costs accuracy, local Adam", measured.base_accuracies),
            claim("Skew costs accuracy, CIFAR-10", clients.base_on_pictures),
            claim("Local SGD at the printed rate reaches the printed accuracy", measured.base_by_sgd),
        ),
    ),
    Item(
        "Table 6",
        "bytes per round",
        "same",
        partial(rows_of, CLIENTS, "methods"),
        (CLIENTS,),
        claims=(claim("Messages have the printed sizes", measured.message_sizes),),
    ),
    Item(
        "Table 7",
        "seconds of a client",
        "substitute: another machine",
        partial(rows_of, CLIENTS, "methods"),
        (CLIENTS,),
        claims=(
            claim("Every method takes at most a tenth of a second", measured.client_times, ""),
            claim("FedTemp is the slowest", measured.client_times, "temp"),
        ),
    ),
    item(
        "Figure 1a",
        "naive binning by skew",
        "1a",
        "cifar10",
        *twice("1a", "FedBin cannot have a low cwECE and its accuracy kept under skew", measured.naive_binning),
    ),
    Item(
        "Figure 1b",
        "binning by clients alone",
        LOGITS,
        partial(measured.runs_of, ALONE),
        (ALONE,),
        claims=(claim("It helps at home and hurts elsewhere", measured.local_overfitting, ("FedBin",)),),
    ),
    Item(
        "Figure 1c",
        "scaling by clients alone",
        LOGITS,
        partial(measured.runs_of, ALONE),
        (ALONE,),
        claims=(
            claim("Vector and matrix scaling overfit", measured.local_overfitting, ("FedVector", "FedMatrix")),
            claim("FedTemp keeps accuracy", measured.local_overfitting, (), ("FedTemp",)),
            claim("FedOPVector keeps accuracy", measured.local_overfitting, (), ("FedOPVector",)),
        ),
    ),
    item("Figure 2a", "cwECE by rounds", "2ab", "cifar10", *twice("2ab", OVERTAKES, measured.binning_overtakes)),
    item("Figure 2b", "accuracy after one round", "2ab", "cifar10", *twice("2ab", KEPT, measured.accuracy_by_rounds)),
    item(
        "Figure 2c",
        "cwECE by skew",
        "2c",
        "cifar10",
        *twice("2c", "Binning is below FedTemp", measured.skew_hardly_matters),
    ),
    item("Figure 3a", "cwECE by epsilon", "3ab", "cifar10", *twice("3ab", RESILIENT, measured.noise)),
    item("Figure 3b", "accuracy by epsilon", "3ab", "cifar10", *twice("3ab", KEPT, measured.noise_and_accuracy)),
    item("Figure 3c", "rounds and epsilon", "9", "cifar100", claim(IMPROVES, measured.rounds_and_noise, "cifar100")),
    item(
        "Figure 4a",
        "bins, one round",
        "4a",
        "cifar100",
        claim("Weighted FedBBQ varies less with the bins and is lower", measured.bins_hardly_matter),
    ),
    item(
        "Figure 4b",
        "bins and rounds",
        "4b",
        "cifar100",
        claim("Too many bins cost accuracy", measured.bins_and_rounds, "4b"),
    ),
    item(
        "Figure 4c",
        "bins and rounds, private",
        "4c",
        "cifar100",
        claim("Few bins are bad under noise", measured.bins_and_rounds, "4c"),
    ),
    item(
        "Figure 5",
        "CIFAR-100 without privacy",
        "2ab",
        "cifar100",
        claim(OVERTAKES, measured.binning_overtakes, "cifar100"),
        claim(f"{KEPT}, one round", measured.accuracy_by_rounds, "cifar100"),
    ),
    Item(
        "Figure 6",
        "MNIST without privacy",
        "same, a CNN trained by FedAvg with local Adam",
        partial(measured.size, "2ab", dataset="mnist"),
        (FILE,),
        claims=(
            claim(OVERTAKES, measured.binning_overtakes, "mnist"),
            claim(f"{KEPT}, one round", measured.accuracy_by_rounds, "mnist"),
        ),
    ),
    *OWN_SKEW,
    Item(
        "Figure 7",
        "FEMNIST and Shakespeare",
        "substitute: roles of fewer plays for LEAF's; FEMNIST is missing" + clients.writers_word(),
        clients.size_of_natural_clients,
        (ROLES, "base_models/shakespeare.csv", *clients.writers_files()),
        claims=(
            *clients.writers_claims(),
            claim("On Shakespeare no method improves over the base model", clients.nothing_improves_roles),
        ),
    ),
    item(
        "Figure 8ab",
        "CIFAR-100 by epsilon",
        "3ab",
        "cifar100",
        claim(RESILIENT, measured.noise, "cifar100"),
        claim("With little noise FedBBQ is best", measured.binning_wins_with_little_noise, "cifar100"),
    ),
    item(
        "Figure 8c",
        "clips of histograms",
        "8c",
        "cifar100",
        claim("The clip of positives matters most and should be small", measured.clips_of_binning),
    ),
    Item(
        "Figure 9",
        "rounds and epsilon",
        f"{BOTH}; FEMNIST is missing",
        partial(measured.size, "9"),
        (FILE,),
        claims=(
            *twice("9", f"{IMPROVES}, CIFAR-10", measured.rounds_and_noise),
            claim(f"{IMPROVES}, CIFAR-100", measured.rounds_and_noise, "cifar100"),
        ),
    ),
    item(
        "Figure 10",
        "ECE against cwECE",
        "2ab",
        "cifar10",
        *twice("2ab", "By ECE binning and scaling are alike, by cwECE binning is better", measured.top_label_hides_it),
    ),
    item(
        "Figure 11",
        "clip of FedTemp",
        "11",
        "cifar10",
        *twice("11", "A clip helps over some rounds and hurts in the first", measured.clip_of_temperature),
    ),
)
